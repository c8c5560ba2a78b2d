// Commands that the policy refused in a sandbox: which rule, in which form, and why.
import { get, post, sandboxPath } from "./api.js";
import { button, failed, h, show, table, time } from "./ui.js";

export function refusalsTab(pane, box) {
  async function explain(one, cell) {
    const verdict = await post("/policy/test", { command: one.command, template: box.template });
    show(cell, verdict.denied ? verdict.reason || "the rule has no reason" : "not refused any more: the policy has changed, or the command is longer than what is kept of it");
  }
  function row(one) {
    const why = h("td");
    show(why, button("Why?", () => explain(one, why)));
    return h("tr", {}, h("td", {}, time(one.time)), h("td", {}, one.event === "exec-denied" ? "when it was to run" : "before it ran"),
      h("td", {}, h("code", {}, one.rule || "")), h("td", {}, one.form || ""), h("td", {}, h("code", { class: "long" }, one.command)), why);
  }
  async function list() {
    const { refusals } = await get(sandboxPath(box.id, "/refusals"));
    show(pane, h("p", { class: "row" }, button("Refresh", list)),
      refusals.length ? table("Refused commands", ["Time", "Refused", "Rule", "Form", "Command", "Reason"], refusals.map(row)) : h("p", {}, "No command was refused here lately."),
      h("p", { class: "quiet" }, "The last eight are kept here; the audit log has all of them."));
  }

  list().catch(failed);
  return null;
}
