// The quality tab: what was measured on pairs that the model had not seen, and captions that look wrong.

import { getAudit } from "./api.js";
import { auditView } from "./audit.js";
import { figure, table } from "./chart.js";
import { byId, h } from "./dom.js";
import { errorText } from "./notices.js";
import { count, of100, plural } from "./words.js";

const DIRECTIONS = { text_to_image: "Words find pictures", image_to_text: "Pictures find texts" };
const NAMES = {
  crossbyte: "crossbyte",
  uncompressed: "the same, uncompressed",
  cca_pq: "CCA + product quantization",
  cca_rq: "CCA + residual quantization",
  chance: "chance",
};

const DOCUMENT_NAMES = {
  crossbyte: "crossbyte, one code",
  uncompressed: "the same, uncompressed",
  middle_rq: "CCA + RQ of the middle of both halves",
  keywords: "keyword overlap with the document's own text",
  chance: "chance",
};

const MODES = { words: "words alone", vectors: "vectors alone", both: "words and vectors" };

const NOT_MEASURED = "This index has no quality report: its model was not calibrated when it was made, which takes at least 20 captioned pictures.";
const N_SUSPECTS = 24;
const FEW_PAIRS = 100; // held out; with fewer, intervals are wide

const systemOf = (report, name) => report.systems.find((system) => system.name === name) ?? null;
const recallOf = (system, direction, depth = 10) => system.directions[direction].recall[depth];

function card(report, direction) {
  const own = recallOf(systemOf(report, "crossbyte"), direction)[0];
  const beside = ["uncompressed", "chance"]
    .map((name) => [name, systemOf(report, name)])
    .filter(([, system]) => system)
    .map(([name, system]) => `${name} ${of100(recallOf(system, direction)[0])}`);
  const what = direction === "text_to_image" ? ["picture", "texts"] : ["text", "pictures"];
  return h(
    "div",
    { class: "score" },
    h("p", { class: "score-title" }, DIRECTIONS[direction]),
    h("p", { class: "score-number" }, of100(own), h("span", {}, " of 100")),
    h("p", {}, `The right ${what[0]} is among the first 10 for ${of100(own)} of 100 ${what[1]}.`),
    h("p", { class: "hint" }, beside.join(" · ")),
  );
}

function ceiling(values) {
  const top = Math.min(1, Math.max(...values) * 1.08);
  const step = top > 0.5 ? 0.2 : top > 0.2 ? 0.1 : 0.05;
  const high = Math.min(1, Math.ceil(top / step) * step);
  const ticks = Array.from({ length: Math.round(high / step) + 1 }, (_, place) => place * step);
  return { low: 0, high, ticks, name: (tick) => `${Math.round(100 * tick)}` };
}

/** A level that does not depend on the bytes, over the whole width. */
function level(report, name, direction, sizes) {
  const system = systemOf(report, name);
  if (!system) return null;
  const value = recallOf(system, direction)[0];
  return { name: NAMES[name], kind: name, dots: false, points: [[sizes[0], value], [sizes[sizes.length - 1], value]] };
}

function bytesFigure(report, direction) {
  const sizes = report.curve.map((point) => point.n_bytes);
  const names = Object.keys(NAMES).filter((name) => report.curve[0].recall[name]);
  const measured = names.map((name) => ({
    name: NAMES[name],
    kind: name,
    points: report.curve
      .filter((point) => point.recall[name])
      .map((point) => [point.n_bytes, ...point.recall[name][direction]])
      .map((point) => (name === "crossbyte" ? point : point.slice(0, 2))),
  }));
  const levels = ["uncompressed", "chance"].filter((name) => !names.includes(name)).map((name) => level(report, name, direction, sizes));
  const series = [...measured, ...levels.filter(Boolean)];
  const chart = {
    title: DIRECTIONS[direction],
    words: "Right ones among the first 10, of 100, by bytes per item.",
    x: { low: sizes[0], high: sizes[sizes.length - 1], ticks: sizes, name: String, title: "bytes per item", bend: Math.log2 },
    y: ceiling(series.flatMap((each) => each.points.map((point) => point[3] ?? point[1]))),
    series,
  };
  const at = (each, size) => each.points.find((point) => point[0] === size) ?? (each.dots === false ? each.points[0] : null);
  const rows = series.map((each) => [each.name, ...sizes.map((size) => (at(each, size) ? of100(at(each, size)[1]) : "–"))]);
  return figure(chart, table(["of 100", ...sizes.map((size) => plural(size, "byte"))], rows));
}

