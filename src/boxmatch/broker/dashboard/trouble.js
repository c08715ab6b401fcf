/** What is wrong, or becoming wrong, worst first; each with what to do about it. */

import { arrange, byId, element, setText } from "./dom.js";
import { bytes, count, exactly, joined, plural, sentence } from "./format.js";

/** What grew so many seconds ago is still told: one cannot read what comes and goes. */
const RECENT_SECONDS = 60;
/** Waiting is trouble if it lasts, and takes longer than a commit. */
const WAITING_LOOKS = 10;
const LONG_SECONDS = 1;
const NAMES_SHOWN = 3;

export class Trouble {
  constructor() {
    this.list = byId("wrong");
    this.items = new Map();
    this.counts = new Map();
  }

  /** With each look at the broker, whichever section is shown. */
  update(overview, histories) {
    const found = [...this.ofBroker(overview), ...ofSubscribers(overview), ...this.ofPublishers(overview), ...waiting(overview, histories)];
    if (found.length === 0) {
      const all = overview.broker !== null;
      found.push({ kind: "none", text: all ? "Nothing is wrong." : "Nothing that this key may see is wrong." });
    }
    arrange(this.list, found.map((one) => this.item(one)));
  }

  *ofBroker({ at, broker }) {
    if (broker === null) return;
    if (broker.failure !== null) {
      yield { kind: "failure", level: "bad", text: `Nothing can be stored: ${broker.failure}.`, advice: "Free room on the disk, or mend it; writing goes on by itself." };
    }
    if (broker.lacking_bytes > 0) {
      yield { kind: "disk", level: "bad", text: `The disk is short: it lacks ${joined(bytes(broker.lacking_bytes))} of what is kept free.`, advice: "Free room, or lower the feeds’ retention." };
    }
    if (this.grewLately("dropped", broker.dropped, at)) {
      yield { kind: "dropped", level: "bad", text: `Notifications are lost before they are read, ${exactly(broker.dropped)} since the start.`, advice: "Raise retention, or see who is behind in", section: "subscribers" };
    }
  }

  *ofPublishers({ at, broker }) {
    if (broker === null) return;
    const refused = broker.refused.overload ?? 0;
    if (this.grewLately("overload", refused, at)) {
      yield { kind: "overload", level: "warn", text: `Publishers are refused for overload, ${plural(refused, "request")} since the start.`, advice: "Publish in batches, make the feed adaptive, or see which subscriptions match most in", section: "subscriptions" };
    }
  }

  /** What a count was before the page was opened says nothing of now. */
  grewLately(name, value, at) {
    const before = this.counts.get(name);
    const grewAt = before !== undefined && value > before.value ? at : (before?.grewAt ?? -Infinity);
    this.counts.set(name, { value, grewAt });
    return at - grewAt < RECENT_SECONDS;
  }

  item({ kind, level, text, advice, section }) {
    if (!this.items.has(kind)) {
      const what = element("strong", {});
      const link = section ? element("a", { href: `#${section}` }, sentence(section)) : null;
      const made = element("li", { "data-wrong": kind, "data-level": level }, what, advice ? ` ${advice} ` : null, link, link ? "." : null);
      this.items.set(kind, { made, what });
    }
    const { made, what } = this.items.get(kind);
    setText(what, text);
    return made;
  }
}

const ofName = (one) => one.subscriber;

function* ofSubscribers({ subscribers }) {
  const behind = subscribers.filter((one) => one.falls_behind);
  if (behind.length > 0) {
    const backlog = behind.reduce((all, one) => all + one.backlog, 0);
    yield { kind: "behind", level: "warn", text: `A backlog grows: ${named(behind.map(ofName))}, with ${count(backlog)} waiting.`, advice: "Read with more sessions, narrow the filters, or see", section: "subscribers" };
  }
  const buried = subscribers.filter((one) => one.dead_letters > 0);
  if (buried.length > 0) {
    const letters = buried.reduce((all, one) => all + one.dead_letters, 0);
    yield { kind: "letters", level: "warn", text: `${plural(letters, "dead letter")}: ${named(buried.map(ofName))}.`, advice: "Deliver them again, or delete them; see why in", section: "subscribers" };
  }
  const failing = subscribers.filter((one) => one.last_error !== null);
  if (failing.length > 0) {
    yield { kind: "webhook", level: "warn", text: `A webhook fails: ${named(failing.map(ofName))}. ${failing[0].last_error}.`, advice: "It is tried again by itself; see", section: "subscribers" };
  }
}

function* waiting({ feeds }, histories) {
  const stuck = feeds.filter(({ name }) => {
    const { ring, now } = histories.of(name);
    const looks = ring.values("waiting", WAITING_LOOKS);
    return looks.length === WAITING_LOOKS && looks.every((events) => events > 0) && !(now.latency.wait?.p50 < LONG_SECONDS);
  });
  if (stuck.length > 0) {
    yield { kind: "waiting", level: "warn", text: `Events wait: ${named(stuck.map((one) => one.name))}.`, advice: "The feed’s charts below show whether matching or storing takes the time." };
  }
}

function named(names) {
  const shown = names.slice(0, NAMES_SHOWN).join(", ");
  return names.length > NAMES_SHOWN ? `${shown} and ${exactly(names.length - NAMES_SHOWN)} more` : shown;
}
