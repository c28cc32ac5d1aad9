// Why a result is where it is: its distance taken apart, in bars and words.

import { h, unseen } from "./dom.js";
import { thumbnail } from "./thumbnails.js";
import { count, plural, short, sideName, signed, titleOf } from "./words.js";

const QUERY = { image: "picture", text: "text" };

function part(title, hint, ...children) {
  return h("section", { class: "why-part" }, h("h4", {}, title), hint && h("p", { class: "hint" }, hint), children);
}

/** A bar from one value to another on a common scale. */
function span(from, to, scale, kind) {
  const fill = h("span", { class: `why-fill ${kind}` });
  const place = (value) => (100 * (value - scale.low)) / (scale.high - scale.low);
  fill.style.left = `${place(Math.min(from, to))}%`;
  fill.style.width = `${Math.max(0.6, Math.abs(place(to) - place(from)))}%`;
  return h("span", { class: "why-bar", "aria-hidden": "true" }, fill);
}

function line(label, note, bar, value) {
  return h(
    "li",
    { class: "why-line" },
    h("span", { class: "why-label" }, label, note && h("span", { class: "why-note" }, note)),
    bar,
    h("span", { class: "why-value" }, value),
  );
}

function shareName(share) {
  const side = sideName(share.side);
  if (share.codebook === null) return [`${side}, cross term`, `level ${share.codeword}`];
  const sharing = share.n_training === null ? "" : ` · ${plural(share.n_training, "pair")}`;
  return [`${side} codebook ${share.codebook + 1}`, `codeword ${share.codeword}${sharing}`];
}

/** The sum as a staircase: every step begins where the last one ended, and the end is the distance. */
function distanceSteps(why) {
  const totals = [why.constant];
  for (const share of why.shares) totals.push(totals[totals.length - 1] + share.share);
  const scale = { low: Math.min(0, ...totals), high: Math.max(0, ...totals) };
  if (scale.high === scale.low) scale.high += 1;
  const steps = why.shares.map((share, place) => {
    const kind = share.share <= 0 ? "nearer" : "farther";
    return line(...shareName(share), span(totals[place], totals[place + 1], scale, kind), signed(share.share));
  });
  return h(
    "ol",
    { class: "why-lines" },
    line("starting point", "the query's own length and constants", span(0, why.constant, scale, "start"), short(why.constant)),
    steps,
    line("distance", "the sum of all above", span(0, why.distance, scale, "total"), short(why.distance)),
  );
}

function distancePart(why) {
  const hint = "Each step is one byte of the stored code. Steps to the left bring it nearer to the query.";
  return part("How the distance adds up", hint, distanceSteps(why));
}

/** Features with a name as they are; those without (parts of words, colours, edges) together. */
function weighedRows(product) {
  const named = product.features.filter((feature) => feature.name);
  const unnamed = product.features.filter((feature) => !feature.name);
  const rest = unnamed.reduce((sum, feature) => sum + feature.share, product.others + product.mean);
  return { named, rest };
}

function wordsPart(why) {
  const { named, rest } = weighedRows(why.query_features);
  if (!named.length) return null;
  const rows = [...named.map((feature) => [feature.name, feature.share]), ["everything else", rest]];
  const reach = Math.max(...rows.map(([, share]) => Math.abs(share))) || 1;
  const scale = { low: -reach, high: reach };
  const lines = rows.map(([name, share]) =>
    line(name, null, span(0, share, scale, share >= 0 ? "nearer" : "farther"), signed(share)),
  );
  return part("Words that weighed most", "To the right: pulls it nearer. To the left: pushes it away.", h("ul", { class: "why-lines middle" }, lines));
}

function itemWordsPart(why, searchWord) {
  const words = why.item_words.filter((word) => word.name);
  if (!words.length) return null;
  const chips = words.map((word) =>
    h("button", { type: "button", class: "chip", title: `Search for ${word.name}`, onclick: () => searchWord(word.name) }, word.name),
  );
  return part("Words its code stands for", "What the few stored bytes say about it, which is less than what it shows.", h("div", { class: "chips" }, chips));
}

function exampleItem(example, nCodebooks) {
  const shared = Object.entries(example.shared).map(([side, number]) => `${number} of ${nCodebooks[side]} ${sideName(side)} codewords`);
  const known = example.id !== undefined && example.id !== null;
  return h(
    "li",
    { class: "example" },
    example.thumbnail && h("span", { class: "example-picture" }, thumbnail(example.thumbnail, "", true)),
    h(
      "span",
      {},
      h("span", { class: "example-name" }, known ? titleOf(example) : `pair ${count(example.row + 1)} of the training`),
      h("span", { class: "why-note" }, `shares ${shared.join(", ")}`),
    ),
  );
}

function examplesPart(why) {
  if (!why.examples.length) return null;
  const nCodebooks = {};
  for (const share of why.shares) {
    if (share.codebook !== null) nCodebooks[share.side] = (nCodebooks[share.side] || 0) + 1;
  }
  const items = why.examples.map((example) => exampleItem(example, nCodebooks));
  return part("Training pairs with the same codewords", "What the model saw when it learned this code.", h("ul", { class: "examples" }, items));
}

function nearerSentences(why) {
  const { swaps, ahead, best_possible: best } = why.to_be_nearer;
  const swap = swaps.reduce((top, each) => (top === null || each.gain > top.gain ? each : top), null);
  const said = [];
  if (ahead) said.push(`One place ahead is “${ahead.id}”, nearer by ${short(ahead.gap)}.`);
  else said.push("Nothing is ahead of it: it is the first.");
  if (swap && swap.gain > 0) {
    const place = `${sideName(swap.side)} codebook ${swap.codebook + 1}`;
    said.push(`With codeword ${swap.codeword} in ${place} it would be nearer by ${short(swap.gain)}.`);
  } else if (swap) said.push("No single codeword could be exchanged for a better one.");
  said.push(`The best code there could be has a distance of ${short(best)}.`);
  return said;
}

function changePart(why) {
  return part("What would have to change", null, h("ul", { class: "plain" }, nearerSentences(why).map((text) => h("li", {}, text))));
}

/** The explanation as elements; `searchWord(word)` asks for a word that was clicked. */
export function explanationView(why, searchWord) {
  return h(
    "div",
    { class: "why" },
    h(
      "p",
      { class: "why-lead" },
      `Number ${count(why.rank)} of ${count(why.n_ranked)} for this ${QUERY[why.query]}`,
      unseen(`, at a distance of ${short(why.distance)}`),
    ),
    distancePart(why),
    wordsPart(why),
    itemWordsPart(why, searchWord),
    examplesPart(why),
    changePart(why),
  );
}
