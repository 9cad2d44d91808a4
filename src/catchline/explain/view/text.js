/**
 * Characters and numbers.
 *
 * Records count characters (code points, as Python does); the DOM counts UTF-16 units. The two differ behind
 * the first emoji, so every position that comes from a record goes through `Offsets`.
 */

/** Translates positions of one text between code points and UTF-16 units. */
export class Offsets {
  /** @param {string} text */
  constructor(text) {
    this.length = text.length;
    /** Which characters take two units: their places, counted in characters. */
    this.wide = [];
    if (/[\ud800-\udbff]/.test(text)) {
      for (const found of text.matchAll(/[\u{10000}-\u{10ffff}]/gu)) this.wide.push(found.index - this.wide.length);
    }
  }

  /** @param {number} character @returns {number} the UTF-16 position, within the text */
  toUnits(character) {
    const before = lastAtMost(this.wide, character - 1) + 1;
    return Math.min(character + before, this.length);
  }
}

/**
 * The last index whose value is not above `wanted`; -1 where all are.
 * @param {number[]} sorted @param {number} wanted
 */
export function lastAtMost(sorted, wanted) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** @param {number} share 0 to 1 @returns {string} "37%", "<1%" */
export function percent(share) {
  return share > 0 && share < 0.005 ? "<1%" : `${Math.round(100 * share)}%`;
}

/** @param {number} value a probability @returns {string} */
export function probability(value) {
  if (value >= 0.005 || value === 0) return value.toFixed(2);
  return value < 0.0001 ? "below 0.0001" : value.toFixed(4);
}

/** @param {number} number @param {string} noun @returns {string} "1 word", "20,000 words" */
export function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** @param {string} text @param {number} most @returns {string} on one line, with an ellipsis if cut */
export function shortened(text, most) {
  const flat = text.replace(/\s+/g, " ").trim();
  return flat.length <= most ? flat : `${flat.slice(0, most - 1).trimEnd()}…`;
}

/** Words as blanks separate them, counted without building them. @param {string} text */
export function countWords(text) {
  let count = 0;
  const pattern = /\S+/g;
  while (pattern.test(text)) count += 1;
  return count;
}
