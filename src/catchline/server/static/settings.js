/**
 * Which systems, how long, how wide a beam. All of it stands behind the # of the address, so a link carries the settings and
 * never the text.
 */
import { button, h } from "./view/dom.js";

const MOST = 3;
/** Options of the service that the page offers; each is sent to the systems that have it. */
const NUMBERS = [
  { key: "min_length", label: "Shortest line", meaning: "The shortest line that a model may write, in tokens (a word has one or two)." },
  { key: "max_length", label: "Longest line", meaning: "The longest line that a model may write, in tokens (a word has one or two)." },
  { key: "beam_size", label: "Thoroughness", meaning: "How many candidate lines the search keeps. More take longer." },
  { key: "sentences", label: "Sentences", meaning: "How many sentences to pick from the text." },
];
const GROUPS = { neural: "Models: write a line", prompted: "Prompted: another server's models", extractive: "Extractive: pick sentences" };
const TITLES = {
  oneline: "Bundled model",
  ...{ lexrank: "LexRank", textrank: "TextRank", lsa: "LSA", kl: "KL sum", concept_ilp: "Concepts", sum_basic: "SumBasic" },
};

/** A system's name in words. @param {string} name @param {string} [kind] @returns {string} */
export function titled(name, kind) {
  const words = name.replaceAll("_", " ");
  const title = TITLES[name] ?? (kind === "extractive" ? words.charAt(0).toUpperCase() + words.slice(1) : name);
  return kind === "extractive" ? `${title} (extractive)` : title;
}

export class Settings {
  /**
   * @param {HTMLElement} systems where the choosers go
   * @param {HTMLElement} numbers where the options go
   */
  constructor(systems, numbers) {
    this.place = systems;
    this.numbers = numbers;
    this.models = new Map();
    this.chosen = [];
    this.values = {};
    /** Told about every change. */
    this.onchange = () => {};
    /** Told when a system was added, left out or exchanged. */
    this.onsystems = () => {};
    addEventListener("hashchange", () => this.readAddress());
  }

  /** @param {Object[]} models the entries of GET v1/models */
  offer(models) {
    this.models = new Map(models.map((model) => [model.name, model]));
    this.readAddress();
  }

  /** Take the settings from the address; names that this server lacks are left out. */
  readAddress() {
    if (!this.models.size) return;
    const given = new URLSearchParams(location.hash.slice(1));
    const asked = [...new Set((given.get("systems") ?? "").split(",").map(decoded))].filter(Boolean);
    const known = asked.filter((name) => this.models.has(name));
    this.missing = asked.filter((name) => !this.models.has(name));
    this.chosen = known.length ? known.slice(0, MOST) : [this.fallback()];
    this.values = {};
    for (const { key } of NUMBERS) if (/^\d+$/.test(given.get(key) ?? "")) this.values[key] = Number(given.get(key));
    this.draw();
    this.onchange();
  }

  fallback() {
    const models = [...this.models.values()];
    return (models.find((model) => model.default) ?? models[0]).name;
  }

  /** The address of this page with these settings. @returns {string} */
  link() {
    const given = new URLSearchParams();
    given.set("systems", this.chosen.map(encodeURIComponent).join(","));
    for (const [key, value] of Object.entries(this.values)) given.set(key, String(value));
    return `${location.href.split("#")[0]}#${given}`;
  }

  /** The options that one system is asked with. @param {string} name @returns {Object<string, number>} */
  optionsOf(name) {
    const known = this.models.get(name)?.options ?? {};
    return Object.fromEntries(Object.entries(this.values).filter(([key]) => key in known));
  }

  changed() {
    history.replaceState(null, "", this.link());
    this.onchange();
  }

  /** A system's name in words. @param {string} name @returns {string} */
  title(name) {
    return titled(name, this.models.get(name)?.kind);
  }

  /** What a system is, one sentence. @param {string} name @returns {string} */
  about(name) {
    return this.models.get(name)?.in_short ?? "";
  }

