// All sandboxes of the tenant, live.
import { events, post, sandboxPath, send } from "./api.js";
import { ask, button, bytes, failed, h, isPaused, line, notice, show, span, svg, table } from "./ui.js";

const SHOWN_MAX = 2000, POINTS = 24, WIDTH = 72, HEIGHT = 18;

function matches(box, text, state) {
  if (state && box.state !== state) return false;
  return !text || [box.id, box.project, box.template, box.dialect].some((field) => field?.includes(text));
}

// What a sandbox uses: its cpu as a small chart, memory and disk against their limits. `use` is missing until the first figures come.
function usageCells(use) {
  const of = (now, limit) => (limit ? `${bytes(now)} of ${bytes(limit)}` : bytes(now));
  const share = (label, now, limit) => h("td", { class: "number" }, of(now, limit), limit ? h("meter", { min: 0, max: limit, high: limit * 0.9, value: now, "aria-label": `${label}: ${of(now, limit)}` }) : null);
  if (!use) return [h("td"), h("td"), h("td")];
  const cpu = `${use.cpu.at(-1).toFixed(0)} %`;
  return [
    h("td", { class: "number" }, cpu, svg("svg", { class: "spark", viewBox: `0 -1 ${WIDTH} ${HEIGHT + 2}`, role: "img", "aria-label": `Cpu lately, now ${cpu}`, preserveAspectRatio: "none" },
      line(use.cpu, WIDTH, HEIGHT, Math.max(100, ...use.cpu)))),
    share("Memory", use.memoryBytes, use.memoryLimit), share("Disk", use.diskBytes, use.diskLimit)];
}

// On a phone a row is a card, where each figure has its column's name beside it.
const COLUMNS = ["Id", "State", "Project", "Template", "Made by", "Age", "Time left", "Cpu", "Memory", "Disk"];

function labelled(cells, first = 0) {
  cells.forEach((cell, i) => cell.setAttribute("data-label", COLUMNS[first + i]));
  return cells;
}

function row(box, use) {
  const now = Date.now();
  const left = isPaused(box) ? "" : span(Date.parse(box.ends) - now);
  return h("tr", { "data-id": box.id }, labelled([
    h("td", {}, h("a", { href: `#/sandbox/${box.id}` }, h("code", {}, box.id))),
    h("td", {}, h("span", { class: `state ${box.state}` }, box.state)),
    h("td", {}, box.project || ""),
    h("td", {}, box.template),
    h("td", {}, box.dialect),
    h("td", { class: "number" }, span(now - Date.parse(box.created))),
    h("td", { class: "number" }, left),
    ...usageCells(isPaused(box) ? null : use)]));
}

export function listPage(main) {
  const boxes = new Map(), uses = new Map(); // by id
  let rows = new Map(); // likewise: the rows that are shown
  const count = h("p", { class: "quiet", role: "status" }, "Loading…");
  const body = h("tbody");
  const search = h("input", { type: "search", placeholder: "Search id, project, template", "aria-label": "Search" });
  const state = h("select", { "aria-label": "State" },
    h("option", { value: "" }, "All states"), ...["running", "paused", "saved", "ageing"].map((name) => h("option", { value: name }, name)));
  let due = 0, complete = false; // the stream begins with all there are: they are drawn once

  function draw() {
    due = 0;
    const found = [...boxes.values()].filter((box) => matches(box, search.value.trim(), state.value));
    found.sort((a, b) => b.created.localeCompare(a.created));
    rows = new Map(found.slice(0, SHOWN_MAX).map((box) => [box.id, row(box, uses.get(box.id))]));
    show(body, [...rows.values()]);
    count.textContent = found.length === boxes.size
      ? `${boxes.size} sandbox${boxes.size === 1 ? "" : "es"}` : `${found.length} of ${boxes.size} sandboxes`;
  }
  // New figures of one sandbox change its last three cells; the rest of the page stays as it is.
  function used({ id, cpu, ...use }) {
    uses.set(id, { ...use, cpu: [...(uses.get(id)?.cpu || []), ...cpu].slice(-POINTS) });
    const shown = rows.get(id), box = boxes.get(id);
    if (!shown || !box || isPaused(box)) return;
    const cells = labelled(usageCells(uses.get(id)), COLUMNS.length - 3);
    [...shown.children].slice(-cells.length).forEach((cell, i) => cell.replaceWith(cells[i]));
  }
  // Many changes at once are one drawing.
  const drawSoon = () => { if (complete) due ||= setTimeout(draw, 60); };

  async function create() {
    const template = await ask("New sandbox", { label: "Template (empty: the server's default)", yes: "Create" });
    if (template === null) return;
    const box = await post("/sandboxes", template ? { template } : {});
    location.hash = `#/sandbox/${box.id}`;
  }

  show(main,
    h("div", { class: "row" }, h("h1", {}, "Sandboxes"), button("New sandbox", create, { class: "main", id: "create" })),
    h("div", { class: "row" }, search, state, count),
    table("Sandboxes", COLUMNS, body, "cards"));
  search.addEventListener("input", draw);
  state.addEventListener("change", draw);
  const stop = events("/events", {
    sandbox: (box) => { boxes.set(box.id, box); drawSoon(); },
    gone: ({ id }) => { boxes.delete(id); uses.delete(id); drawSoon(); },
    usage: used,
    ready: () => { complete = true; draw(); },
    // After a cut the stream tells everything again: what is not told then is gone.
    open: () => { complete = false; boxes.clear(); uses.clear(); },
  });
  const clock = setInterval(drawSoon, 15000);
  return () => { stop(); clearInterval(clock); };
}

export async function changeLife(id, what, body) {
  const box = await post(sandboxPath(id, `/${what}`), body);
  notice(`${what}: ${box.state}`);
  return box;
}

export async function end(id) {
  if (!await ask(`End sandbox ${id}?`, { yes: "End it", danger: true })) return false;
  try { await send("DELETE", sandboxPath(id)); } catch (error) { failed(error); return false; }
  return true;
}
