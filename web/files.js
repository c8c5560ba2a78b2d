// Files of a sandbox: browse, open and edit text, upload, download.
import { base, fileQuery, get, nameOf, percentEncode, post, remove, sandboxPath, send, upload } from "./api.js";
import { ask, button, bytes, failed, h, notice, show, spelt, table, time } from "./ui.js";

const EDIT_MAX = 2 * 1024 * 1024;
const join = (folder, name) => (folder === "/" ? `/${name}` : `${folder}/${name}`);
const parent = (path) => path.replace(/\/[^/]*$/, "") || "/";

async function download(id, address, name) {
  const link = h("a", { href: `${base}${sandboxPath(id, address)}`, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}

// The text of a file with the version that was read, or null when it is no text.
async function readText(id, path) {
  const response = await send("GET", sandboxPath(id, "/file") + fileQuery(path));
  const content = await response.arrayBuffer();
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(content), version: response.headers.get("ETag") };
  } catch {
    return null;
  }
}

async function save(id, path, text, version) {
  const write = (headers) => send("PUT", sandboxPath(id, "/file") + fileQuery(path), { body: new Blob([text]), headers });
  let response;
  try {
    response = await write(version ? { "If-Match": version } : { "If-None-Match": "*" });
  } catch (error) {
    if (error.code !== "conflict" || !await ask(`${error.message}. Overwrite it?`, { yes: "Overwrite", danger: true })) throw error;
    response = await write({});
  }
  notice(`${spelt(path)} saved`);
  return (await response.json()).version;
}

function editor(pane, box, path, file, back) {
  const area = h("textarea", { class: "editor", spellcheck: "false", "aria-label": `Text of ${path}` });
  let version = file.version;
  area.value = file.text;
  const saveNow = async () => { version = await save(box.id, path, area.value, version); };
  area.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") { event.preventDefault(); saveNow().catch(failed); }
  });
  show(pane, h("p", { class: "row" }, button("Back", back), h("code", {}, spelt(path)), button("Save", saveNow, { class: "main" })), area);
  area.focus();
}

const named = (files) => [...files].map((file) => [file.name, file]);

// All files below what was dropped, with their paths.
async function walk(entry, above) {
  const path = above + entry.name;
  if (entry.isFile) return [[path, await new Promise((resolve, reject) => { entry.file(resolve, reject); })]];
  const reader = entry.createReader(), found = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); }); // a hundred at a time
    if (!some.length) return found;
    for (const child of some) found.push(...await walk(child, `${path}/`));
  }
}