  draw() {
    const rows = this.chosen.map((name, index) => this.chooser(name, index));
    const more = button("+ Compare", () => this.add(), { title: "Add another system", hidden: this.chosen.length >= Math.min(MOST, this.models.size) });
    for (const old of [...this.place.querySelectorAll(":scope > :not(legend)")]) old.remove();
    this.place.append(...rows, more);
    this.drawNumbers();
  }

  chooser(name, index) {
    const groups = Object.entries(GROUPS).map(([kind, label]) => {
      const models = [...this.models.values()].filter((model) => model.kind === kind);
      const option = (model) =>
        h("option", { value: model.name, selected: model.name === name, disabled: model.name !== name && this.chosen.includes(model.name) }, this.title(model.name));
      return models.length ? h("optgroup", { label }, ...models.map(option)) : null;
    });
    const select = h("select", { "aria-label": `System ${index + 1}` }, ...groups);
    select.addEventListener("change", () => {
      this.chosen[index] = select.value;
      this.rechosen(index);
    });
    const remove = button("×", () => this.remove(index), { "aria-label": `Leave out ${this.title(name)}`, class: "plain remove", hidden: this.chosen.length < 2 });
    return h("span", { class: "chosen-system" }, select, remove, h("small", { class: "about quiet" }, this.about(name)));
  }

  add() {
    const free = [...this.models.keys()].find((name) => !this.chosen.includes(name));
    if (!free) return;
    this.chosen.push(free);
    this.rechosen(this.chosen.length - 1);
  }

  remove(index) {
    this.chosen.splice(index, 1);
    this.rechosen(0);
  }

  /** Show the systems that are chosen now, the keyboard at one of them, and tell. @param {number} index */
  rechosen(index) {
    this.draw();
    this.place.querySelectorAll("select")[index].focus();
    this.changed();
    this.onsystems();
  }

  /** A field for each option that some chosen system has; empty: as the system is set. */
  drawNumbers() {
    const fields = NUMBERS.map(({ key, label, meaning }) => {
      const infos = this.chosen.map((name) => this.models.get(name).options?.[key]).filter(Boolean);
      if (!infos.length) return null;
      const ends = { min: Math.max(...infos.map((info) => info.minimum ?? 0), 0), max: Math.min(...infos.map((info) => info.maximum ?? 1000)) };
      const defaults = [...new Set(infos.map((info) => info.default ?? "auto"))];
      const usual = defaults.length === 1 ? defaults[0] : "auto";
      const input = h("input", {
        type: "number",
        inputmode: "numeric",
        step: 1,
        ...ends,
        placeholder: `default ${usual}`,
        title: `${meaning} ${ends.min} to ${ends.max}; empty: the default.`,
        data: { option: key, usual },
      });
      input.value = this.values[key] ?? "";
      input.addEventListener("input", () => this.setNumber(key, input));
      return h("label", {}, h("span", {}, label), input);
    });
    for (const old of [...this.numbers.querySelectorAll("label")]) old.remove();
    this.numbers.append(...fields.filter(Boolean));
  }

  setNumber(key, input) {
    const value = input.value === "" ? null : Number(input.value);
    if (value === null) delete this.values[key];
    else if (Number.isInteger(value)) this.values[key] = value;
    this.changed();
  }

  /** What is wrong with the numbers, and in which field; null if nothing is. @returns {{sentence: string, field: HTMLInputElement}|null} */
  problem() {
    const field = [...this.numbers.querySelectorAll("input")].find((input) => !input.validity.valid);
    if (field) return { sentence: `${field.labels[0].textContent} takes a whole number from ${field.min} to ${field.max}.`, field };
    const [least, most] = ["min_length", "max_length"].map((key) => this.numbers.querySelector(`[data-option="${key}"]`));
    const number = (input) => Number(input?.value || input?.dataset.usual); // NaN where systems differ
    if (!(number(least) > number(most))) return null;
    return { sentence: `Shortest line (${number(least)}) is above Longest line (${number(most)}).`, field: least };
  }
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return "";
  }
}
