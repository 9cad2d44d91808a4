/**
 * Marks over text that leave the text alone: no element per word, no change of layout.
 *
 * Browsers paint ranges through the CSS Custom Highlight API. One that lacks it gets boxes behind the text, only for
 * what is marked now.
 */
import { h } from "./dom.js";

/** From the faintest to the strongest: weights of a source are drawn in so many levels. */
export const LEVELS = 5;

/** Marks of one root element; several roots share the page's highlights. */
export class Marks {
  /** @param {HTMLElement} root positioned; its text nodes are what ranges refer to */
  constructor(root) {
    this.root = root;
    /** @type {Map<string, Range[]>} */
    this.ranges = new Map();
    this.native = typeof Highlight === "function" && "highlights" in CSS;
    if (!this.native) new ResizeObserver(() => this.paintBoxes()).observe(root);
  }

  /** Replace the ranges of one kind of mark. @param {string} kind @param {Range[]} ranges */
  set(kind, ranges) {
    if (this.native) {
      const highlight = shared(kind);
      for (const range of this.ranges.get(kind) ?? []) highlight.delete(range);
      for (const range of ranges) highlight.add(range);
    }
    if (ranges.length) this.ranges.set(kind, ranges);
    else this.ranges.delete(kind);
    if (!this.native) this.paintBoxes();
  }

  /** Take the ranges out of the page's highlights, before the root goes away. */
  clear() {
    for (const kind of [...this.ranges.keys()]) this.set(kind, []);
  }

  paintBoxes() {
    this.boxes?.remove();
    this.boxes = h("div", { class: "boxes", "aria-hidden": "true" });
    const origin = this.root.getBoundingClientRect();
    for (const [kind, ranges] of this.ranges) {
      for (const box of ranges.flatMap((range) => [...range.getClientRects()])) {
        const place = h("i", { class: `box ${kind}` });
        place.style.left = `${box.left - origin.left - this.root.clientLeft + this.root.scrollLeft}px`;
        place.style.top = `${box.top - origin.top - this.root.clientTop + this.root.scrollTop}px`;
        place.style.width = `${box.width}px`;
        place.style.height = `${box.height}px`;
        this.boxes.append(place);
      }
    }
    this.root.append(this.boxes);
  }
}

/** The page's highlight of this kind; stronger kinds are painted over fainter ones. */
function shared(kind) {
  const name = `catchline-${kind}`;
  if (!CSS.highlights.has(name)) {
    const highlight = new Highlight();
    highlight.priority = kind === "point" ? LEVELS + 1 : Number(kind.replace(/\D/g, "")) || 0;
    CSS.highlights.set(name, highlight);
  }
  return CSS.highlights.get(name);
}

/** The kind of mark for a weight, relative to the heaviest. @param {number} share 0 to 1 */
export function level(share) {
  return `level${Math.max(1, Math.min(LEVELS, Math.ceil(share * LEVELS)))}`;
}
