// The page as a whole: what is asked, the answer to it, and who gets to know.

import * as api from "./api.js";
import { boxHint, showBox } from "./box.js";
import { announce, byId } from "./dom.js";
import { closeDrawer, openDrawer, setOpener } from "./drawer.js";
import { fetchFacets, showActive, showFacets, toggled, withChoice } from "./filters.js";
import { startKeyboard } from "./keyboard.js";
import { clearNotice, PARTIAL, showError, showHint, showNoMatch, showNothing, showPartial, showVerdict } from "./notices.js";
import { startPictures } from "./pictures.js";
import { showReport } from "./report.js";
import { showResults, watchWidth } from "./results.js";
import { debounced, Session } from "./session.js";
import { EMPTY, fromAddress, queryKind, queryOf, writeAddress } from "./state.js";
import { statusLine, summaryLine } from "./status.js";
import { startTheme } from "./theme.js";
import { showModes, showSegments, showTabs, toggleFilters } from "./views.js";
import { fromWhere, toWhere } from "./where.js";
import { plural, titleOf, verdictText } from "./words.js";

const PAGE = 36; // results at first, and more with every "show more"
const PAUSE = 60; // milliseconds without a new letter before asking

const NOUNS = { image: "picture", text: "text", document: "document" };

const asking = new Session();
const counting = new Session();
let info = null;
let reporting = Promise.resolve(null); // what was measured, for those who wait
let state = { ...EMPTY };
let answer = { hits: [], kind: "image", query: null, next: null, k: PAGE };
let likeShown = null; // {id, label, thumbnail} of the document that stands for the query
let isTyping = false; // letters of one query share one entry of the history

// What is asked

/** What suits the query where nothing was chosen: pictures for words, texts for a picture. */
function targetOf(asked) {
  if (asked.target) return asked.target;
  const wanted = queryKind(asked) === "picture" ? "text" : "image";
  if (wanted === "text") return info.texts > 0 ? "text" : "image";
  return info.images > 0 ? "image" : "text";
}

/** Change what is asked, and answer it. */
function ask(change, { goesOn = false } = {}) {
  state = { ...state, tab: "search", ...change };
  writeAddress(state, goesOn);
  closeDrawer();
  show();
}

const askWords = debounced(() => {
  const text = byId("words").value;
  const isOther = queryKind(state) !== "text";
  ask({ text, like: null, picture: null, target: isOther ? null : state.target }, { goesOn: isTyping });
  isTyping = true;
}, PAUSE);

function askPicture(picture) {
  if (!info) return;
  if (!info.encoders.image) return showHint("This index cannot be asked with a picture: it has no encoder for pictures.");
  if (picture.size > info.limits.upload_bytes) {
    const limit = Math.floor(info.limits.upload_bytes / 2 ** 20);
    return showHint(`This picture is too large. The server takes pictures of up to ${limit} MB.`);
  }
  isTyping = false;
  byId("words").value = "";
  return ask({ text: "", like: null, picture, target: null });
}

function askLike(document, target) {
  const verb = { image: "Pictures for", text: "Texts for", document: "Like" }[target];
  likeShown = { id: document.id, label: `${answer.kind === target ? "Like" : verb} “${titleOf(document)}”`, thumbnail: document.thumbnail };
  isTyping = false;
  byId("words").value = "";
  window.scrollTo({ top: 0 });
  ask({ text: "", like: document.id, picture: null, target });
}

/** `update` gets the choice of a field as it is now: two clicks may be faster than the answer to the first. */
function changeFilter(field, update) {
  const filters = fromWhere(state.where);
  setFilters(withChoice(filters, field, update(filters.fields.get(field))));
}

function setFilters(filters) {
  ask({ where: toWhere(filters) });
}

// The answer

async function fetchHits(query, target, k, signal) {
  const isLike = query.like !== undefined;
  const options = { target, k: Math.min(info.limits.k, k + (isLike ? 1 : 0)) };
  if (state.where) options.where = state.where;
  if (state.mode && query.text !== undefined && info.word_fields.length) options.mode = state.mode;
  const found = await api.search(query, options, signal);
  const hits = isLike ? found.hits.filter((hit) => hit.id !== query.like).slice(0, k) : found.hits;
  return { ...found, hits, next: hits.length >= k && k < info.limits.k };
}

