/** A text field that can show where its text is wrong: a layer below it has the mark. */

import { byId, element, setText } from "./dom.js";
import { sentence } from "./format.js";

/** Offsets of the broker count characters; strings here count UTF-16 units. */
export function unitOffset(text, characters) {
  let units = 0;
  let left = characters;
  for (const character of text) {
    if (left-- <= 0) break;
    units += character.length;
  }
  return units;
}

/** The word or sign at an offset; a blank behind the text where something is missing. */
function split(text, offset) {
  const rest = text.slice(offset);
  const found = rest.match(/^(?:[\p{L}\p{N}_.]+|'[^']*'?|"[^"]*"?|[<>=!]+|[^\s])/u)?.[0] ?? "";
  return [text.slice(0, offset), found, rest.slice(found.length)];
}

function marked(text, offset) {
  const [before, wrong, after] = split(text, offset);
  return [before, element("mark", { class: wrong === "" ? "missing" : null }, wrong === "" ? "\u00a0" : wrong), after];
}

export class Editor {
  /** `said` is where errors are told. */
  constructor(editor, said) {
    this.area = editor.querySelector("textarea");
    this.underlay = editor.querySelector(".underlay");
    this.said = said;
    this.area.addEventListener("scroll", () => this.follow());
    this.area.addEventListener("input", () => this.underlay.replaceChildren());
  }

  get text() {
    return this.area.value;
  }

  set text(wanted) {
    this.area.value = wanted;
    this.clear();
  }

  clear() {
    this.underlay.replaceChildren();
    this.said.hidden = true;
    this.said.replaceChildren();
    delete this.said.dataset.shown;
    this.area.removeAttribute("aria-invalid");
  }

  /** `offset` is in the units of strings, or null where the place is not known. */
  fail(message, offset = null) {
    this.area.setAttribute("aria-invalid", "true");
    this.underlay.replaceChildren(...(offset === null ? [] : marked(this.text, offset)));
    this.follow();
    const key = JSON.stringify([message, offset, this.text]);
    if (this.said.dataset.shown === key) return; // an alert that is repeated is read out again
    this.said.dataset.shown = key;
    this.said.replaceChildren(element("p", {}, sentence(message)));
    if (offset !== null) this.said.append(element("pre", {}, ...excerpt(this.text, offset)));
    this.said.hidden = false;
  }

  follow() {
    this.underlay.scrollTop = this.area.scrollTop;
    this.underlay.scrollLeft = this.area.scrollLeft;
  }

  insert(word) {
    const { selectionStart, selectionEnd } = this.area;
    const before = this.text.slice(0, selectionStart);
    const space = before === "" || /[\s(]$/.test(before) ? "" : " ";
    this.area.setRangeText(`${space}${word} `, selectionStart, selectionEnd, "end");
    this.area.focus();
    this.area.dispatchEvent(new Event("input"));
  }
}

/** The line with the error. Long lines are cut around it. */
function excerpt(text, offset) {
  const start = Math.max(text.lastIndexOf("\n", offset - 1) + 1, offset - 60);
  const end = text.indexOf("\n", offset);
  const line = text.slice(start, Math.min(end < 0 ? text.length : end, offset + 60));
  return marked(line, offset - start);
}

/** JSON as an object, or what is wrong with it and where. */
export function parseObject(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    const offset = placeOfError(text);
    return { message: offset >= text.trimEnd().length ? "The JSON is incomplete." : "Invalid JSON from here on.", offset };
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    return { message: "The JSON is not an object: it must begin with { and end with }.", offset: 0 };
  }
  return { value };
}

const TOKEN = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|true|false|null|[{}[\],:]/y;
const BLANK = /[ \t\n\r]*/y;

/** Where text ceases to be JSON. Browsers know, but only some tell. */
function placeOfError(text) {
  let at = 0;
  const match = (pattern) => {
    pattern.lastIndex = at;
    return pattern.exec(text)?.[0];
  };
  const peek = () => {
    at += match(BLANK).length;
    return match(TOKEN);
  };
  const take = (isWanted) => {
    const found = peek();
    if (found === undefined || !isWanted(found)) throw new SyntaxError("here");
    at += found.length;
    return found;
  };
  const list = (end, item) => {
    if (peek() === end) return take(() => true);
    do item(); while (take((one) => one === "," || one === end) === ",");
    return end;
  };
  const value = () => {
    const first = take((one) => !"}],:".includes(one));
    if (first === "[") list("]", value);
    if (first === "{") list("}", () => { take((one) => one[0] === '"'); take((one) => one === ":"); value(); });
  };
  try {
    value();
    peek();
  } catch {
    // `at` is the place.
  }
  return at;
}

export const editorOf = (name) => new Editor(byId(`${name}-editor`), byId(`${name}-error`));

export function say(node, text) {
  setText(node, text);
  node.hidden = text === "";
}
