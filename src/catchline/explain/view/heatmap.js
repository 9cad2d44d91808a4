/**
 * A heat map of summary words by places of the document, on a canvas as large as what is in sight.
 *
 * Only the columns in sight are drawn, so the width of the map has no limit; zoomed out, a column on the screen stands
 * for several places and shows the heaviest. The depth of the colour is the square root of the weight, 0 to 1, so maps can
 * be compared and an even spread looks as pale as it is.
 */
import { button, colours, h } from "./dom.js";
import { shortened } from "./text.js";

const ROW = 22;
const LABELS = 92; // height of the band with the places' words
const SLANT = 30; // how far they lean over the last column
const READABLE = 15; // from this width on columns carry their word
const WIDEST = 34;
const ZOOM = 1.6;

/** @typedef {(row: number|null, column: number|null) => void} OnPoint */

export class HeatMap {
  /**
   * @param {import("./record.js").HeatData} data
   * @param {import("./record.js").Word[]} words one a row
   * @param {(column: {start: number, end: number}) => string} textOf the words at a place
   * @param {OnPoint} onpoint told the cell under the pointer or the keyboard's cursor
   */
  constructor(data, words, textOf, onpoint) {
    Object.assign(this, { data, words, textOf, onpoint });
    this.cell = null; // width of a column; null: so that all fit
    this.ownScale = false; // each row relative to its own heaviest
    this.cursor = null; // [row, column] of the keyboard
    this.canvas = h("canvas", {});
    this.spacer = h("div", { class: "spacer" });
    this.scroller = h(
      "div",
      { class: "heat-scroll", tabindex: 0, role: "application", "aria-label": this.description() },
      this.spacer,
      this.canvas,
    );
    this.names = h("div", { class: "heat-names", "aria-hidden": "true" }, ...words.map((word) => h("span", { class: word.kind }, shortened(word.text, 18))));
    this.readout = h("p", { class: "readout", "aria-live": "polite" }, "Point at a cell or tap it, or move with the arrow keys; + and − zoom.");
    this.element = h("figure", { class: "chart-block heat" }, this.caption(), h("div", { class: "heat-body" }, this.names, this.scroller), this.readout);
    this.listen();
  }

  description() {
    return `${this.data.name}: ${this.words.length} words by ${this.data.columns.length} places. Arrow keys move, plus and minus zoom.`;
  }

  caption() {
    const what = this.data.coarse ? "words of the summary by chunks of the document" : "words of the summary by words of the document";
    const setScale = () => {
      this.ownScale = scale.checked;
      this.draw();
    };
    const scale = h("input", { type: "checkbox", on: { change: setScale } });
    return h(
      "figcaption",
      {},
      h("span", {}, h("b", {}, this.data.name), `: ${what}, in order`),
      h(
        "span",
        { class: "tools" },
        h("label", {}, scale, " each row relative to its heaviest"),
        button("−", () => this.zoom(1 / ZOOM), { "aria-label": "Zoom out" }),
        button("+", () => this.zoom(ZOOM), { "aria-label": "Zoom in" }),
        button("Fit", () => this.fit()),
      ),
    );
  }

