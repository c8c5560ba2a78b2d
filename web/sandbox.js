// One sandbox: what it is, and a tab for each way to use it.
import { base, events, get, sandboxPath } from "./api.js";
import { commandsTab } from "./commands.js";
import { filesTab } from "./files.js";
import { changeLife, end } from "./list.js";
import { portsTab } from "./ports.js";
import { processesTab } from "./processes.js";
import { refusalsTab } from "./refusals.js";
import { snapshotsTab } from "./snapshots.js";
import { terminalTab } from "./terminal.js";
import { usageTab } from "./usage.js";
import { ask, button, h, isPaused, show, span, time } from "./ui.js";

const TABS = { terminal: ["Terminal", terminalTab], files: ["Files", filesTab], processes: ["Processes", processesTab], commands: ["Commands", commandsTab], ports: ["Ports", portsTab],
  usage: ["Usage", usageTab], snapshots: ["Snapshots", snapshotsTab], refused: ["Refused", refusalsTab] };

function facts(box) {
  const rows = [["State", h("span", { class: `state ${box.state}`, id: "state" }, box.state)], ["Project", box.project || "its own"],
    ["Template", box.template], ["Made by", box.dialect], ["Created", time(box.created)],
    ["Ends", isPaused(box) ? box.state : `${time(box.ends)} (in ${span(Date.parse(box.ends) - Date.now())})`]];
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

async function extend(box) {
  const minutes = await ask("More time", { label: "Minutes from now", value: "60", yes: "Extend" });
  if (minutes !== null) await changeLife(box.id, "extend", { seconds: Math.round(Number(minutes) * 60) });
}

function controls(box) {
  const paused = isPaused(box);
  return h("p", { class: "row" },
    paused ? button("Resume", () => changeLife(box.id, "resume"), { class: "main" }) : button("Pause", () => changeLife(box.id, "pause")),
    box.state === "saved" ? null : button("Pause to storage", () => changeLife(box.id, "pause", { save: true }), { title: "Its files are kept, its processes end" }),
    box.state === "saved" ? h("a", { class: "button", href: base + sandboxPath(box.id, "/saved"), download: true }, "Download") : null,
    paused ? null : button("More time", () => extend(box)),
    button("End", async () => { if (await end(box.id)) location.hash = "#/"; }, { class: "danger" }));
}

function tabBar(id, current) {
  return h("nav", { class: "tabs", "aria-label": "Parts of this sandbox" }, Object.entries(TABS).map(([name, [title]]) =>
    h("a", { href: `#/sandbox/${id}/${name}`, "aria-current": name === current ? "page" : null }, title)));
}

export function sandboxPage(main, id, tab = "terminal", rest = "") {
  const head = h("div"), pane = h("section", { class: "pane", "aria-label": TABS[tab]?.[0] });
  let leaveTab = null, shownState = "";

  function draw(box) {
    show(head, facts(box), controls(box));
    if (box.state === shownState) return;
    shownState = box.state;
    leaveTab?.();
    leaveTab = null;
    if (isPaused(box)) show(pane, h("p", {}, box.state === "saved" ? "This sandbox is saved: its files are in the store, and it runs again when it is resumed." : "This sandbox is paused: nothing in it runs until it is resumed."));
    else leaveTab = TABS[tab][1](pane, box, rest) || null;
  }
  function gone() {
    leaveTab?.();
    leaveTab = null;
    shownState = "gone";
    show(head, h("p", { class: "bad", role: "alert" }, "This sandbox has ended, or it is not yours."));
    show(pane);
  }

  if (!TABS[tab]) { location.hash = `#/sandbox/${id}`; return null; }
  show(main, h("h1", {}, "Sandbox ", h("code", {}, id)), head, tabBar(id, tab), pane);
  get(sandboxPath(id)).then(draw, gone);
  const stop = events("/events", {
    sandbox: (box) => { if (box.id === id) draw(box); },
    gone: (box) => { if (box.id === id) gone(); },
  });
  return () => { stop(); leaveTab?.(); };
}
