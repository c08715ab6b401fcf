// Runs before the first paint, so that a remembered theme does not flash the other one.
try {
  const remembered = localStorage.getItem("boxmatch-theme");
  if (remembered === "light" || remembered === "dark") document.documentElement.dataset.theme = remembered;
} catch {
  // Storage may be switched off; then the system's theme it is.
}
