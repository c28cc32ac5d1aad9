// Before the first paint: the colours that were chosen last time. A classic script, so that nothing flashes.
try {
  const chosen = localStorage.getItem("crossbyte-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden; then the system's colours are used.
}
