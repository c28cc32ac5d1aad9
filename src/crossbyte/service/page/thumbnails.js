// Pictures of documents: their elements, and the shapes that were seen, so that a grid can be laid out at once.

import { getThumbnail, hasToken } from "./api.js";
import { h } from "./dom.js";

const ratios = new Map();
const blobs = new Map();
const MAX_BLOBS = 400;

/** Width over height of a thumbnail; null if it was not seen yet. */
export const ratioOf = (url) => ratios.get(url) ?? null;

/** What to expect of a picture that was not seen yet: the middle one of those that were. */
export function usualRatio() {
  const known = [...ratios.values()].sort((a, b) => a - b);
  return known.length ? known[Math.floor(known.length / 2)] : 4 / 3;
}

async function blobAddress(url) {
  if (!blobs.has(url)) {
    blobs.set(url, getThumbnail(url).then((blob) => URL.createObjectURL(blob)));
    if (blobs.size > MAX_BLOBS) forgetOldest();
  }
  return blobs.get(url);
}

function forgetOldest() {
  const [url, address] = blobs.entries().next().value;
  blobs.delete(url);
  address.then(URL.revokeObjectURL, () => {});
}

function show(image, url) {
  if (!hasToken()) {
    image.src = url;
    return;
  }
  blobAddress(url).then(
    (address) => {
      image.src = address;
    },
    () => image.dispatchEvent(new Event("error")),
  );
}

/** An <img> of a document; without its picture it gives way to whatever is behind it. */
export function thumbnail(url, alternative, lazy = false) {
  const image = h("img", { alt: alternative, loading: lazy ? "lazy" : "eager", decoding: "async", draggable: "false" });
  image.addEventListener("load", () => {
    if (image.naturalHeight) ratios.set(url, image.naturalWidth / image.naturalHeight);
    image.classList.add("there");
  });
  image.addEventListener("error", () => image.classList.add("gone"));
  if (ratios.has(url)) image.classList.add("known");
  show(image, url);
  return image;
}

/** Wait until the shapes of these pictures are known, but not for long: the rest is cropped to fit. */
export function whenShaped(images, milliseconds) {
  const isDone = (image) => image.classList.contains("there") || image.classList.contains("gone");
  const waiting = images.filter((image) => image.loading === "eager" && !isDone(image));
  const each = waiting.map(
    (image) =>
      new Promise((resolve) => {
        image.addEventListener("load", resolve, { once: true });
        image.addEventListener("error", resolve, { once: true });
      }),
  );
  return Promise.race([Promise.all(each), new Promise((resolve) => setTimeout(resolve, milliseconds))]);
}
