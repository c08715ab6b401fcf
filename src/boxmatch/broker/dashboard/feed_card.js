/** One feed: a row with the numbers of now, and charts when it is opened. */

import { Chart, sparkline } from "./charts.js";
import { command } from "./api.js";
import { element, setAttribute, setText, showEmpty } from "./dom.js";
import { NOTHING, bytes, count, duration, exactly, joined, percent, plural, tidy } from "./format.js";
import { STAGES } from "./samples.js";

export const NUMBERS = [
  ["received", "arriving", "/s"], ["matched", "matched", "/s"], ["delivered", "delivered", "/s"], ["waiting", "waiting", ""],
  ["p50", "p50", ""], ["p99", "p99", ""], ["rate", "rate", ""], ["precision", "precision", ""], ["subscriptions", "subscriptions", ""],
];
const STAGE_NAMES = { end_to_end: "end to end", wait: "waiting", match: "matching", commit: "storing" };

/** What is promised of a feed's matches at the moment. */
export function exactness(feed) {
  if (feed.rate > 0) {
    const most = Math.max(feed.adaptive?.maximum ?? 0, feed.rate);
    return { state: "approximate", text: `approximate, up to ${joined(percent(most))}` };
  }
  if (feed.adaptive === null) return { state: "exact", text: "exact" };
  return { state: "exact", text: "exact", more: `adaptive, up to ${joined(percent(feed.adaptive.maximum))}` };
}

export class FeedCard {
  constructor(name, { watch, onToggle }) {
    this.name = name;
    this.open = false;
    this.seen = true;
    this.stage = "end_to_end";
    this.spark = sparkline();
    this.badge = element("span", { class: "badge" });
    this.badgeMore = element("span", { class: "badge-more" });
    this.numbers = new Map();
    this.detailId = `detail-${name}`;
    this.toggle = element("button", {
      type: "button", class: "feed-toggle", title: name, onclick: () => onToggle(this),
      "aria-expanded": "false", "aria-controls": this.detailId,
    },
      element("span", { class: "chevron", "aria-hidden": "true" }), element("span", { class: "feed-name" }, name));
    this.detail = element("div", { class: "feed-detail", id: this.detailId, hidden: true });
    this.element = element("article", { class: "feed", "data-feed": name, "aria-label": `Feed ${name}` },
      element("div", { class: "feed-row" },
        element("h2", { class: "feed-title" }, this.toggle),
        element("p", { class: "feed-state" }, this.badge, this.badgeMore),
        this.spark.element,
        element("dl", { class: "numbers" }, ...NUMBERS.map((one) => this.number(...one)))),
      this.detail);
    watch(this);
  }

  number(key, label, unit) {
    const value = element("span", { "data-value": key }, NOTHING);
    const unitNode = element("span", { class: "unit" }, unit);
    this.numbers.set(key, [value, unitNode, unit]);
    return element("div", { class: `number number-${key}` },
      element("dt", {}, label), element("dd", {}, value, unitNode));
  }

  /** The text for people, and the number itself beside it for programs. */
  set(key, raw, text, unit) {
    const [node, unitNode, always] = this.numbers.get(key);
    setText(node, text);
    setAttribute(node, "data-number", Number.isFinite(raw) ? raw : null);
    setText(unitNode, unit ?? (text === NOTHING ? "" : always));
  }

  update(feed, history, at, longest) {
    const { rates, latency, waiting, rate, precision } = history.now;
    const { state, text, more } = exactness(feed);
    setAttribute(this.element, "data-state", state);
    setText(this.badge, text);
    setText(this.badgeMore, more ?? "");
    for (const key of ["received", "matched", "delivered"]) this.set(key, rates[key], count(rates[key]));
    this.set("waiting", waiting, count(waiting));
    for (const key of ["p50", "p99"]) this.set(key, latency.end_to_end?.[key], ...latencyText(latency.end_to_end?.[key], longest));
    this.set("rate", rate, ...percent(rate));
    this.set("precision", precision, ...percent(precision));
    this.set("subscriptions", feed.subscriptions, count(feed.subscriptions));
    setAttribute(this.numbers.get("waiting")[0].closest(".number"), "data-full", waiting > 0 ? "some" : null);
    if (this.seen) this.spark.update(history.ring);
    if (this.open && this.seen) this.updateDetail(feed, history, at, longest);
  }

  setOpen(open) {
    this.open = open;
    this.toggle.setAttribute("aria-expanded", String(open));
    this.detail.hidden = !open;
    if (open && this.charts === undefined) this.makeDetail();
    this.drawIfSeen();
  }

  /** Canvases cost memory, so only feeds on the screen have some. */
  drawIfSeen() {
    for (const chart of this.charts ?? []) {
      if (this.open && this.seen) chart.show();
      else chart.hide();
    }
  }

