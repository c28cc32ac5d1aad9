// What is asked, as one value, and its form in the address: so that back works and a search can be shared.
// A picture cannot stand in an address; it is remembered as long as the page lives.

const pictures = new Map();

/**
 * tab: "search" | "report"; text: string; like: id or null; picture: File or null;
 * target: "image" | "text" | "document" | null (what suits the query); where: filter text;
 * mode: "words" | "vectors" | null (both, where there are words).
 */
export const EMPTY = { tab: "search", text: "", like: null, picture: null, target: null, where: "", mode: null };

export function queryKind(state) {
  if (state.picture) return "picture";
  if (state.like !== null) return "like";
  return state.text.trim() ? "text" : "browse";
}

/** The query as the server gets it; null for browsing. */
export function queryOf(asked) {
  const kind = queryKind(asked);
  if (kind === "browse") return null;
  if (kind === "picture") return { picture: asked.picture };
  return kind === "like" ? { like: asked.like } : { text: asked.text };
}

function likeOf(parameters) {
  if (parameters.has("like")) return parameters.get("like");
  return parameters.has("like_number") ? Number(parameters.get("like_number")) : null;
}

export function fromAddress() {
  const parameters = new URLSearchParams(window.location.search);
  const target = parameters.get("target");
  const mode = parameters.get("mode");
  return {
    tab: parameters.get("tab") === "report" ? "report" : "search",
    text: parameters.get("q") || "",
    like: likeOf(parameters),
    picture: pictures.get(window.history.state?.picture) ?? null,
    target: ["image", "text", "document"].includes(target) ? target : null,
    where: parameters.get("where") || "",
    mode: ["words", "vectors"].includes(mode) ? mode : null,
  };
}

export function toAddress(state) {
  const parameters = new URLSearchParams();
  if (state.text.trim()) parameters.set("q", state.text);
  // Ids are texts or numbers, and 7 is not "7".
  if (state.like !== null) parameters.set(typeof state.like === "number" ? "like_number" : "like", state.like);
  if (state.target) parameters.set("target", state.target);
  if (state.where) parameters.set("where", state.where);
  if (state.mode) parameters.set("mode", state.mode);
  if (state.tab !== "search") parameters.set("tab", state.tab);
  const text = parameters.toString();
  return text ? `/?${text}` : "/";
}

function remembered(picture) {
  if (!picture) return null;
  const known = [...pictures].find(([, each]) => each === picture);
  if (known) return known[0];
  const key = pictures.size + 1;
  pictures.set(key, picture);
  return key;
}

/** Write the state to the address; a new entry of the history unless it goes on typing the same query. */
export function writeAddress(state, goesOn) {
  const entry = { picture: remembered(state.picture) };
  const address = toAddress(state);
  const same = address === window.location.pathname + window.location.search;
  if (goesOn || (same && entry.picture === (window.history.state?.picture ?? null))) {
    window.history.replaceState(entry, "", address);
  } else {
    window.history.pushState(entry, "", address);
  }
}
