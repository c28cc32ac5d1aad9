// Captions that look wrong: pairs that surprise the model most.

import { h } from "./dom.js";
import { thumbnail } from "./thumbnails.js";
import { count, plural, textsOf } from "./words.js";

function suspect(row, openDocument) {
  const texts = textsOf(row);
  const better = row.best_text_id ?? null;
  return h(
    "li",
    { class: "suspect" },
    h(
      "button",
      { type: "button", class: "suspect-open", onclick: () => openDocument(row) },
      h("span", { class: "suspect-picture" }, row.thumbnail ? thumbnail(row.thumbnail, "", true) : h("span", { class: "tile-text" }, String(row.id))),
      h(
        "span",
        { class: "suspect-words" },
        h("span", { class: "row-text" }, texts[0] || String(row.id)),
        texts.slice(1, 2).map((text) => h("span", { class: "row-more" }, text)),
        h("span", { class: "why-note" }, better === null || better === row.id ? row.id : `${row.id}; the text of ${better} fits better`),
      ),
    ),
  );
}

/** `openDocument(row)` shows a document in the drawer. */
export function auditView(audit, openDocument) {
  const lead = audit.n_suspects
    ? `${plural(audit.n_suspects, "pair")} of ${count(audit.n_pairs)} look as if picture and text do not belong together. The most surprising first; some will be right.`
    : `None of ${plural(audit.n_pairs, "pair")} stands out. These surprise the model most.`;
  return h(
    "section",
    { class: "report-part" },
    h("h2", {}, "Captions that look wrong"),
    h("p", { class: "lead" }, lead),
    h("ul", { class: "suspects" }, audit.rows.map((row) => suspect(row, openDocument))),
  );
}
