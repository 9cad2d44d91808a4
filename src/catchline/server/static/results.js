/** Asking each chosen system and showing what it answers, one slot a system. */
import { ServiceError, summarize } from "./api.js";
import { button, h } from "./view/dom.js";
import { Panel } from "./view/panel.js";
import { copyButton } from "./view/summary.js";
import { counted, countWords } from "./view/text.js";

// As what the service reads a text that it does not take as it is, and what is read of it.
const READ = {
  markdown: ["Markdown", ", without headings, code and tables"],
  page: ["a web page", ": its article"],
  mail: ["an e-mail", ", without its head and quotations"],
  subtitles: ["subtitles", ": what is spoken"],
  plain: ["plain text", ", its HTML entities as characters"],
};

export class Results {
  /**
   * @param {HTMLElement} place
   * @param {{say: (sentence: string) => void, onunauthorized: (sentence: string) => void, onbusy: (busy: boolean) => void,
   *   onedit: () => void, onformat: (format: string) => void}} listeners
   */
  constructor(place, { say, onunauthorized, onbusy, onedit, onformat }) {
    Object.assign(this, { place, say, onunauthorized, onbusy, onedit, onformat });
    this.panel = null;
    this.running = new Set();
    /** @type {Map<string, Object>} the records of this text, by what was asked */
    this.answers = new Map();
    this.read = null; // what was read in the place of a text, and as what
    this.kind = null;
  }

  /**
   * Ask all systems at once; each shows up when it is ready.
   * @param {string} text
   * @param {string} format as what it shall be read: "auto", "markdown" or "text"
   * @param {{model: string, options: Object, title: string}[]} systems
   * @param {{keep?: boolean}} [how] `keep`: do not ask again what was answered already
   */
  async run(text, format, systems, { keep = false } = {}) {
    this.cancel();
    if (!keep) {
      this.answers.clear();
      if (format !== "text" || this.given !== text) this.kind = null;
      [this.given, this.read] = [text, null];
    }
    this.panel?.close();
    this.panel = new Panel(text);
    const held = this.head?.contains(document.activeElement);
    this.head = h("header", { class: "text-head" });
    this.panel.reading.prepend(this.head);
    this.place.replaceChildren(this.panel.element);
    this.showText(held);
    this.say(`Summarizing with ${systems.map(({ title }) => title).join(", ")}.`);
    await Promise.all(systems.map((system) => this.ask({ document: text, format, ...system }, this.panel.addSystem())));
  }

  /** The text that was read, with how it was read, where that can be said. @param {boolean} [held] by the keyboard */
  showText(held = this.head.contains(document.activeElement)) {
    const { panel, read, given, kind } = this;
    const [name, part] = READ[kind] ?? [];
    if (read !== null && panel.text !== read) panel.replaceText(read);
    const title = h("h2", {}, "Your text ", h("span", { class: "quiet" }, counted(countWords(read ?? given), "word")));
    const edit = button("Edit", this.onedit, { "aria-label": "Edit the text" });
    let note = [];
    if (read !== null) note = [`Read as ${name}${part}. `, button("Use it unchanged", () => this.onformat("text"))];
    else if (kind) note = ["Used unchanged. ", button(`Read it as ${name}`, () => this.onformat(kind === "markdown" ? kind : "auto"))];
    this.head.replaceChildren(title, edit, note.length ? h("p", { class: "quiet" }, ...note) : "");
    if (held) edit.focus({ preventScroll: true });
  }

  async ask(system, slot) {
    const { panel } = this;
    const asked = JSON.stringify([system.model, system.options]);
    const known = this.answers.get(asked);
    if (known) return this.show(slot, known, system);
    const control = new AbortController();
    const stop = this.showProgress(slot, system.title);
    this.running.add(control);
    this.onbusy(true);
    try {
      const record = await summarize(system, control.signal);
      stop();
      if (panel !== this.panel) return;
      this.answers.set(asked, record);
      this.show(slot, record, system);
    } catch (error) {
      stop();
      if (panel === this.panel) this.showProblem(slot, error, system);
    } finally {
      this.running.delete(control);
      this.onbusy(this.running.size > 0);
    }
  }

  /** Stop waiting for what has not been answered. */
  cancel() {
    for (const control of this.running) control.abort();
  }

  header(title, ...tools) {
    return h("header", {}, h("h2", {}, title), ...tools);
  }

  /** @returns {() => void} ends the showing */
  showProgress(slot, title) {
    const seconds = h("span", { class: "quiet" });
    const bar = h("div", { class: "progress", role: "progressbar", "aria-label": `${title} is summarizing` }, h("i", {}));
    slot.replaceChildren(this.header(title, seconds), bar);
    const begun = performance.now();
    const timer = setInterval(() => (seconds.textContent = `${((performance.now() - begun) / 1000).toFixed(0)} s`), 1000);
    return () => clearInterval(timer);
  }

  show(slot, answer, { title }) {
    const record = { ...answer, title };
    if (READ[record.format] && this.read === null) {
      [this.read, this.kind] = [record.document, record.format];
      this.showText();
    }
    const copy = copyButton(() => record.summary, "Copy");
    const save = button("JSON", () => download(`catchline-${record.model}.jsonl`, { ...answer, document: this.panel.text }), {
      title: "Download the record; catchline explain stored FILE --html opens it as a page",
      "aria-label": `Download the record of ${title} as JSON`,
    });
    slot.replaceChildren(this.header(title, copy, save));
    const view = this.panel.show(slot, record);
    this.say(`${this.panel.describe(view)}: ${record.summary}${this.read === null ? "" : ` Your text was read as ${READ[this.kind][0]}.`}`);
  }

  showProblem(slot, error, system) {
    const cancelled = error.name === "AbortError";
    const known = cancelled || error instanceof ServiceError;
    const sentence = cancelled ? "Cancelled." : known ? error.message : `This page failed: ${error.message}. Reload it.`;
    if (!known) console.error(error);
    const again = button("Try again", () => this.ask(system, slot));
    slot.replaceChildren(this.header(system.title), h("p", { class: cancelled ? "quiet" : "problem", role: cancelled ? null : "alert" }, sentence), again);
    if (error.wait > 0) countDown(again, error.wait);
    if (error.status === 401) this.onunauthorized(error.message);
    if (cancelled) this.say("Cancelled.");
  }

  /** Try every system again that has no summary yet, for example after a token was given. */
  retryAll() {
    for (const slot of this.place.querySelectorAll(".system")) {
      if (slot.querySelector(".problem")) slot.querySelector("button").click();
    }
  }
}

/** Switch a button off for so many seconds and say when it comes back. */
function countDown(waiting, seconds) {
  const label = waiting.textContent;
  waiting.disabled = true;
  const tick = (left) => {
    waiting.textContent = left > 0 ? `${label} in ${left} s` : label;
    waiting.disabled = left > 0;
    if (left > 0) setTimeout(() => tick(left - 1), 1000);
  };
  tick(Math.ceil(seconds));
}

/** One line of JSON: a JSON file and a JSON-lines file at once. */
function download(name, record) {
  const address = URL.createObjectURL(new Blob([`${JSON.stringify(record)}\n`], { type: "application/jsonl" }));
  const link = h("a", { href: address, download: name.replace(/[^\w.-]+/g, "_") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
