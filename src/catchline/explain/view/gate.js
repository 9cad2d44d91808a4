/** The curve of p_gen over the words of a summary: near 1 the model writes its own word, near 0 it points. */
import { h, svg } from "./dom.js";
import { shortened } from "./text.js";

const STEP = 46;
const LEFT = 36;
const TOP = 12;
const LOW = 112;
const HEIGHT = 186;

/**
 * @param {import("./record.js").View} view
 * @param {(index: number|null) => void} onpoint told the word of the point under the pointer
 * @returns {HTMLElement|null} null for a system without a gate
 */
export function gateCurve(view, onpoint) {
  const words = view.words.filter((word) => word.pGen !== null);
  if (!words.length) return null;
  const width = LEFT + STEP * words.length + 50;
  const x = (index) => LEFT + STEP * (index + 0.5);
  const y = (value) => LOW - (LOW - TOP) * Math.max(0, Math.min(1, value));
  const grid = [0, 0.5, 1].flatMap((value) => [
    svg("line", { class: "grid", x1: LEFT, x2: width - 50, y1: y(value), y2: y(value) }),
    svg("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)),
  ]);
  const line = svg("polyline", { class: "line", points: words.map((word, i) => `${x(i)},${y(word.pGen)}`).join(" ") });
  const points = words.flatMap((word, i) => [
    svg("circle", { class: `dot ${word.kind}`, cx: x(i), cy: y(word.pGen), r: 4.5 }),
    svg("text", { class: `tick label ${word.kind}`, transform: `translate(${x(i) - 3} ${LOW + 20}) rotate(38)` }, shortened(word.text, 12)),
  ]);
  // A finger needs more than a dot: the whole column of a word answers.
  const columns = words.map((word, i) =>
    svg(
      "rect",
      { class: "hit", x: x(i) - STEP / 2, y: 0, width: STEP, height: HEIGHT, data: { word: word.index } },
      svg("title", {}, `${word.text}: p_gen ${word.pGen.toFixed(3)}`),
    ),
  );
  const labelled = { class: "gate", width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" };
  const said = words.map((word) => `${word.text} ${word.pGen.toFixed(2)}`).join(", ");
  const picture = svg("svg", { ...labelled, "aria-label": `p_gen of each word: ${said}` }, ...grid, line, ...points, ...columns);
  const wordAt = (event) => onpoint(event.target.dataset.word ? Number(event.target.dataset.word) : null);
  picture.addEventListener("pointerover", wordAt);
  picture.addEventListener("click", wordAt); // of a finger, which has left by then
  picture.addEventListener("pointerleave", () => onpoint(null));
  return h(
    "figure",
    { class: "chart-block" },
    h("figcaption", {}, h("b", {}, "Own word or copy (p_gen)"), ": at 1 the model writes its own word, at 0 it copies from the text."),
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "p_gen curve" }, picture),
  );
}
