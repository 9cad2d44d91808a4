/**
 * The document as one scrolling panel that can light up places and say which place is pointed at.
 *
 * The text stands in a few plain text nodes, split at line breaks, so a book is as quick as a mail.
 */
import { h } from "./dom.js";
import { level, LEVELS, Marks } from "./marks.js";
import { lastAtMost } from "./text.js";

const BLOCK = 4000; // a block ends at the first line break after so many characters, a text node at the first blank
const LARGE = 60000; // from here on blocks out of sight are not laid out

/** @typedef {{start: number, end: number, weight?: number}} Place */

export class DocumentView {
  /**
   * @param {string} text
   * @param {{more?: number, label?: string}} [options] `more`: so many characters were left out at the end
   */
  constructor(text, { more = 0, label = "Document" } = {}) {
    this.text = text;
    /** @type {Text[]} */
    this.nodes = [];
    /** @type {number[]} */
    this.starts = [];
    this.element = h("div", { class: "document", tabindex: 0, role: "region", "aria-label": label });
    if (text.length > LARGE) this.element.classList.add("large");
    this.addBlocks(text);
    if (more) this.element.append(h("p", { class: "block quiet" }, `… ${more.toLocaleString("en")} more characters`));
    this.marks = new Marks(this.element);
    /** Told a position in the text, or null, when the pointer moves or a tap lands. */
    this.onpoint = (/** @type {number|null} */ _position, /** @type {boolean} */ _tapped) => {};
    this.listen();
  }

  addBlocks(text) {
    for (let start = 0; start < text.length; ) {
      const stop = start + BLOCK < text.length ? text.indexOf("\n", start + BLOCK) : -1;
      const end = stop < 0 ? text.length : stop + 1;
      this.element.append(h("div", { class: "block", dir: "auto" }, ...this.addNodes(text, start, end)));
      start = end;
    }
  }

  /** One block's text: several nodes where a line has no end, for a mark repaints its whole node. */
  addNodes(text, start, end) {
    const nodes = [];
    while (start < end) {
      const gap = start + BLOCK < end ? text.indexOf(" ", start + BLOCK) : -1;
      const stop = gap < 0 || gap >= end ? end : gap + 1;
      nodes.push(document.createTextNode(text.slice(start, stop)));
      this.starts.push(start);
      start = stop;
    }
    this.nodes.push(...nodes);
    return nodes;
  }

  listen() {
    let waiting = null;
    const look = () => {
      const { x, y } = waiting;
      waiting = null;
      this.onpoint(this.positionAt(x, y), false);
    };
    this.element.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch") return;
      if (!waiting) requestAnimationFrame(look);
      waiting = { x: event.clientX, y: event.clientY };
    });
    this.element.addEventListener("pointerleave", () => this.onpoint(null, false));
    this.element.addEventListener("click", (event) => this.onpoint(this.positionAt(event.clientX, event.clientY), true));
  }

  /** The position in the text under a point of the window; null beside the text. */
  positionAt(x, y) {
    let node, offset;
    if (document.caretPositionFromPoint) {
      const caret = document.caretPositionFromPoint(x, y);
      [node, offset] = [caret?.offsetNode, caret?.offset];
    } else {
      const range = document.caretRangeFromPoint?.(x, y);
      [node, offset] = [range?.startContainer, range?.startOffset];
    }
    const index = this.nodes.indexOf(node);
    if (index < 0) return null;
    for (const start of [offset, offset - 1]) {
      if (start < 0 || start >= node.length) continue;
      const box = this.rangeOf({ start: this.starts[index] + start, end: this.starts[index] + start + 1 }).getBoundingClientRect();
      if (x >= box.left && x <= box.right && y >= box.top && y <= box.bottom) return this.starts[index] + start;
    }
    return null;
  }

  /** @param {Place} place @returns {Range} */
  rangeOf({ start, end }) {
    const range = document.createRange();
    const first = Math.max(0, lastAtMost(this.starts, start));
    const last = Math.max(first, lastAtMost(this.starts, end - 1));
    range.setStart(this.nodes[first], Math.min(start - this.starts[first], this.nodes[first].length));
    range.setEnd(this.nodes[last], Math.min(end - this.starts[last], this.nodes[last].length));
    return range;
  }

  /** Is the text at a place written from right to left? @param {Place|undefined} place */
  isLeftwards(place) {
    return place !== undefined && getComputedStyle(this.rangeOf(place).startContainer.parentElement).direction === "rtl";
  }

  /** Light up these places by weight, the heaviest most. @param {Place[]} places */
  light(places) {
    const most = Math.max(...places.map((place) => place.weight ?? 1), 1e-9);
    for (let number = 1; number <= LEVELS; number += 1) {
      const kind = `level${number}`;
      this.mark(kind, places.filter((place) => level((place.weight ?? 1) / most) === kind));
    }
  }

  /** Mark the one place that is pointed at; null takes the mark away. @param {Place|null} place */
  point(place) {
    this.mark("point", place ? [place] : []);
  }

  /** Mark these places and no others as of one kind. @param {string} kind @param {Place[]} places */
  mark(kind, places) {
    this.marks.set(kind, this.drawable(places).map((place) => this.rangeOf(place)));
  }

  drawable(places) {
    return this.nodes.length ? places.filter((place) => place.end > place.start && place.start < this.text.length) : [];
  }

  /** Bring a place into sight within the panel; the window stays where it is. @param {Place} place */
  reveal(place) {
    if (!this.drawable([place]).length) return;
    const panel = this.element;
    const box = this.rangeOf(place).getBoundingClientRect();
    const frame = panel.getBoundingClientRect();
    if (box.top >= frame.top + 8 && box.bottom <= frame.bottom - 8) return;
    panel.scrollTop += box.top - frame.top - panel.clientHeight / 3;
    if (!panel.classList.contains("large")) return;
    // Blocks out of sight had estimated heights: look again now that these are laid out.
    const again = this.rangeOf(place).getBoundingClientRect();
    panel.scrollTop += again.top - frame.top - panel.clientHeight / 3;
  }
}
