// The button that goes through the system's colours, light and dark.

import { byId } from "./dom.js";

const NEXT = { system: "light", light: "dark", dark: "system" };

function remember(theme) {
  try {
    if (theme === "system") localStorage.removeItem("crossbyte-theme");
    else localStorage.setItem("crossbyte-theme", theme);
  } catch {
    // Storage may be forbidden; the choice then lasts as long as the page.
  }
}

function apply(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const label = `Colours: ${theme === "system" ? "as your system" : theme}`;
  byId("theme-label").textContent = label;
  byId("theme").title = label;
}

export function startTheme() {
  let theme = document.documentElement.dataset.theme || "system";
  apply(theme);
  byId("theme").addEventListener("click", () => {
    theme = NEXT[theme];
    remember(theme);
    apply(theme);
  });
}
