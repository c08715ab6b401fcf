/** The feeds: which are shown, in which order, and which are open. */

import { arrange, byId, element, setText, showEmpty } from "./dom.js";
import { FeedCard, NUMBERS } from "./feed_card.js";
import { exactly, plural } from "./format.js";
import { recall, remember } from "./memory.js";
import { showNoFeeds } from "./nothing_yet.js";

const OPEN_AT_FIRST = 3;
const ROWS_AT_FIRST = 100;
const REORDER_MS = 10_000;

/** The section. `overview` and `histories` come with each look at the broker. */
export class FeedsSection {
  constructor() {
    this.cards = new Map();
    this.shown = ROWS_AT_FIRST;
    this.order = [];
    this.orderedAt = 0;
    this.idle = new Set();
    this.unfolded = recall("unfolded") ?? false;
    this.chosen = recall("opened"); // null until the reader opens or closes one
    this.opened = new Set(this.chosen);
    this.list = byId("feeds-list");
    this.head = element("div", { class: "feed-row feed-head", "aria-hidden": "true" },
      element("span", {}, "feed"), element("span", {}, "matching"), element("span", {}, "last minute"),
      element("div", { class: "numbers" }, ...NUMBERS.map(([, label, unit]) => element("span", {},
        label === "subscriptions" ? "subscr." : label, element("span", { class: "unit" }, unit)))));
    this.fold = element("button", { type: "button", class: "fold", "aria-controls": "feeds-list", onclick: () => this.toggleIdle() },
      element("span", { class: "chevron", "aria-hidden": "true" }), element("span"));
    this.watcher = new IntersectionObserver((entries) => this.onSeen(entries), { rootMargin: "200px" });
    byId("feeds-search").addEventListener("input", () => { this.shown = ROWS_AT_FIRST; this.render(); });
    byId("feeds-order").addEventListener("change", () => { this.orderedAt = 0; this.render(); scrollTo(0, 0); });
    byId("feeds-more").addEventListener("click", () => { this.shown += ROWS_AT_FIRST; this.render(); });
  }

  onSeen(entries) {
    for (const { target, isIntersecting } of entries) {
      const card = this.cards.get(target.dataset.feed);
      if (card === undefined || card.element !== target) continue;
      card.seen = isIntersecting;
      card.drawIfSeen();
      if (isIntersecting) this.updateCard(card);
    }
  }

  card(name) {
    if (!this.cards.has(name)) {
      const card = new FeedCard(name, {
        watch: (one) => this.watcher.observe(one.element),
        onToggle: (one) => this.toggle(one),
      });
      this.cards.set(name, card);
      card.setOpen(this.opened.has(name));
    }
    return this.cards.get(name);
  }

  toggle(card) {
    card.setOpen(!card.open);
    if (card.open) this.opened.add(card.name);
    else this.opened.delete(card.name);
    this.chosen = [...this.opened];
    remember("opened", this.chosen);
    this.updateCard(card);
  }

  toggleIdle() {
    this.unfolded = !this.unfolded;
    remember("unfolded", this.unfolded);
    this.render();
  }

  update(overview, histories) {
    this.overview = overview;
    this.histories = histories;
    this.feeds = new Map(overview.feeds.map((feed) => [feed.name, feed]));
    for (const [name, card] of this.cards) {
      if (this.feeds.has(name)) continue;
      card.setOpen(false);
      this.watcher.unobserve(card.element);
      this.cards.delete(name);
    }
    if (this.chosen === null) this.openSome();
    this.render();
  }

  render() {
    if (this.overview === undefined) return;
    const wanted = byId("feeds-search").value.trim().toLowerCase();
    const found = this.inOrder().filter((name) => name.toLowerCase().includes(wanted));
    // What is searched for is shown, idle or not.
    const idle = wanted === "" ? found.filter((name) => this.idle.has(name)) : [];
    const folded = new Set(this.unfolded ? [] : idle);
    const visible = [...found.filter((name) => !idle.includes(name)), ...idle].filter((name) => !folded.has(name));
    const cards = visible.slice(0, this.shown).map((name) => this.card(name));
    arrange(this.list, found.length > 0 ? [this.head, ...this.withFold(cards, idle.length)] : []);
    for (const card of cards) this.updateCard(card);
    this.say(found.length, visible.length);
  }

