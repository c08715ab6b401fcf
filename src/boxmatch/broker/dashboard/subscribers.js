/** Who receives, how far behind they are, and what went wrong. */

import { command } from "./api.js";
import { byId, setText, showEmpty } from "./dom.js";
import { NOTHING, count, exactly, joined, percent, plural } from "./format.js";
import { Rates } from "./samples.js";
import { Table } from "./tables.js";

const troubled = (subscriber) => subscriber.last_error !== null || subscriber.dead_letters > 0 || subscriber.dropped > 0;

export class SubscribersSection {
  constructor() {
    this.rates = new Rates();
    const zeroQuiet = (value, level) => ({ text: count(value), title: exactly(value), level: value > 0 ? level : "quiet" });
    this.table = new Table(byId("subscribers-table"), [
      { name: "subscriber", cell: (one) => ({ text: one.subscriber, title: one.subscriber }) },
      { name: "backlog", number: true, cell: (one) => ({ ...zeroQuiet(one.backlog, null), share: one.backlog / this.most }) },
      { name: "delivered /s", number: true, cell: (one) => rateCell(this.rates.found.get(one.subscriber)) },
      { name: "delivered", number: true, cell: (one) => zeroQuiet(one.delivered, null) },
      { name: "dropped", number: true, cell: (one) => zeroQuiet(one.dropped, "bad") },
      { name: "subscriptions", number: true, cell: (one) => zeroQuiet(one.subscriptions, null) },
      { name: "sessions", number: true, cell: (one) => zeroQuiet(one.sessions, null) },
      { name: "mode", cell: (one) => ({ text: one.mode, level: one.mode === "shared" ? null : "quiet" }) },
      { name: "in flight", number: true, cell: (one) => zeroQuiet(one.in_flight, null) },
      { name: "redelivered", number: true, cell: (one) => zeroQuiet(one.redelivered, "warn") },
      { name: "replay", number: true, cell: (one) => ({ text: one.replayed === null ? NOTHING : joined(percent(one.replayed)), level: one.replayed === null ? "quiet" : null }) },
      { name: "webhook", cell: (one) => ({ text: one.webhook ?? NOTHING, level: { active: null, paused: "warn" }[one.webhook] ?? null }) },
      { name: "dead letters", number: true, cell: (one) => zeroQuiet(one.dead_letters, "bad") },
      { name: "last error", wide: true, cell: (one) => ({ text: one.last_error ?? "", title: one.last_error, level: "bad" }) },
    ], (one) => one.subscriber);
    byId("subscribers-search").addEventListener("input", () => this.render());
  }

  update(overview) {
    this.overview = overview;
    this.rates.look(overview.at, new Map(overview.subscribers.map((one) => [one.subscriber, one.delivered])));
    this.render();
  }

  render() {
    if (this.overview === undefined) return;
    const { subscribers, subscriber_count: all } = this.overview;
    const wanted = byId("subscribers-search").value.trim().toLowerCase();
    const found = subscribers.filter((one) => `${one.subscriber} ${one.last_error ?? ""}`.toLowerCase().includes(wanted));
    // Those in trouble first, then by name: by backlog they would change places every second.
    found.sort((a, b) => troubled(b) - troubled(a) || a.subscriber.localeCompare(b.subscriber, "en", { numeric: true }));
    this.most = Math.max(1, ...subscribers.map((one) => one.backlog));
    this.table.update(found);
    byId("subscribers-table").parentElement.hidden = found.length === 0;
    this.say(found.length, subscribers, all);
  }

  say(found, subscribers, all) {
    const bad = subscribers.filter(troubled).length;
    const some = subscribers.length < all;
    const parts = [some ? `${exactly(subscribers.length)} of ${plural(all, "subscriber")}, by errors and backlog` : plural(all, "subscriber")];
    if (bad > 0) parts.push(`${exactly(bad)} with losses or errors`);
    setText(byId("subscribers-count"), subscribers.length === 0 ? "" : parts.join(", "));
    const empty = byId("subscribers-empty");
    empty.hidden = true;
    if (subscribers.length === 0) {
      showEmpty(empty, "No subscribers yet", "A subscriber is created with its first subscription:",
        command("subscribers/alice/subscriptions/cheap", '{"feed": "ticks", "filter": "price < 30"}', " -X PUT"));
    } else if (found === 0) showEmpty(empty, "No matching subscriber", "Change the text in “Find”.");
  }
}

function rateCell(rate) {
  return { text: rate === undefined ? NOTHING : count(rate), level: rate > 0 ? null : "quiet" };
}
