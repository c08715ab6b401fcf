/** Puts the parts together: sections, keys of access, and what each look at the broker changes. */

import * as api from "./api.js";
import { byId, setAttribute, setText } from "./dom.js";
import { exactness } from "./feed_card.js";
import { FeedsSection } from "./feeds.js";
import { clock, sentence } from "./format.js";
import { startKeyboard } from "./keyboard.js";
import { PlaygroundSection } from "./playground.js";
import { Poll } from "./poll.js";
import { Histories } from "./samples.js";
import { SubscribersSection } from "./subscribers.js";
import { SubscriptionsSection } from "./subscriptions.js";
import { startTheme, toggleTheme } from "./theme.js";
import { Totals } from "./totals.js";
import { TraceSection } from "./trace.js";
import { Trouble } from "./trouble.js";

const SECTIONS = ["feeds", "subscribers", "subscriptions", "playground", "trace"];
/** Where the key / leads. */
const FIELDS = {
  feeds: "feeds-search", subscribers: "subscribers-search", subscriptions: "subscriptions-feed",
  playground: "filter-text", trace: "trace-event",
};
const ANNOUNCE_MS = 5_000;

const histories = new Histories();
const states = new Map();
let overview = null;
let names = { all: [], ofEvents: [], busiest: undefined, subscribed: undefined };
let ownFeeds = [];
let ownMark = "";
let allowed = new Set();
let lastHeard = null;
let announcedAt = 0;
let shown = null;

startTheme();
const totals = new Totals();
const trouble = new Trouble();
const feeds = new FeedsSection();
const parts = {
  feeds: { update: () => { totals.update(overview, histories); feeds.update(overview, histories); } },
  subscribers: new SubscribersSection(),
  subscriptions: new SubscriptionsSection(),
  playground: new PlaygroundSection(),
  trace: new TraceSection(),
};

const poll = new Poll({ onOverview, onHistory: (kept) => histories.fill(kept), onStatus });

async function onOverview(found) {
  const first = overview === null;
  overview = found;
  lastHeard = found.at;
  histories.add(found);
  trouble.update(found, histories);
  await findNames();
  setText(byId("version"), found.version);
  allowed = allowedSections(found);
  announceStates();
  if (first) route();
  else update();
}

/** Which parts a key has no use for, since all that it would ask there is refused. */
function allowedSections({ roles, feeds: seen }) {
  const subscribes = roles.admin || roles.subscribe.length > 0;
  const asks = subscribes || seen.length > 0;
  return new Set(["feeds", ...(subscribes ? ["subscribers", "subscriptions"] : []), ...(asks ? ["playground", "trace"] : [])]);
}

/** Feeds to choose from. Who only subscribes sees none, but knows those that it subscribes to. */
async function findNames() {
  const { roles, feeds: seen, subscribers } = overview;
  const mark = JSON.stringify(subscribers.map((one) => [one.subscriber, one.subscriptions]));
  if (!roles.admin && mark !== ownMark) {
    ownMark = mark;
    const found = await Promise.all(subscribers.slice(0, 10).map((one) => api.subscriber(one.subscriber).then((all) => all.feeds, () => [])));
    ownFeeds = found.flat();
  }
  const all = [...new Set([...seen.map((feed) => feed.name), ...ownFeeds])];
  const ofState = new Set(seen.filter((feed) => feed.kind === "state").map((feed) => feed.name));
  const load = (feed) => histories.of(feed.name).now.load || 0;
  const byLoad = [...seen].sort((a, b) => load(b) - load(a) || b.received - a.received);
  const busiest = byLoad.find((feed) => feed.kind === "events")?.name;
  const subscribed = byLoad.find((feed) => feed.subscriptions > 0)?.name;
  names = { all, ofEvents: all.filter((name) => !ofState.has(name)), busiest, subscribed };
}

function current() {
  const wanted = location.hash.slice(1);
  if (allowed.has(wanted)) return wanted;
  return overview.feeds.length === 0 && !overview.roles.admin && allowed.has("subscribers") ? "subscribers" : "feeds";
}

function update() {
  for (const link of document.querySelectorAll("#tabs a")) link.parentElement.hidden = !allowed.has(link.dataset.section);
  if (byId(current()).hidden) route();
  else parts[current()].update(overview, names);
}

/** Shows one section. `byReader`: the focus goes there, as it would with a new page. */
function route(byReader = false) {
  if (overview === null) return;
  const section = current();
  shown = section;
  for (const name of SECTIONS) byId(name).hidden = name !== section;
  for (const link of document.querySelectorAll("#tabs a")) {
    setAttribute(link, "aria-current", link.dataset.section === section ? "page" : null);
  }
  document.title = `${byId(`${section}-title`).textContent} · Boxmatch`;
  update();
  scrollTo(0, 0);
  document.querySelector("#tabs [aria-current]").scrollIntoView({ block: "nearest", inline: "nearest" });
  if (byReader) byId(`${section}-title`).focus({ preventScroll: true });
}

function onStatus(status, error) {
  setText(byId("status"), status);
  document.body.dataset.status = status.replace(" ", "-");
  byId("pause").setAttribute("aria-pressed", String(poll.paused));
  const trouble = byId("trouble");
  trouble.hidden = status !== "no connection";
  if (status === "no connection") {
    const reason = error?.message ?? "the broker does not respond";
    setText(trouble, `${sentence(reason)}. ${lastHeard === null ? "" : `The figures are from ${clock(lastHeard)}. `}Reconnecting.`);
  }
  showLock(status === "key needed", error);
}

function showLock(locked, error) {
  const form = byId("key-form");
  const appeared = locked && form.hidden;
  form.hidden = !locked;
  byId("forget-key").hidden = locked || !api.hasKey();
  document.body.toggleAttribute("data-locked", locked);
  if (!locked) return;
  for (const name of SECTIONS) byId(name).hidden = true;
  const refused = api.hasKey();
  byId("key-error").hidden = !refused;
  setText(byId("key-error"), refused ? `Key not accepted: ${error.message}.` : "");
  if (appeared) byId("key").focus();
}

function announceStates() {
  const changed = overview.feeds.filter((feed) => {
    const { state } = exactness(feed);
    const before = states.get(feed.name);
    states.set(feed.name, state);
    return before !== undefined && before !== state;
  });
  if (changed.length === 0 || Date.now() - announcedAt < ANNOUNCE_MS) return;
  announcedAt = Date.now();
  const said = changed.slice(0, 3).map((feed) => `${feed.name} is ${exactness(feed).text}`);
  setText(byId("announce"), said.join("; "));
}

function togglePause() {
  poll.setPaused(!poll.paused);
}

function focusField() {
  if (overview === null) return;
  byId(FIELDS[current()]).focus();
}

function goTo(section) {
  if (!allowed.has(section)) return;
  location.hash = section;
  route(true); // now, and not with the event: the next key may be pressed already
}

byId("pause").addEventListener("click", togglePause);
byId("forget-key").addEventListener("click", () => {
  api.setKey(null);
  location.reload();
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  api.setKey(byId("key").value.trim());
  byId("key").value = "";
  if (overview === null) poll.restart();
  else location.reload(); // so that nothing of what another key saw is left
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # says which section is shown
  byId("main").focus();
});
addEventListener("hashchange", () => {
  if (overview !== null && current() !== shown) route(true);
});
startKeyboard({
  ...Object.fromEntries(SECTIONS.map((name, index) => [String(index + 1), () => goTo(name)])),
  p: togglePause,
  t: toggleTheme,
  "/": focusField,
  j: () => feeds.step(1),
  k: () => feeds.step(-1),
});
poll.restart();
