/** What events of a feed look like, for examples. */

import * as api from "./api.js";

/** The attribute that stands for the whole event, of feeds without a schema. */
const ROOT = "$";
/** That are shown of an event. */
const MOST = 40;

/** [[name, type, fields]…] of a feed; empty if the key may not see it. Where events may have any
 * attributes, those of the newest one are among them. */
export async function attributesOf(feed, overview) {
  if (!overview.feeds.some((one) => one.name === feed)) return [];
  try {
    const { schema } = await api.feed(feed);
    const { [ROOT]: root, ...typed } = schema ?? {};
    const known = Object.entries(typed).map(described);
    if (root === undefined) return known;
    const found = attributesIn((await newestEvent(feed)) ?? {}).filter(([name]) => !(name in typed));
    return [...known, ...found.slice(0, MOST)];
  } catch {
    return []; // it is only a help for typing
  }
}

/** The newest event of a feed; null if it has none, or the key may not read it. */
export async function newestEvent(feed) {
  try {
    const { last_sequence: last } = await api.feed(feed); // what was looked at may be a second old
    return last === 0 ? null : ((await api.events(feed, last - 1)).events[0]?.event ?? null);
  } catch {
    return null;
  }
}

/** [[name, type]…] of the values in an event. */
function attributesIn(event, parent = "") {
  return Object.entries(event).flatMap(([key, value]) => {
    const name = parent + key;
    return value !== null && typeof value === "object" && !Array.isArray(value)
      ? attributesIn(value, `${name}.`) : [[name, typeOf(value)]];
  });
}

function typeOf(value) {
  if (Array.isArray(value)) return typeof value[0] === "string" ? `${LIST_OF}string` : "list";
  return { number: "float", string: "string", boolean: "bool" }[typeof value] ?? "null";
}

/** A name as SQL takes it. */
export const quoted = (name) => (/^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

/** [name, type], and of a list of structs also what its fields are. */
const described = ([name, spec]) => [name, typeName(spec), Object.entries(spec?.fields ?? {}).map(described)];

const LIST_OF = "list of ";

function typeName(spec) {
  if (typeof spec === "string") return spec;
  if (Array.isArray(spec)) return spec.slice(0, 4).join(" | ") + (spec.length > 4 ? " …" : "");
  const values = spec?.values ?? spec?.choices;
  return values ? (spec.type?.startsWith(LIST_OF) ? LIST_OF : "") + typeName(values) : (spec?.type ?? "");
}

export const isNumber = ([, type]) => /^(int|float|decimal\b.*)$/.test(type);

/** One of each kind that the attributes allow: values, expressions, texts, times, lists. */
export function exampleFilters(attributes) {
  const of = (...types) => attributes.filter(([, type]) => types.includes(type)).map(([name]) => quoted(name));
  const numbers = attributes.filter(isNumber).map(([name]) => quoted(name));
  const [text] = of("string");
  const [time] = of("timestamp");
  const [list] = of("list of string");
  const [items, , fields] = attributes.find(([, type]) => type === "list of struct") ?? [];
  const field = fields?.find(isNumber)?.[0];
  return [
    numbers.length > 0 ? `${numbers[0]} >= 0` : attributes.length > 0 && `${quoted(attributes[0][0])} IS NOT NULL`,
    numbers.length > 1 && `${numbers[0]} * ${numbers[1]} > 100`,
    text && `${text} ILIKE '%word%'`,
    text && `${text} RLIKE '^[A-Z]{3}$'`,
    time && `HOUR(${time}) BETWEEN 9 AND 17`,
    list && `'a' = ANY(${list})`,
    field && `EXISTS(${items}, i -> i.${field} > 10)`,
  ].filter(Boolean);
}

const EXAMPLES = { int: 1, float: 1.5, decimal: "1", string: "text", bool: true, timestamp: "2026-01-01T12:00:00Z" };

export function exampleEvent(attributes) {
  const event = {};
  for (const [name, type, fields] of attributes.slice(0, 12)) {
    const path = name.split(".");
    const parent = path.slice(0, -1).reduce((inside, key) => (inside[key] ??= {}), event);
    parent[path.at(-1)] = exampleValue(type, fields);
  }
  return event;
}

function exampleValue(type, fields) {
  if (type.startsWith(LIST_OF)) return [exampleValue(type.slice(LIST_OF.length), fields)];
  if (type === "struct") return exampleEvent(fields);
  return EXAMPLES[type.replace(/\(.*/, "")] ?? type.split(" | ")[0];
}
