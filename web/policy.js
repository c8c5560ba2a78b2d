// The policy's test bench: type a command, see the verdict, and which rule matched in which form.
import { post } from "./api.js";
import { failed, h, show, table } from "./ui.js";

const DIALECTS = ["execute", "executor", "e2b", "relay", "agent", "console"];

function verdictLine(verdict) {
  if (!verdict.denied) return h("p", { class: "good" }, "Allowed", verdict.lifted ? ` (an exception lifted the rule ${verdict.lifted})` : "", ".");
  return h("p", { class: "bad" }, "Refused by the rule ", h("code", {}, verdict.rule), verdict.reason ? `: ${verdict.reason}` : "");
}

function formRow(form) {
  return h("tr", {}, h("td", {}, h("code", { class: "long" }, form.text)), h("td", {}, form.form || ""),
    h("td", { class: form.denied ? "bad" : "" }, form.denied ? `refused: ${form.rule}` : "no rule"), h("td", {}, form.reason || ""));
}

export function policyPage(main) {
  const result = h("div", { role: "status" });
  const command = h("textarea", { name: "command", rows: "3", spellcheck: "false", "aria-label": "Command" });
  const dialect = h("select", { name: "dialect", "aria-label": "Dialect" }, ...DIALECTS.map((name) => h("option", { value: name }, name)));
  const form = h("form", { class: "card" }, h("label", {}, "Command", command), h("label", {}, "As sent through", dialect),
    h("p", { class: "row end" }, h("button", { type: "submit", class: "main" }, "Test")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const verdict = await post("/policy/test", { command: command.value, dialect: dialect.value });
      show(result, verdictLine(verdict), table("Forms of the command", ["What was looked at", "Form", "Verdict", "Reason"], verdict.forms.map(formRow)), h("p", { class: "quiet" }, "Nothing ran. Policy ", h("code", {}, verdict.policy.slice(0, 12)), "."));
    } catch (error) { failed(error); }
  });
  show(main, h("h1", {}, "Policy test bench"), form, result);
  command.focus();
  return null;
}