async function fetchDocuments(after, signal) {
  const found = await api.getDocuments({ where: state.where, after, limit: PAGE }, signal);
  return { hits: found.documents, next: found.next };
}

function busy(isBusy) {
  byId("box").classList.toggle("busy", isBusy);
  byId("results").setAttribute("aria-busy", String(isBusy));
}

function sayFound(found, target) {
  const { hits } = found;
  showPartial(found.partial, run);
  showVerdict(found);
  if (!hits.length && found.partial) clearNotice();
  else if (!hits.length) showNothing(answer.query?.text !== undefined && state.mode === "words" && info.word_fields.length > 0, Boolean(state.where), () => ask({ where: "" }));
  else if (found.verdict === "nothing") showNoMatch();
  else if (!answer.query && boxHint(info)) showHint(boxHint(info));
  else clearNotice();
  byId("more").hidden = !found.next;
  byId("summary").textContent = summaryLine(found, answer, info, state.where);
  const noun = answer.query ? NOUNS[target] : "document";
  const verdict = verdictText(found.verdict);
  announce(`${found.partial ? `${PARTIAL} ` : ""}${verdict && `${verdict}. `}${plural(hits.length, noun)} shown`);
}

async function run() {
  const { signal, isStale } = asking.begin();
  const query = queryOf(state);
  const target = targetOf(state);
  const slow = setTimeout(() => busy(true), 180);
  try {
    const found = query ? await fetchHits(query, target, PAGE, signal) : await fetchDocuments(null, signal);
    if (isStale()) return;
    if (!(await showResults(found.hits, target, info, { isStale }))) return;
    answer = { hits: found.hits, kind: target, query, next: found.next, k: PAGE };
    sayFound(found, target);
  } catch (error) {
    if (error.name !== "AbortError" && !isStale()) fail(error, run);
  } finally {
    clearTimeout(slow);
    if (!isStale()) busy(false);
  }
}

async function showMore() {
  const { signal, isStale } = asking.begin();
  const from = answer.hits.length;
  try {
    const found = answer.query
      ? await fetchHits(answer.query, answer.kind, answer.k + PAGE, signal)
      : await fetchDocuments(answer.next, signal);
    const hits = answer.query ? found.hits : [...answer.hits, ...found.hits];
    if (!(await showResults(hits, answer.kind, info, { from, isStale }))) return;
    answer = { ...answer, hits, next: found.next, k: answer.k + PAGE };
    showPartial(found.partial, run);
    byId("more").hidden = !found.next;
    byId("summary").textContent = summaryLine({ ...found, hits }, answer, info, state.where);
    announce(`${plural(hits.length, NOUNS[answer.kind])} shown`);
    byId("results").children[from]?.querySelector(".open").focus({ preventScroll: true });
  } catch (error) {
    if (error.name !== "AbortError" && !isStale()) fail(error, showMore);
  }
}

function fail(error, retry) {
  const isTemporary = error.status === 0 || error.status >= 429;
  showError(error, isTemporary ? retry : null);
  showPartial(false);
  byId("verdict").hidden = true;
  byId("summary").textContent = "";
  announce(error.message);
}

async function count() {
  const { signal, isStale } = counting.begin();
  const filters = fromWhere(state.where);
  showActive(filters, setFilters);
  try {
    const facets = await fetchFacets(filters, signal);
    if (isStale()) return;
    byId("filters-toggle").hidden = facets.length === 0;
    showFacets(facets, filters, changeFilter);
  } catch {
    // A filter that the server refuses is said by the search itself.
  }
}

// One result

function openPlace(place) {
  const hit = answer.hits[place];
  if (!hit) return;
  const tile = byId("results").children[place];
  openDrawer(hit, {
    ...drawerContext(place, answer.hits.length),
    kind: answer.kind,
    query: answer.query,
    step: (by) => {
      if (answer.hits[place + by]) openPlace(place + by);
    },
  });
  setOpener(tile.querySelector(".open"));
  for (const each of byId("results").querySelectorAll(".shown")) each.classList.remove("shown");
  tile.classList.add("shown");
  tile.scrollIntoView({ block: "nearest" });
}

