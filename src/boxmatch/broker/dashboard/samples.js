/** From counters that only grow to rates and percentiles, over the last five minutes. */

export const SPAN_SECONDS = 300;
export const STAGES = ["end_to_end", "wait", "match", "commit"];

const COUNTERS = ["received", "matched", "matches", "delivered"];
const RATE_WINDOW = 3;
const LATENCY_WINDOW = 10;
const MEASURE_WINDOW = 30;
/** Longer than a hidden page waits between two requests: then nothing is known of the time between. */
const GAP_SECONDS = 25;
const LEAST_STEP = 0.5;
/** After so long without an event a feed is idle. */
const IDLE_SECONDS = 60;

/** Columns of numbers of which the oldest go first. What is not known is NaN. */
export class Ring {
  constructor(names, capacity) {
    this.capacity = capacity;
    this.length = 0;
    this.next = 0;
    this.columns = new Map(names.map((name) => [name, new Float64Array(capacity).fill(NaN)]));
  }

  push(row) {
    for (const [name, column] of this.columns) column[this.next] = row[name] ?? NaN;
    this.next = (this.next + 1) % this.capacity;
    this.length = Math.min(this.length + 1, this.capacity);
  }

  /** Oldest first; gaps are null, as charts want them. */
  values(name, most = this.length) {
    const column = this.columns.get(name);
    const taken = Math.min(most, this.length);
    const found = new Array(taken);
    for (let index = 0; index < taken; index++) {
      const value = column[(this.next - taken + index + this.capacity) % this.capacity];
      found[index] = Number.isNaN(value) ? null : value;
    }
    return found;
  }

  last(name) {
    return this.length === 0 ? NaN : this.columns.get(name)[(this.next - 1 + this.capacity) % this.capacity];
  }
}

/** Below which a share of the counted values lies, evenly spread inside a bucket. */
export function percentile(counts, buckets, share) {
  const total = counts.reduce((sum, one) => sum + one, 0);
  if (total <= 0) return NaN;
  let left = share * total;
  for (let index = 0; index < buckets.length; index++) {
    if (left <= counts[index]) {
      const low = index === 0 ? 0 : buckets[index - 1];
      return low + (buckets[index] - low) * (left / counts[index]);
    }
    left -= counts[index];
  }
  return buckets.at(-1); // somewhere beyond: shown as "more than"
}

const columnNames = [
  "at", ...COUNTERS, "waiting", "rate", "measured",
  ...STAGES.flatMap((stage) => [`${stage}_p50`, `${stage}_p99`]),
];

/** What one feed did: a ring for the charts, and the numbers of now. */
export class FeedHistory {
  constructor() {
    this.ring = new Ring(columnNames, SPAN_SECONDS);
    this.activeAt = -Infinity;
    this.clear();
  }

  clear() {
    this.recent = []; // samples as they came, for differences
    this.checks = []; // of the last five minutes: when, matches checked, of these false
    this.now = { rates: {}, load: NaN, latency: {}, waiting: NaN, rate: 0, precision: NaN, checked: 0 };
  }

  push(feed, at, buckets) {
    const previous = this.recent.at(-1);
    if (previous !== undefined) {
      if (at - previous.at < LEAST_STEP) return;
      const restarted = COUNTERS.some((name) => feed[name] < previous.feed[name]);
      if (restarted || at - previous.at > GAP_SECONDS) {
        this.clear();
        this.ring.push({ at: previous.at + 0.001 }); // so that no line bridges the gap
      }
    }
    if (previous !== undefined && feed.committed + feed.received > previous.feed.committed + previous.feed.received) this.activeAt = at;
    this.recent.push({ at, feed });
    while (this.recent.length > 2 && this.recent[1].at <= at - MEASURE_WINDOW) this.recent.shift();
    this.checks.push([at, feed.sampled_matches, feed.sampled_false]);
    while (this.checks.length > 2 && this.checks[0][0] < at - SPAN_SECONDS) this.checks.shift();
    this.now = this.summary(feed, at, buckets);
    this.ring.push(this.row(feed, at));
  }