  /** The cards, and before the idle ones the line that folds them. */
  withFold(cards, idle) {
    const elements = cards.map((card) => card.element);
    if (idle === 0) return elements;
    setText(this.fold.lastChild, plural(idle, "idle feed"));
    this.fold.setAttribute("aria-expanded", String(this.unfolded));
    const first = cards.findIndex((card) => this.idle.has(card.name));
    elements.splice(first < 0 ? elements.length : first, 0, this.fold);
    return elements;
  }

  updateCard(card) {
    const feed = this.feeds.get(card.name);
    if (feed !== undefined) card.update(feed, this.histories.of(card.name), this.overview.at, this.histories.buckets.at(-1));
  }

  openSome() {
    const names = this.sorted("load");
    const busy = names.filter((name) => !this.histories.of(name).idle(this.overview.at));
    for (const name of busy.length > 0 ? busy : names) {
      if (this.opened.size >= OPEN_AT_FIRST) return;
      this.opened.add(name);
      this.cards.get(name)?.setOpen(true);
    }
  }

  /** Rows that jump cannot be read, so they change places seldom, and not under the hand. */
  inOrder() {
    const by = byId("feeds-order").value;
    const complete = this.feeds.size === this.order.length && this.order.every((name) => this.feeds.has(name));
    const touched = this.list.matches(":hover") || this.list.contains(document.activeElement);
    const due = Date.now() - this.orderedAt > REORDER_MS && !touched;
    if (complete && this.orderedAt > 0 && !due) return this.order;
    this.order = this.sorted(by);
    // One whose charts are open is read.
    this.idle = new Set(this.order.filter((name) => !this.opened.has(name) && this.histories.of(name).idle(this.overview.at)));
    // With the first look at the broker there are no rates yet, so the second counts.
    const unknown = by === "load" && this.order.some((name) => Number.isNaN(this.histories.of(name).now.load));
    this.orderedAt = Date.now() - (unknown ? REORDER_MS : 0);
    return this.order;
  }

  /** The names of all feeds; what is equal, and what is not known yet, by what waits, then by name. */
  sorted(by) {
    const weight = (name) => {
      const { now } = this.histories.of(name);
      const value = { load: now.load, waiting: now.waiting, p99: now.latency.end_to_end?.p99, rate: now.rate }[by];
      return Number.isFinite(value) ? value : -1;
    };
    const waiting = (name) => this.feeds.get(name).waiting;
    const byName = (a, b) => a.localeCompare(b, "en", { numeric: true });
    return [...this.feeds.keys()].sort(by === "name" ? byName
      : (a, b) => weight(b) - weight(a) || waiting(b) - waiting(a) || byName(a, b));
  }

  /** `found` by name, of which `visible` are not folded. */
  say(found, visible) {
    const all = this.feeds.size;
    const approximate = [...this.feeds.values()].filter((feed) => feed.rate > 0).length;
    const parts = [found === all ? plural(all, "feed") : `${exactly(found)} of ${plural(all, "feed")}`];
    if (approximate > 0) parts.push(`${exactly(approximate)} approximate`);
    setText(byId("feeds-count"), all === 0 ? "" : parts.join(", "));
    const more = byId("feeds-more");
    more.hidden = visible <= this.shown;
    setText(more, `Show more (${exactly(visible - this.shown)})`);
    const empty = byId("feeds-empty");
    empty.hidden = true;
    if (all === 0) showNoFeeds(empty, this.overview);
    else if (found === 0) showEmpty(empty, "No feed with this name", "Change the text in “Find”.");
  }

  /** For the keys j and k. */
  step(by) {
    const buttons = [...this.list.querySelectorAll(".feed-toggle")];
    const at = buttons.findIndex((one) => one.closest(".feed").contains(document.activeElement));
    const next = at < 0 ? (by > 0 ? 0 : buttons.length - 1) : Math.min(buttons.length - 1, Math.max(0, at + by));
    buttons[next]?.focus();
  }
}
