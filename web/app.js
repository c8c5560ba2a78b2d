// Who is signed in, and which page the address names.
import { get, remove, setToken } from "./api.js";
import { listPage } from "./list.js";
import { lock } from "./operator.js";
import { operatorPage } from "./operator_pages.js";
import { policyPage } from "./policy.js";
import { sandboxPage } from "./sandbox.js";
import { signInPage } from "./signin.js";
import { templatesPage } from "./templates.js";
import { button, h, show } from "./ui.js";

const main = document.getElementById("main"), top = document.getElementById("top");
let session = null, leave = null;

function header() {
  if (!session) return show(top, h("strong", {}, "cove"), h("span", { class: "quiet" }, "sandboxes on your own machine"));
  return show(top, h("a", { href: "#/", class: "brand" }, "cove"),
    h("nav", { "aria-label": "Pages" }, h("a", { href: "#/" }, "Sandboxes"), h("a", { href: "#/templates" }, "Templates"), h("a", { href: "#/policy" }, "Policy"), h("a", { href: "#/operator" }, "Operator"), h("a", { href: "/openapi/" }, "APIs")),
    h("span", { class: "quiet" }, session.key ? `${session.tenant} · ${session.key}` : session.tenant, ` · ${session.version}`),
    button("Sign out", async () => { await remove("/session"); signedOut(""); }));
}

function signedOut(why) {
  session = null;
  setToken("");
  lock();
  leave?.();
  leave = null;
  header();
  signInPage(main, why, signedIn);
}

function signedIn(value) {
  session = value;
  header();
  route();
}

// An address that somebody typed may hold anything.
function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function route() {
  if (!session) return;
  leave?.();
  const [page, id, tab, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  if (page === "sandbox" && id) leave = sandboxPage(main, id, tab || "terminal", rest.join("/"));
  else if (page === "operator") leave = operatorPage(main, id || "health");
  else if (page === "templates") leave = templatesPage(main);
  else if (page === "policy") leave = policyPage(main);
  else leave = listPage(main);
  document.title = id ? `cove: ${id}` : "cove";
}

window.addEventListener("hashchange", route);
window.addEventListener("signed-out", (event) => { if (session) signedOut(event.detail); });
header();
get("/session").then((value) => { setToken(value.token); signedIn(value); }, () => signedOut(""));