const drawerContext = (place, n) => ({
  place,
  n,
  info,
  fields: Object.keys(info.fields),
  kind: info.images > 0 ? "image" : "text",
  query: null,
  step: () => {},
  close: closeShown,
  ask: askLike,
  filter: (field, value) => changeFilter(field, (choice) => toggled(choice, value)),
  searchWord: (word) => {
    isTyping = false;
    ask({ text: word, like: null, picture: null, target: null });
  },
});

/** A document of the report: there is no query that it could be explained with. */
const openDocument = (document) => openDrawer(document, drawerContext(0, 1));

function closeShown() {
  for (const each of byId("results").querySelectorAll(".shown")) each.classList.remove("shown");
  return closeDrawer();
}

// Everything on the page

/** The document behind a shared "more like this" is looked up; its id will do meanwhile. */
async function lookUpLike() {
  const id = state.like;
  likeShown = { id, label: `Like “${id}”`, thumbnail: null };
  try {
    const found = await api.getDocument(id);
    if (state.like !== id) return;
    likeShown = { id, label: `Like “${titleOf(found)}”`, thumbnail: found.thumbnail };
    showBox(state, queryKind(state), info, likeShown);
  } catch {
    // The search itself says that there is no such document.
  }
}

function show() {
  if (state.like !== null && likeShown?.id !== state.like) lookUpLike();
  showTabs(state, info);
  showBox(state, queryKind(state), info, likeShown);
  if (state.tab === "report") {
    showReport(reporting, openDocument);
    return;
  }
  showSegments(targetOf(state), info);
  showModes(state, info);
  run();
  count();
}

function goTo(event) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  isTyping = false;
  const link = event.currentTarget;
  if (link.id === "home") state = { ...EMPTY };
  else state = { ...state, tab: link.dataset.tab };
  writeAddress(state, false);
  closeDrawer();
  show();
}

function clearQuery() {
  isTyping = false;
  byId("words").value = "";
  ask({ text: "", like: null, picture: null, target: null });
  byId("words").focus();
}

function onResultClick(event) {
  const item = event.target.closest("[data-place]");
  if (!item) return;
  const place = Number(item.dataset.place);
  const act = event.target.closest("[data-act]")?.dataset.act;
  if (act) askLike(answer.hits[place], act === "text" ? "text" : answer.kind);
  else if (event.target.closest(".open")) openPlace(place);
}

function startBox() {
  const words = byId("words");
  words.addEventListener("input", askWords);
  words.addEventListener("blur", () => {
    isTyping = false;
  });
  byId("box").addEventListener("submit", (event) => {
    event.preventDefault();
    askWords();
    isTyping = false;
  });
  byId("query-clear").addEventListener("click", clearQuery);
}

function startControls() {
  byId("results").addEventListener("click", onResultClick);
  byId("more").addEventListener("click", showMore);
  byId("segments").addEventListener("change", (event) => ask({ target: event.target.value }));
  byId("modes").addEventListener("change", (event) => ask({ mode: event.target.value === "both" ? null : event.target.value }));
  byId("filters-toggle").addEventListener("click", toggleFilters);
  for (const link of [byId("home"), ...document.querySelectorAll("[data-tab]")]) link.addEventListener("click", goTo);
  window.addEventListener("popstate", () => {
    isTyping = false;
    state = fromAddress();
    closeDrawer();
    show();
  });
}

/** Wanted by the quality tab; no search waits for it. */
function fetchReport() {
  reporting = api.getReport().catch(() => null);
}

async function start() {
  try {
    info = await api.getInfo();
  } catch (error) {
    showError(error, start);
    return;
  }
  clearNotice();
  byId("status").textContent = statusLine(info);
  startBox();
  startControls();
  startKeyboard({ close: closeShown, step: (by) => byId("drawer").querySelectorAll(".drawer-head button")[by < 0 ? 0 : 1]?.click(), clear: clearQuery });
  startPictures(askPicture, showHint);
  watchWidth();
  if (info.calibrated) fetchReport();
  state = fromAddress();
  show();
}

startTheme();
start();
