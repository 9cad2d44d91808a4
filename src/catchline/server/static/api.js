/** The service's answers, and its errors as sentences that say what to do. */

const TOKEN = "catchline-token";

/** What went wrong: a sentence for people, the status (0: no answer), and how long to wait before another try. */
export class ServiceError extends Error {
  /** @param {string} message @param {number} status @param {number} [wait] seconds */
  constructor(message, status, wait = 0) {
    super(message);
    this.status = status;
    this.wait = wait;
  }
}

/** Keep the bearer token until the tab is closed. @param {string} token */
export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** What the service can use. @returns {Promise<{models: Object[], limits: Object}>} */
export function listModels() {
  return ask("v1/models", {});
}

/**
 * @param {{model: string, document: string, format: string, options: Object}} request
 * @param {AbortSignal} signal
 * @returns {Promise<Object>} the record of the summary
 */
export async function summarize({ model, document, format, options }, signal) {
  const body = JSON.stringify({ model, document: document.toWellFormed?.() ?? document, format, options, explain: true, attention: true });
  const headers = { "Content-Type": "application/json" };
  const answer = await ask("v1/summarize", { method: "POST", headers, body, signal });
  const [record] = answer.summaries ?? [];
  if (!record) throw new ServiceError("The server's answer has no summary; is this page older than the server? Reload it.", 200);
  return { ...record, model };
}

/**
 * The text of a PDF, an office file or a page.
 * @param {File} file
 * @returns {Promise<{format: string, document: string}>}
 */
export function readFile(file) {
  const headers = { "Content-Type": "application/octet-stream" };
  return ask(`v1/read?name=${encodeURIComponent(file.name.slice(-200))}`, { method: "POST", headers, body: file });
}

async function ask(path, { headers = {}, ...rest }) {
  const token = sessionStorage.getItem(TOKEN);
  const all = token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
  let response, text;
  try {
    response = await fetch(new URL(path, document.baseURI), { ...rest, headers: all, cache: "no-store" });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError("The server does not answer. Is it still running? Your text is still here; try again when it is.", 0);
  }
  const body = parsed(text);
  if (response.ok && body) return body;
  throw new ServiceError(sentence(response, body, Boolean(token)), response.status, Number(response.headers.get("Retry-After")) || 0);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function sentence(response, body, tokenSent) {
  if (response.status === 401) return tokenSent ? "This token is wrong." : "This server asks for a token.";
  if (typeof body?.error === "string") return body.error;
  if (response.ok) return "The server's answer cannot be read; something between this page and the server may have changed it.";
  return `The server answered with status ${response.status} and no message.`;
}
