// The dialog that asks for the server's token.

import { byId } from "./dom.js";

/** Resolves with what was typed; the dialog cannot be left empty, because nothing works without it. */
export function askToken(wasWrong) {
  const dialog = byId("token");
  const input = byId("token-value");
  byId("token-wrong").hidden = !wasWrong;
  input.value = "";
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    dialog.oncancel = (event) => event.preventDefault();
    dialog.onclose = () => resolve(input.value.trim());
  });
}
