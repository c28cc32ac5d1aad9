// What the page has to say above the results: nothing matches, nothing there, or an error, in plain words.

import { byId, h } from "./dom.js";
import { verdictText } from "./words.js";

/** An error of the server as a paragraph or two. */
export function errorText(error) {
  return h(
    "div",
    { class: "error-text" },
    h("p", { class: (error.message || "").includes("\n") && "pointing" }, error.message || "Something went wrong."),
    error.hint && h("p", { class: "hint" }, error.hint),
  );
}

export function clearNotice() {
  byId("notice").replaceChildren();
}

function notice(kind, title, ...more) {
  byId("notice").replaceChildren(h("div", { class: `notice ${kind}` }, h("p", { class: "notice-title" }, title), more));
}

export function showError(error, retry) {
  const again = h("button", { type: "button", class: "button", onclick: retry }, "Try again");
  byId("notice").replaceChildren(h("div", { class: "notice error", role: "alert" }, errorText(error), retry && again));
}

export const PARTIAL = "Part of the collection cannot be reached right now, so something may be missing.";

/** Say it as long as answers come without a lost shard; it comes back by itself. */
export function showPartial(isPartial, again) {
  const button = h("button", { type: "button", class: "link", onclick: again }, "Ask again");
  byId("partial").hidden = !isPartial;
  byId("partial").replaceChildren(...(isPartial ? [PARTIAL, " ", button] : []));
}

export function showNoMatch() {
  notice("calm", "Nothing here seems to match.", h("p", {}, "These are the nearest, but none of them is likely to be what you mean."));
}

/** Say how sure an answer is, and which words no caption has; nothing of documents that were not asked for. */
export function showVerdict(found) {
  const verdict = verdictText(found.verdict);
  const unknown = found.unknown_words?.length ? `No caption has: ${found.unknown_words.join(", ")}` : "";
  const isSaid = found.hits.length > 0 && verdict !== "" && found.verdict !== "nothing"; // a notice says that
  byId("verdict").hidden = !isSaid && !unknown;
  byId("verdict").replaceChildren(...(isSaid ? [h("span", { class: `match ${found.verdict}` }, verdict)] : []), unknown);
}

/** Nothing to show: `byWords` where words alone were asked, which find only captions that have them. */
export function showNothing(byWords, isFiltered, clearFilters) {
  const button = isFiltered && h("button", { type: "button", class: "button", onclick: clearFilters }, "Clear the filters");
  if (byWords) {
    const which = isFiltered ? "No caption that passes the filters" : "No caption";
    return notice("calm", "Nothing found.", h("p", {}, `${which} has these words. Compare by both to see what is near.`), button);
  }
  if (!isFiltered) return notice("calm", "There is nothing here yet.", h("p", {}, "Add documents with crossbyte add."));
  return notice("calm", "No document passes these filters.", button);
}

export function showHint(text) {
  notice("calm", text);
}
