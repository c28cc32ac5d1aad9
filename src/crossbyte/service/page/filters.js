// Filters from the fields of the payloads, with counts.

import { getFacets } from "./api.js";
import { byId, h, icon } from "./dom.js";
import { readableField, toWhere } from "./where.js";
import { count, short } from "./words.js";

const valueName = (value) => (typeof value === "boolean" ? (value ? "yes" : "no") : String(value));

/** The choice of a field with one value more, or less if it was there; null when nothing is left. */
export function toggled(choice, value) {
  const values = choice?.values || [];
  const rest = values.includes(value) ? values.filter((each) => each !== value) : [...values, value];
  return rest.length ? { values: rest } : null;
}

/** The same filters with another choice of one field (null: none). */
export function withChoice(filters, field, choice) {
  const fields = new Map(filters.fields);
  if (choice) fields.set(field, choice);
  else fields.delete(field);
  return { ...filters, fields };
}

/** Counts of every field; those of a field that is filtered are taken without its own filter, so that one can add. */
export async function fetchFacets(filters, signal) {
  const all = await getFacets({ where: toWhere(filters) }, signal);
  const own = await Promise.all(
    [...filters.fields.keys()].map((field) => getFacets({ where: toWhere(filters, field), fields: field }, signal)),
  );
  const replaced = new Map(own.flatMap((answer) => answer.facets).map((facet) => [facet.field, facet]));
  const facets = all.facets.map((facet) => replaced.get(facet.field) || facet);
  const shown = new Set(facets.map((facet) => facet.field));
  return [...facets, ...[...replaced.values()].filter((facet) => !shown.has(facet.field))];
}

function chip(facet, { value, count: number }, choice, change) {
  const isOn = Boolean(choice?.values?.includes(value));
  return h(
    "button",
    {
      type: "button",
      class: "chip",
      "aria-pressed": String(isOn),
      "data-key": `${facet.field}=${valueName(value)}`,
      onclick: () => change(facet.field, (now) => toggled(now, value)),
    },
    h("span", { class: "chip-name" }, valueName(value)),
    h("span", { class: "chip-count" }, count(number)),
  );
}

function chips(facet, choice, change) {
  const listed = facet.values.map((each) => chip(facet, each, choice, change));
  const missing = (choice?.values || []).filter((value) => !facet.values.some((each) => each.value === value));
  const chosen = missing.map((value) => chip(facet, { value, count: 0 }, choice, change));
  const others = facet.others > 0 ? h("span", { class: "others" }, `and ${count(facet.others)} others`) : null;
  return h("div", { class: "chips" }, listed, chosen, others);
}

function bound(facet, name, choice, change) {
  const input = h("input", {
    type: "number",
    step: "any",
    inputmode: "decimal",
    placeholder: facet[name] === null ? "" : short(facet[name]),
    "aria-label": `${readableField(facet.field)}, ${name === "low" ? "at least" : "at most"}`,
    "data-key": `${facet.field}:${name}`,
  });
  input.value = choice?.[name] ?? "";
  input.addEventListener("change", () => {
    change(facet.field, (now) => {
      const given = { low: now?.low ?? null, high: now?.high ?? null };
      given[name] = input.value === "" ? null : Number(input.value);
      return given.low === null && given.high === null ? null : given;
    });
  });
  return input;
}

function range(facet, choice, change) {
  return h("div", { class: "range" }, bound(facet, "low", choice, change), h("span", {}, "to"), bound(facet, "high", choice, change));
}

function fieldset(facet, filters, change) {
  const choice = filters.fields.get(facet.field);
  const body = facet.kind === "number" ? range(facet, choice, change) : chips(facet, choice, change);
  return h("fieldset", { class: "facet" }, h("legend", {}, readableField(facet.field)), body);
}

/** Whether somebody is in the middle of a number: drawing anew would take it away. */
function isBeingTyped(panel, filters) {
  const input = document.activeElement;
  if (!panel.contains(input) || input.type !== "number") return false;
  const [, field, name] = input.dataset.key.match(/^(.*):(low|high)$/s);
  return input.value !== String(filters.fields.get(field)?.[name] ?? "");
}

/** Draw the panel; `change(field, update)` with update(choice) → choice. The control in use keeps the focus. */
export function showFacets(facets, filters, change) {
  const panel = byId("filters");
  if (isBeingTyped(panel, filters)) return;
  const key = panel.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  panel.replaceChildren(...facets.map((facet) => fieldset(facet, filters, change)));
  if (key) [...panel.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key)?.focus();
}

function words(field, choice) {
  const name = readableField(field);
  if (choice.values) return `${name}: ${choice.values.map(valueName).join(", ")}`;
  if (choice.low === null) return `${name} at most ${choice.high}`;
  if (choice.high === null) return `${name} at least ${choice.low}`;
  return `${name} ${choice.low} to ${choice.high}`;
}

function activeChip(text, remove) {
  return h(
    "li",
    {},
    h(
      "button",
      { type: "button", class: "chip on", "aria-label": `Remove the filter ${text}`, onclick: remove },
      h("span", { class: "chip-name" }, text),
      icon("close"),
    ),
  );
}

/** The filters that are on, each with a way to take it off; `set(filters)`. */
export function showActive(filters, set) {
  const items = [...filters.fields].map(([field, choice]) =>
    activeChip(words(field, choice), () => set(withChoice(filters, field, null))),
  );
  if (filters.custom) items.unshift(activeChip(filters.custom, () => set({ ...filters, custom: "" })));
  byId("active").replaceChildren(...items);
}
