// Background processes: what runs, how the others ended and why, their logs live.
import { events, post, remove, sandboxPath } from "./api.js";
import { ask, button, bytes, h, notice, show, span, table } from "./ui.js";

const LOG_LINES_MAX = 5000;

function ending(process) {
  if (process.running) return "running";
  return process.reason ? `exit ${process.exitCode}: ${process.reason}` : `exit ${process.exitCode}`;
}

function logView(pane, box, process, back) {
  const output = h("pre", { class: "log", tabindex: "0", "aria-label": "Log" });
  const add = (className, text) => {
    const follow = output.scrollTop + output.clientHeight >= output.scrollHeight - 4;
    output.append(h("span", { class: className }, `${text}\n`));
    while (output.childElementCount > LOG_LINES_MAX) output.firstElementChild.remove();
    if (follow) output.scrollTop = output.scrollHeight;
  };
  const stop = events(sandboxPath(box.id, `/processes/${encodeURIComponent(process.id)}/log`), {
    line: ({ stream, text }) => add(stream, text),
    gap: ({ lostBytes }) => add("quiet", `… ${bytes(lostBytes)} were overwritten before they could be read`),
    end: ({ message }, source) => { source.close(); add("quiet", `— ${message}`); },
  });
  show(pane, h("p", { class: "row" }, button("Back", () => { stop(); back(); }), h("code", {}, process.command || process.id)), output);
  return stop;
}

export function processesTab(pane, box) {
  const list = h("div");
  let stop = null; // what is followed now: the list, or one log

  async function start() {
    const command = await ask("Start a process", { label: "Command", yes: "Start" });
    if (!command) return;
    const { pid } = await post(sandboxPath(box.id, "/processes"), { command });
    notice(`started as process ${pid}`);
  }
  async function kill(process) {
    if (!await ask(`Kill ${process.command || process.id}?`, { yes: "Kill", danger: true })) return;
    await remove(sandboxPath(box.id, `/processes/${encodeURIComponent(process.id)}`));
  }
  function showLog(process) {
    stop?.();
    stop = logView(pane, box, process, begin);
  }
  function row(process) {
    return h("tr", {},
      h("td", { class: "number" }, String(process.pid)), h("td", {}, h("code", { class: "long" }, process.command || process.id)),
      h("td", { class: process.running || process.exitCode === 0 ? "" : "bad" }, ending(process)),
      h("td", { class: "number" }, span(Date.now() - Date.parse(process.started))),
      h("td", { class: "number" }, `${(process.cpuMs / 1000).toFixed(1)} s`),
      h("td", { class: "number" }, process.memoryBytes ? bytes(process.memoryBytes) : ""),
      h("td", { class: "row end" },
        process.log && !process.terminal ? button("Log", () => showLog(process), { "data-key": `log ${process.id}` }) : null,
        process.running ? button("Kill", () => kill(process), { class: "danger", "data-key": `kill ${process.id}` }) : null));
  }
  // The list is drawn anew while somebody may be on one of its buttons: the new one has the focus then.
  function draw({ processes }) {
    const key = list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    show(list, processes.length ? table("Processes", ["Pid", "Command", "Ended", "Age", "Cpu", "Memory", "Actions"], processes.map(row)) : h("p", {}, "No background process was started yet."));
    if (key) list.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
  }
  function begin() {
    show(pane, h("p", { class: "row" }, button("Start a process", start, { class: "main" })), list);
    stop = events(sandboxPath(box.id, "/processes/events"), { processes: draw });
  }

  begin();
  return () => stop?.();
}
