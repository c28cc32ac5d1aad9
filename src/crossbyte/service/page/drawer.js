// The drawer: one result with everything known about it, what to ask next, and why it was found.

import { explain } from "./api.js";
import { byId, h, icon } from "./dom.js";
import { explanationView } from "./explanation.js";
import { errorText } from "./notices.js";
import { matchLabel } from "./results.js";
import { thumbnail } from "./thumbnails.js";
import { readableField, spellField } from "./where.js";
import { percent, textsOf, titleOf } from "./words.js";

let opener = null; // what had the focus before
let running = null; // the explanation on its way

const isScalar = (value) => ["string", "number", "boolean"].includes(typeof value);

/** Payload values with the fields that the filter language knows them by. */
function entries(payload, keys = []) {
  return Object.entries(payload || {}).flatMap(([key, value]) => {
    const path = [...keys, key];
    if (isScalar(value)) return [{ field: spellField(path), values: [value] }];
    if (Array.isArray(value)) return [{ field: spellField(path), values: value.filter(isScalar) }];
    return value ? entries(value, path) : [];
  });
}

function valueButton(field, value, context) {
  const text = typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
  if (!context.fields.includes(field) || text.length > 80) return h("span", { class: "value" }, text);
  const label = `Only ${readableField(field)}: ${text}`;
  return h("button", { type: "button", class: "value link", title: label, onclick: () => context.filter(field, value) }, text);
}

function facts(hit, context) {
  const texts = new Set(textsOf(hit));
  const rows = entries(hit.payload)
    .map(({ field, values }) => ({ field, values: values.filter((value) => !texts.has(value)) }))
    .filter(({ values }) => values.length);
  const shown = rows.flatMap(({ field, values }) => [
    h("dt", {}, readableField(field)),
    h("dd", {}, values.slice(0, 20).map((value) => valueButton(field, value, context))),
  ]);
  return h("dl", { class: "facts" }, shown, h("dt", {}, "id"), h("dd", {}, h("span", { class: "value" }, hit.id)));
}

function actionButton(label, name, run) {
  return h("button", { type: "button", class: "button", onclick: run }, icon(name), label);
}

function actions(hit, context) {
  const { info, ask, kind } = context;
  return h(
    "div",
    { class: "actions" },
    actionButton("More like this", "alike", () => ask(hit, kind)),
    info.texts > 0 && kind !== "text" && actionButton("Texts for this", "texts", () => ask(hit, "text")),
    info.images > 0 && kind !== "image" && actionButton("Pictures for this", "pictures", () => ask(hit, "image")),
  );
}

/** The probability with its meaning; null where the model was not calibrated. */
function probability(hit) {
  if (hit.probability === null || hit.probability === undefined) return null;
  const meaning = "Probability that this is the one document the query was written for";
  return h("p", { class: "hint probability" }, `${meaning}: ${percent(hit.probability)}`);
}

function head(context) {
  const quiet = (label, name, run, disabled = false) =>
    h("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick: run, disabled }, icon(name));
  return h(
    "div",
    { class: "drawer-head" },
    quiet("Previous result", "previous", () => context.step(-1), context.place === 0),
    quiet("Next result", "next", () => context.step(1), context.place >= context.n - 1),
    h("span", { class: "drawer-place" }, `${context.place + 1} of ${context.n}`),
    quiet("Close", "close", () => context.close()),
  );
}

async function showWhy(hit, context, section) {
  running?.abort();
  running = new AbortController();
  try {
    const why = await explain(hit.id, context.query, context.kind, running.signal);
    section.replaceChildren(h("h3", {}, "Why it is here"), explanationView(why, context.searchWord));
  } catch (error) {
    if (error.name !== "AbortError") section.replaceChildren(h("h3", {}, "Why it is here"), errorText(error));
  }
  section.removeAttribute("aria-busy");
}

/**
 * Open the drawer on a hit. `context`: place, n, info, fields, kind (of the results), query (null when browsing) and what to do:
 * step(±1), close(), ask(hit, target), filter(field, value), searchWord(word).
 */
export function openDrawer(hit, context) {
  const drawer = byId("drawer");
  if (drawer.hidden) opener = document.activeElement;
  const texts = textsOf(hit);
  const why = context.query && h("section", { class: "drawer-why", "aria-busy": "true" }, h("p", { class: "hint" }, "Taking the distance apart …"));
  const title = h("h2", { id: "drawer-title", tabindex: "-1" }, titleOf(hit));
  drawer.replaceChildren(
    head(context),
    h(
      "div",
      { class: "drawer-body" },
      hit.thumbnail ? h("div", { class: "drawer-picture" }, thumbnail(hit.thumbnail, titleOf(hit))) : "",
      title,
      texts.length > 1 ? h("ul", { class: "captions" }, texts.slice(1).map((text) => h("li", {}, text))) : "",
      matchLabel(hit, { isWhole: true }) || "",
      probability(hit) || "",
      actions(hit, context),
      why || "",
      facts(hit, context),
    ),
  );
  drawer.hidden = false;
  document.body.classList.add("with-drawer");
  drawer.scrollTop = 0;
  title.focus({ preventScroll: true });
  if (why) showWhy(hit, context, why);
}

/** Close it; returns whether it was open. The focus goes back to where it was. */
export function closeDrawer() {
  const drawer = byId("drawer");
  if (drawer.hidden) return false;
  running?.abort();
  drawer.hidden = true;
  drawer.replaceChildren();
  document.body.classList.remove("with-drawer");
  if (opener?.isConnected) opener.focus({ preventScroll: true });
  opener = null;
  return true;
}

/** After a step the focus goes back to the result that is shown now. */
export function setOpener(element) {
  opener = element;
}
