// The line under the page, and the line above the results.

import { count, plural } from "./words.js";

/** What this server holds. */
export function statusLine(info) {
  const encoder = (side) => info.encoders[side]?.name;
  const parts = [
    info.name,
    plural(info.documents, "document"),
    info.images > 0 && info.texts > 0 && info.texts < info.documents && `${count(info.documents - info.texts)} without a text`,
    `${plural(info.bytes_per_item, "byte")} per item`,
    encoder("image") && `pictures by ${encoder("image")}`,
    encoder("text") && `words by ${encoder("text")}`,
    !encoder("image") && !encoder("text") && "features only",
    `crossbyte ${info.version}`,
  ];
  return parts.filter(Boolean).join(" · ");
}

/** What is shown below. */
export function summaryLine(found, answer, info, isFiltered) {
  if (!found.hits.length) return "";
  const among = isFiltered ? "that pass the filters" : `of ${count(info.documents)}`;
  if (!answer.query) return isFiltered ? `${plural(found.hits.length, "document")} ${among}` : `${count(found.hits.length)} of ${plural(info.documents, "document")}`;
  const took = typeof found.took_ms === "number" ? ` · ${Math.max(1, Math.round(found.took_ms))} ms` : "";
  return `${count(found.hits.length)} nearest ${among}${took}`;
}
