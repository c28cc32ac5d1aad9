// Small line charts as SVG: axes, lines with intervals, dots, and a legend.

import { h, svg } from "./dom.js";

const WIDTH = 460;
const HEIGHT = 280;
const EDGE = { left: 46, right: 16, top: 14, bottom: 42 };

const scaleOf = (low, high, from, to, bend) => {
  const a = bend(low);
  const b = bend(high);
  return (value) => from + ((bend(value) - a) / (b - a || 1)) * (to - from);
};

function axes(chart, x, y) {
  const bottom = HEIGHT - EDGE.bottom;
  const lines = chart.y.ticks.map((tick) => svg("line", { class: "grid", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(tick), y2: y(tick) }));
  const left = chart.y.ticks.map((tick) => svg("text", { class: "tick", x: EDGE.left - 8, y: y(tick) + 4, "text-anchor": "end" }, chart.y.name(tick)));
  const under = chart.x.ticks.map((tick) => svg("text", { class: "tick", x: x(tick), y: bottom + 18, "text-anchor": "middle" }, chart.x.name(tick)));
  const title = svg("text", { class: "axis", x: (EDGE.left + WIDTH - EDGE.right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, chart.x.title);
  return [lines, left, under, title];
}

const pathOf = (points, x, y) => points.map(([a, b], place) => `${place ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");

/** The interval of a line as a pale band. */
function band(series, x, y) {
  if (!series.points.every((point) => point.length >= 4)) return null;
  const upper = series.points.map(([a, , , high]) => [a, high]);
  const lower = series.points.map(([a, , low]) => [a, low]).reverse();
  return svg("path", { class: `band ${series.kind}`, d: `${pathOf([...upper, ...lower], x, y)}Z` });
}

function drawn(series, x, y) {
  const dots = series.dots === false ? [] : series.points.map(([a, b]) => svg("circle", { class: `dot ${series.kind}`, cx: x(a), cy: y(b), r: 3.6 }));
  const path = series.line === false ? null : svg("path", { class: `line ${series.kind}`, d: pathOf(series.points, x, y) });
  return [band(series, x, y), path, dots];
}

const key = (series) =>
  series.line === false
    ? svg("circle", { class: `dot ${series.kind}`, cx: 12, cy: 4, r: 3.6 })
    : svg("path", { class: `line ${series.kind}`, d: "M1 4H23" });

function legend(all) {
  const items = all.map((series) =>
    h(
      "li",
      {},
      svg("svg", { class: "legend-key", viewBox: "0 0 24 8", "aria-hidden": "true" }, key(series)),
      series.name,
    ),
  );
  return h("ul", { class: "legend" }, items);
}

/**
 * A figure. chart: {title, words, x: {low, high, ticks, name, title, bend?}, y: likewise without title,
 * series: [{name, kind, points: [[x, y, low?, high?]], line?, dots?}]}. `table` is its text alternative.
 */
export function figure(chart, table) {
  const bend = (value) => value;
  const x = scaleOf(chart.x.low, chart.x.high, EDGE.left + 10, WIDTH - EDGE.right - 10, chart.x.bend || bend);
  const y = scaleOf(chart.y.low, chart.y.high, HEIGHT - EDGE.bottom, EDGE.top, chart.y.bend || bend);
  const picture = svg(
    "svg",
    { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${chart.title}. ${chart.words || ""} The table below has the numbers.` },
    axes(chart, x, y),
    [...chart.series].reverse().map((series) => drawn(series, x, y)), // the first lies on top
  );
  return h(
    "figure",
    { class: "figure" },
    h("figcaption", {}, h("h3", {}, chart.title), chart.words && h("p", { class: "hint" }, chart.words)),
    picture,
    legend(chart.series),
    h("details", {}, h("summary", {}, "As a table"), h("div", { class: "table-scroll" }, table)),
  );
}

/** A table of texts; the first column names the rows. */
export function table(heads, rows) {
  const cells = (row) => row.map((cell, place) => h(place ? "td" : "th", place ? {} : { scope: "row" }, cell));
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, cells(row)))),
  );
}
