/** The text: typed, pasted, dropped or opened from a file. It leaves the page only towards the service. */
import { readFile, ServiceError } from "./api.js";
import { counted, countWords } from "./view/text.js";

const QUIET = 200; // milliseconds without typing before words are counted
const OFFICE = /\.(pdf|docx|pptx|epub|ipynb|html?|xhtml)$/i; // the service reads these
const LARGEST = 20_000_000; // bytes of a file

export class Editor {
  /** @param {{text: HTMLTextAreaElement, count: HTMLElement, file: HTMLInputElement, drop: HTMLElement}} places */
  constructor({ text, count, file, drop }) {
    this.field = text;
    this.count = count;
    this.file = file;
    this.drop = drop;
    this.limit = Infinity;
    this.format = "auto"; // as what the service shall read it
    /** Told when a file has been read. */
    this.onfile = () => {};
    /** Told a sentence when one could not be. */
    this.onproblem = (/** @type {string} */ _sentence) => {};
    this.field.addEventListener("input", () => this.countSoon());
    this.field.addEventListener("beforeinput", () => {
      const { selectionStart, selectionEnd, value } = this.field;
      if (selectionStart === 0 && selectionEnd === value.length) this.format = "auto"; // another text
    });
    this.file.addEventListener("change", () => this.file.files[0] && this.read(this.file.files[0]));
    this.listenForDrops();
    this.showCount();
  }

  get value() {
    return this.field.value;
  }

  set value(text) {
    this.write(text, "auto");
  }

  write(text, format) {
    this.field.value = text;
    this.format = format;
    this.field.setSelectionRange(0, 0); // reading starts at the beginning
    this.field.scrollTop = 0;
    this.showCount();
  }

  /** Its characters, counted as the service counts them: an emoji is one. */
  get size() {
    return this.value.length - (this.value.match(/[\uD800-\uDBFF][\uDC00-\uDFFF]/g)?.length ?? 0);
  }

  countSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.showCount(), QUIET);
  }

  showCount() {
    const text = this.value;
    const over = this.size > this.limit;
    const most = over ? ` This server takes at most ${this.limit.toLocaleString("en")} characters; the text has ${this.size.toLocaleString("en")}.` : "";
    this.count.textContent = text.trim() ? `${counted(countWords(text), "word")}.${most}` : "";
    this.count.classList.toggle("over", over);
  }

  listenForDrops() {
    let depth = 0;
    const show = (visible) => (this.drop.hidden = !visible);
    const holdsFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    addEventListener("dragenter", (event) => {
      if (!holdsFile(event)) return;
      depth += 1;
      show(true);
    });
    addEventListener("dragleave", (event) => {
      if (!holdsFile(event)) return;
      depth = Math.max(0, depth - 1);
      if (!depth) show(false);
    });
    addEventListener("dragover", (event) => holdsFile(event) && event.preventDefault());
    addEventListener("drop", (event) => {
      depth = 0;
      show(false);
      const file = event.dataTransfer?.files[0];
      if (!file) return;
      event.preventDefault();
      this.read(file);
    });
  }

  /** @param {File} file */
  async read(file) {
    this.file.value = "";
    if (file.size > LARGEST) return this.onproblem(`${file.name} has ${Math.round(file.size / 1e6)} MB; at most 20 can be read here.`);
    try {
      if (OFFICE.test(file.name)) {
        this.write((await readFile(file)).document, "text");
      } else {
        const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
        if (text.includes("\0")) throw new TypeError("no text");
        this.write(text, /\.(md|markdown)$/i.test(file.name) ? "markdown" : "auto");
      }
    } catch (error) {
      const sentence = `${file.name} is not a text in UTF-8. Save it as plain text (UTF-8) and try again.`;
      return this.onproblem(error instanceof ServiceError ? error.message : sentence);
    }
    this.onfile();
  }
}
