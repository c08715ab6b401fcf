/** Looks at the broker once a second: one request at a time, slower when nobody watches. */

import * as api from "./api.js";

const EVERY_MS = 1_000;
const HIDDEN_MS = 15_000;
const SLOWEST_MS = 10_000;
/** After so long a pause, what happened meanwhile is asked for. */
const GAP_MS = 5_000;

/** Tells `onOverview(overview)`, `onHistory(history)` and `onStatus(status, error)`. */
export class Poll {
  constructor({ onOverview, onHistory, onStatus }) {
    Object.assign(this, { onOverview, onHistory, onStatus });
    this.paused = false;
    this.locked = false; // a key is needed first
    this.busy = false;
    this.failures = 0;
    this.lastAt = -Infinity;
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.soon(); });
    window.addEventListener("online", () => this.soon());
  }

  /** Asks now. What is known of the time before may be another key's. */
  restart() {
    this.locked = false;
    this.lastAt = -Infinity;
    this.failures = 0;
    this.soon();
  }

  setPaused(paused) {
    this.paused = paused;
    if (paused) {
      clearTimeout(this.timer);
      this.onStatus("paused");
    } else this.soon();
  }

  soon() {
    if (this.paused || this.locked || this.busy) return;
    clearTimeout(this.timer);
    this.look();
  }

  async look() {
    this.busy = true;
    const began = performance.now();
    let wait = 0;
    try {
      await this.ask();
      this.failures = 0;
    } catch (error) {
      this.failures += 1;
      if (!(error instanceof api.ApiError)) console.error(error);
      this.locked = error.status === 401;
      wait = 1000 * (error.problem?.retry_after ?? 0);
      if (!this.paused) this.onStatus(this.locked ? "key needed" : "no connection", error);
    } finally {
      this.busy = false;
    }
    if (this.paused || this.locked) return;
    const pace = this.failures > 0 ? Math.min(SLOWEST_MS, EVERY_MS * 2 ** (this.failures - 1)) : EVERY_MS;
    const every = Math.max(pace, document.hidden ? HIDDEN_MS : 0, wait);
    this.timer = setTimeout(() => this.look(), Math.max(50, every - (performance.now() - began)));
  }

  async ask() {
    const overview = await api.overview();
    if (this.paused) return;
    if (performance.now() - this.lastAt > GAP_MS) {
      // Without it the charts begin empty, which is no reason not to show the rest.
      const kept = await api.history().catch(() => null);
      if (kept !== null) this.onHistory(kept);
    }
    this.lastAt = performance.now();
    this.onStatus("live");
    this.onOverview(overview);
  }
}
