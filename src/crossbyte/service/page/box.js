// The search box: words, or a picture or document that stands in it as a token.

import { byId } from "./dom.js";
import { thumbnail } from "./thumbnails.js";
import { fileTitle } from "./words.js";

let address = null; // of the picture that is shown

function showToken(label, source) {
  const old = byId("query-picture");
  const image = source ? thumbnail(source, "") : old.cloneNode(false);
  image.id = "query-picture";
  image.hidden = !source;
  old.replaceWith(image);
  byId("query-label").textContent = label;
  byId("query").hidden = false;
}

function pictureAddress(picture) {
  if (address?.picture !== picture) {
    if (address) URL.revokeObjectURL(address.url);
    address = { picture, url: URL.createObjectURL(picture) };
  }
  return address.url;
}

function showPicture(picture) {
  showToken(picture.name ? fileTitle(picture.name) : "your picture", null);
  const image = byId("query-picture");
  image.src = pictureAddress(picture);
  image.hidden = false;
}

function placeholder(info, kind) {
  if (kind === "picture" || kind === "like") return info.encoders.text ? "or type words" : "";
  const { text, image } = info.encoders;
  if (text && image) return "Describe a picture, or drop one here";
  if (text) return "Type words";
  return image ? "Drop a picture here" : "Browse, or open anything and ask for more like it";
}

/** Show what is asked. `like`: {label, thumbnail} of the document that stands for the query. */
export function showBox(state, kind, info, like) {
  const words = byId("words");
  if (words.value !== state.text) words.value = state.text;
  words.placeholder = placeholder(info, kind);
  words.disabled = !info.encoders.text;
  byId("choose").hidden = !info.encoders.image;
  if (kind === "picture") showPicture(state.picture);
  else if (kind === "like") showToken(like.label, like.thumbnail);
  else byId("query").hidden = true;
}

/** What the page can do without encoders, said once. */
export function boxHint(info) {
  if (info.encoders.text && info.encoders.image) return "";
  if (info.encoders.text) return "";
  const cannot = info.encoders.image ? "words" : "words or pictures";
  return `This index was made from features, so it cannot be asked with ${cannot}. Browse it, open anything and ask for more like it.`;
}
