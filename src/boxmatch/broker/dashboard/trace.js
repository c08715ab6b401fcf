/** Who gets an event, and why the others do not; and, if wanted, send it. */

import * as api from "./api.js";
import { byId, element, fillSelect, setText } from "./dom.js";
import { editorOf, parseObject, say } from "./editor.js";
import { exactly, filterText, joined, percent, plural } from "./format.js";
import { showNoFeeds, showNoSubscriptions } from "./nothing_yet.js";
import { predicateList, verdict } from "./predicates.js";
import { attributesOf, exampleEvent, newestEvent } from "./schemas.js";

export class TraceSection {
  constructor() {
    this.select = byId("trace-feed");
    this.editor = editorOf("trace");
    this.select.addEventListener("change", () => this.chooseFeed());
    byId("trace-form").addEventListener("submit", (event) => { event.preventDefault(); this.send(false); });
    byId("trace-publish").addEventListener("click", () => this.send(true));
    byId("trace-example").addEventListener("click", () => this.fillExample());
    this.editor.area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.send(false);
    });
  }

  update(overview, { ofEvents: feeds, busiest }) {
    this.overview = overview;
    byId("trace-body").hidden = feeds.length === 0;
    byId("trace-empty").hidden = feeds.length > 0;
    if (feeds.length === 0) showNoFeeds(byId("trace-empty"), overview, "No feed of events yet");
    else if (fillSelect(this.select, feeds, busiest) || this.feed === undefined) this.chooseFeed();
    byId("trace-publish").hidden = !this.may("publish");
  }

  may(what) {
    const { roles } = this.overview;
    return roles.admin || roles[what].includes("*") || roles[what].includes(this.select.value);
  }

  chooseFeed() {
    this.feed = this.select.value;
    this.asking?.abort();
    this.attributes = [];
    this.editor.text = "";
    this.clear();
    byId("trace-publish").hidden = !this.may("publish");
    return this.fillExample();
  }

  /** The newest event, or an example; and who gets it. */
  async fillExample() {
    const feed = this.feed;
    const before = this.editor.text;
    const reads = this.may("read");
    const [newest, attributes] = await Promise.all([reads ? newestEvent(feed) : null, attributesOf(feed, this.overview)]);
    if (feed !== this.feed) return;
    this.attributes = attributes;
    if (this.editor.text !== before) return; // what was typed in the meantime stays
    this.editor.text = JSON.stringify(newest ?? exampleEvent(attributes), null, 2);
    const why = reads ? "The feed has no events yet: this is an example, which you may publish." : "An example: this key may not read the events of the feed.";
    await this.send(false);
    if (feed === this.feed) say(byId("trace-made-up"), newest === null ? why : "");
  }

  async send(publish) {
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    const text = this.editor.text;
    const { value, message, offset } = parseObject(text);
    if (value === undefined) return this.reject(message, offset);
    this.busy(true);
    try {
      const found = await api.trace(this.feed, value, publish, asking.signal);
      this.editor.clear();
      this.show(found);
    } catch (error) {
      if (!asking.signal.aborted) this.reject(error.message, placeOf(attributeOf(error), text));
    } finally {
      if (this.asking === asking) this.busy(false);
    }
  }

  busy(busy) {
    for (const id of ["trace-send", "trace-publish"]) byId(id).disabled = busy;
  }

  reject(message, offset) {
    this.clear();
    this.editor.fail(message, offset);
  }

  clear() {
    this.editor.clear();
    setText(byId("trace-summary"), "Nothing traced yet.");
    for (const id of ["trace-gets", "trace-misses"]) byId(id).replaceChildren();
    for (const id of ["trace-made-up", "trace-rate", "gets-hint", "misses-hint"]) say(byId(id), "");
    byId("trace-none").hidden = true;
  }

  show(found) {
    const all = found.matched + found.missed;
    const sent = found.sequence === null ? "Not published." : `Published with sequence ${exactly(found.sequence)}.`;
    setText(byId("trace-summary"), all === 0 ? `${sent} There are no subscriptions yet.`
      : `${sent} ${exactly(found.matched)} of ${plural(all, "subscription")} ${found.matched === 1 ? "matches" : "match"}.`);
    if (all === 0) showNoSubscriptions(byId("trace-none"), this.feed, this.attributes);
    else byId("trace-none").hidden = true;
    say(byId("trace-made-up"), "");
    const rate = joined(percent(found.rate));
    say(byId("trace-rate"), found.rate > 0 ? `The feed currently tolerates ${rate} of false matches; this result is exact.` : "");
    byId("trace-gets").replaceChildren(...found.gets.map((one) => item(one, true)));
    byId("trace-misses").replaceChildren(...found.misses.map((one) => item(one, false)));
    say(byId("gets-hint"), hint(found.matched, found.gets.length, "None."));
    say(byId("misses-hint"), hint(found.missed, found.misses.length, all === 0 ? "None." : "None: all match."));
  }
}

function hint(all, shown, none) {
  if (all === 0) return none;
  if (shown === 0) return `${exactly(all)}; this key may not see which.`;
  return all > shown ? `and ${exactly(all - shown)} more` : "";
}

/** What an error is about. Not every one says so apart from its text. */
const attributeOf = (error) => error.problem.attribute ?? error.message.match(/^attribute '(.+?)' /)?.[1];

/** Where an attribute stands in the text of the event. */
function placeOf(attribute, text) {
  if (typeof attribute !== "string") return null;
  const found = text.indexOf(JSON.stringify(attribute));
  return found < 0 ? null : found;
}

function item(one, gets) {
  const failed = gets ? "" : plural(one.failed, "condition fails", "conditions fail");
  return element("li", { "data-subscriber": one.subscriber, "data-id": one.id },
    element("div", { class: "judged-head" }, verdict(gets, "matches:", "does not match:"),
      element("span", { class: "who" }, one.subscriber, element("span", { class: "slash" }, "/"), one.id),
      one.dialect ? element("span", { class: "tag" }, one.dialect) : null,
      one.exact ? element("span", { class: "tag" }, "always exact") : null,
      element("span", { class: "when" }, failed)),
    gets ? element("code", { class: "filter-line" }, filterText(one.filter)) : predicateList(one.predicates));
}
