// How the commands that somebody waited for ended, and why, as they end.
import { events, sandboxPath } from "./api.js";
import { h, show, span, table, time } from "./ui.js";

const KEPT = 32;

function took(ms) {
  return ms < 1000 ? `${ms} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : span(ms);
}

function row(one) {
  const well = one.exitCode === 0 && one.endedBy === "own";
  return h("tr", { "data-ended": one.endedBy }, h("td", {}, time(one.started)), h("td", {}, h("code", { class: "long" }, one.command)), h("td", {}, one.dialect),
    h("td", { class: "number" }, took(one.durationMs)), h("td", { class: `number ${well ? "good" : "bad"}` }, String(one.exitCode)),
    h("td", {}, one.reason || (one.endedBy === "own" ? "by itself" : one.endedBy)));
}

export function commandsTab(pane, box) {
  const list = [];
  let due = 0;

  function draw() {
    due = 0;
    show(pane, list.length ? table("Commands", ["Started", "Command", "API", "Took", "Exit code", "How it ended"], list.map(row)) : h("p", {}, "No command has ended here lately."),
      h("p", { class: "quiet" }, "The latest commands that a client waited for. Background processes have a tab of their own; terminals are not listed."));
  }

  draw();
  const stop = events(sandboxPath(box.id, "/commands"), {
    open: () => { list.length = 0; },
    command: (one) => { list.unshift(one); list.length = Math.min(list.length, KEPT); due ||= setTimeout(draw, 50); },
  });
  return () => { stop(); clearTimeout(due); };
}
