/** The page: a text goes in, summaries come out, and every word says where it came from. */
import { listModels, setToken } from "./api.js";
import { Editor } from "./editor.js";
import { EXAMPLES } from "./examples.js";
import { Results } from "./results.js";
import { Settings } from "./settings.js";
import { button, h } from "./view/dom.js";
import { copyButton } from "./view/summary.js";
import { applyTheme, themeButton } from "./view/theme.js";

const at = (id) => document.getElementById(id);
const [form, go, back, messages, live] = ["form", "go", "back", "messages", "live"].map(at);

const settings = new Settings(at("systems"), at("numbers"));
const editor = new Editor({ text: at("text"), count: at("count"), file: at("file"), drop: at("drop") });
const results = new Results(at("results"), { say, onunauthorized: askForToken, onbusy: showBusy, onedit: () => write(), onformat: readAs });
let summarized = null; // the text that the results belong to, and as what it was to be read

function say(sentence) {
  live.textContent = sentence;
}

function showMessage(sentence, ...more) {
  delete messages.dataset.about;
  messages.replaceChildren(...(sentence ? [h("div", { class: "notice" }, h("p", {}, sentence), ...more)] : []));
}

/** Writing: the text can be changed. Reading: the summaries and the linked document stand in its place. */
function setState(state) {
  document.body.dataset.state = state;
  back.hidden = state === "reading" || summarized === null;
}

function showBusy(busy) {
  document.body.classList.toggle("busy", busy);
  go.textContent = busy ? "Cancel" : "Summarize";
}

async function load() {
  try {
    const { models, limits, version } = await listModels();
    at("version").textContent = `Catchline ${version}`;
    showMessage("");
    settings.offer(models);
    editor.limit = limits?.max_characters ?? Infinity;
    editor.showCount();
    go.disabled = false;
    if (settings.missing?.length) showMessage(`This server has no ${settings.missing.join(", ")}; the link comes from another server.`);
    return true;
  } catch (error) {
    if (error.status === 401) askForToken(error.message);
    else showMessage(error.message, button("Try again", load));
    return false;
  }
}

function askForToken(sentence) {
  if (messages.querySelector("input")) {
    messages.querySelector("p").textContent = sentence;
    return;
  }
  const field = h("input", { type: "password", id: "token", autocomplete: "off", "aria-label": "Token" });
  const send = h("form", { class: "token" }, field, h("button", { class: "plain" }, "Use it"), h("span", { class: "quiet" }, "Kept until you close this tab."));
  send.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!field.value.trim()) return;
    setToken(field.value.trim());
    if (await load()) results.retryAll();
    else field.select();
  });
  showMessage(sentence, send);
  field.focus();
}

function submit() {
  if (document.body.classList.contains("busy")) return results.cancel();
  const text = editor.value;
  if (!text.trim()) {
    setState("writing");
    showMessage("There is no text yet. Paste one, drop a file, or try an example.");
    return editor.field.focus();
  }
  if (editor.size > editor.limit) {
    setState("writing");
    showMessage(`Your text has ${editor.size.toLocaleString("en")} characters; this service takes ${editor.limit.toLocaleString("en")}.`);
    return editor.field.focus();
  }
  const wrong = settings.problem();
  if (wrong) {
    showMessage(wrong.sentence);
    messages.dataset.about = "numbers";
    return wrong.field.focus();
  }
  showMessage("");
  summarized = [text, editor.format];
  setState("reading");
  return results.run(...summarized, asked());
}

function readAs(format) {
  summarized[1] = format;
  editor.write(...summarized);
  return results.run(...summarized, asked());
}

function asked() {
  return settings.chosen.map((model) => ({ model, options: settings.optionsOf(model), title: settings.title(model) }));
}

function write(text) {
  if (text !== undefined) editor.value = text;
  showMessage("");
  setState("writing");
  editor.field.focus();
}

applyTheme();
at("tools").append(copyButton(() => settings.link(), "Copy link"), themeButton());
at("tools").firstChild.title = "An address with these settings, without the text";
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!go.disabled) submit();
});
at("examples").append(...Object.entries(EXAMPLES).map(([kind, text]) => button(kind, () => write(text), { type: "button" })));
at("clear").addEventListener("click", () => write(""));
at("open").addEventListener("click", () => at("file").click());
back.addEventListener("click", () => {
  editor.write(...summarized);
  setState("reading");
});
editor.onfile = () => write();
editor.onproblem = (sentence) => showMessage(sentence);
addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !go.disabled) submit();
  if (event.key === "Escape" && document.body.classList.contains("busy")) results.cancel();
});
settings.onchange = () => messages.dataset.about === "numbers" && !settings.problem() && showMessage("");
settings.onsystems = () => document.body.dataset.state === "reading" && results.run(...summarized, asked(), { keep: true });
setState("writing");
await load();
document.body.dataset.ready = "";
performance.mark("catchline-ready");
