/** Charts of the last five minutes, and lines the size of a word. */

import { drawing, element, setAttribute, setText } from "./dom.js";
import { NOTHING, tidy } from "./format.js";
import { SPAN_SECONDS } from "./samples.js";

const HEIGHT = 132;
const AXIS_FONT = "11px system-ui, sans-serif";
const LABEL_HALF = 18;
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

let palette = null;

/** Canvas knows no CSS variables, so they are read once for each theme. */
function colours() {
  if (palette === null) {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(`--${name}`).trim();
    palette = Object.fromEntries(
      ["accent", "accent-wash", "ink", "muted", "line", "warn", "warn-fill"].map((name) => [name, get(name)]),
    );
  }
  return palette;
}

const open = new Set();

export function repaintCharts() {
  palette = null;
  for (const chart of open) chart.plot.redraw(false);
}

/**
 * A chart with a heading that shows the value under the pointer, or the newest one.
 * `series`: {label, look, stepped}; `write` turns a value into text;
 * `least` is what the axis reaches at least.
 */
export class Chart {
  constructor({ name, title, series, write, least, tools }) {
    this.series = series;
    this.write = write;
    this.least = least;
    this.data = [[], ...series.map(() => [])];
    this.values = series.map(() => element("span", { class: "legend-value" }, NOTHING));
    const legend = series.map((one, index) =>
      element("span", { class: `legend legend-${one.look}` },
        element("i", { "aria-hidden": "true" }), element("span", {}, one.label), " ", this.values[index]));
    this.host = element("div", { class: "chart-plot", "data-chart": name, role: "img", "aria-label": `${title}, the last five minutes` });
    this.element = element("figure", { class: "chart" },
      element("figcaption", {},
        element("span", { class: "chart-title" }, title), tools ?? null, element("span", { class: "legends" }, ...legend)),
      this.host);
    this.plot = null;
    this.sizes = new ResizeObserver(() => this.resize());
  }

  show() {
    if (this.plot !== null || this.host.clientWidth === 0) return;
    this.plot = new window.uPlot(this.options(), this.drawnData(), this.host);
    open.add(this);
    this.sizes.observe(this.host);
  }

  hide() {
    if (this.plot === null) return;
    this.sizes.disconnect();
    open.delete(this);
    this.plot.destroy();
    this.plot = null;
  }

  resize() {
    const width = this.host.clientWidth;
    if (this.plot !== null && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  /** `data` is [times, values, …] as uPlot has them; null is a gap. */
  update(data, now) {
    this.data = data;
    this.now = now;
    if (this.plot !== null) this.plot.setData(this.drawnData(), true);
    this.label();
  }

  /** The first series is the one that matters, so it is drawn last, above the others. */
  drawnData() {
    const [times, ...columns] = this.data;
    return [times, ...columns.reverse()];
  }

  label() {
    const under = this.plot?.cursor.idx;
    this.values.forEach((node, index) => {
      const column = this.data[index + 1];
      const value = under === null || under === undefined ? column.at(-1) : column[under];
      setText(node, value === null || value === undefined ? NOTHING : this.write(value));
    });
  }

  options() {
    const axis = { font: AXIS_FONT, stroke: () => colours().muted, ticks: { show: false } };
    const grid = { stroke: () => colours().line, width: 1 };
    return {
      width: this.host.clientWidth,
      height: HEIGHT,
      padding: [6, 2, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "boxmatch" }, drag: { x: false, y: false }, points: { size: 6 }, y: false },
      scales: {
        x: { time: true, range: () => [(this.now ?? Date.now() / 1000) - SPAN_SECONDS, this.now ?? Date.now() / 1000] },
        y: { range: (_, __, high) => [0, Math.max(this.least(), (high ?? 0) * 1.12)] },
      },
      axes: [
        { ...axis, size: 22, gap: 4, grid: { show: false }, splits: minutes, values: (_, all) => all.map((at) => clock.format(at * 1000)) },
        { ...axis, size: 52, gap: 6, space: 34, grid, values: (_, all) => all.map((value) => value === 0 ? "0" : tidy(this.write(value))) },
      ],
      series: [{}, ...this.series.map(drawn).reverse()],
      hooks: { setCursor: [() => this.label()] },
    };
  }
}

/** A mark at each full minute, or at every other one where there is little room. */
function minutes(plot, _, low, high) {
  const step = plot.width < 260 ? 120 : 60;
  const margin = ((high - low) / plot.width) * LABEL_HALF; // a label at the edge would be cut
  const found = [];
  for (let at = Math.ceil((low + margin / 2) / step) * step; at <= high - margin; at += step) found.push(at);
  return found;
}

function drawn({ look, stepped }) {
  const colour = { main: "accent", second: "ink", third: "muted", limit: "muted", caution: "warn" }[look];
  const wash = { main: "accent-wash", caution: "warn-fill" }[look];
  return {
    stroke: () => colours()[colour],
    fill: wash === undefined ? undefined : () => colours()[wash],
    width: look === "main" || look === "caution" ? 1.5 : 1.25,
    dash: { third: [2, 3], limit: [6, 4] }[look],
    points: { show: false },
    paths: stepped ? window.uPlot.paths.stepped({ align: 1 }) : undefined,
    spanGaps: false,
  };
}

const SPARK = { width: 96, height: 22, points: 60 };

/** A line the size of a word. */
export function sparkline() {
  const line = drawing("polyline", { fill: "none" });
  const drawn = drawing("svg", {
    class: "spark", viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, width: SPARK.width, height: SPARK.height,
    "aria-hidden": "true", preserveAspectRatio: "none",
  }, line);
  return {
    element: drawn,
    update(ring) {
      const values = ring.values("received", SPARK.points);
      const most = Math.max(1, ...values.map((value) => value ?? 0));
      const step = SPARK.width / (SPARK.points - 1);
      const first = SPARK.points - values.length;
      const points = values.map((value, index) => {
        const height = SPARK.height - 1.5 - ((value ?? 0) / most) * (SPARK.height - 3);
        return `${((first + index) * step).toFixed(1)},${height.toFixed(1)}`;
      });
      setAttribute(line, "points", points.join(" "));
    },
  };
}
