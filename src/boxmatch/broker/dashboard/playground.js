/** Try a filter: errors at their place, boxes, and recent events with the reason. */

import * as api from "./api.js";
import { dialectOf } from "./dialects.js";
import { byId, element, fillSelect, setText } from "./dom.js";
import { editorOf, parseObject, say, unitOffset } from "./editor.js";
import { exactly, joined, moment, percent, plural, sentence } from "./format.js";
import { recall, remember } from "./memory.js";
import { showNoEvents, showNoFeeds } from "./nothing_yet.js";
import { conditionText, eventLine, predicateList, verdict } from "./predicates.js";
import { attributesOf } from "./schemas.js";

const DEBOUNCE_MS = 250;

export class PlaygroundSection {
  constructor() {
    this.select = byId("filter-feed");
    this.dialects = byId("filter-dialect");
    this.dialects.value = recall("dialect") ?? this.dialects.value;
    this.attributes = [];
    this.editor = editorOf("filter");
    this.texts = new Map(recall("filters") ?? []);
    this.select.addEventListener("change", () => this.chooseFeed());
    this.dialects.addEventListener("change", () => this.chooseDialect());
    this.editor.area.addEventListener("input", () => this.later());
    this.editor.area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.run();
    });
    byId("filter-again").addEventListener("click", () => this.run());
    byId("only-matching").addEventListener("change", () => this.showRecent());
  }

  update(overview, { ofEvents: feeds, busiest }) {
    this.overview = overview;
    byId("playground-body").hidden = feeds.length === 0;
    byId("playground-empty").hidden = feeds.length > 0;
    this.sayNoEvents();
    if (feeds.length === 0) showNoFeeds(byId("playground-empty"), overview, "No feed of events yet");
    else if (fillSelect(this.select, feeds, busiest) || this.feed === undefined) this.chooseFeed();
  }

  async chooseFeed() {
    clearTimeout(this.timer); // what is there is not for this feed, or not in this language
    this.asking?.abort();
    this.feed = this.select.value;
    this.clear();
    const feed = this.feed;
    const before = this.editor.text;
    const attributes = await attributesOf(feed, this.overview);
    if (feed !== this.feed) return;
    this.attributes = attributes;
    this.showHelp();
    this.sayNoEvents();
    if (this.editor.text !== before) return; // what was typed in the meantime stays
    this.showText();
  }

  sayNoEvents() {
    const node = byId("playground-none");
    const feed = this.overview.feeds.find((one) => one.name === this.feed);
    if (feed?.last_sequence === 0) showNoEvents(node, this.feed, this.attributes);
    else node.hidden = true;
  }

  chooseDialect() {
    remember("dialect", this.dialects.value);
    return this.chooseFeed();
  }

  get dialect() {
    return dialectOf(this.dialects.value);
  }

  /** Under which a text is kept. Names of feeds have no spaces. */
  get place() {
    return this.dialects.value === "sql" ? this.feed : `${this.dialects.value} ${this.feed}`;
  }

  /** What was written last for this feed in this language, or an example. */
  showText() {
    this.editor.text = this.texts.get(this.place) ?? this.dialect.examples(this.attributes)[0] ?? "";
    this.run();
  }

  keepText() {
    this.texts.set(this.place, this.editor.text);
    remember("filters", [...this.texts].slice(-20));
  }

  showHelp() {
    byId("filter-form").replaceChildren(...this.dialect.hint.map((part) => (typeof part === "string" ? part : element("code", {}, ...part))));
    const chips = this.attributes.map(([name, type]) =>
      element("button", { type: "button", class: "chip", title: `insert ${name}`, onclick: () => this.editor.insert(this.dialect.name(name)) },
        name, element("span", { class: "chip-type" }, type)));
    byId("filter-attributes").replaceChildren(...labelled("Attributes", chips));
    const examples = this.dialect.examples(this.attributes).map((text) =>
      element("button", { type: "button", class: "chip", title: "use this filter", onclick: () => this.use(text) }, text));
    byId("filter-examples").replaceChildren(...labelled("Examples", examples));
  }

  use(text) {
    this.editor.text = text;
    this.editor.area.focus();
    this.run();
  }

  later() {
    clearTimeout(this.timer);
    this.keepText();
    this.timer = setTimeout(() => this.run(), DEBOUNCE_MS);
  }

  async run() {
    clearTimeout(this.timer);
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    const text = this.editor.text;
    this.keepText();
    if (text.trim() === "") return this.clear("Type a filter to see what it matches.");
    const filter = this.filterIn(text);
    if (filter === undefined) return;
    try {
      const found = await api.dryRun(this.feed, filter, this.dialects.value, asking.signal);
      if (!asking.signal.aborted) this.show(found);
    } catch (error) {
      if (!asking.signal.aborted) this.fail(error, text);
    }
  }

  filterIn(text) {
    // Other languages are read by the broker alone, which says what is wrong where.
    if (this.dialects.value !== "sql" || !text.trimStart().startsWith("{")) return text;
    const { value, message, offset } = parseObject(text);
    if (value === undefined) this.reject(message, offset);
    return value;
  }

  fail(error, text) {
    const { position } = error.problem;
    const message = error.message.split("\n")[0].replace(/ \(at offset \d+\)$/, "");
    this.reject(message, typeof position === "number" ? unitOffset(text, position) : null);
  }

  /** What was found for the text before would be wrong for this one. */
  reject(message, offset) {
    this.clear("The filter is not valid yet.");
    this.editor.fail(message, offset);
  }

  clear(text = "") {
    this.editor.clear();
    this.found = null;
    setText(byId("filter-summary"), text);
    for (const id of ["filter-boxes", "filter-residual", "filter-recent"]) byId(id).replaceChildren();
    for (const id of ["residual-part", "boxes-and", "boxes-axis"]) byId(id).hidden = true;
    for (const id of ["filter-warning", "recent-empty"]) say(byId(id), "");
  }

  show(found) {
    this.editor.clear();
    this.found = found;
    setText(byId("filter-summary"), found.events === null ? "The filter is valid."
      : found.events === 0 ? "The filter is valid. The feed has no events yet."
        : `Matches ${exactly(found.matches)} of the last ${plural(found.events, "event")} (${joined(percent(found.matches / found.events))}).`);
    const boxes = found.boxes ?? [];
    const count = found.box_count ?? boxes.length;
    const rest = count > boxes.length ? [element("li", { class: "none" }, `and ${plural(count - boxes.length, "box", "boxes")} more`)] : [];
    byId("filter-boxes").replaceChildren(...boxes.map(boxItem), ...rest,
      ...(count === 0 ? [element("li", { class: "none" }, "No boxes: the filter never matches.")] : []));
    byId("boxes-axis").hidden = !boxes.some((box) => box.some(({ cost }) => cost === "axis"));
    this.showResidual(found.residual ?? []);
    say(byId("filter-warning"), found.warning ? `${sentence(found.warning)}.` : "");
    this.showRecent();
  }

  showResidual(residual) {
    for (const id of ["residual-part", "boxes-and"]) byId(id).hidden = residual.length === 0;
    byId("filter-residual").replaceChildren(...residual.map((text) => element("li", {}, element("code", {}, conditionText(text)))));
  }

  showRecent() {
    if (!this.found) return;
    const recent = this.found.recent ?? [];
    const shown = byId("only-matching").checked ? recent.filter((one) => one.matches) : recent;
    byId("filter-recent").replaceChildren(...shown.map(recentItem));
    const why = this.found.events === 0 ? "None yet." : recent.length === 0 ? "This key may not read the events of the feed."
      : shown.length === 0 ? `None of the last ${exactly(recent.length)} events matches.` : "";
    say(byId("recent-empty"), why);
  }
}

const labelled = (label, chips) => (chips.length > 0 ? [element("p", { class: "label" }, label), ...chips] : []);

function boxItem(conditions) {
  const alone = conditions.length === 1;
  const parts = conditions.map(({ wanted, cost }) =>
    element("code", { class: cost === "axis" ? "axis" : null }, alone || !wanted.includes(" OR ") ? wanted : `(${wanted})`));
  return element("li", {}, ...(parts.length === 0 ? [element("span", { class: "always" }, "everything")] : parts));
}

function recentItem(one) {
  return element("li", { "data-matches": String(one.matches) },
    element("div", { class: "judged-head" }, verdict(one.matches, "matches", "does not match"),
      element("span", { class: "sequence" }, exactly(one.sequence)), element("span", { class: "when" }, moment(one.at)),
      eventLine(one.event)),
    predicateList(one.predicates));
}
