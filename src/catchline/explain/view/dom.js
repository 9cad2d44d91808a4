/** Small helpers to build elements. Text always arrives as text: no markup is ever parsed. */

/**
 * @param {string} name
 * @param {Object<string, any>} [properties] `class`, `on` (listeners by name), `data`, attributes; null leaves one out
 * @param {...(Node|string|null)} children
 * @returns {HTMLElement}
 */
export function h(name, properties = {}, ...children) {
  return filled(document.createElement(name), properties, children);
}

/** Like `h`, for SVG. @returns {SVGElement} */
export function svg(name, properties = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), properties, children);
}

function filled(element, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (key === "data") Object.assign(element.dataset, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A button with a word on it. @param {string} label @param {() => void} act @param {Object<string, any>} [more] */
export function button(label, act, more = {}) {
  return h("button", { type: "button", class: "plain", on: { click: act }, ...more }, label);
}

let lastId = 0;

/** A fresh id for `for`, `aria-controls` and their like. @param {string} stem */
export function freshId(stem) {
  lastId += 1;
  return `${stem}-${lastId}`;
}

/**
 * The colours of custom properties as the browser computes them now, for canvases.
 * @param {HTMLElement} element anything in the document, without children of its own
 * @param {string[]} names
 * @returns {Object<string, string>}
 */
export function colours(element, names) {
  const probe = h("i", { hidden: true });
  element.parentElement.append(probe);
  const found = {};
  for (const name of names) {
    probe.style.color = `var(${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}
