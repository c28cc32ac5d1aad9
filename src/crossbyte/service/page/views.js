// Which view is shown, and what kinds of results there are to choose from.

import { byId } from "./dom.js";
import { queryKind } from "./state.js";

/** Show the search or the report, and say so in the tabs and the title. */
export function showTabs(state, info) {
  const isReport = state.tab === "report";
  byId("view-search").hidden = isReport;
  byId("view-report").hidden = !isReport;
  for (const link of document.querySelectorAll("[data-tab]")) {
    if (link.dataset.tab === state.tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const asked = queryKind(state) === "text" ? `${state.text} – ` : "";
  document.title = `${isReport ? "Quality – " : asked}${info.name} – crossbyte`;
}

/** Mark the kind that is shown, and leave out kinds that this index does not have. */
export function showSegments(target, info) {
  const has = { image: info.images > 0, text: info.texts > 0, document: info.images > 0 && info.texts > 0 };
  for (const radio of byId("segments").querySelectorAll("input")) {
    radio.checked = radio.value === target;
    radio.closest("label").hidden = !has[radio.value];
  }
}

/** Mark what a text is compared by; there is a choice only where the index keeps words. */
export function showModes(state, info) {
  byId("modes").hidden = !info.word_fields.length || queryKind(state) !== "text";
  for (const radio of byId("modes").querySelectorAll("input")) radio.checked = radio.value === (state.mode ?? "both");
}

/** Open or close the filters. */
export function toggleFilters() {
  const panel = byId("filters");
  panel.hidden = !panel.hidden;
  byId("filters-toggle").setAttribute("aria-expanded", String(!panel.hidden));
}
