/** One system's summary: its words, coloured by where they came from, and below it what is known of the chosen word. */
import { button, freshId, h } from "./dom.js";
import { facts, figuresOf, isExtract, origin } from "./record.js";
import { percent, shortened } from "./text.js";

const HINT = "Point at a word, or move with the arrow keys, to see where it came from.";
const TOUCH_HINT = "Tap a word to see where it came from.";
const LONG = 150; // words, from which on a summary beside others scrolls in a frame of its own
const NO_WORDS = "This summary came without an explanation.";

export class SummaryView {
  /** @param {import("./record.js").View} view */
  constructor(view) {
    this.view = view;
    /** @type {HTMLElement[]} */
    this.elements = [];
    /** @type {Map<number, HTMLElement>} */
    this.byIndex = new Map();
    this.lit = []; // what `lightUsers` changed
    /** Told the word under the pointer, or null. */
    this.onhover = (/** @type {number|null} */ _index) => {};
    /** Told the word that was chosen by focus or tap, or null on Escape. */
    this.onpin = (/** @type {number|null} */ _index) => {};
    this.inspector = h("div", { class: "inspector", id: freshId("inspector"), "aria-live": "polite" });
    const extract = view.words.length > 0 && view.words.every(isExtract);
    const classes = ["words", extract ? "extract" : "", view.words.length > LONG ? "long" : ""];
    this.text = h("p", { class: classes.filter(Boolean).join(" "), dir: "auto" }, ...this.parts());
    this.warnings = this.warningList();
    const others = view.newWords.length ? h("div", { class: "quiet" }, `Other words that are not there: ${view.newWords.join(", ")}`) : null;
    this.badge = h("div", { class: "badge" }, this.extracted());
    this.element = h("div", { class: "summary-view" }, this.factLine(), this.badge, this.text, this.warnings, others, this.inspector);
    this.inspect(null);
    if (view.words.length) this.listen();
  }

  /** A badge where the answer is a sentence of the document; the reason is folded in it. */
  extracted() {
    const { extracted } = this.view.raw;
    if (!extracted) return null;
    return h("details", {}, h("summary", {}, "Not confident: a sentence from the text"), `Because ${extracted}.`);
  }

  factLine() {
    const line = facts(this.view);
    return line.length ? h("p", { class: "facts" }, line.join(" · ")) : null;
  }

  /** The text in order: an element for each word, plain text between them. */
  parts() {
    const { text, words, warnings } = this.view;
    if (!text) return [h("span", { class: "quiet" }, "The summary is empty.")];
    const parts = [];
    let position = 0;
    for (const word of words) {
      if (word.start < position) continue; // pieces of one word
      const missing = warnings?.find((found) => found.start < word.end && word.start < found.end);
      const element = h(
        "span",
        {
          class: `word ${word.kind}${missing ? " missing" : ""}`,
          role: "button",
          tabindex: this.elements.length ? -1 : 0,
          data: { word: word.index },
          title: missing ? `The document does not have this ${missing.kind}` : null,
        },
        text.slice(word.start, word.end),
      );
      this.elements.push(element);
      this.byIndex.set(word.index, element);
      parts.push(text.slice(position, word.start), element);
      position = word.end;
    }
    parts.push(text.slice(position));
    return parts;
  }

  /** Numbers, dates and names that the document lacks. */
  warningList() {
    const { warnings } = this.view;
    if (!warnings?.length) return null;
    const quote = (found, index) => h("li", {}, index ? ", " : "", h("b", {}, found.text), ` (${found.kind})`);
    return h("div", { class: "warnings" }, "Not in the document: ", h("ul", {}, ...warnings.map(quote)));
  }

  listen() {
    const wordOf = (event) => event.target.closest?.(".word");
    this.text.addEventListener("pointerover", (event) => {
      const word = wordOf(event);
      if (word && event.pointerType !== "touch") this.onhover(Number(word.dataset.word));
    });
    this.text.addEventListener("pointerout", (event) => {
      if (wordOf(event) && event.pointerType !== "touch") this.onhover(null);
    });
    this.text.addEventListener("focusin", (event) => {
      const word = wordOf(event);
      if (!word) return;
      this.rove(word);
      this.onpin(Number(word.dataset.word));
    });
    this.text.addEventListener("click", (event) => wordOf(event)?.focus());
    this.text.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const here = this.elements.indexOf(event.target);
    if (here < 0) return;
    if (event.key === "Escape") {
      event.target.blur();
      this.onpin(null);
      return;
    }
    const next = {
      ArrowRight: () => this.beside(here, 1),
      ArrowLeft: () => this.beside(here, -1),
      ArrowDown: () => this.nextLine(here, 1),
      ArrowUp: () => this.nextLine(here, -1),
      Home: () => this.elements[0],
      End: () => this.elements.at(-1),
    }[event.key]?.();
    if (next === undefined) return;
    event.preventDefault();
    next.focus();
  }