  makeDetail() {
    const stage = element("select", { "aria-label": "Stage", onchange: (event) => { this.stage = event.target.value; this.redraw?.(); } },
      ...STAGES.map((one) => element("option", { value: one }, STAGE_NAMES[one])));
    const share = (value) => joined(percent(value));
    this.charts = [
      new Chart({
        name: "rates", title: "Events per second", write: count, least: () => 1,
        series: [{ label: "arriving", look: "main" }, { label: "matched", look: "second" }, { label: "delivered", look: "third" }],
      }),
      new Chart({
        name: "latency", title: "Latency", write: (value) => joined(duration(value)), least: () => 0.001, tools: stage,
        series: [{ label: "p50", look: "main" }, { label: "p99", look: "second" }],
      }),
      new Chart({
        name: "queue", title: "Waiting events", write: count, least: () => 4, series: [{ label: "waiting", look: "main" }],
      }),
      new Chart({
        name: "precision", title: "False matches", write: share, least: () => (this.maximum ?? 0.0001) * 1.2,
        series: [
          { label: "tolerated", look: "caution", stepped: true }, { label: "maximum", look: "limit" }, { label: "measured", look: "second" },
        ],
      }),
    ];
    this.stages = new Map(STAGES.map((one) => [one, [element("td"), element("td")]]));
    this.facts = element("dl", { class: "facts" });
    this.hint = element("div", { class: "feed-hint", hidden: true });
    this.detail.append(
      element("div", { class: "charts" }, ...this.charts.map((chart) => chart.element)),
      element("div", { class: "feed-more" },
        element("table", { class: "stages" },
          element("caption", {}, "Latency by stage, last 10 s"),
          element("thead", {}, element("tr", {}, ...["stage", "p50", "p99"].map((one) => element("th", { scope: "col" }, one)))),
          element("tbody", {}, ...STAGES.map((one) =>
            element("tr", {}, element("th", { scope: "row" }, STAGE_NAMES[one]), ...this.stages.get(one))))),
        this.facts, this.hint));
  }

  updateDetail(feed, history, at, longest) {
    this.maximum = feed.adaptive?.maximum;
    this.redraw = () => {
      const { ring } = history;
      const column = (name) => ring.values(name);
      const times = column("at");
      const [rates, latency, queue, precision] = this.charts;
      this.drawIfSeen();
      rates.update([times, column("received"), column("matched"), column("delivered")], at);
      latency.update([times, column(`${this.stage}_p50`), column(`${this.stage}_p99`)], at);
      queue.update([times, column("waiting")], at);
      precision.update([times, column("rate"), times.map(() => this.maximum ?? null), column("measured")], at);
    };
    this.redraw();
    for (const [stage, [half, most]] of this.stages) {
      const found = history.now.latency[stage] ?? {};
      setText(half, joined(latencyText(found.p50, longest)));
      setText(most, joined(latencyText(found.p99, longest)));
    }
    this.updateFacts(feed, history.now);
    const unused = feed.last_sequence === 0 && feed.received === 0 && feed.kind === "events";
    if (unused) showEmpty(this.hint, "No events yet", "Publish one in the section Trace, or with:", command(`feeds/${feed.name}/events`, "{…}"));
    else this.hint.hidden = true;
  }

  updateFacts(feed, { rates, precision, checked, sinceStart }) {
    const facts = [
      ["kind", feed.kind === "state" ? "state feed, always exact" : "events"],
      ["index", feed.index],
      ["subscriptions", exactly(feed.subscriptions)],
      ...(feed.kind === "state" ? [["publications", exactly(feed.publications)]] : []),
      ["matches", `${count(rates.matches)}/s${rates.matched > 0 ? `, ${count(rates.matches / rates.matched)} per event` : ""}`],
      ["last sequence", exactly(feed.last_sequence)],
      ["retention", retentionText(feed)],
      ["adjuster", adjusterText(feed)],
      ["precision", precisionText(precision, checked, sinceStart)],
    ];
    const key = JSON.stringify(facts);
    if (this.facts.dataset.shown === key) return;
    this.facts.dataset.shown = key;
    this.facts.replaceChildren(...facts.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
  }
}

function latencyText(seconds, longest) {
  const [value, unit] = duration(seconds);
  return seconds >= longest ? [`> ${value}`, unit] : [value, unit];
}

function retentionText({ retention, removed }) {
  const { days, bytes: most, events } = retention ?? {};
  const limits = [
    days == null ? null : plural(days, "day"), most == null ? null : joined(bytes(most)), events == null ? null : plural(events, "event"),
  ].filter((one) => one !== null);
  const gone = Object.entries(removed).map(([cause, number]) => `${exactly(number)} by ${cause}`);
  return `${limits.length > 0 ? limits.join(", ") : "as all feeds"}; removed: ${gone.length > 0 ? gone.join(", ") : "none"}`;
}

function adjusterText({ adaptive, rate }) {
  if (adaptive === null) return "off, always exact";
  const most = joined(percent(adaptive.maximum));
  const now = rate > 0 ? `now ${joined(percent(rate))}, at most ${most}` : `now exact, at most ${most}`;
  return `${now}; active when events wait longer than ${tidy(joined(duration(adaptive.threshold)))}`;
}

function precisionText(precision, checked, sinceStart) {
  if (!Number.isFinite(precision)) return "not measured yet";
  const when = sinceStart ? "since the start" : "last 5 min";
  return `${joined(percent(precision))} of ${plural(checked, "match", "matches")} checked were correct, ${when}`;
}
