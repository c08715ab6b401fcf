/** Shortcuts of single keys, which can be switched off, and the help that lists them. */

import { byId } from "./dom.js";
import { recall, remember } from "./memory.js";

const TYPING = "input:not([type=checkbox]), textarea, select, [contenteditable]";

/** `actions`: key → function. */
export function startKeyboard(actions) {
  const help = byId("help");
  const single = byId("single-keys");
  single.checked = recall("single-keys") ?? true;
  single.addEventListener("change", () => remember("single-keys", single.checked));
  byId("open-help").addEventListener("click", () => help.showModal());
  help.addEventListener("click", (event) => { if (event.target === help) help.close(); });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest?.(TYPING)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "?" && help.open) return help.close();
    if (help.open || !single.checked) return;
    const action = event.key === "?" ? () => help.showModal() : actions[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  });
}
