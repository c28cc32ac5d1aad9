// Hits and documents as a picture grid, a list of texts, or cards.

import { byId, h, icon, unseen } from "./dom.js";
import { layGrid } from "./grid.js";
import { thumbnail, whenShaped } from "./thumbnails.js";
import { count, sourceText, strengthText, textsOf, titleOf } from "./words.js";

const PATIENCE = 160; // milliseconds to wait for the shapes of new pictures
const EAGER = 30; // pictures that are fetched at once; the others when they come near

/** How sure a hit is and what found it, in two words, or in a sentence where there is room; null where neither is known. */
export function matchLabel(hit, { isWhole = false } = {}) {
  const shown = [hit.strength === "nothing" ? "no match" : hit.strength, hit.found_by].filter(Boolean);
  if (!shown.length) return null;
  const whole = [strengthText(hit.strength), sourceText(hit.found_by)].filter(Boolean).join(", ");
  if (isWhole) return h("p", { class: `match ${hit.strength ?? ""}` }, whole);
  return h(
    "span",
    { class: `match ${hit.strength ?? ""}`, title: whole },
    h("span", { "aria-hidden": "true" }, shown.join(" · ")),
    unseen(whole),
  );
}

function action(name, label, iconName) {
  return h(
    "button",
    { type: "button", class: "quiet small", "data-act": name, title: label, "aria-label": label, tabindex: "-1" },
    icon(iconName),
  );
}

/** For the mouse; the drawer has the same for everybody. */
function hoverActions(hit, info) {
  return h(
    "span",
    { class: "tile-actions" },
    action("alike", `More like this: ${titleOf(hit)}`, "alike"),
    info.texts > 0 && action("text", `Texts for this: ${titleOf(hit)}`, "texts"),
  );
}

function pictureTile(hit, place, info) {
  const title = titleOf(hit);
  const face = hit.thumbnail
    ? [thumbnail(hit.thumbnail, title, place >= EAGER), h("span", { class: "tile-title", "aria-hidden": "true" }, h("span", {}, title))]
    : [h("span", { class: "tile-text" }, title)];
  return h(
    "li",
    { class: "tile", "data-place": place, "data-thumbnail": hit.thumbnail },
    h(
      "button",
      { type: "button", class: "open tile-open" },
      h("span", { class: "tile-picture" }, face),
      matchLabel(hit),
    ),
    hoverActions(hit, info),
  );
}

function textRow(hit, place) {
  const texts = textsOf(hit);
  const more = texts.slice(1, 3).map((text) => h("span", { class: "row-more" }, text));
  const rest = texts.length > 3 ? h("span", { class: "row-more" }, `and ${count(texts.length - 3)} more`) : null;
  return h(
    "li",
    { class: "row", "data-place": place },
    h(
      "button",
      { type: "button", class: "open row-open" },
      h("span", { class: "row-words" }, h("span", { class: "row-text" }, titleOf(hit)), more, rest),
      matchLabel(hit),
      h("span", { class: "row-picture" }, hit.thumbnail && thumbnail(hit.thumbnail, "", true)),
    ),
  );
}

/** A few values that tell documents apart at a glance. */
function glance(payload) {
  const taken = new Set(["captions", "caption", "text", "title", "label", "name", "description"]);
  return Object.entries(payload || {})
    .filter(([key, value]) => !taken.has(key) && ["string", "number"].includes(typeof value) && String(value).length <= 40)
    .slice(0, 4)
    .map(([key, value]) => h("span", { class: "tag", title: key }, value));
}

function card(hit, place) {
  const texts = textsOf(hit);
  return h(
    "li",
    { class: "card", "data-place": place },
    h(
      "button",
      { type: "button", class: "open card-open" },
      hit.thumbnail && h("span", { class: "card-picture" }, thumbnail(hit.thumbnail, "", place >= EAGER)),
      h(
        "span",
        { class: "card-words" },
        h("span", { class: "row-text" }, titleOf(hit)),
        texts.slice(1, 2).map((text) => h("span", { class: "row-more" }, text)),
        h("span", { class: "tags" }, glance(hit.payload)),
        matchLabel(hit),
      ),
    ),
  );
}

const SHAPES = { image: ["grid", pictureTile], text: ["rows", textRow], document: ["cards", card] };

/** Show hits as pictures, texts or documents, or add them to those that are there. */
export async function showResults(hits, kind, info, { from = 0, isStale = () => false } = {}) {
  const list = byId("results");
  const [shape, make] = SHAPES[kind === "image" && !info.thumbnails ? "document" : kind];
  const items = hits.slice(from).map((hit, place) => make(hit, place + from, info));
  if (shape === "grid") await whenShaped(items.flatMap((item) => [...item.querySelectorAll("img")]), PATIENCE);
  if (isStale()) return false;
  list.className = `results ${shape}`;
  if (from) list.append(...items);
  else list.replaceChildren(...items);
  if (shape === "grid") layGrid(list);
  return true;
}

/** The pictures keep filling the width when it changes. */
export function watchWidth() {
  const list = byId("results");
  let width = 0;
  new ResizeObserver(() => {
    if (list.clientWidth === width || !list.classList.contains("grid")) return;
    width = list.clientWidth;
    layGrid(list);
  }).observe(list);
}
