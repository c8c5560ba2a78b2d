// Ports of a sandbox: what listens, links that open it, who may reach it.
import { get, post, sandboxPath } from "./api.js";
import { ask, button, failed, h, notice, show, table } from "./ui.js";

const AGAIN_MS = 3000; // what listens is asked for again while the tab is shown

export function portsTab(pane, box) {
  let shown = "", timer = 0, left = false;

  async function open(port) {
    const { url } = await post(sandboxPath(box.id, "/ports/link"), { port });
    window.open(url, "_blank", "noopener,noreferrer");
  }
  async function copyLink(port) {
    const { url } = await post(sandboxPath(box.id, "/ports/link"), { port });
    await navigator.clipboard.writeText(url);
    notice("A link that holds for an hour was copied");
  }
  async function access(port, word) {
    await post(sandboxPath(box.id, "/ports"), { port, access: word });
    notice(`Port ${port} is ${word === "default" ? "as the server's default says" : word} now`);
  }
  async function other() {
    const text = await ask("Another port", { label: "Port", yes: "Open" });
    if (text) await open(Number(text));
  }
  function row({ port, url }) {
    const select = h("select", { "aria-label": `Who may reach port ${port}` },
      ...[["", "Access…"], ["private", "private"], ["public", "public"], ["default", "default"]].map(([value, text]) => h("option", { value }, text)));
    select.addEventListener("change", () => { if (select.value) access(port, select.value).catch(failed); });
    return h("tr", {}, h("td", { class: "number" }, String(port)), h("td", {}, h("code", {}, url)),
      h("td", { class: "row end" }, button("Open", () => open(port), { class: "main" }), button("Copy link", () => copyLink(port)), select));
  }
  async function list() {
    const { ports } = await get(sandboxPath(box.id, "/ports"));
    if (left || JSON.stringify(ports) === shown) return; // a choice that is being made stays open
    shown = JSON.stringify(ports);
    show(pane,
      h("p", { class: "row" }, button("Another port", other)),
      ports.length ? table("Ports", ["Port", "Address", "Actions"], ports.map(row)) : h("p", {}, "Nothing listens in this sandbox. Start a server in the terminal, for example ",
        h("code", {}, "python3 -m http.server 8000"), "."));
  }

  // A failure is told once, not every few seconds.
  async function follow(tell) {
    if (!document.hidden) await list().then(() => { tell = failed; }, (error) => { tell(error); tell = () => {}; });
    if (!left) timer = setTimeout(follow, AGAIN_MS, tell);
  }

  follow(failed);
  return () => { left = true; clearTimeout(timer); };
}
