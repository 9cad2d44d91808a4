/**
 * From a record of the service (or of `catchline explain --json`) to what the components draw.
 *
 * Everything but `summary` may be missing: an older record, or one asked for without explanation, is shown as far
 * as it goes. All positions are UTF-16 units afterwards.
 */
import { Offsets, percent, probability, shortened } from "./text.js";

const MAPS = { p_co: "Correlational copying P_co", p_final: "Copying P_final" };
const FIGURES = { copy_attention_gate: "g", copy_semantic_gate: "u", copied_from_specials: "on special tokens", opponent_log_prob: "log P_o" };
const UNKNOWN = ["<unk>", "[UNK]", "UNK", "⁇"];

/**
 * @typedef {{start: number, end: number, weight: number, text: string}} Source a place in the document
 * @typedef {{index: number, start: number, end: number, text: string, kind: "copied"|"generated"|"unknown",
 *   probability: number, pGen: number|null, copyShare: number, figures: string[], sources: Source[]}} Word
 * @typedef {{name: string, rows: (number|null)[][], columns: {start: number, end: number}[], coarse: boolean,
 *   chosen?: Set<number>[]}} HeatData of a coarse map `chosen`: by chunk, the words for which it was read
 * @typedef {{kind: string, text: string, start: number, end: number}} Warning
 * @typedef {{model: string, text: string, words: Word[], maps: HeatData[], warnings: Warning[]|null, newWords: string[], readTo: number|null,
 *   raw: Object}} View
 */

/**
 * @param {Object} record
 * @param {string} document the text that its positions count in
 * @returns {View}
 */
export function readRecord(record, document) {
  const inDocument = new Offsets(document);
  const text = record.summary ?? "";
  const inSummary = new Offsets(text);
  const words = (record.words ?? []).map((word, index) => ({
    index,
    ...span(word, inSummary),
    text: word.text,
    kind: UNKNOWN.includes(word.text) ? "unknown" : word.copied ? "copied" : "generated",
    probability: word.probability ?? 0,
    pGen: word.p_gen ?? null,
    copyShare: word.copy_share ?? 0,
    figures: Object.entries(word.figures ?? {}).map(([name, value]) => `${FIGURES[name] ?? name} ${value.toFixed(2)}`),
    sources: (word.sources ?? []).map((source) => ({ ...span(source, inDocument), weight: source.weight, text: source.text })),
  }));
  const warnings = record.support?.unsupported ?? null;
  return {
    model: record.title || record.model || "summary",
    text,
    words,
    maps: readMaps(record, inDocument),
    warnings: warnings && warnings.map((found) => ({ kind: found.kind, text: found.text, ...span(found, inSummary) })),
    newWords: [...new Set((record.support?.new_words ?? []).map((found) => found.text))],
    readTo: readTo(record, inDocument),
    raw: record,
  };
}

/** A place of the record in UTF-16 units. */
function span({ start, end }, offsets) {
  return { start: offsets.toUnits(start), end: offsets.toUnits(end) };
}

/** Every heat map that the record has: attention, others by name, and the coarse one over chunks. */
function readMaps(record, offsets) {
  const words = record.words ?? [];
  const columns = (record.source_offsets ?? []).map(([start, end]) => span({ start, end }, offsets));
  const maps = [];
  const add = (name, rows, places, coarse) => {
    const fits = places.length && rows.length && rows.every((row) => row?.length === places.length);
    if (fits && rows.some((row) => row.some((weight) => weight > 0))) {
      maps.push({ name, rows, columns: places, coarse });
    }
  };
  const chunks = record.chunks ?? [];
  const places = chunks.map((chunk) => span(chunk, offsets));
  add("Chunks", words.map((_, index) => chunks.map((chunk) => chunk.weights?.[index] ?? null)), places, true);
  if (maps.length && chunks.some((chunk) => chunk.read)) maps[0].chosen = chunks.map((chunk) => new Set(chunk.read));
  add("Attention", words.map((word) => word.attention), columns, false);
  for (const name of new Set(words.flatMap((word) => Object.keys(word.maps ?? {})))) {
    add(named(name), words.map((word) => word.maps?.[name]), columns, false);
  }
  return maps;
}

/** "opponent_attention" as a heading. */
function named(name) {
  if (MAPS[name]) return MAPS[name];
  const spaced = name.replaceAll("_", " ");
  return spaced.charAt(0).toUpperCase() + spaced.slice(1);
}

/** Where the model stopped reading; null if it read everything. */
function readTo(record, offsets) {
  if (record.read_to) return offsets.toUnits(record.read_to); // a report without its attention
  if (!record.truncated || !record.source_offsets?.length) return null;
  return offsets.toUnits(record.source_offsets.reduce((most, [, end]) => Math.max(most, end), 0));
}

/** One line about a summary: words copied, confidence, what was read. @param {View} view @returns {string[]} */
export function facts(view) {
  const { raw, words } = view;
  const parts = [];
  if (words.length) parts.push(`${words.filter((word) => word.kind === "copied").length} of ${words.length} words copied`);
  const { checked, unsupported } = raw.support ?? {};
  const claims = ["name", "number", "date"].reduce((sum, kind) => sum + (checked?.[kind] ?? 0), 0);
  if (claims) parts.push(`${claims - unsupported.length} of ${claims} names, numbers and dates in the document`);
  if (raw.confidence != null && !raw.extracted) parts.push(`confidence ${percent(Number(raw.confidence))}`);
  if (raw.reading) parts.push(`read ${raw.reading.chunks_read.toLocaleString("en")} of ${raw.reading.chunks.toLocaleString("en")} chunks`);
  if (raw.truncated) parts.push(`${raw.reading ? "given" : "read"} the first ${raw.tokens_read.toLocaleString("en")} of ${raw.tokens_given.toLocaleString("en")} tokens`);
  if (raw.finished === false) parts.push("cut at the length limit");
  return parts;
}

/**
 * Where a word came from, in words.
 * @param {Word} word
 * @returns {string}
 */
export function origin(word) {
  const [first, second] = [...new Set(word.sources.map((source) => shortened(source.text, 40)))].map((text) => `“${text}”`);
  if (isExtract(word)) return "Taken from the text as it stands.";
  if (word.kind === "copied") {
    if (!first) return "Copied.";
    return second ? `Copied, mostly from ${first}, also from ${second}.` : `Copied from ${first}.`;
  }
  const kind = word.kind === "unknown" ? "Not in the model's vocabulary." : "The model's own word.";
  if (!first) return kind;
  return `${kind} It looked most at ${first}${second ? `, then at ${second}` : ""}.`;
}

/** Does the word stand there because its sentence was taken whole? @param {Word} word */
export function isExtract(word) {
  return word.kind === "copied" && word.pGen === null && word.probability === 1;
}

/** What a model says of a word, for those who know the letters. @param {Word} word @returns {string[]} */
export function figuresOf(word) {
  const gate = word.pGen === null ? [] : [`p_gen ${word.pGen.toFixed(2)}`, `${percent(word.copyShare)} of it copied`];
  return [`probability ${probability(word.probability)}`, ...gate, ...word.figures];
}
