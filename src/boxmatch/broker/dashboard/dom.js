/** Making and changing elements. Data only ever becomes text or an attribute, never markup. */

export const byId = (id) => document.getElementById(id);

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function drawing(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Writes only what changed: a node that is left alone keeps the reader's selection. */
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Puts the children in this order, moving only those that are elsewhere. */
export function arrange(parent, wanted) {
  let at = parent.firstElementChild;
  for (const child of wanted) {
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
  while (at !== null) {
    const next = at.nextElementSibling;
    at.remove();
    at = next;
  }
}

/** Fills a select, and keeps the choice where it is still there. Returns whether it changed. */
export function fillSelect(select, names, preferred = undefined) {
  const before = select.value;
  const now = [...select.options].map((option) => option.value);
  if (now.length !== names.length || now.some((name, index) => name !== names[index])) {
    select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    select.value = names.includes(before) ? before : (preferred ?? names[0] ?? "");
  }
  return select.value !== before;
}

/** What to do next where there is nothing to see: sentences and a command to copy. */
export function showEmpty(node, title, text, command) {
  const key = JSON.stringify([title, text, command]);
  if (node.dataset.shown !== key) {
    node.dataset.shown = key;
    node.replaceChildren(element("h2", {}, title), element("p", {}, text));
    if (command) node.append(element("pre", { tabindex: "0" }, command));
  }
  node.hidden = false;
}

