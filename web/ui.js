// Elements, notices, dialogs, and figures for people.

// h("a", {href: "#/"}, "text", child): text stays text, whatever is in it.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A name as it is written, with what is no text, would be invisible or turn the rest around spelt out: a program in a sandbox chooses its names.
export function spelt(name) {
  return name.replace(/[\p{Cc}\p{Cs}\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu, (c) => (/\p{Cs}/u.test(c)
    ? `\\x${(c.charCodeAt(0) & 0xff).toString(16)}` // a byte of a name that is not UTF-8 (nameOf() of api.js)
    : `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`));
}

export function show(where, ...children) {
  where.replaceChildren(...children.flat().filter(Boolean));
}

export function notice(text, kind = "good") {
  const line = h("div", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : null }, text);
  document.getElementById("notices").append(line);
  setTimeout(() => line.remove(), kind === "bad" ? 9000 : 4000);
}

export function failed(error) {
  notice(error.message || String(error), "bad");
}

// A button that cannot be pressed again while its work is under way, and tells when that fails.
export function button(label, work, attributes = {}) {
  const element = h("button", { type: "button", ...attributes }, label);
  element.addEventListener("click", async () => {
    element.disabled = true;
    try { await work(); } catch (error) { failed(error); }
    element.disabled = false;
  });
  return element;
}

// Asks for one line of text, or for a yes; null when the answer is no.
export function ask(title, { label, value = "", yes = "OK", danger = false } = {}) {
  return new Promise((resolve) => {
    const input = label ? h("input", { value, "aria-label": label }) : null;
    const dialog = h("dialog", { "aria-label": title },
      h("form", { method: "dialog" },
        h("h2", {}, title),
        input ? h("label", {}, label, input) : null,
        h("p", { class: "row end" },
          h("button", { type: "submit", value: "no", formnovalidate: true }, "Cancel"),
          h("button", { type: "submit", value: "yes", class: danger ? "danger" : "main" }, yes))));
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes" ? (input ? input.value : true) : null);
      dialog.remove();
    });
    // Enter in the text field means yes, though "Cancel" is the first button.
    input?.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { event.preventDefault(); dialog.close("yes"); }
    });
    document.body.append(dialog);
    dialog.showModal();
    input?.select();
  });
}

// Several lines of text at once: fields are [name, label]. An object of the answers, or null.
export function form(title, fields, yes = "OK") {
  return new Promise((resolve) => {
    const inputs = fields.map(([name, label]) => h("label", {}, label, h("input", { name, autocomplete: "off" })));
    const element = h("form", { method: "dialog" }, h("h2", {}, title), inputs, h("p", { class: "row end" },
      h("button", { type: "button", onclick: () => dialog.close("no") }, "Cancel"), h("button", { type: "submit", value: "yes", class: "main" }, yes)));
    const dialog = h("dialog", { "aria-label": title }, element);
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes" ? Object.fromEntries(fields.map(([name]) => [name, element.elements[name].value.trim()])) : null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// A table that scrolls sideways by itself where it is too wide, also by keyboard. `rows` is an array, or a tbody.
// kind "cards": on a phone each row is a card; its cells then have a data-label.
export function table(label, headings, rows, kind = "") {
  const body = Array.isArray(rows) ? h("tbody", {}, rows) : rows;
  const numbers = [...(body.rows[0]?.cells || [])].map((cell) => cell.classList.contains("number")); // their headings stand above them
  return h("div", { class: `scroll ${kind}`, tabindex: "0", role: "region", "aria-label": label }, h("table", {},
    h("thead", {}, h("tr", {}, headings.map((name, i) => h("th", { scope: "col", class: numbers[i] ? "number" : null }, name)))), body));
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A line from left to right through these values; the top is `largest`.
export function line(values, width, height, largest) {
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((value, i) => `${(i * step).toFixed(1)},${(height - (value / largest) * height).toFixed(1)}`).join(" ");
  return svg("polyline", { points, fill: "none", stroke: "currentColor", "stroke-width": "2", "vector-effect": "non-scaling-stroke" });
}

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit++; }
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

export function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}

// In memory or in the store: nothing in it runs.
export const isPaused = (box) => box.state === "paused" || box.state === "saved";

export function time(text) {
  return new Date(text).toLocaleString();
}
