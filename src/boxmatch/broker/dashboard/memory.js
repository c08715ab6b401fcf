/** What the page remembers while its tab is open. */

export function recall(name) {
  try {
    return JSON.parse(sessionStorage.getItem(`boxmatch-${name}`));
  } catch {
    return null;
  }
}

export function remember(name, value) {
  try {
    sessionStorage.setItem(`boxmatch-${name}`, JSON.stringify(value));
  } catch {
    // Storage is switched off or full: forgotten with the page.
  }
}
