/** Numbers as people read them. A value and its unit are apart, so that columns line up. */

export const NOTHING = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const significant = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const clockTime = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayAndTime = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/** From where a unit is used (as it would be rounded), and its size. */
const LARGE = [[999.5e9, 1e12, "T"], [999.5e6, 1e9, "G"], [999.5e3, 1e6, "M"], [9999.5, 1e3, "k"]];

/** 0, 3.4, 812, 9,999, 12.3 k, 4.56 M. */
export function count(value) {
  if (!Number.isFinite(value)) return NOTHING;
  const found = LARGE.find(([from]) => Math.abs(value) >= from);
  if (found) return `${significant.format(value / found[1])} ${found[2]}`;
  return Math.abs(value) < 9.95 && value % 1 !== 0 ? value.toFixed(1) : whole.format(value);
}

/** A count in full, for titles and for those who want all digits. */
export const exactly = (value) => (Number.isFinite(value) ? whole.format(value) : NOTHING);

/** [value, unit] of a time in seconds. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return [NOTHING, ""];
  if (seconds >= 120) return [significant.format(seconds / 60), "min"];
  if (seconds >= 1) return [seconds.toFixed(seconds < 10 ? 2 : 1), "s"];
  const milliseconds = seconds * 1000;
  const digits = milliseconds >= 99.95 ? 0 : milliseconds >= 9.995 ? 1 : 2;
  return [milliseconds.toFixed(digits), "ms"];
}

/** [value, "%"] of a share, with enough digits to tell 99.98 from 100. */
export function percent(share) {
  if (!Number.isFinite(share)) return [NOTHING, ""];
  const value = share * 100;
  if (value > 50 && value < 100) {
    const away = 100 - value;
    const digits = Math.min(6, Math.max(1, 1 - Math.floor(Math.log10(away))));
    // Rounding up would call something exact that is not.
    return [(Math.floor(value * 10 ** digits) / 10 ** digits).toFixed(digits), "%"];
  }
  return [value !== 0 && value < 0.00001 ? value.toExponential(0) : significant.format(value), "%"];
}

export function bytes(value) {
  if (!Number.isFinite(value)) return [NOTHING, ""];
  const units = ["B", "KB", "MB", "GB", "TB"];
  const step = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(value) / 3));
  return [significant.format(value / 1000 ** step), units[step]];
}

/** 20 ms, not 20.0 ms, where no column has to line up. */
export const tidy = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

export const joined = ([value, unit]) => (unit ? `${value} ${unit}` : value);

export const clock = (at) => clockTime.format(new Date(at * 1000));

/** A moment: of today by the clock, of other days with the date. */
export function moment(at) {
  const value = typeof at === "number" ? at * 1000 : Date.parse(at);
  if (!Number.isFinite(value)) return NOTHING;
  const then = new Date(value);
  return then.toDateString() === new Date().toDateString() ? clockTime.format(then) : dayAndTime.format(then);
}

export const sentence = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

export const plural = (number, one, many = `${one}s`) => `${exactly(number)} ${number === 1 ? one : many}`;

/** A value of an event, as a filter would write it. */
export function literal(value) {
  if (value === null || value === undefined) return "absent";
  return typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : JSON.stringify(value);
}

/** A filter as it was given: SQL, or JSON. */
export const filterText = (filter) => (typeof filter === "string" ? filter : JSON.stringify(filter));
