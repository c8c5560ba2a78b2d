// Operators' pages: the server's health, tenants, keys, templates, the audit log.
import { events } from "./api.js";
import { lock, newKey, operatorName, run, runJson, unlock } from "./operator.js";
import { ask, button, bytes, failed, form, h, notice, show, span, table, time } from "./ui.js";

let leaveTab = null; // what a tab wants done when another page comes

const day = (seconds) => (seconds ? time(seconds * 1000) : "");
const ofQuota = (used, quota, format = String) => (quota ? `${format(used)} of ${format(quota)}` : format(used));

/* ------------------------------------------------------------------ health: what doctor finds, what the node does */

function finding(one) {
  const word = { ok: ["good", "fine"], warn: ["", "look at this"], fail: ["bad", "broken"] }[one.finding] || ["", one.finding];
  return h("tr", {}, h("td", { class: word[0] }, word[1]), h("td", {}, one.check), h("td", {}, one.what, one.fix ? h("div", {}, "→ ", one.fix) : null));
}

function facts(rows) {
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

async function healthTab(pane) {
  const status = await runJson("status");
  const boxes = status.sandboxes, node = status.node;
  const findings = h("div", { role: "status" }, h("p", { class: "quiet" }, "Asking the doctor…"));
  show(pane, facts([["Version", status.version], ["Keeper", status.keeper ? "runs" : "does not run"],
    ["Workers", `${status.workers}${status.silent_workers ? `, ${status.silent_workers} silent` : ""}`],
    ["Sandboxes", `${boxes.live} running, ${boxes.frozen ?? boxes.paused ?? 0} paused, ${boxes.saved} saved, ${boxes.warm} warm of ${status.pool_wanted}`],
    ["Load", `${node.load.toFixed(2)} on ${node.cpus} cpus`],
    ["Memory", `${bytes(node.memory_available_bytes)} free of ${bytes(node.memory_bytes)}`],
    ["Disk", `${bytes(node.disk_free_bytes)} free of ${bytes(node.disk_bytes)}`]]), findings);
  const found = await runJson("doctor");
  const bad = found.filter((one) => one.finding !== "ok").length;
  show(findings, h("p", { class: bad ? "" : "good" }, bad ? `${bad} of ${found.length} checks found something.` : `All ${found.length} checks are fine.`),
    table("What the doctor found", ["Finding", "Check", "What"], found.map(finding)));
}

/* ------------------------------------------------------------------ tenants */

function tenantRow(one) {
  const quota = one.quota;
  return h("tr", {}, h("td", {}, h("code", {}, one.tenant)), h("td", { class: "number" }, String(one.keys)),
    h("td", { class: "number" }, ofQuota(one.sandboxes, quota.sandboxes)), h("td", { class: "number" }, String(one.paused)), h("td", { class: "number" }, String(one.saved)),
    h("td", { class: "number" }, bytes(one.memory_bytes)), h("td", { class: "number" }, ofQuota(one.disk_bytes, quota.disk_bytes, bytes)),
    h("td", { class: "number" }, ofQuota(one.processes, quota.processes)), h("td", { class: "number" }, `${(one.cpu_ms / 1000).toFixed(1)} s`),
    h("td", { class: "number" }, quota.requests ? `${quota.requests}/s` : "no limit"));
}

async function tenantsTab(pane) {
  const tenants = await runJson("tenants");
  show(pane, table("Tenants", ["Tenant", "Keys", "Sandboxes", "Paused", "Saved", "Memory", "Disk", "Processes", "Cpu", "Requests"], tenants.map(tenantRow)),
    h("p", { class: "quiet" }, "A tenant comes into being with its first key. A figure without “of” has no limit. Quotas are lines of the file ", h("code", {}, "tenants_file"), " names; a change holds within a second."));
}

/* ------------------------------------------------------------------ keys */

function showOnce(title, key) {
  const dialog = h("dialog", { "aria-label": title }, h("form", { method: "dialog" }, h("h2", {}, title),
    h("p", {}, "Copy it now. It was made in this browser, and the server knows only its hash: nobody can show it again."),
    h("p", {}, h("code", { id: "new-key" }, key)), h("p", { class: "row end" }, h("button", { type: "submit", class: "main" }, "I have it"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

async function keysTab(pane) {
  const again = () => keysTab(pane);

  async function create() {
    const given = await form("New key", [["tenant", "Tenant"], ["name", "Name (optional)"], ["expires", "Ends (90d, 2030-01-31; empty: never)"],
      ["dialects", "Dialects (empty: all)"], ["projects", "Projects (empty: all)"]], "Create");
    if (!given) return;
    const { key, hash } = await newKey();
    await run("key-create", [hash, given.name, given.expires, given.dialects, given.projects, "", "", "", given.tenant]);
    await again();
    showOnce("The new key", key);
  }
  async function rotate(one) {
    const grace = await ask(`Replace the key ${one.name || one.id} of ${one.tenant}?`, { label: "The old one goes on for (1h, 7d; empty: not at all)", yes: "Replace" });
    if (grace === null) return;
    const { key, hash } = await newKey();
    await run("key-rotate", [hash, grace, one.id]);
    await again();
    showOnce("The key in its place", key);
  }
  async function revoke(one) {
    if (!await ask(`Revoke the key ${one.name || one.id} of ${one.tenant}?`, { yes: "Revoke", danger: true })) return;
    await run("key-revoke", [one.id]);
    notice("revoked");
    await again();
  }
  function row(one) {
    return h("tr", { "data-key": one.id }, h("td", {}, h("code", {}, one.id)), h("td", {}, one.tenant), h("td", {}, one.name), h("td", {}, day(one.created)),
      h("td", {}, one.expires ? day(one.expires) : "never"), h("td", {}, one.dialects || "all"), h("td", {}, one.projects || "all"),
      h("td", { class: "row end" }, button("Rotate", () => rotate(one)), button("Revoke", () => revoke(one), { class: "danger" })));
  }

  const keys = await runJson("keys");
  show(pane, h("p", { class: "row" }, button("New key", create, { class: "main" })),
    table("Keys", ["Key", "Tenant", "Name", "Made", "Ends", "Dialects", "Projects", "Actions"], keys.map(row)));
}

/* ------------------------------------------------------------------ templates */

function templateRow(one) {
  return h("tr", {}, h("td", {}, h("code", {}, one.name)), h("td", { class: "number" }, one.layers ? String(one.layers) : "the host's /usr"),
    h("td", {}, one.digest ? h("code", {}, one.digest.slice(0, 12)) : ""), h("td", { class: "number" }, String(one.sandboxes ?? "")),
    h("td", {}, one.limits || ""));
}

const BUILD_STATES = { running: "is being made", ready: "ready", failed: "failed" };

function buildRow(one, choose) {
  const took = span((one.ended ? Date.parse(one.ended) : Date.now()) - Date.parse(one.began));
  return h("tr", { "data-build": one.id, "data-state": one.state }, h("td", {}, h("code", {}, one.name)), h("td", {}, h("code", { class: "long" }, one.source)),
    h("td", {}, h("span", { class: `state ${one.state}` }, BUILD_STATES[one.state] || one.state), one.reason ? h("div", {}, one.reason) : null),
    h("td", {}, time(one.began)), h("td", { class: "number" }, took), h("td", { class: "row end" }, button("Log", () => choose(one.id))));
}

// Templates, and what `cove template add` and `build` are making. The server tells that something has changed; what, only a signed request tells.
async function templatesTab(pane) {
  const list = h("div"), builds = h("div"), log = h("div");
  let chosen = "", asking = false, again = false;

  function showLog(all) {
    const one = all.find((build) => build.id === chosen);
    if (!one) return show(log);
    const text = h("pre", { class: "log", tabindex: "0", "aria-label": `Log of ${one.name}` }, one.log);
    show(log, h("h2", {}, "Log of ", h("code", {}, one.name)), text);
    text.scrollTop = text.scrollHeight;
    return null;
  }
  async function look() {
    const [templates, all] = [await runJson("templates"), await runJson("builds")];
    const choose = (id) => { chosen = id; showLog(all); };
    show(list, table("Templates", ["Name", "Layers", "Top layer", "Sandboxes", "Limits"], templates.map(templateRow)));
    show(builds, all.length ? table("Builds", ["Template", "Source", "State", "Began", "Took", "Log"], all.map((one) => buildRow(one, choose))) : h("p", {}, "Nothing was made lately."));
    showLog(all);
  }
  // A change while the last one is being looked at is looked at afterwards, once.
  async function changed() {
    again = true;
    if (asking) return;
    asking = true;
    try { while (again) { again = false; await look(); } } catch (error) { failed(error); } finally { asking = false; }
  }

  show(pane, list, h("h2", {}, "Being made, and made lately"), builds, log,
    h("p", { class: "quiet" }, h("code", {}, "cove template add NAME SOURCE"), " and ", h("code", {}, "cove template build NAME FOLDER"), " make one."));
  leaveTab = events("/operator/builds", { changed });
  await changed();
}

/* ------------------------------------------------------------------ the audit log */

function auditRow(line) {
  return h("tr", {}, h("td", {}, time(line.time)), h("td", {}, line.event, line.count ? ` (${line.count})` : ""), h("td", {}, line.tenant || ""), h("td", {}, line.key || ""),
    h("td", {}, line.project || line.sandbox || ""), h("td", {}, line.rule || ""), h("td", {}, h("code", { class: "long" }, line.command || "")));
}

async function auditTab(pane) {
  const tenant = h("input", { "aria-label": "Tenant", placeholder: "Tenant" }), rule = h("input", { "aria-label": "Rule", placeholder: "Rule" });
  const lines = h("div"), chain = h("p", { role: "status" }, "Checking the chain…");

  async function look() {
    const text = await run("audit", ["200", tenant.value.trim(), rule.value.trim()]);
    const rows = text.split("\n").filter(Boolean).map((line) => JSON.parse(line)).reverse();
    show(lines, rows.length ? table("Audit log", ["Time", "Event", "Tenant", "Key", "Project", "Rule", "Command"], rows.map(auditRow)) : h("p", {}, "No line fits."));
  }
  async function verify() {
    const report = await runJson("audit-verify");
    chain.className = report.ok ? "good" : "bad";
    chain.textContent = report.ok ? `The chain is whole: ${report.lines} lines in ${report.files} files, head ${report.head.slice(0, 12)}.`
      : `The chain is broken: ${report.broken_file}:${report.broken_line}: ${report.what}`;
  }
  show(pane, chain, h("div", { class: "row" }, tenant, rule, button("Look", look, { class: "main" })), lines);
  await Promise.all([look(), verify()]);
}

/* ------------------------------------------------------------------ the page */

const TABS = { health: ["Health", healthTab], tenants: ["Tenants and quotas", tenantsTab], keys: ["Keys", keysTab], templates: ["Templates", templatesTab], audit: ["Audit log", auditTab] };

function unlockForm(main, done) {
  const problem = h("p", { class: "bad", role: "alert" });
  const secret = h("input", { name: "secret", type: "password", autocomplete: "off", placeholder: "coveop_…" });
  const element = h("form", { class: "card narrow" }, h("h1", {}, "Operator"), h("label", {}, "Signing key", secret), problem,
    h("p", { class: "row end" }, h("button", { type: "submit", class: "main" }, "Unlock")),
    h("p", { class: "quiet" }, "Root makes one with ", h("code", {}, "cove operator add NAME"), ". It stays in this page and is never sent: it signs each request."));
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try { await unlock(secret.value); secret.value = ""; done(); } catch (error) { problem.textContent = error.message; }
  });
  show(main, element);
  secret.focus();
}

function leave() {
  leaveTab?.();
  leaveTab = null;
}

export function operatorPage(main, tab = "health") {
  leave();
  if (!TABS[tab]) { location.hash = "#/operator"; return null; }
  if (!operatorName()) { unlockForm(main, () => operatorPage(main, tab)); return leave; }
  const pane = h("section", { class: "pane", "aria-label": TABS[tab][0] });
  show(main, h("div", { class: "row" }, h("h1", {}, "Operator"), h("span", { class: "quiet" }, operatorName()),
    button("Refresh", () => { leave(); return TABS[tab][1](pane); }), button("Lock", () => { lock(); operatorPage(main, tab); })),
  h("nav", { class: "tabs", "aria-label": "Operator's pages" }, Object.entries(TABS).map(([name, [title]]) =>
    h("a", { href: `#/operator/${name}`, "aria-current": name === tab ? "page" : null }, title))), pane);
  show(pane, h("p", { class: "quiet" }, "Loading…"));
  TABS[tab][1](pane).catch(failed);
  return leave;
}
