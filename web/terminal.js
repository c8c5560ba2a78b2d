// A terminal over WebSocket (docs/TERMINALS.md): bytes both ways, sizes as JSON text. After a cut it goes on where it was.
import { button, h, show } from "./ui.js";
import { FitAddon } from "./vendor/addon-fit.mjs";
import { Terminal } from "./vendor/xterm.mjs";

const TRIES_MAX = 8, TRY_AGAIN_MS = 500;

function address(box, { process, offset, rows, cols }) {
  const query = new URLSearchParams({ sandbox: box.id, rows, cols });
  if (process) query.set("process", process);
  if (process && offset) query.set("offset", offset);
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/terminal?${query}`;
}

export function terminalTab(pane, box, process) {
  const term = new Terminal({ cursorBlink: true, fontSize: 14, scrollback: 5000, screenReaderMode: true,
    fontFamily: 'ui-monospace, "DejaVu Sans Mono", monospace', theme: { background: "#10181a" } });
  const fit = new FitAddon();
  const place = { process: process || "", offset: 0 };
  const state = h("span", { class: "quiet", role: "status" }, "connecting…");
  const holder = h("div", { class: "screen" });
  let socket = null, tries = 0, left = false, timer = 0;

  function told(message) {
    if (message.type === "open") { place.process = message.process; place.offset = message.offset; tries = 0; state.textContent = "connected"; }
    else if (message.type === "gap") place.offset = message.offset;
    else if (message.type === "exit") ended(`the terminal's process has ended: ${message.reason}`);
  }
  function ended(text) {
    left = true;
    state.textContent = text;
  }
  function closed(event) {
    if (left) return;
    // 1006, 1011, 1012: the network or the server; everything else is an answer that stays the same.
    if (![1001, 1005, 1006, 1011, 1012].includes(event.code) || tries >= TRIES_MAX) return ended(event.reason || `closed (${event.code})`);
    state.textContent = "the connection broke, trying again…";
    timer = setTimeout(connect, TRY_AGAIN_MS * 2 ** tries++);
  }
  function connect() {
    socket = new WebSocket(address(box, { ...place, rows: term.rows, cols: term.cols }));
    socket.binaryType = "arraybuffer";
    socket.addEventListener("message", ({ data }) => {
      if (typeof data === "string") return told(JSON.parse(data));
      place.offset += data.byteLength;
      return term.write(new Uint8Array(data));
    });
    socket.addEventListener("close", closed);
  }
  function restart() {
    socket?.close();
    place.process = "";
    place.offset = 0;
    left = false;
    tries = 0;
    term.reset();
    connect();
    term.focus();
  }

  show(pane, h("p", { class: "row" }, button("New terminal", restart), state), holder);
  term.loadAddon(fit);
  term.open(holder);
  fit.fit();
  const encoder = new TextEncoder();
  const send = (data) => { if (socket?.readyState === WebSocket.OPEN) socket.send(data); };
  term.onData((text) => send(encoder.encode(text)));
  term.onBinary((text) => send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
  term.onResize(({ rows, cols }) => send(JSON.stringify({ type: "resize", rows, cols })));
  const refit = () => fit.fit();
  window.addEventListener("resize", refit);
  connect();
  term.focus();
  // Leaving the page leaves the shell running: the list of processes has it.
  return () => { left = true; clearTimeout(timer); window.removeEventListener("resize", refit); socket?.close(); term.dispose(); };
}
