/** The subscriptions of a feed that match most, and those that never do. */

import * as api from "./api.js";
import { byId, fillSelect, setText } from "./dom.js";
import { count, exactly, filterText, moment, plural } from "./format.js";
import { showNoFeeds, showNoSubscriptions } from "./nothing_yet.js";
import { attributesOf } from "./schemas.js";
import { Table } from "./tables.js";

const EVERY_MS = 5_000;

const twice = (text) => ({ text, title: text });

export class SubscriptionsSection {
  constructor() {
    this.select = byId("subscriptions-feed");
    this.most = 1;
    const subscriber = { name: "subscriber", cell: (one) => twice(one.subscriber) };
    const id = { name: "id", cell: (one) => twice(one.id) };
    const filter = { name: "filter", code: true, wide: true, cell: (one) => twice(filterText(one.filter)) };
    const dialect = { name: "dialect", cell: (one) => one.dialect ?? "" };
    const exact = { name: "exact", cell: (one) => (one.exact ? { text: "always", title: "always matched exactly" } : "") };
    const made = { name: "created", number: true, cell: (one) => moment(one.created) };
    const matches = {
      name: "matches", number: true,
      cell: (one) => ({ text: count(one.matches), title: exactly(one.matches), share: one.matches / this.most }),
    };
    const key = (one) => JSON.stringify([one.subscriber, one.id]);
    this.busiest = new Table(byId("busiest-table"), [subscriber, id, filter, dialect, exact, matches], key);
    this.dead = new Table(byId("dead-table"), [subscriber, id, filter, dialect, exact, made], key);
    this.select.addEventListener("change", () => this.load());
  }

  update(overview, { all: names, subscribed }) {
    this.overview = overview;
    const changed = fillSelect(this.select, names, subscribed);
    byId("subscriptions-tables").hidden = names.length === 0;
    byId("subscriptions-empty").hidden = names.length > 0;
    if (names.length === 0) {
      setText(byId("subscriptions-count"), "");
      showNoFeeds(byId("subscriptions-empty"), overview);
    } else if (changed || Date.now() - (this.loadedAt ?? 0) > EVERY_MS) this.load();
  }

  async load() {
    this.loadedAt = Date.now();
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    const feed = this.select.value;
    try {
      const [busiest, dead] = await Promise.all(["busiest", "dead"].map((order) => api.subscriptions(feed, order, asking.signal)));
      const attributes = busiest.count === 0 ? await attributesOf(feed, this.overview) : [];
      if (!asking.signal.aborted) this.show(feed, busiest, dead, attributes);
    } catch (error) {
      if (!asking.signal.aborted) this.fail(error);
    }
  }

  show(feed, busiest, dead, attributes) {
    byId("subscriptions-error").hidden = true;
    byId("subscriptions-tables").hidden = busiest.count === 0;
    byId("subscriptions-empty").hidden = busiest.count > 0;
    const active = busiest.subscriptions.filter((one) => one.matches > 0);
    this.most = Math.max(1, ...active.map((one) => one.matches));
    fill(this.busiest, "busiest", active);
    fill(this.dead, "dead", dead.subscriptions);
    setText(byId("subscriptions-count"), `${plural(busiest.count, "subscription")}, ${exactly(busiest.dead)} dead`);
    if (busiest.count === 0) showNoSubscriptions(byId("subscriptions-empty"), feed, attributes);
  }

  fail(error) {
    const node = byId("subscriptions-error");
    byId("subscriptions-tables").hidden = true;
    node.hidden = false;
    setText(node, error.status === 403 ? "This key may not see subscriptions to this feed." : error.message);
  }
}

function fill(table, name, rows) {
  table.update(rows);
  byId(`${name}-table`).parentElement.hidden = rows.length === 0;
  byId(`${name}-empty`).hidden = rows.length > 0;
}
