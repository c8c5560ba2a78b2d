// Templates that this tenant builds: how far each is, and its log while it is built.
import { events } from "./api.js";
import { button, h, show, span, table, time } from "./ui.js";

const ENTRIES_MAX = 2000;
const STATES = { waiting: "waits for its order", queued: "waits for other builds", running: "is being built", ready: "ready", failed: "failed" };

function buildRow(one, follow) {
  const took = one.finished ? span(Date.parse(one.finished) - Date.parse(one.created)) : span(Date.now() - Date.parse(one.created));
  return h("tr", { "data-build": one.id, "data-state": one.state }, h("td", {}, h("code", {}, one.name)), h("td", {}, one.tags), h("td", {}, h("span", { class: `state ${one.state}` }, STATES[one.state] || one.state)),
    h("td", {}, time(one.created)), h("td", { class: "number" }, took), h("td", { class: "row end" }, button("Log", () => follow(one))));
}

function buildLog(pane, one) {
  const log = h("pre", { class: "log", tabindex: "0", "aria-label": `Log of ${one.name}` }), end = h("p", { role: "status" }, "It goes on…");
  show(pane, h("h2", {}, "Log of ", h("code", {}, one.name)), log, end);
  const stop = events(`/builds/${encodeURIComponent(one.id)}/log`, {
    open: () => { show(log); },
    entry: (entry) => {
      log.append(h("div", { class: entry.level === "error" || entry.level === "warn" ? "stderr" : null }, entry.step ? `${entry.step}: ` : "", entry.text));
      while (log.childElementCount > ENTRIES_MAX) log.firstElementChild.remove();
      log.scrollTop = log.scrollHeight;
    },
    end: ({ state, step, reason }, source) => {
      source.close();
      end.className = state === "ready" ? "good" : "bad";
      end.textContent = state === "ready" ? "It is ready: new sandboxes can be made of it." : `It failed${step ? ` in step ${step}` : ""}: ${reason || "without a word"}`;
    },
  });
  return stop;
}

export function templatesPage(main) {
  const builds = new Map(), list = h("div"), pane = h("div");
  let leaveLog = null, due = 0;

  function follow(one) {
    leaveLog?.();
    leaveLog = buildLog(pane, one);
  }
  function draw() {
    due = 0;
    const all = [...builds.values()].sort((a, b) => b.created.localeCompare(a.created));
    show(list, all.length ? table("Builds", ["Template", "Tags", "State", "Began", "Took", "Log"], all.map((one) => buildRow(one, follow))) : h("p", {}, "Nothing was built lately."));
  }

  show(main, h("h1", {}, "Templates"), list, pane,
    h("p", { class: "quiet" }, "Whoever has a key builds templates with the e2b SDK; operators add them with ", h("code", {}, "cove template add"), ". A template's name is taken wherever a sandbox is made."));
  draw();
  const stop = events("/builds", {
    open: () => { builds.clear(); },
    build: (one) => { builds.set(one.id, one); due ||= setTimeout(draw, 50); },
  });
  return () => { stop(); leaveLog?.(); clearTimeout(due); };
}