  /** The next word of the line as it is seen, to the right (1) or left (-1); at its end the first that is seen beyond. */
  beside(here, side) {
    const line = this.lineOf(here);
    const next = line[line.indexOf(here) + side];
    if (next !== undefined) return this.elements[next];
    const onward = getComputedStyle(this.text).direction === "rtl" ? -side : side;
    const beyond = onward + (onward > 0 ? Math.max(...line) : Math.min(...line));
    return beyond in this.elements ? this.elements[this.lineOf(beyond).at(side > 0 ? 0 : -1)] : undefined;
  }

  /** The words of one word's line from left to right. @param {number} here @returns {number[]} */
  lineOf(here) {
    const box = (index) => this.elements[index].getBoundingClientRect();
    const { top, height } = box(here);
    const found = [here];
    for (const step of [-1, 1]) {
      for (let index = here + step; index in this.elements && Math.abs(box(index).top - top) <= height / 2; index += step) found.push(index);
    }
    return found.sort((one, other) => box(one).left - box(other).left);
  }

  /** The nearest word on the next line, above or below. */
  nextLine(here, direction) {
    const box = this.elements[here].getBoundingClientRect();
    const middle = (box.left + box.right) / 2;
    let best, line;
    for (let index = here + direction; index >= 0 && index < this.elements.length; index += direction) {
      const other = this.elements[index].getBoundingClientRect();
      if (direction * (other.top - box.top) < box.height / 2) continue;
      line ??= other.top;
      if (Math.abs(other.top - line) > box.height / 2) break;
      const distance = Math.abs((other.left + other.right) / 2 - middle);
      if (!best || distance < best.distance) best = { distance, element: this.elements[index] };
    }
    return best?.element;
  }

  /** Only one word is in the tab order: the one that was used last. */
  rove(word) {
    (this.roved ?? this.elements[0]).tabIndex = -1;
    word.tabIndex = 0;
    this.roved = word;
  }

  /** Show which word is chosen, and what is known of it. @param {number|null} index */
  choose(index) {
    if (this.chosen === index) return;
    this.byIndex.get(this.chosen)?.classList.remove("chosen");
    this.byIndex.get(index)?.classList.add("chosen");
    this.chosen = index;
    this.inspect(index === null ? null : this.view.words[index]);
  }

  /** Scroll until a word, and if there is room what is known of it, stand above what covers the window's lower end. */
  clear(index, cover) {
    if (getComputedStyle(cover).bottom !== "0px") return;
    const [word, known, { top }] = [this.byIndex.get(index), this.inspector, cover].map((one) => one.getBoundingClientRect());
    const least = word.bottom + 8 - top;
    const enough = Math.min(known.bottom - top, word.top - 8);
    if (Math.max(least, enough) > 0) scrollBy(0, Math.max(least, enough));
  }

  /** Light up the words that use the place pointed at in the document. @param {number[]} indices */
  lightUsers(indices) {
    for (const element of this.lit) element.classList.remove("user");
    this.lit = indices.map((index) => this.byIndex.get(index)).filter(Boolean);
    for (const element of this.lit) element.classList.add("user");
  }

  /** @param {import("./record.js").Word|null} word */
  inspect(word) {
    this.inspector.classList.toggle("waiting", !word);
    if (!word) {
      const hint = matchMedia("(hover: none)").matches ? TOUCH_HINT : HINT;
      this.inspector.replaceChildren(h("p", { class: "quiet" }, this.view.words.length ? hint : NO_WORDS));
      return;
    }
    this.inspector.replaceChildren(h("p", { class: "known" }, h("b", {}, word.text), ` ${origin(word)}`));
    if (word.sources.length > 1) this.inspector.append(this.sourceList(word));
    if (!isExtract(word)) this.inspector.append(this.figures(word));
  }

  /** The places a word came from, or that were looked at for it, with their shares. */
  sourceList(word) {
    const bar = (weight) => {
      const filled = h("i", {});
      filled.style.width = percent(Math.min(1, weight));
      return h("span", { class: "share", "aria-hidden": "true" }, filled);
    };
    const place = (source) =>
      h("li", {}, bar(source.weight), h("span", { class: "weight" }, percent(source.weight)), h("q", {}, shortened(source.text, 60)));
    const from = word.kind === "copied" ? "Copied from" : "The model looked at";
    return h("ol", { class: "sources", "aria-label": from }, ...word.sources.map(place));
  }

  /** The figures behind the words, folded away; once opened they stay open from word to word. */
  figures(word) {
    const details = h("details", { class: "figures", open: this.figuresOpen ?? false }, h("summary", {}, "Figures"), figuresOf(word).join(" · "));
    details.addEventListener("toggle", () => details.isConnected && (this.figuresOpen = details.open));
    return details;
  }
}

/** A button that copies a text and says so. @param {() => string} text @param {string} label @returns {HTMLButtonElement} */
export function copyButton(text, label) {
  const copying = button(label, async () => {
    const done = await copyText(text());
    copying.textContent = done ? "Copied" : "Could not copy";
    setTimeout(() => (copying.textContent = label), 1600);
  });
  return copying;
}

/** To the clipboard; the old way where the new one is not allowed (plain http to another machine). */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = h("textarea", { class: "offscreen", readonly: true });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