export function filesTab(pane, box) {
  const progress = h("div", { role: "status" });
  let folder = "/workspace";

  async function open(entry) {
    const path = join(folder, entry.name);
    if (entry.kind === "directory" || entry.kind === "link" && entry.target.endsWith("/")) return list(path);
    if (entry.bytes > EDIT_MAX) return download(box.id, `/file${fileQuery(path)}`, entry.name);
    const file = await readText(box.id, path);
    if (file) editor(pane, box, path, file, () => list(folder));
    else download(box.id, `/file${fileQuery(path)}`, entry.name);
    return null;
  }

  // entries: [[path below this folder, File], ...]. One bar for all bytes; folders are made on the way by the server.
  async function put(entries, what = `${entries.length} files`) {
    const all = entries.reduce((sum, [, file]) => sum + file.size, 0) || 1, target = folder;
    const bar = h("progress", { max: "1", value: "0", "aria-label": "Upload" }), text = h("span", {}), line = h("p", { class: "row" }, text, bar);
    let before = 0, broken = 0;
    progress.append(line);
    for (const [index, [path, file]] of entries.entries()) {
      text.textContent = `${path} (${index + 1} of ${entries.length})`;
      try {
        await upload(sandboxPath(box.id, "/file") + fileQuery(join(target, path)), file, (done) => { bar.value = (before + done) / all; });
      } catch (error) { broken++; failed(error); }
      before += file.size;
    }
    line.remove();
    if (broken < entries.length) notice(`${entries.length === 1 ? entries[0][0] : what} uploaded${broken ? `, ${broken} failed` : ""}`);
    await list(folder);
  }

  async function newFile() {
    const name = await ask("New file", { label: "Name", yes: "Create" });
    if (name) editor(pane, box, join(folder, name), { text: "", version: null }, () => list(folder));
  }

  async function newFolder() {
    const name = await ask("New folder", { label: "Name", yes: "Create" });
    if (!name) return;
    await post(sandboxPath(box.id, "/directory") + fileQuery(join(folder, name)));
    await list(folder);
  }

  async function rename(entry) {
    const name = await ask(`Rename ${spelt(entry.name)}`, { label: "New name", value: entry.name, yes: "Rename" });
    if (!name || name === entry.name) return;
    await post(`${sandboxPath(box.id, "/rename")}${fileQuery(join(folder, entry.name))}&to=${percentEncode(join(folder, name))}`);
    await list(folder);
  }

  async function drop(entry) {
    if (!await ask(`Remove ${spelt(entry.name)}${entry.kind === "directory" ? " and everything in it" : ""}?`, { yes: "Remove", danger: true })) return;
    await remove(sandboxPath(box.id, "/file") + fileQuery(join(folder, entry.name)));
    await list(folder);
  }

  function row(entry) {
    const isFolder = entry.kind === "directory";
    return h("tr", {},
      h("td", {}, button(`${spelt(entry.name)}${isFolder ? "/" : ""}`, () => open(entry), { class: "link" }),
        entry.target ? h("span", { class: "quiet" }, ` → ${spelt(entry.target)}`) : null),
      h("td", { class: "number" }, entry.kind === "file" ? bytes(entry.bytes) : ""),
      h("td", {}, h("code", {}, entry.mode)), h("td", {}, time(entry.modified)),
      h("td", { class: "row end" },
        entry.kind === "file" ? button("Download", () => download(box.id, `/file${fileQuery(join(folder, entry.name))}`, entry.name)) : null,
        isFolder ? button("Archive", () => download(box.id, `/archive${fileQuery(join(folder, entry.name))}`, `${entry.name}.tar.gz`)) : null,
        button("Rename", () => rename(entry)), button("Remove", () => drop(entry))));
  }

  async function list(path) {
    const { entries, truncated } = await get(sandboxPath(box.id, "/files") + fileQuery(path));
    folder = path;
    for (const entry of entries) entry.name = nameOf(entry);
    entries.sort((a, b) => (b.kind === "directory") - (a.kind === "directory") || a.name.localeCompare(b.name));
    const chooser = h("input", { type: "file", multiple: true, "aria-label": "Upload files" });
    chooser.addEventListener("change", () => put(named(chooser.files)).catch(failed));
    const folders = h("input", { type: "file", webkitdirectory: true, "aria-label": "Upload a folder", title: "Upload a folder" });
    folders.addEventListener("change", () => put([...folders.files].map((file) => [file.webkitRelativePath || file.name, file]), "folder").catch(failed));
    const where = h("input", { class: "path", value: path, "aria-label": "Folder" });
    where.addEventListener("change", () => list(where.value).catch(failed));
    show(pane,
      h("p", { class: "row" }, button("Up", () => list(parent(folder))), where, button("New file", newFile), button("New folder", newFolder),
        button("Download all", () => download(box.id, `/archive${fileQuery(folder)}`, `${folder.split("/").pop() || "root"}.tar.gz`))),
      h("p", { class: "row" }, h("label", {}, "Files", chooser), h("label", {}, "A folder", folders)),
      progress,
      truncated ? h("p", { class: "quiet" }, "Only the first entries are shown.") : null,
      table("Files", ["Name", "Size", "Mode", "Changed", "Actions"], entries.map(row)),
      h("p", { class: "quiet" }, "Drop files and folders anywhere here to upload them into this folder."));
  }

  const allow = (event) => event.preventDefault();
  async function dropped(event) {
    event.preventDefault();
    const roots = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const plain = named(event.dataTransfer.files); // gone after the first await
    try { await put(roots.length ? (await Promise.all(roots.map((root) => walk(root, "")))).flat() : plain); } catch (error) { failed(error); }
  }
  pane.addEventListener("dragover", allow);
  pane.addEventListener("drop", dropped);
  list(folder).catch((error) => { failed(error); return list("/").catch(failed); });
  return () => { pane.removeEventListener("dragover", allow); pane.removeEventListener("drop", dropped); };
}
