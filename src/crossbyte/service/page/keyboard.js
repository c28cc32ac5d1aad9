// Everything by keyboard: / to the box, arrows between results, Enter opens, Esc closes.

import { byId } from "./dom.js";

const STEPS = { ArrowRight: 1, ArrowLeft: -1 };

const openers = () => [...byId("results").querySelectorAll(".open")];

function middle(element) {
  const box = element.getBoundingClientRect();
  return { x: box.left + box.width / 2, y: box.top + box.height / 2, height: box.height };
}

/** The nearest result of the next row in this direction (1 down, -1 up). */
function vertical(all, current, direction) {
  const here = middle(current);
  const beyond = all
    .map((element) => ({ element, at: middle(element) }))
    .filter(({ at }) => direction * (at.y - here.y) > here.height / 2);
  if (!beyond.length) return null;
  const nearest = Math.min(...beyond.map(({ at }) => Math.abs(at.y - here.y)));
  const row = beyond.filter(({ at }) => Math.abs(at.y - here.y) < nearest + 8);
  return row.reduce((best, each) => (Math.abs(each.at.x - here.x) < Math.abs(best.at.x - here.x) ? each : best)).element;
}

function goal(all, current, key) {
  if (key === "Home") return all[0];
  if (key === "End") return all[all.length - 1];
  if (key in STEPS) return all[all.indexOf(current) + STEPS[key]] ?? null;
  if (key === "ArrowDown") return vertical(all, current, 1);
  if (key === "ArrowUp") return vertical(all, current, -1) ?? byId("words");
  return null;
}

function move(event, current) {
  const next = goal(openers(), current, event.key);
  if (!next) return;
  event.preventDefault();
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

const isTyping = (element) => element.matches("input:not([type=radio]):not([type=checkbox]), textarea, select");

function focusBox(event) {
  event.preventDefault();
  byId("words").focus();
  byId("words").select();
}

/** `handlers`: close() → whether something was open; step(±1) in the open drawer; clear() the query. */
export function startKeyboard({ close, step, clear }) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || byId("token").open) return;
    const target = event.target;
    const isBox = target.id === "words";
    if (event.key === "Escape") {
      if (!close() && isBox) clear();
    } else if (event.key === "/" && !isTyping(target)) focusBox(event);
    else if (event.key === "ArrowDown" && isBox && openers().length) {
      event.preventDefault();
      openers()[0].focus();
    } else if (target.classList.contains("open")) move(event, target);
    else if (event.key in STEPS && target.closest("#drawer") && !isTyping(target)) step(STEPS[event.key]);
  });
}
