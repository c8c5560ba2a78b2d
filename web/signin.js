// Signing in with a key, or with a name and a password where the server asks PAM.
import { send, setToken } from "./api.js";
import { h, show } from "./ui.js";

function authorization(form) {
  if (form.key.value) return `Bearer ${form.key.value.trim()}`;
  const text = new TextEncoder().encode(`${form.user.value}:${form.password.value}`);
  return `Basic ${btoa(String.fromCharCode(...text))}`;
}

export function signInPage(main, why, done) {
  const problem = h("p", { class: "bad", role: "alert" }, why || "");
  const form = h("form", { class: "card narrow" },
    h("h1", {}, "Sign in to cove"),
    h("label", {}, "Key", h("input", { name: "key", type: "password", autocomplete: "off", placeholder: "e2b_…", autofocus: true })),
    h("details", {}, h("summary", {}, "With a name and a password"),
      h("label", {}, "Name", h("input", { name: "user", autocomplete: "username" })),
      h("label", {}, "Password", h("input", { name: "password", type: "password", autocomplete: "current-password" }))),
    problem,
    h("p", { class: "row end" }, h("button", { type: "submit", class: "main" }, "Sign in")),
    h("p", { class: "quiet" }, "An operator makes keys with ", h("code", {}, "cove key create TENANT"),
      ". A server started by ", h("code", {}, "./quickstart up"), " has printed one."));
  const version = h("span", { id: "version" });
  form.append(h("p", { class: "quiet row" }, version, h("a", { href: "/openapi/" }, "APIs of this server"), h("a", { href: "/health" }, "health")));
  fetch("version.json").then((reply) => reply.json()).then((told) => { version.textContent = `cove ${told.version}`; }, () => {});
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      const response = await send("POST", "/session", { headers: { Authorization: authorization(form) }, body: {} });
      const session = await response.json();
      form.reset();
      setToken(session.token);
      done(session);
    } catch (error) {
      problem.textContent = error.message;
    }
  });
  show(main, form);
  form.key.focus();
}