function sizeFigure(report) {
  const point = report.curve.find((each) => each.n_bytes === report.n_bytes) ?? report.curve[report.curve.length - 1];
  const sizes = point.by_size.map(([size]) => size);
  const points = point.by_size;
  const chart = {
    title: "As the index grows",
    words: `More items are more strangers: expected with ${plural(point.n_bytes, "byte")}, mean of both directions.`,
    x: { low: sizes[0], high: sizes[sizes.length - 1], ticks: spaced(sizes), name: compact, title: "items in the index", bend: Math.log },
    y: ceiling(points.map((each) => each[1])),
    series: [{ name: "crossbyte, right ones among the first 10, of 100", kind: "crossbyte", points }],
  };
  return figure(chart, table(["items", "of 100"], points.map(([size, recall]) => [count(size), of100(recall)])));
}

const compact = (size) => new Intl.NumberFormat("en", { notation: "compact" }).format(size);

/** At most five ticks. */
function spaced(sizes) {
  const step = Math.ceil(sizes.length / 5);
  return sizes.filter((_, place) => place % step === 0);
}

function reliabilityFigure(all) {
  const kinds = { text: "crossbyte", image: "second" };
  const bins = all.flatMap((each) => each.bins);
  const top = Math.min(1, Math.max(0.05, ...bins.flatMap(([stated, true_]) => [stated, true_])) * 1.05);
  const ticks = [0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1].filter((tick) => tick <= top);
  const axis = { low: 0, high: top, ticks, name: (tick) => `${Math.round(100 * tick)}`, bend: Math.sqrt };
  const series = all.map((each) => ({
    name: each.query === "text" ? DIRECTIONS.text_to_image : DIRECTIONS.image_to_text,
    kind: kinds[each.query],
    line: false,
    points: each.bins.map(([stated, true_]) => [stated, true_]),
  }));
  const ideal = { name: "perfectly true", kind: "chance", dots: false, points: [[0, 0], [top, top]] };
  const chart = {
    title: "Are the probabilities true?",
    words: "On the dotted line they are: of the hits given 20 %, 20 of 100 were right.",
    x: { ...axis, title: "stated probability, %" },
    y: axis,
    series: [...series, ideal],
  };
  const rows = all.flatMap((each) => each.bins.map(([stated, true_, number]) => [`${each.query} query`, of100(stated), of100(true_), count(number)]));
  return figure(chart, table(["direction", "stated, %", "true, of 100", "hits"], rows));
}

function reliabilityWords(all) {
  const error = Math.max(...all.map((each) => each.error));
  const match = Math.min(...all.map((each) => each.match_auroc));
  const truth = error < 0.05 ? "The probabilities are true" : error < 0.1 ? "The probabilities are roughly right" : "Do not lean on the probabilities";
  const told = match >= 0.8 ? "and it can tell when nothing matches" : match >= 0.6 ? "but it can tell only roughly when nothing matches" : "but it cannot tell when nothing matches";
  return `${truth} (off by ${(100 * error).toFixed(1)} points on average), ${told} (AUROC ${match.toFixed(2)}; 0.5 is guessing).`;
}

/** How documents known from both halves are found by another text, beside other systems. */
function documentsTable(systems) {
  const lead = (gain) => (gain ? `${(100 * gain[0]).toFixed(1)} (${gain.slice(1).map((end) => (100 * end).toFixed(1)).join(" to ")})` : "–");
  const rows = systems.map((each) => [DOCUMENT_NAMES[each.name], each.n_bytes === null ? "–" : count(each.n_bytes), of100(each.recall[0]), lead(each.gain)]);
  return table(["system", "bytes", "of 100", "crossbyte's lead, points"], rows);
}

function section(title, lead, ...children) {
  return h("section", { class: "report-part" }, h("h2", {}, title), lead && h("p", { class: "lead" }, lead), children);
}

/** What words, vectors and both find for captions that were held out; null where that was not measured. */
function wordsView(measured) {
  if (!measured) return null;
  const modes = measuredModes(measured);
  const lead =
    `${plural(measured.n_held_out, "caption")} that were held out asked for their documents, among ${count(measured.n_documents)}: ` +
    `the right one is among the first 10 for ${modes.map((mode) => `${of100(measured.recall[mode])} of 100 by ${MODES[mode]}`).join(", ")}. ` +
    `Chance would find ${of100(measured.chance)}.` +
    (modes.includes("both") ? "" : " Documents have one caption each, so these were found by their pictures alone; what words add takes documents with two captions or more.");
  const name = (point) => `${plural(point.n_bytes, "byte")}${point.n_bytes === measured.n_bytes ? ", chosen" : ""}`;
  const rows = measured.curve.map((point) => [name(point), ...modes.map((mode) => of100(point[mode]))]);
  rows.push(["chance", ...modes.map(() => of100(measured.chance))]);
  return section(
    "Words and vectors",
    lead,
    costOfBytes(measured) && h("p", { class: "lead" }, costOfBytes(measured)),
    h("div", { class: "word-trial table-scroll" }, table(["of 100", ...modes], rows)),
  );
}

