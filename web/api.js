// Requests to the console dialect, and its event streams.

const BASE = "/console/api";
let token = "";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function setToken(value) { token = value || ""; }

async function explain(response) {
  try {
    const body = await response.json();
    return new ApiError(response.status, body.code, body.error || body.message || response.statusText);
  } catch {
    return new ApiError(response.status, "", `The server answered ${response.status} ${response.statusText}`);
  }
}

// The response, or an ApiError. `body` is sent as JSON unless it is a Blob or a string.
export async function send(method, path, { body, headers = {} } = {}) {
  const own = { ...headers };
  if (method !== "GET") own["X-Console-Token"] = token;
  if (body !== undefined && !(body instanceof Blob) && typeof body !== "string") {
    own["Content-Type"] = "application/json";
    body = JSON.stringify(body);
  }
  const response = await fetch(BASE + path, { method, headers: own, body, credentials: "same-origin" });
  if (response.ok) return response;
  const error = await explain(response);
  if (response.status === 401) window.dispatchEvent(new CustomEvent("signed-out", { detail: error.message }));
  throw error;
}

export const get = async (path) => (await send("GET", path)).json();
export const post = async (path, body = {}) => (await send("POST", path, { body })).json();
export const remove = async (path) => (await send("DELETE", path)).json();

// An upload with progress, which fetch() cannot tell.
export function upload(path, file, onProgress, headers = {}) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", BASE + path);
    request.setRequestHeader("X-Console-Token", token);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => onProgress(event.loaded, event.total));
    request.addEventListener("load", () => {
      let body = {};
      try { body = JSON.parse(request.responseText); } catch { /* an error page of a proxy */ }
      if (request.status < 300) resolve(body);
      else reject(new ApiError(request.status, body.code, body.error || `The server answered ${request.status}`));
    });
    request.addEventListener("error", () => reject(new ApiError(0, "", "The connection broke")));
    request.send(file);
  });
}

// events("/events", {sandbox: fn, gone: fn}): a browser comes back by itself after a cut, but not after an error such as 503: then it
// is tried again here, less and less often. Returns how to stop it.
const AGAIN_MS = 1000, AGAIN_MOST_MS = 30000;

export function events(path, handlers) {
  let source, timer = 0, delay = AGAIN_MS;

  function begin() {
    source = new EventSource(BASE + path);
    for (const [name, handle] of Object.entries(handlers))
      if (name !== "open") source.addEventListener(name, (event) => handle(JSON.parse(event.data), source));
    source.addEventListener("open", () => { delay = AGAIN_MS; handlers.open?.(); });
    source.addEventListener("error", () => {
      if (source.readyState !== EventSource.CLOSED) return;
      get("/session").catch(() => {}); // the reason is not told here: a session that is over shows by this
      timer = setTimeout(begin, delay);
      delay = Math.min(2 * delay, AGAIN_MOST_MS);
    });
  }

  begin();
  return () => { clearTimeout(timer); source.close(); };
}

export const sandboxPath = (id, rest = "") => `/sandboxes/${encodeURIComponent(id)}${rest}`;

// Names of files are bytes. One that is not UTF-8 comes percent-encoded beside its readable form, and is kept here as a string in which
// U+DC80 to U+DCFF stand for its single bytes; no name that is UTF-8 contains these.
export function nameOf(entry) {
  if (!entry.encoded) return entry.name;
  const bytes = Uint8Array.from(entry.encoded.match(/%..|./g), (c) => (c.length === 3 ? parseInt(c.slice(1), 16) : c.charCodeAt(0)));
  let name = "";
  for (let i = 0; i < bytes.length;) {
    const size = [1, 2, 3, 4].find((n) => i + n <= bytes.length && decode(bytes.subarray(i, i + n)));
    name += size ? decode(bytes.subarray(i, i + size)) : String.fromCharCode(0xdc00 + bytes[i]);
    i += size || 1;
  }
  return name;
}

// The text of bytes that are UTF-8, or "".
function decode(bytes) {
  try { return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes); } catch { return ""; }
}

export const percentEncode = (name) => [...name].map((c) => (/[\udc80-\udcff]/.test(c) && c.length === 1
  ? `%${(c.charCodeAt(0) - 0xdc00).toString(16)}` : encodeURIComponent(c))).join("");
export const fileQuery = (path) => `?path=${percentEncode(path)}`;
export const base = BASE;
