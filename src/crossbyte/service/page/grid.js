// Rows of pictures that fill the width, each in its own shape.

import { ratioOf, usualRatio } from "./thumbnails.js";

const SLIMMEST = 0.62;
const WIDEST = 2.1;

const clamp = (value) => Math.min(WIDEST, Math.max(SLIMMEST, value));

/** Heights of rows: as many pictures in each as bring it down to the wanted height. Returns [{width, height}]. */
export function justify(ratios, width, wanted, gap) {
  const sizes = [];
  let row = [];
  const close = (height) => {
    for (const ratio of row) sizes.push({ width: Math.floor(ratio * height * 100) / 100, height: Math.floor(height) });
    row = [];
  };
  for (const ratio of ratios) {
    row.push(ratio);
    const height = (width - gap * (row.length - 1)) / row.reduce((sum, each) => sum + each, 0);
    if (height <= wanted) close(height);
  }
  close(wanted);
  return sizes;
}

function wantedHeight(width) {
  if (width < 520) return 132;
  return width < 1000 ? 180 : 208;
}

/** Give every tile of a list its size. A tile keeps the shape it was first laid out with: nothing jumps later. */
export function layGrid(list) {
  const tiles = [...list.children];
  const ratios = tiles.map((tile) => {
    tile.dataset.ratio ||= clamp(ratioOf(tile.dataset.thumbnail) ?? usualRatio());
    return Number(tile.dataset.ratio);
  });
  const width = list.clientWidth;
  const gap = Number.parseFloat(getComputedStyle(list).columnGap) || 0;
  const sizes = justify(ratios, width, wantedHeight(width), gap);
  tiles.forEach((tile, place) => {
    tile.style.width = `${sizes[place].width}px`;
    tile.style.setProperty("--tile-height", `${sizes[place].height}px`);
  });
}
