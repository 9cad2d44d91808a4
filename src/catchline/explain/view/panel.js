/**
 * A document and the summaries that were made of it, linked both ways: a word lights up the places it came from, a place
 * lights up the words that use it.
 */
import { button, freshId, h } from "./dom.js";
import { DocumentView } from "./document.js";
import { gateCurve } from "./gate.js";
import { HeatMap } from "./heatmap.js";
import { readRecord } from "./record.js";
import { SummaryView } from "./summary.js";
import { counted, shortened } from "./text.js";

export class Panel {
  /**
   * @param {string} text the document
   * @param {{more?: number}} [options]
   */
  constructor(text, options = {}) {
    this.open(text, options);
    this.status = h("p", { class: "document-status quiet", "aria-live": "polite" });
    this.summaries = h("div", { class: "systems" });
    this.charts = h("details", { class: "charts", hidden: true });
    this.unread = h("p", { class: "quiet", hidden: true }, "Text in grey was not read: it is too long.");
    this.reading = h("div", { class: "reading" }, this.document.element, this.unread, this.status);
    this.element = h("div", { class: "panel" }, this.summaries, this.reading, this.charts);
    /** @type {SummaryView[]} */
    this.views = [];
    this.pinned = null; // [view, word] that stays lit when nothing is pointed at
    this.cursor = -1; // the keyboard's place among the used ones
    this.charts.addEventListener("toggle", () => this.drawCharts());
  }

  open(text, options) {
    this.text = text;
    this.document = new DocumentView(text, options);
    this.document.onpoint = (position, tapped) => this.pointAt(position, tapped);
    this.document.element.addEventListener("keydown", (event) => this.documentKey(event));
  }

  /** Put the text that was read in the place of the one that was given, before the first record. @param {string} text */
  replaceText(text) {
    const { element, marks } = this.document;
    marks.clear();
    this.open(text);
    element.replaceWith(this.document.element);
  }

  /** Room for one more system. @param {...Node} content @returns {HTMLElement} */
  addSystem(...content) {
    const slot = h("section", { class: "system" }, ...content);
    this.summaries.append(slot);
    this.element.dataset.systems = String(this.summaries.children.length);
    return slot;
  }

  /** Put a record into a slot. @param {HTMLElement} slot @param {Object} record @returns {SummaryView} */
  show(slot, record) {
    if (record.extracted && record.alternatives?.length && !record.other) record = { ...record, other: ownLine(record) };
    const view = new SummaryView(readRecord(record, this.text));
    if (record.other) view.badge.append(this.switch(slot, record, view));
    view.onhover = (index) => (index === null ? this.restore() : this.choose(view, index));
    view.onpin = (index) => this.pin(view, index);
    slot.append(view.element);
    const order = [...this.summaries.children];
    const place = (one) => order.findIndex((other) => other.contains(one.element));
    this.views = [...this.views, view].sort((a, b) => place(a) - place(b)); // however they arrive
    this.places = null;
    this.document.mark("used", this.copiedPlaces());
    const ends = this.views.map((one) => one.view.readTo);
    this.unread.hidden = ends.includes(null); // some system read everything
    this.document.mark("unread", this.unread.hidden ? [] : [{ start: Math.max(...ends), end: this.text.length }]);
    this.drawCharts();
    return view;
  }

  /** Shows the model's line where the sentence is, and back. */
  switch(slot, record, view) {
    const change = () => {
      this.pin(view, null);
      this.views = this.views.filter((one) => one !== view);
      view.element.remove();
      const { other } = record;
      const shown = this.show(slot, { ...other, other: record });
      shown.element.querySelector(".switch").focus();
    };
    return button(record.extracted ? "Show the model's line" : "Show the sentence", change, { class: "plain switch" });
  }

  /** Every place that some word uses, in order of the text, without repeats. */
  usedPlaces() {
    if (this.places) return this.places;
    const found = new Map();
    for (const { view } of this.views) {
      for (const word of view.words) for (const place of word.sources) found.set(`${place.start}:${place.end}`, place);
    }
    this.places = [...found.values()].sort((a, b) => a.start - b.start || a.end - b.end);
    return this.places;
  }

  /** The places that words were copied from: what stays marked while nothing is pointed at. */
  copiedPlaces() {
    return this.views.flatMap(({ view }) => view.words.filter((word) => word.kind === "copied").flatMap((word) => word.sources));
  }

  // ------------------------------------------------------------------ from words to places

  pin(view, index) {
    this.pinned = index === null ? null : [view, index];
    this.call(this.pinned !== null);
    if (!this.pinned) return this.restore();
    this.choose(view, index);
    const [first] = view.view.words[index].sources;
    if (first) this.document.reveal(first);
    view.clear(index, this.reading);
  }

  /** On a narrow screen: bring the document into sight below the summaries, or let it go back to its place. */
  call(wanted) {
    this.reading.classList.toggle("called", wanted);
  }

