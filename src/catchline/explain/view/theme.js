/** Light, dark, or as the system says. The choice is kept in the browser. */
import { button } from "./dom.js";

const KEY = "catchline-theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };
const THEME_NAMES = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" };

/** @returns {"auto"|"light"|"dark"} */
function stored() {
  try {
    const found = localStorage.getItem(KEY);
    return found in NEXT ? found : "auto";
  } catch {
    return "auto"; // a page from a file, or storage switched off
  }
}

function apply(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event("catchline-theme")); // canvases draw their colours themselves
}

/** Put the kept choice into effect, and follow the system where that is the choice. */
export function applyTheme() {
  apply(stored());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(stored()));
}

/** A button that goes through the three choices. @returns {HTMLButtonElement} */
export function themeButton() {
  let theme = stored();
  const toggle = button(THEME_NAMES[theme], () => {
    theme = NEXT[theme];
    toggle.textContent = THEME_NAMES[theme];
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // kept for this page only
    }
    apply(theme);
  });
  toggle.classList.add("theme");
  return toggle;
}
