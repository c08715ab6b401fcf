/** The broker as a whole, in a strip above its feeds. */

import { byId, element, setAttribute, setText } from "./dom.js";
import { bytes, count, duration, exactly, joined } from "./format.js";
import { Rates } from "./samples.js";

export class Totals {
  constructor() {
    this.list = byId("totals");
    this.rates = new Rates();
    this.nodes = new Map();
  }

  update(overview, histories) {
    const sum = (key) => overview.feeds.reduce((all, feed) => all + (histories.of(feed.name).now.rates[key] || 0), 0);
    const waiting = overview.feeds.reduce((all, feed) => all + feed.waiting, 0);
    const shown = [
      ["arriving", `${count(sum("received"))} /s`],
      ["delivered", `${count(sum("delivered"))} /s`],
    ];
    if (overview.broker === null) shown.push(["queued", count(waiting)]);
    else shown.push(...this.ofBroker(overview));
    this.list.hidden = overview.feeds.length === 0 && overview.broker === null;
    this.render(shown);
  }

  ofBroker({ at, started, broker, subscriber_count: subscribers }) {
    const { queue } = broker;
    const refused = Object.entries(broker.refused).filter(([, one]) => one > 0);
    const counts = new Map(Object.entries(broker.delivered));
    const rates = this.rates.look(at, counts);
    const ways = [...rates].filter(([, rate]) => rate > 0).map(([way, rate]) => `${way} ${count(rate)}`);
    const full = queue.events > queue.most_events * 0.8;
    const total = refused.reduce((all, [, one]) => all + one, 0);
    const reasons = refused.map(([why, one]) => `${why} ${count(one)}`);
    return [
      ["queued", count(queue.events), `of ${count(queue.most_events)}, ${joined(bytes(queue.bytes))}`, full ? "bad" : null],
      ["backlog", count(broker.backlog), `${exactly(subscribers)} subscribers`],
      ["sessions", count(broker.sessions), ways.join(", ")],
      ["dropped", count(broker.dropped), "notifications lost", broker.dropped > 0 ? "bad" : null],
      ["refused", count(total), reasons.join(", "), total > 0 ? "warn" : null],
      ["on disk", joined(bytes(broker.storage_bytes)), `log ${joined(bytes(broker.log_bytes))}`],
      ["uptime", upFor(at - started)],
    ];
  }

  render(shown) {
    const key = shown.map(([name]) => name).join();
    if (this.list.dataset.shown !== key) {
      this.list.dataset.shown = key;
      this.nodes.clear();
      this.list.replaceChildren(...shown.map(([name]) => this.item(name)));
    }
    for (const [name, value, more, level] of shown) {
      const { item, main, small } = this.nodes.get(name);
      setText(main, value);
      setText(small, more ?? "");
      setAttribute(item, "data-level", level ?? null);
    }
  }

  item(name) {
    const main = element("span", { class: "total-value", "data-total": name });
    const small = element("span", { class: "total-more" });
    const item = element("div", { class: "total" }, element("dt", {}, name), element("dd", {}, main, small));
    this.nodes.set(name, { item, main, small });
    return item;
  }
}

function upFor(seconds) {
  if (seconds < 120) return joined(duration(Math.floor(seconds)).map((part) => part.replace(/\.\d+$/, "")));
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
