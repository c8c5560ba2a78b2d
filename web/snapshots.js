// Snapshots and forks of a sandbox: its files at one moment, and new sandboxes that begin with them.
import { get, post, remove, sandboxPath } from "./api.js";
import { ask, button, bytes, failed, h, notice, show, table, time } from "./ui.js";

export function snapshotsTab(pane, box) {
  async function make() {
    const name = await ask("Take a snapshot", { label: "Name (optional)", yes: "Take it" });
    if (name === null) return;
    const made = await post(sandboxPath(box.id, "/snapshots"), name ? { name } : {});
    notice(`snapshot ${made.name || made.id} taken`);
    await list();
  }
  async function fork() {
    const made = await post(sandboxPath(box.id, "/fork"));
    notice(`${made.id} has the files of ${box.id}`);
    location.hash = `#/sandbox/${made.id}`;
  }
  async function begin(one) {
    const made = await post("/sandboxes", { template: one.name || one.id });
    location.hash = `#/sandbox/${made.id}`;
  }
  async function drop(one) {
    if (!await ask(`Delete the snapshot ${one.name || one.id}?`, { yes: "Delete", danger: true })) return;
    await remove(`/snapshots/${encodeURIComponent(one.id)}`);
    await list();
  }
  function row(one) {
    return h("tr", { "data-snapshot": one.id }, h("td", {}, one.name || ""), h("td", {}, h("code", {}, one.id)),
      h("td", {}, one.sandbox === box.id ? "this sandbox" : h("code", {}, one.sandbox)), h("td", {}, time(one.created)), h("td", { class: "number" }, bytes(one.bytes)),
      h("td", { class: "row end" }, button("New sandbox", () => begin(one)), button("Delete", () => drop(one), { class: "danger" })));
  }
  async function list() {
    const { snapshots } = await get("/snapshots");
    show(pane, h("p", { class: "row" }, button("Take a snapshot", make, { class: "main" }), button("Fork", fork)),
      snapshots.length ? table("Snapshots", ["Name", "Id", "Taken of", "Taken", "Size", "Actions"], snapshots.reverse().map(row)) : h("p", {}, "There is no snapshot yet."),
      h("p", { class: "quiet" }, "A snapshot and a fork carry files, and no processes. A snapshot's name or id is taken wherever a template's name is."));
  }

  list().catch(failed);
  return null;
}
