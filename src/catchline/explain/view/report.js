/** The script of a self-contained report: every document with its summaries becomes a panel once it comes into sight. */
import { h } from "./dom.js";
import { Panel } from "./panel.js";
import { copyButton } from "./summary.js";
import { applyTheme, themeButton } from "./theme.js";

applyTheme();
document.querySelector(".top").append(themeButton());

/**
 * The page holds document and summaries as plain text, readable without this script; the panel takes their place.
 * @param {HTMLElement} group
 */
function mount(group) {
  const data = JSON.parse(group.querySelector(".data").textContent);
  const plain = group.querySelector(".panel");
  const text = plain.querySelector(".document")?.textContent ?? "";
  const panel = new Panel(text, { more: data.more });
  if (!text) panel.reading.remove();
  for (const record of data.records) {
    const copy = copyButton(() => record.summary, "Copy");
    const slot = panel.addSystem(h("header", {}, h("h2", {}, record.model || "summary"), copy));
    panel.show(slot, record);
  }
  for (const reference of plain.querySelectorAll(".reference")) panel.addSystem().replaceWith(reference);
  plain.replaceWith(panel.element);
}

const groups = [...document.querySelectorAll(".group")];
const nearby = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      nearby.unobserve(target);
      mount(target);
    }
  },
  { rootMargin: "800px" },
);
if (groups.length) mount(groups[0]);
for (const group of groups.slice(1)) nearby.observe(group);
