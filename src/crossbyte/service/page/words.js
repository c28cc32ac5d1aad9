// Numbers and documents in words.

const COUNT = new Intl.NumberFormat("en");
const SIDES = { image: "picture", text: "text" };
const TITLES = ["caption", "text", "title", "label", "name", "description"];

export const count = (number) => COUNT.format(number);

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export const sideName = (side) => SIDES[side] || side;

/** A share in percent, honest at both ends: never 0 % or 100 % for what is merely near. */
export function percent(share) {
  if (share <= 0) return "0 %";
  if (share < 0.01) return "< 1 %";
  if (share > 0.995 && share < 1) return "> 99 %";
  return `${Math.round(100 * share)} %`;
}

/** So many of 100, with a decimal only where a whole number would hide something. */
export function of100(share) {
  const shown = 100 * share;
  return (shown > 0 && shown < 0.95) || (shown > 99 && shown < 99.95) ? shown.toFixed(1) : shown.toFixed(0);
}

/** A number of a table or a distance, short, with a real minus. */
export function short(number) {
  if (number < 0) return `−${short(-number)}`;
  if (number !== 0 && (number >= 1e6 || number < 1e-4)) return number.toExponential(2);
  return String(Number(number.toPrecision(4)));
}

/** The same with its sign in any case. */
export const signed = (number) => (number < 0 ? short(number) : `+${short(number)}`);

const isText = (value) => typeof value === "string" && value.trim() !== "";

/** The texts of a document: its captions, else what looks like one, else nothing. */
export function textsOf(document) {
  const payload = document.payload || {};
  const captions = Array.isArray(payload.captions) ? payload.captions.filter(isText) : [];
  if (captions.length) return captions;
  const name = TITLES.find((each) => isText(payload[each]));
  return name ? [payload[name]] : [];
}

/** What to call a document. */
export const titleOf = (document) => textsOf(document)[0] || String(document.id);

const VERDICTS = { strong: "Strong match", fair: "Fair match", weak: "Weak match", nothing: "Nothing seems to match" };
const SOURCES = { words: "found by its words", picture: "found by its picture", both: "found by its words and its picture" };

/** How sure an answer is; empty where that is not known. */
export const verdictText = (verdict) => VERDICTS[verdict] ?? "";

/** How sure a hit is, which may be there though it does not match; empty where that is not known. */
export const strengthText = (strength) => (strength === "nothing" ? "No match" : verdictText(strength));

/** What found a hit; empty where that is not known. */
export const sourceText = (source) => SOURCES[source] ?? "";

/** A file without its folders and extension is a better name than its path. */
export function fileTitle(name) {
  return name.split(/[\\/]/).pop() || name;
}
