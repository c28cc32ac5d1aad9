// Elements are built from values. Text goes in as text nodes only, so nothing that comes from data becomes markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** h("button", {class: "pill", onclick: f, "aria-label": "…"}, "text", child, …) */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  return append(element, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  return append(element, children);
}

const PATHS = {
  close: "M6.5 6.5l11 11M17.5 6.5l-11 11",
  alike: "M8 4h12v12M4 8h12v12H4z",
  texts: "M4 6.5h16M4 12h16M4 17.5h10",
  pictures: "M3.5 5.5h17v13h-17zM4 16.5l5-4.5 3.5 3 3-2.5 5 4",
  previous: "M14.5 5.5 8 12l6.5 6.5",
  next: "M9.5 5.5 16 12l-6.5 6.5",
};

export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
}

/** Text that only screen readers get. */
export const unseen = (text) => h("span", { class: "unseen" }, text);

let announcing = 0;

/** Tell screen readers, but not for every letter that is typed. */
export function announce(text) {
  clearTimeout(announcing);
  announcing = setTimeout(() => {
    byId("live").textContent = text;
  }, 400);
}