/** The ways of searching that were measured: without a second caption, by vectors alone. */
const measuredModes = (measured) => Object.keys(MODES).filter((mode) => mode in measured.recall);

/** What other numbers of bytes would find; empty where one alone was tried. */
function costOfBytes(measured) {
  const best = measuredModes(measured).includes("both") ? "both" : "vectors";
  const own = measured.curve.find((point) => point.n_bytes === measured.n_bytes)[best];
  const others = measured.curve.filter((point) => point.n_bytes !== measured.n_bytes);
  if (!others.length) return "";
  const change = (point) => {
    const whole = Math.round(100 * (point[best] - own));
    const found = whole === 0 ? "find as many" : whole > 0 ? `find ${whole} more` : `lose ${-whole}`;
    return `${plural(point.n_bytes, "byte")} would ${found}`;
  };
  return `Beside ${plural(measured.n_bytes, "byte")} per document, of 100 captions by ${best}: ${others.map(change).join(", ")}.`;
}

const inWords = (report) =>
  report.text && h("details", { class: "report-words" }, h("summary", {}, "The whole report in words"), h("pre", { tabindex: "0" }, report.text));

/** What few held-out pairs leave of the figures, as the report in words has it; empty where they are enough. */
function caution(report) {
  if (report.n_held_out >= FEW_PAIRS) return "";
  const held = `Only ${plural(report.n_held_out, "pair")} could be held out`;
  const more = "Give at least 1,000 pairs, of which one in ten is held out, for a report to lean on.";
  return saysNothing(report)
    ? `${held}, so every partner is among the first 10: these numbers say nothing. ${more}`
    : `${held}: the intervals are wide, and small differences say nothing. ${more}`;
}

/** Whether every held-out partner is among the first ten, whatever the model has learned. */
const saysNothing = (report) => report.n_held_out <= 10;

function qualityView(report) {
  const directions = Object.keys(DIRECTIONS);
  if (saysNothing(report)) {
    return [section("How well it finds", caution(report)), wordsView(report.words), inWords(report)].filter(Boolean);
  }
  const measured = `Measured on ${plural(report.n_held_out, "pair")} that the model had not seen, with ${plural(report.n_bytes, "byte")} per item. ${caution(report)}`;
  return [
    section("How well it finds", measured, h("div", { class: "scores" }, directions.map((each) => card(report, each)))),
    wordsView(report.words),
    report.documents
      ? section(
          "Documents known from both halves",
          "Another text about a document, which is in no index, looks for it: is it among the first 10?",
          h("div", { class: "document-systems table-scroll" }, documentsTable(report.documents)),
        )
      : null,
    report.curve.length
      ? section(
          "Quality against bytes",
          null,
          h("div", { class: "figures" }, directions.map((each) => bytesFigure(report, each)), sizeFigure(report), report.reliability.length && reliabilityFigure(report.reliability)),
        )
      : report.reliability.length && section("Calibration", null, h("div", { class: "figures" }, reliabilityFigure(report.reliability))),
    report.reliability.length ? h("p", { class: "lead below" }, reliabilityWords(report.reliability)) : null,
    inWords(report),
  ].filter(Boolean);
}

async function suspects(openDocument) {
  const title = "Captions that look wrong";
  try {
    return auditView(await getAudit(N_SUSPECTS), openDocument);
  } catch (error) {
    if (error.status === 404) return section(title, "Pairs were not checked when this index was made.");
    return section(title, null, errorText(error));
  }
}

let isShown = false;

/** Fill the tab, once; `reporting` promises the report or null, `openDocument(row)` shows a document. */
export async function showReport(reporting, openDocument) {
  if (isShown) return;
  isShown = true;
  const view = byId("view-report");
  view.replaceChildren(h("p", { class: "hint" }, "Reading the report …"));
  const [report, audit] = await Promise.all([reporting, suspects(openDocument)]);
  view.replaceChildren(...(report ? qualityView(report) : [section("How well it finds", NOT_MEASURED)]), audit);
}
