// Whether to say that nothing matches. The server says how probable each hit is, and whether the best is improbable;
// where many documents are equally right, each has a small part of the probability, and together they are right.

const FIRST = 10;
const ENOUGH = 0.25; // expected number of right ones among the first, beyond what chance would put there
const TELLING = { roughly: 0.6, surely: 0.8 }; // AUROC: as docs/report.md reads it
const FEW_WORDS = 3; // models are calibrated on whole captions; a word or two is none

/** How many right ones to expect among the first hits, beyond those that any choice would have. */
function expected(hits, nDocuments) {
  const first = hits.slice(0, FIRST);
  return first.reduce((sum, hit) => sum + (hit.probability ?? 0), 0) - first.length / nDocuments;
}

/** How well this model tells queries with a partner from those without, in this direction; null if not measured. */
export function telling(report, target) {
  const found = report?.reliability.find((each) => each.target === target);
  return found ? found.match_auroc : null;
}

/** "likely", "unsure" (a few words say little, or the model can tell only roughly) or "unlikely". */
export function verdict(found, query, auroc, nDocuments) {
  const isDoubtful = found.no_match === true && found.hits.length > 0 && query.like === undefined;
  if (!isDoubtful || expected(found.hits, nDocuments) >= ENOUGH) return "likely";
  if (auroc !== null && auroc < TELLING.roughly) return "likely";
  const isShort = query.text !== undefined && query.text.trim().split(/\s+/).length <= FEW_WORDS;
  return isShort || (auroc !== null && auroc < TELLING.surely) ? "unsure" : "unlikely";
}
