/** Tables whose rows stay the same elements from one look to the next. */

import { arrange, element, setAttribute, setText } from "./dom.js";

/** Below it a bar is a speck. */
const LEAST_SHARE = 0.03;

/**
 * `columns`: {name, number?, code?, wide?, cell(row) → text or {text, title?, level?, share?}}.
 * Roles are given in full, since narrow screens show rows as blocks, which would drop them.
 */
export class Table {
  constructor(table, columns, keyOf) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.rows = new Map();
    this.body = element("tbody", { role: "rowgroup" });
    table.setAttribute("role", "table");
    table.replaceChildren(
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" },
        ...columns.map((one) =>
          element("th", { scope: "col", role: "columnheader", class: one.number ? "number-cell" : null }, one.name)))),
      this.body);
  }

  update(rows) {
    const there = new Set(rows.map(this.keyOf));
    for (const key of this.rows.keys()) if (!there.has(key)) this.rows.delete(key);
    arrange(this.body, rows.map((row) => this.row(row)));
  }

  row(data) {
    const key = this.keyOf(data);
    if (!this.rows.has(key)) {
      const cells = this.columns.map((one, index) => element(index === 0 ? "th" : "td", {
        "data-label": one.name, role: index === 0 ? "rowheader" : "cell", scope: index === 0 ? "row" : null,
        class: [one.number && "number-cell", one.code && "code-cell", one.wide && "wide-cell"].filter(Boolean).join(" ") || null,
      }, element("span")));
      this.rows.set(key, element("tr", { role: "row" }, ...cells));
    }
    const row = this.rows.get(key);
    this.columns.forEach((column, index) => fill(row.children[index], column.cell(data)));
    return row;
  }
}

function fill(cell, given) {
  const { text, title = null, level = null, share = null } = typeof given === "object" ? given : { text: given };
  setText(cell.firstChild, text);
  setAttribute(cell, "title", title);
  setAttribute(cell, "data-level", level);
  setAttribute(cell, "data-empty", text === "" ? "yes" : null);
  if (share === null) return;
  setAttribute(cell, "data-share", "");
  const seen = share < LEAST_SHARE ? 0 : share;
  cell.style.setProperty("--share", `${(seen * 100).toFixed(1)}%`);
}
