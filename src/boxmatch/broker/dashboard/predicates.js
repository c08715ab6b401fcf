/** Why something matches or not, condition by condition. */

import { element } from "./dom.js";
import { literal } from "./format.js";

export function verdict(matches, yes, no) {
  return element("span", { class: matches ? "sign yes" : "sign no" },
    element("span", { "aria-hidden": "true" }, matches ? "✓" : "✗"), element("span", { class: "unseen" }, matches ? yes : no));
}

/** A condition. One of another dialect that no box expresses is the whole filter, which is long. */
export const conditionText = (text) => (text.startsWith("WANTED(") ? "the filter as a whole" : text);

export function predicateList(predicates) {
  if (predicates.length === 0) return element("p", { class: "always" }, "no condition");
  return element("ul", { class: "predicates" }, ...predicates.map(({ wanted, got, satisfied, residual }) =>
    element("li", { "data-satisfied": String(satisfied) },
      verdict(satisfied, "holds:", "fails:"),
      element("code", { class: "wanted" }, conditionText(wanted)),
      residual ? element("span", { class: "tag", title: "no box expresses it" }, "residual") : null,
      element("span", { class: "got" }, residual ? "is " : "got ", element("code", {}, residual ? truth(got) : literal(got))))));
}

const truth = (value) => (value === null || value === undefined ? "unknown" : String(value));

/** An event on one line, attribute by attribute. */
export function eventLine(event) {
  return element("code", { class: "event-line" }, ...Object.entries(event).flatMap(([name, value], index) => [
    index === 0 ? "" : ", ", element("span", { class: "attribute" }, `${name} `), value === null ? "null" : literal(value),
  ]));
}
