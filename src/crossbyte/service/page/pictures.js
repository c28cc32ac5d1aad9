// A picture as a query: chosen, dropped anywhere, or pasted.

import { byId } from "./dom.js";

const firstPicture = (files) => [...(files || [])].find((file) => file.type.startsWith("image/")) ?? null;

function startDropping(take, refuse) {
  const veil = byId("drop");
  let depth = 0; // dragenter and dragleave come for every element on the way
  const isOurs = (event) => [...(event.dataTransfer?.types || [])].some((type) => type === "Files" || type === "text/uri-list");
  const show = (shown) => {
    depth = shown ? depth : 0;
    veil.hidden = !shown;
  };
  window.addEventListener("dragenter", (event) => {
    if (!isOurs(event)) return;
    depth += 1;
    show(true);
  });
  window.addEventListener("dragleave", () => {
    depth -= 1;
    if (depth <= 0) show(false);
  });
  window.addEventListener("dragover", (event) => {
    if (isOurs(event)) event.preventDefault();
  });
  window.addEventListener("drop", (event) => {
    show(false);
    if (!isOurs(event)) return;
    event.preventDefault();
    const picture = firstPicture(event.dataTransfer.files);
    if (picture) take(picture);
    else refuse("That was not a picture file. Save the picture first, then drop the file here.");
  });
}

function startPasting(take) {
  window.addEventListener("paste", (event) => {
    const picture = firstPicture(event.clipboardData?.files);
    if (!picture) return; // words go where they were pasted
    event.preventDefault();
    take(picture);
  });
}

function startChoosing(take) {
  const input = byId("file");
  byId("choose").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    const picture = firstPicture(input.files);
    input.value = "";
    if (picture) take(picture);
  });
}

/** `take` gets a File; `refuse` gets a sentence. */
export function startPictures(take, refuse) {
  startDropping(take, refuse);
  startPasting(take);
  startChoosing(take);
}
