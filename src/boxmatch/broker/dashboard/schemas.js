/** What events of a feed look like, for examples. */

import * as api from "./api.js";

/** [[name, type]…] of a feed; empty if the key may not see it. */
export async function attributesOf(feed, overview) {
  if (!overview.feeds.some((one) => one.name === feed)) return [];
  try {
    const { schema } = await api.feed(feed);
    return Object.entries(schema ?? {}).map(([name, spec]) => [name, typeName(spec)]);
  } catch {
    return []; // it is only a help for typing
  }
}

function typeName(spec) {
  if (typeof spec === "string") return spec;
  if (Array.isArray(spec)) return spec.slice(0, 4).join(" | ") + (spec.length > 4 ? " …" : "");
  const values = spec?.values ?? spec?.choices;
  return values ? typeName(values) : (spec?.type ?? "");
}

export function exampleFilter(attributes) {
  const numeric = attributes.find(([, type]) => /^(int|float|decimal\b.*)$/.test(type));
  if (numeric) return `${numeric[0]} >= 0`;
  return attributes.length > 0 ? `${attributes[0][0]} IS NOT NULL` : "";
}

const EXAMPLES = { int: 1, float: 1.5, decimal: "1", string: "text", bool: true, timestamp: "2026-01-01T12:00:00Z" };

export function exampleEvent(attributes) {
  return Object.fromEntries(attributes.slice(0, 12).map(([name, type]) => [name, EXAMPLES[type.replace(/\(.*/, "")] ?? type.split(" | ")[0]]));
}