  idle(at) {
    return at - this.activeAt > IDLE_SECONDS && !(this.now.waiting > 0);
  }

  /** The sample from which differences over a window are taken. */
  since(at, seconds) {
    let found = this.recent[0];
    for (const one of this.recent) if (one.at <= at - seconds + LEAST_STEP / 2) found = one;
    return found;
  }

  summary(feed, at, buckets) {
    const before = this.since(at, RATE_WINDOW);
    const elapsed = at - before.at;
    const rates = {};
    for (const name of COUNTERS) rates[name] = elapsed > 0 ? (feed[name] - before.feed[name]) / elapsed : NaN;
    // Of a state feed, changes are counted when they are stored.
    const load = Math.max(rates.received, (feed.committed - before.feed.committed) / elapsed);
    const start = this.since(at, LATENCY_WINDOW).feed;
    const latency = {};
    for (const stage of STAGES) {
      const counts = (feed.stages?.[stage] ?? []).map((value, index) => value - (start.stages?.[stage]?.[index] ?? 0));
      latency[stage] = { p50: percentile(counts, buckets, 0.5), p99: percentile(counts, buckets, 0.99) };
    }
    return { rates, load, latency, waiting: feed.waiting, rate: feed.rate, ...this.precision(feed) };
  }

  precision(feed) {
    const [, matches, wrong] = this.checks[0];
    const checked = feed.sampled_matches - matches;
    if (checked > 0) return { precision: 1 - (feed.sampled_false - wrong) / checked, checked, sinceStart: false };
    const all = feed.sampled_matches;
    return { precision: all > 0 ? 1 - feed.sampled_false / all : NaN, checked: all, sinceStart: true };
  }

  row(feed, at) {
    const previous = this.recent.at(-2);
    const row = { at, waiting: feed.waiting, rate: feed.rate };
    for (const name of COUNTERS) {
      row[name] = previous ? (feed[name] - previous.feed[name]) / (at - previous.at) : NaN;
    }
    const start = this.since(at, MEASURE_WINDOW).feed;
    const checked = feed.sampled_matches - start.sampled_matches;
    row.measured = checked > 0 ? (feed.sampled_false - start.sampled_false) / checked : NaN;
    for (const stage of STAGES) {
      row[`${stage}_p50`] = this.now.latency[stage].p50;
      row[`${stage}_p99`] = this.now.latency[stage].p99;
    }
    return row;
  }
}

/** The histories of all feeds that are there. */
export class Histories {
  constructor() {
    this.byFeed = new Map();
    this.buckets = [];
  }

  of(name) {
    if (!this.byFeed.has(name)) this.byFeed.set(name, new FeedHistory());
    return this.byFeed.get(name);
  }

  add(overview) {
    this.buckets = overview.buckets;
    const there = new Set(overview.feeds.map((feed) => feed.name));
    for (const name of this.byFeed.keys()) if (!there.has(name)) this.byFeed.delete(name);
    for (const feed of overview.feeds) this.of(feed.name).push(feed, overview.at, overview.buckets);
  }

  /** Takes from what the broker kept all that came after what is known. */
  fill({ buckets, samples }) {
    for (const { at, feeds } of samples) for (const feed of feeds) this.of(feed.name).push(feed, at, buckets);
  }
}

/** The growth a second of numbers that only grow, between two looks at them. */
export class Rates {
  constructor() {
    this.before = null;
    this.found = new Map();
  }

  /** `counts` is a Map from a name to a count. */
  look(at, counts) {
    if (this.before !== null && at - this.before.at < LEAST_STEP) return this.found;
    const found = new Map();
    for (const [name, value] of counts) {
      const last = this.before?.counts.get(name);
      if (last !== undefined) found.set(name, Math.max(0, value - last) / (at - this.before.at));
    }
    this.before = { at, counts };
    this.found = found;
    return found;
  }
}
