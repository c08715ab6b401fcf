/** Light or dark: the system's choice until the reader makes another. */

import { repaintCharts } from "./charts.js";
import { byId, setText } from "./dom.js";

const SLOT = "boxmatch-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";

function show() {
  const button = byId("theme");
  setText(button, isDark() ? "Light" : "Dark");
  button.setAttribute("aria-label", isDark() ? "Use the light theme" : "Use the dark theme");
  repaintCharts();
}

export function toggleTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem(SLOT, root.dataset.theme);
  } catch {
    // Storage is switched off: it holds for this page.
  }
  show();
}

export function startTheme() {
  byId("theme").addEventListener("click", toggleTheme);
  system.addEventListener("change", show);
  show();
}
