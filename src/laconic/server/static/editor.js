/** The text: typed, pasted, dropped or opened from a file. It leaves the page only towards the service. */
import { counted, countWords } from "./view/text.js";

const QUIET = 200; // milliseconds without typing before words are counted
const LARGEST = 20_000_000; // bytes of a file
export const EXAMPLE = `Minutes of the allotment society, 14 March

The committee met in the tool shed because the hall had been let to a choir. Twelve members came. Ingrid Solberg took the chair and Piet Marais kept these minutes.

The main business was water. Since the pipe along the northern hedge froze in January, eleven plots have had no tap, and their holders carry cans from the mill stream. A plumber from Harrow Lane has offered to replace forty metres of pipe for 860 pounds, to be paid in two parts. Mr Marais thought the society could dig the trench itself and save a third of the money. After some discussion it was agreed to ask for a second offer, and to decide on 28 March whatever the answer.

The gate was left open three times in February, and deer have eaten most of the winter cabbage on plots four to nine. From now on the last person to leave locks the gate, and a list on the shed door shows who that was.

Miss Okafor will order the seed potatoes this week. Anyone who wants some of the early kind should tell her by Sunday. The next meeting will be held in the hall, the choir permitting.
`;

export class Editor {
  /** @param {{text: HTMLTextAreaElement, count: HTMLElement, file: HTMLInputElement, drop: HTMLElement}} places */
  constructor({ text, count, file, drop }) {
    this.field = text;
    this.count = count;
    this.file = file;
    this.drop = drop;
    this.limit = Infinity;
    /** Told when a file has been read. */
    this.onfile = () => {};
    /** Told a sentence when one could not be. */
    this.onproblem = (/** @type {string} */ _sentence) => {};
    this.field.addEventListener("input", () => this.countSoon());
    this.file.addEventListener("change", () => this.file.files[0] && this.read(this.file.files[0]));
    this.listenForDrops();
    this.showCount();
  }

  get value() {
    return this.field.value;
  }

  set value(text) {
    this.field.value = text;
    this.field.setSelectionRange(0, 0); // reading starts at the beginning
    this.field.scrollTop = 0;
    this.showCount();
  }

  countSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.showCount(), QUIET);
  }

  showCount() {
    const text = this.value;
    const over = text.length > this.limit;
    const most = over ? ` This server takes at most ${this.limit.toLocaleString("en")} characters; the text has ${text.length.toLocaleString("en")}.` : "";
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
    let text;
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    } catch {
      return this.onproblem(`${file.name} is not a text in UTF-8. Save it as plain text (UTF-8) and try again.`);
    }
    if (text.includes("\0")) return this.onproblem(`${file.name} is not a text. Save it as plain text (UTF-8) and try again.`);
    this.value = text;
    this.onfile();
  }
}