  choose(view, index) {
    for (const other of this.views) {
      other.lightUsers([]);
      if (other !== view) other.choose(null);
    }
    view.choose(index);
    this.document.light(view.view.words[index].sources);
    this.document.point(null);
    this.document.element.classList.add("in-hand");
  }

  /** Back to the pinned word, or to nothing. */
  restore() {
    if (this.pinned) return this.choose(...this.pinned);
    for (const view of this.views) {
      view.lightUsers([]);
      view.choose(null);
    }
    this.document.light([]);
    this.document.point(null);
    this.document.element.classList.remove("in-hand");
    this.status.textContent = "";
  }

  // ------------------------------------------------------------------ from places to words

  pointAt(position, tapped) {
    const place = position === null ? null : this.placeAt(position);
    if (tapped) this.pinned = null;
    if (tapped && !place) this.call(false);
    if (place) this.showUsers(place);
    else if (this.lastPlace) this.restore();
    this.lastPlace = place;
  }

  /** The shortest used place around a position. */
  placeAt(position) {
    let best = null;
    for (const place of this.usedPlaces()) {
      if (place.start > position) break;
      if (position < place.end && (!best || place.end - place.start < best.end - best.start)) best = place;
    }
    return best;
  }

  showUsers(place) {
    this.document.light([]);
    this.document.point(place);
    const said = [];
    for (const view of this.views) {
      const users = view.view.words.filter((word) => word.sources.some((one) => one.start < place.end && place.start < one.end));
      view.choose(null);
      view.lightUsers(users.map((word) => word.index));
      if (users.length) said.push(`${this.views.length > 1 ? `${view.view.model}: ` : ""}${users.map((word) => word.text).join(", ")}`);
    }
    const quoted = shortened(this.text.slice(place.start, place.end), 40);
    this.status.textContent = said.length ? `“${quoted}” → ${said.join(" · ")}` : "";
  }

  documentKey(event) {
    const places = this.usedPlaces();
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key] * (this.document.isLeftwards(places[this.cursor] ?? places[0]) ? -1 : 1);
    if (event.key === "Escape") {
      this.pinned = null;
      this.cursor = -1;
      this.call(false);
      this.restore();
    } else if (step && places.length) {
      event.preventDefault();
      this.pinned = null;
      this.cursor = this.cursor < 0 ? (step > 0 ? 0 : places.length - 1) : Math.max(0, Math.min(places.length - 1, this.cursor + step));
      this.showUsers(places[this.cursor]);
      this.document.reveal(places[this.cursor]);
    }
  }

  // ------------------------------------------------------------------ charts

  /** p_gen and the heat maps of one system, made when they are looked at. */
  drawCharts() {
    const drawable = this.views.filter(({ view }) => view.maps.length || view.words.some((word) => word.pGen !== null));
    this.charts.hidden = !drawable.length;
    if (!drawable.length) return;
    if (!drawable.includes(this.charted)) this.charted = drawable[0];
    const heading = h("summary", {}, "Attention and copying, word by word");
    if (!this.charts.open) return this.charts.replaceChildren(heading);
    const body = h("div", {});
    const draw = () => {
      const { view } = this.charted;
      const curve = gateCurve(view, (index) => (index === null ? this.restore() : this.choose(this.charted, index)));
      body.replaceChildren(...[curve, ...view.maps.map((data) => this.heatMap(this.charted, data))].filter(Boolean));
    };
    this.charts.replaceChildren(heading, ...(drawable.length > 1 ? [this.chartSwitch(drawable, draw)] : []), body);
    draw();
  }

  chartSwitch(views, draw) {
    const name = freshId("charted");
    const choice = (view) => {
      const input = h("input", { type: "radio", name, checked: view === this.charted });
      input.addEventListener("change", () => {
        this.charted = view;
        draw();
      });
      return h("label", {}, input, ` ${view.view.model}`);
    };
    return h("fieldset", { class: "choices" }, h("legend", { class: "offscreen" }, "Show the charts of"), ...views.map(choice));
  }

  heatMap(view, data) {
    const onpoint = (row, column) => {
      if (row === null) return this.restore();
      this.choose(view, row);
      this.document.point(data.columns[column]);
    };
    const map = new HeatMap(data, view.view.words, ({ start, end }) => this.text.slice(start, end), onpoint);
    map.scroller.addEventListener("click", () => map.hot && this.document.reveal(data.columns[map.hot[1]]));
    return map.element;
  }

  /** One sentence for a live region. @param {SummaryView} view */
  describe({ view }) {
    const copied = view.words.filter((word) => word.kind === "copied").length;
    return `${view.model}: ${counted(view.words.length, "word")}, ${copied} copied`;
  }

  /** Forget the marks, before the panel is removed. */
  close() {
    this.document.marks.clear();
  }
}

/** The line that the model wrote where a sentence of the document is the answer. @param {Object} record */
function ownLine({ extracted, alternatives, other, ...record }) {
  return { ...record, ...alternatives[0], title: record.title, model: record.model, confidence: record.confidence };
}
