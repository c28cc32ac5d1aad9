// Talking with the server: JSON in and out, errors in plain words, a token where the server wants one.

import { askToken } from "./token.js";

export class ApiError extends Error {
  constructor(message, { code = "", hint = "", status = 0 } = {}) {
    super(message);
    this.code = code;
    this.hint = hint;
    this.status = status;
  }
}

const UNREACHABLE = "The server does not answer.";

let token = "";
try {
  token = sessionStorage.getItem("crossbyte-token") || "";
} catch {
  // Storage may be forbidden; the token then lasts as long as the page.
}

export const hasToken = () => token !== "";

function keepToken(value) {
  token = value;
  try {
    sessionStorage.setItem("crossbyte-token", value);
  } catch {
    // As above.
  }
}

async function send(path, options) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  try {
    return await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(UNREACHABLE, { code: "unreachable", hint: "Is crossbyte serve still running?" });
  }
}

let asking = null;

/** Ask for the token, once for however many requests wait for it. */
function renewToken(used) {
  if (token !== used) return Promise.resolve();
  asking ??= askToken(used !== "").then((value) => {
    keepToken(value);
    asking = null;
  });
  return asking;
}

async function sendWithToken(path, options) {
  for (;;) {
    const used = token;
    const response = await send(path, options);
    if (response.status !== 401) return response;
    await renewToken(used);
  }
}

async function refusal(response) {
  let error = {};
  try {
    error = (await response.json()).error || {};
  } catch {
    // Not ours: a proxy may answer with a page of its own.
  }
  const message = error.message || `The server answered with an error (${response.status}).`;
  return new ApiError(message, { code: error.code, hint: error.hint, status: response.status });
}

function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

async function answer(path, options) {
  const response = await sendWithToken(path, options);
  if (!response.ok) throw await refusal(response);
  return response.json();
}

const get = (path, query, signal) => answer(address(path, query), { signal });

const post = (path, body, signal) =>
  answer(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

function upload(path, query, picture, signal) {
  const form = new FormData();
  form.append("image", picture, picture.name || "picture");
  return answer(address(path, query), { method: "POST", body: form, signal });
}

export const getInfo = () => get("/v1/info");

export const getDocuments = (query, signal) => get("/v1/documents", query, signal);

export const getDocument = (id) => get("/v1/document", { id });

export const getFacets = (query, signal) => get("/v1/facets", query, signal);

export const getReport = () => get("/v1/report");

export const getAudit = (limit) => get("/v1/audit", { limit });

/** query: {text} | {like} | {picture}; options: {target, k, where, mode}. */
export function search(query, options, signal) {
  if (query.picture) return upload("/v1/search/image", options, query.picture, signal);
  if (query.like !== undefined) return post("/v1/search", { like: query.like, ...options }, signal);
  return get("/v1/search", { text: query.text, ...options }, signal);
}

export function explain(id, query, target, signal) {
  if (query.picture) return upload("/v1/explain/image", { id, target }, query.picture, signal);
  return post("/v1/explain", { id, target, ...query }, signal);
}

/** A thumbnail as a blob: an <img> cannot send the token itself. */
export async function getThumbnail(url) {
  const response = await sendWithToken(url, {});
  if (!response.ok) throw await refusal(response);
  return response.blob();
}