  listen() {
    new ResizeObserver(() => this.layout()).observe(this.scroller);
    this.scroller.addEventListener("scroll", () => this.later(), { passive: true });
    this.scroller.addEventListener("pointermove", (event) => event.pointerType !== "touch" && this.point(this.cellAt(event)));
    this.scroller.addEventListener("pointerleave", () => this.point(null));
    this.scroller.addEventListener("click", (event) => this.point(this.cellAt(event))); // a finger scrolls, and points by a tap
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    const repaint = () => (this.canvas.isConnected ? this.draw() : document.removeEventListener("catchline-theme", repaint));
    document.addEventListener("catchline-theme", repaint);
    this.scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? ZOOM : 1 / ZOOM, event.clientX - this.scroller.getBoundingClientRect().left);
  }

  key(event) {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (move) {
      const [row, column] = this.cursor ?? [0, this.heaviest(0)];
      const to = this.cursor ? [row + move[0], column + move[1]] : [row, column];
      this.cursor = [Math.max(0, Math.min(this.words.length - 1, to[0])), Math.max(0, Math.min(this.data.columns.length - 1, to[1]))];
      this.reveal(this.cursor[1]);
      this.point(this.cursor);
    } else if (event.key === "+" || event.key === "=") this.zoom(ZOOM);
    else if (event.key === "-") this.zoom(1 / ZOOM);
    else if (event.key === "0") this.fit();
    else if (event.key === "Escape") {
      this.cursor = null;
      this.point(null);
    } else return;
    event.preventDefault();
  }

  heaviest(row) {
    return this.data.rows[row].reduce((best, weight, i, all) => ((weight ?? 0) > (all[best] ?? 0) ? i : best), 0);
  }

  get fitting() {
    const across = this.scroller.clientWidth / this.data.columns.length;
    return Math.max(0.02, across < READABLE ? across : (this.scroller.clientWidth - SLANT) / this.data.columns.length);
  }

  get width() {
    return this.cell ?? Math.min(WIDEST, this.fitting);
  }

  zoom(factor, at = this.scroller.clientWidth / 2) {
    const place = (this.scroller.scrollLeft + at) / this.width;
    const next = Math.min(WIDEST, this.width * factor);
    this.cell = next <= this.fitting ? null : next;
    this.layout();
    this.scroller.scrollLeft = place * this.width - at;
    this.draw();
  }

  fit() {
    this.cell = null;
    this.layout();
  }

  reveal(column) {
    const left = column * this.width;
    const { scrollLeft, clientWidth } = this.scroller;
    if (left < scrollLeft || left + this.width > scrollLeft + clientWidth) this.scroller.scrollLeft = left - clientWidth / 2;
  }

  /** Set the sizes that follow from the zoom, then draw. */
  layout() {
    const total = Math.max(this.scroller.clientWidth, Math.ceil(this.width * this.data.columns.length) + (this.width < READABLE ? 0 : SLANT));
    const height = this.top + ROW * this.words.length;
    this.spacer.style.width = `${total}px`;
    this.spacer.style.height = `${height}px`;
    this.names.style.paddingTop = `${this.top}px`;
    const scale = window.devicePixelRatio || 1;
    this.canvas.style.width = `${this.scroller.clientWidth}px`;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.max(1, Math.round(this.scroller.clientWidth * scale));
    this.canvas.height = Math.round(height * scale);
    this.draw();
  }

  /** Where the first row starts: below the labels, where columns are wide enough to carry them. */
  get top() {
    return this.width >= READABLE ? LABELS : 4;
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    if (!this.scroller.clientWidth || !this.canvas.isConnected) return;
    const pen = this.canvas.getContext("2d");
    const scale = window.devicePixelRatio || 1;
    const { scrollLeft, clientWidth } = this.scroller;
    const colour = colours(this.canvas, ["--heat", "--cell", "--quiet", "--ink", "--focus"]);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, clientWidth, this.canvas.height / scale);
    const first = Math.max(0, Math.floor(scrollLeft / this.width));
    const last = Math.min(this.data.columns.length, Math.ceil((scrollLeft + clientWidth) / this.width));
    this.cells(pen, colour, first, last);
    if (this.width >= READABLE) this.labels(pen, colour, first, last);
    if (this.hot) {
      pen.globalAlpha = 1;
      pen.strokeStyle = colour["--focus"];
      pen.lineWidth = 2;
      pen.strokeRect(this.hot[1] * this.width - scrollLeft - 1, this.top + this.hot[0] * ROW, Math.max(4, this.width) + 1, ROW - 2);
    }
  }

  cells(pen, colour, first, last) {
    const gap = this.width > 6 ? 1 : 0;
    const perPixel = Math.max(1, Math.floor(1 / this.width)); // places that share a column of pixels
    this.data.rows.forEach((row, y) => {
      const most = this.ownScale ? heaviestOf(row) : 1;
      for (let x = first - (first % perPixel); x < last; x += perPixel) {
        let weight = row[x];
        for (let next = x + 1; next < Math.min(last, x + perPixel); next += 1) weight = Math.max(weight ?? 0, row[next] ?? 0);
        const left = x * this.width - this.scroller.scrollLeft;
        const size = [left, this.top + y * ROW, Math.max(1, this.width * perPixel - gap), ROW - 2];
        pen.globalAlpha = 1;
        pen.fillStyle = colour["--cell"];
        if (weight === null) {
          pen.fillRect(size[0], size[1] + ROW / 2 - 2, size[2], 2); // not read at this word: a line, not a cell
          continue;
        }
        pen.fillRect(...size);
        pen.globalAlpha = Math.sqrt(Math.min(1, weight / most));
        pen.fillStyle = colour["--heat"];
        pen.fillRect(...size);
        if (!this.data.chosen?.slice(x, x + perPixel).some((rows) => rows.has(y))) continue;
        pen.globalAlpha = 1; // a chunk that was chosen and read, however light its cell is
        pen.fillStyle = colour["--ink"];
        pen.fillRect(left, size[1] + ROW - 5, size[2], 3);
      }
    });
  }

  labels(pen, colour, first, last) {
    pen.globalAlpha = 1;
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (let x = first; x < last; x += 1) {
      pen.save();
      pen.translate((x + 0.5) * this.width - this.scroller.scrollLeft, LABELS - 6);
      pen.rotate(-Math.PI / 2.6);
      pen.fillStyle = this.hot?.[1] === x ? colour["--ink"] : colour["--quiet"];
      pen.fillText(this.columnName(x, 12), 0, 0);
      pen.restore();
    }
  }

  columnName(column, most) {
    const place = this.data.columns[column];
    if (this.data.coarse) return `chunk ${column + 1}`;
    return place.end > place.start ? shortened(this.textOf(place), most) : "(mark)";
  }

  /** @param {PointerEvent} event @returns {[number, number]|null} */
  cellAt(event) {
    const box = this.scroller.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top + this.scroller.scrollTop - this.top) / ROW);
    const column = Math.floor((event.clientX - box.left + this.scroller.scrollLeft) / this.width);
    const inside = row >= 0 && row < this.words.length && column >= 0 && column < this.data.columns.length;
    return inside ? [row, column] : null;
  }

  /** @param {[number, number]|null} cell */
  point(cell) {
    if (String(cell) === String(this.hot ?? null)) return;
    this.hot = cell;
    this.onpoint(...(cell ?? [null, null]));
    if (cell) {
      const weight = this.data.rows[cell[0]][cell[1]];
      const said = weight === null ? "not read" : weight >= 0.001 || weight === 0 ? `${(100 * weight).toFixed(1)}%` : "<0.1%";
      const read = this.data.chosen?.[cell[1]].has(cell[0]) ? ", read" : "";
      this.readout.textContent = `${this.words[cell[0]].text} ← ${this.columnName(cell[1], 60)}: ${said}${read}`;
    }
    this.later();
  }
}

/** The largest weight of a row; what was not read counts nothing. */
function heaviestOf(row) {
  return row.reduce((most, weight) => Math.max(most, weight ?? 0), 1e-9);
}
