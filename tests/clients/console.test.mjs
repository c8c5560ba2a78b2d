// The web console in a real browser.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHmac } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { test } from "node:test";
import { api, browser, checkAccess, context, endBox, newBox, open, OTHER_KEY, page, photograph, problems, signIn, skip, URL_ } from "./console_browser.mjs";

test("a wrong key is told and the right one opens the list", { skip }, async () => {
  await page.goto(`${URL_}/`);
  await page.waitForSelector("input[name=key]");
  await page.waitForSelector("#version:has-text('cove ')");
  assert.equal(await page.locator("a[href='/openapi/']").count(), 1);
  await photograph("sign-in");
  await checkAccess();
  await page.fill("input[name=key]", "e2b_wrong");
  await page.click("button[type=submit]");
  await page.waitForSelector("form .bad:not(:empty)");
  assert.match(await page.textContent("form .bad"), /not valid/);
  await signIn();
  const cookies = await context.cookies();
  assert.ok(cookies.every((cookie) => cookie.httpOnly && cookie.sameSite === "Strict"));
  assert.equal(await page.evaluate(() => document.cookie), "", "scripts see no cookie");
  assert.equal(await page.evaluate(() => localStorage.length + sessionStorage.length), 0);
  await page.reload();
  await page.waitForSelector("#create");
  await page.click("text=Sign out");
  await page.waitForSelector("input[name=key]");
  assert.deepEqual(await context.cookies(), [], "the session is gone, not only its page");
});

test("a list that was cut or refused comes back by itself", { skip }, async () => {
  const id = await newBox();
  let refusals = 2;
  await page.route("**/console/api/events", (route) => (refusals-- > 0 ? route.fulfill({ status: 503, body: "{}" }) : route.continue()));
  await signIn();
  await page.waitForSelector(`tr[data-id="${id}"]`);
  assert.ok(refusals < 0);
  await endBox(id);
  await page.waitForSelector(`tr[data-id="${id}"]`, { state: "detached" });
});

test("a sandbox is created, its terminal runs a command, and it ends", { skip }, async () => {
  await signIn();
  await page.click("#create");
  await page.waitForSelector("dialog");
  await checkAccess();
  await page.click("dialog button[value=yes]");
  await page.waitForSelector("text=connected");
  await page.keyboard.type("echo sum-$((40+2))\n");
  await page.waitForFunction(() => document.querySelector(".xterm-rows").textContent.includes("sum-42"));
  await photograph("terminal");
  await checkAccess();
  const process = await page.evaluate(() => location.hash);
  await page.click("button.danger");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector("#create");
  assert.match(process, /^#\/sandbox\/[a-z0-9]{20}$/);
});

test("a terminal whose connection broke goes on where it was", { skip }, async () => {
  const id = await newBox(), asked = [];
  let cut;
  await page.routeWebSocket(/\/terminal\?/, (socket) => {
    const server = socket.connectToServer();
    asked.push(new URL(socket.url()).searchParams);
    cut = async () => { await socket.close({ code: 1012, reason: "restart" }); await server.close(); };
  });
  const screen = () => page.evaluate(() => document.querySelector(".xterm-rows").textContent);
  await signIn();
  await open(`#/sandbox/${id}/terminal`);
  await page.waitForSelector("text=connected");
  await page.keyboard.type("echo before-$((40+2))\n");
  await page.waitForFunction(() => document.querySelector(".xterm-rows").textContent.includes("before-42"));
  await cut();
  await page.waitForSelector("text=trying again");
  await page.waitForSelector("text=connected");
  await page.keyboard.type("echo after-$((40+2))\n");
  await page.waitForFunction(() => document.querySelector(".xterm-rows").textContent.includes("after-42"));
  assert.equal((await screen()).split("before-42").length, 2, "nothing is shown twice");
  assert.equal(asked.length, 2);
  assert.ok(asked[1].get("process") && Number(asked[1].get("offset")) > 0, "the same process, from the byte that was next");
  await endBox(id);
});

test("the terminal follows the size of the window", { skip }, async () => {
  const id = await newBox();
  await signIn();
  await open(`#/sandbox/${id}/terminal`);
  await page.waitForSelector("text=connected");
  await page.setViewportSize({ width: 700, height: 600 });
  await page.keyboard.type("stty size; echo size-told\n");
  await page.waitForFunction(() => /\d+ [1-7]\d\s*size-told/.test(document.querySelector(".xterm-rows").textContent.replace(/\u00a0/g, " ")));
  await endBox(id);
});

test("a file is uploaded, edited, saved, and a save over somebody else's change asks first", { skip }, async () => {
  const id = await newBox();
  await signIn();
  await open(`#/sandbox/${id}/files`);
  await page.setInputFiles("input[type=file]", { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("first") });
  await page.click("button.link:has-text('notes.txt')");
  await page.fill("textarea.editor", "second");
  await page.click("button:has-text('Save')");
  await page.waitForSelector(".notice:has-text('/workspace/notes.txt saved')");
  await photograph("editor");
  await checkAccess();
  await api("PUT", `/sandboxes/${id}/file?path=/workspace/notes.txt`, "by somebody else");
  await page.fill("textarea.editor", "third");
  await page.click("button:has-text('Save')");
  await page.waitForSelector("dialog:has-text('changed by somebody else')");
  await page.click("dialog button[value=no]");
  const content = await (await api("GET", `/sandboxes/${id}/file?path=/workspace/notes.txt`)).text();
  assert.equal(content, "by somebody else");
  await page.press("textarea.editor", "Control+s");
  const overwritten = page.waitForResponse((response) => response.request().method() === "PUT" && response.ok()); // the first save's notice may still be there
  await page.click("dialog button[value=yes]");
  await overwritten;
  assert.equal(await (await api("GET", `/sandboxes/${id}/file?path=/workspace/notes.txt`)).text(), "third");
  await page.click("text=Back");
  await page.waitForSelector("button:has-text('Archive'), td");
  await photograph("files");
  await endBox(id);
});

test("files are dropped, made, renamed and removed", { skip }, async () => {
  const id = await newBox();
  const content = async (name) => (await api("GET", `/sandboxes/${id}/file?path=/workspace/${name}`)).text();
  await signIn();
  await open(`#/sandbox/${id}/files`);
  await page.waitForSelector("input[type=file]");
  const dropped = await page.evaluateHandle(() => {
    const data = new DataTransfer();
    data.items.add(new File(["dropped here"], "dropped.txt"));
    return data;
  });
  await page.dispatchEvent("section.pane", "drop", { dataTransfer: dropped });
  await page.waitForSelector("button.link:has-text('dropped.txt')");
  assert.equal(await content("dropped.txt"), "dropped here");
  await page.click("button:has-text('New folder')");
  await page.fill("dialog input", "deeper");
  await page.press("dialog input", "Enter");
  await page.click("button.link:has-text('deeper/')");
  await page.waitForFunction(() => document.querySelector("input.path").value === "/workspace/deeper");
  await page.click("button:has-text('New file')");
  await page.fill("dialog input", "made.txt");
  await page.click("dialog button[value=yes]");
  await page.fill("textarea.editor", "made here");
  await page.click("button:has-text('Save')");
  await page.waitForSelector(".notice:has-text('/workspace/deeper/made.txt saved')");
  await page.click("text=Back");
  await page.click("tr:has-text('made.txt') button:has-text('Rename')");
  await page.fill("dialog input", "renamed.txt");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector("button.link:has-text('renamed.txt')");
  assert.equal(await content("deeper/renamed.txt"), "made here");
  await page.click("button:has-text('Up')");
  await page.waitForSelector("button.link:has-text('deeper/')");
  for (const [answer, left] of [["no", 1], ["yes", 0]]) {
    await page.click("tr:has-text('deeper') button:has-text('Remove')");
    await page.click(`dialog button[value=${answer}]`);
    await page.waitForSelector("dialog", { state: "detached" });
    await page.waitForFunction((n) => [...document.querySelectorAll("button.link")].filter((b) => b.textContent === "deeper/").length === n, left);
  }
  await endBox(id);
});

test("a folder and a file whose names are not UTF-8 are opened, edited and renamed", { skip }, async () => {
  const id = await newBox(), at = (path) => `/sandboxes/${id}/file?path=/workspace/${path}`;
  await api("PUT", at("%ff%20folder/%fefile"), "old text");
  await signIn();
  await open(`#/sandbox/${id}/files`);
  await page.click("button.link:has-text('\\\\xff folder/')");
  await page.click("button.link:has-text('\\\\xfefile')");
  await page.waitForFunction(() => document.querySelector("textarea.editor")?.value === "old text");
  await page.fill("textarea.editor", "new text");
  await page.click("button:has-text('Save')");
  await page.waitForSelector(".notice:has-text('saved')");
  assert.equal(await (await api("GET", at("%ff%20folder/%fefile"))).text(), "new text");
  await page.click("text=Back");
  await page.click("tr:has-text('xfefile') button:has-text('Rename')");
  await page.fill("dialog input", "plain.txt");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector("button.link:has-text('plain.txt')");
  assert.equal(await (await api("GET", at("%ff%20folder/plain.txt"))).text(), "new text");
  await endBox(id);
});

test("an upload tells how far it is, and a session that is over asks to sign in", { skip }, async () => {
  const id = await newBox();
  await signIn();
  await open(`#/sandbox/${id}/files`);
  await page.waitForSelector("input[type=file]");
  await page.evaluate(() => { // every value that the bar has shown
    globalThis.shown = [];
    new MutationObserver(() => { const bar = document.querySelector("progress"); if (bar) globalThis.shown.push(bar.value); })
      .observe(document.querySelector("section.pane"), { attributes: true, childList: true, subtree: true });
  });
  await page.setInputFiles("input[type=file]", { name: "large", mimeType: "application/octet-stream", buffer: Buffer.alloc(4 << 20) });
  await page.waitForSelector(".notice:has-text('large uploaded')");
  assert.ok((await page.evaluate(() => globalThis.shown)).some((value) => value > 0), "the bar has moved");
  await context.clearCookies();
  await page.setInputFiles("input[type=file]", { name: "late", mimeType: "text/plain", buffer: Buffer.from("x") });
  await page.waitForSelector("input[name=key]");
  await endBox(id);
});

test("a download has the bytes of the file", { skip }, async () => {
  const id = await newBox();
  await api("PUT", `/sandboxes/${id}/file?path=/workspace/page.html`, "<script>document.title='taken over'</script>");
  await signIn();
  await open(`#/sandbox/${id}/files`);
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("tr button:has-text('Download')")]);
  assert.equal(readFileSync(await download.path(), "utf8"), "<script>document.title='taken over'</script>");
  await endBox(id);
});

test("names and output of a sandbox stay text", { skip }, async () => {
  const id = await newBox(), trap = "<img src=x onerror=window.taken=1>";
  for (const name of [trap, "z\u202etxt.exe"]) await api("PUT", `/sandboxes/${id}/file?path=${encodeURIComponent(`/workspace/${name}`)}`, "x");
  await api("POST", `/sandboxes/${id}/processes`, { command: `echo '${trap}'; exec sleep 600` });
  await signIn();
  await open(`#/sandbox/${id}/files`);
  await page.waitForSelector(`button.link`);
  assert.equal(await page.textContent("button.link"), trap);
  assert.equal(await page.locator("button.link").nth(1).textContent(), "z\\u202etxt.exe", "what turns text around is spelt out");
  await open(`#/sandbox/${id}/processes`);
  await page.click("button:has-text('Log')");
  await page.waitForSelector("pre.log .stdout");
  assert.equal((await page.textContent("pre.log .stdout")).trim(), trap);
  assert.equal(await page.evaluate(() => window.taken), undefined);
  assert.equal(await page.locator("main img").count(), 0);
  await endBox(id);
});

test("processes are started, followed, killed, and tell how they ended", { skip }, async () => {
  const id = await newBox();
  await signIn();
  await open(`#/sandbox/${id}/processes`);
  await page.click("text=Start a process");
  await page.fill("dialog input", "echo begun; exec sleep 600");
  await page.click("dialog button[value=yes]");
  await page.click("button:has-text('Log')");
  await page.waitForSelector("pre.log:has-text('begun')");
  await photograph("log");
  await page.click("text=Back");
  await page.click("button:has-text('Kill')");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector("td.bad");
  await photograph("processes");
  await checkAccess();
  await endBox(id);
});

test("a pause stops it, a resume lets it go on, live on the page", { skip }, async () => {
  const id = await newBox();
  await signIn();
  await open(`#/sandbox/${id}/processes`);
  await page.click("button:has-text('Pause')");
  await page.waitForSelector("text=This sandbox is paused");
  await page.click("button:has-text('Resume')");
  await page.waitForSelector("#state:has-text('running')");
  await endBox(id);
  await page.waitForSelector("text=This sandbox has ended");
});

test("a sandbox gets more time, and one that should not end does not", { skip }, async () => {
  const id = await newBox();
  const ends = async () => Date.parse((await (await api("GET", `/sandboxes/${id}`)).json()).ends);
  await signIn();
  await open(`#/sandbox/${id}/processes`);
  await page.click("button:has-text('More time')");
  await page.fill("dialog input", "7");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector("dd:has-text('(in 6 min)'), dd:has-text('(in 7 min)')");
  assert.ok(Math.abs(await ends() - Date.now() - 7 * 60e3) < 60e3);
  await page.click("button.danger:has-text('End')");
  await page.click("dialog button[value=no]");
  await page.waitForSelector("dialog", { state: "detached" });
  assert.ok(await ends());
  await endBox(id);
});

test("a template that is not there is told by its name", { skip }, async () => {
  await signIn();
  await page.click("#create");
  await page.fill("dialog input", "no-such-template");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector(".notice.bad:has-text('no-such-template')");
});

test("a sandbox is saved, its archive is downloaded, and it runs again with its files", { skip }, async () => {
  const id = await newBox();
  await api("PUT", `/sandboxes/${id}/file?path=${encodeURIComponent("/workspace/kept")}`, "kept in the archive");
  await signIn();
  await open(`#/sandbox/${id}/files`);
  await page.click("button:has-text('Pause to storage')");
  await page.waitForSelector("#state:has-text('saved')");
  await page.waitForSelector("text=its files are in the store");
  await photograph("saved");
  await checkAccess();
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("a:has-text('Download')")]);
  assert.equal(download.suggestedFilename(), `${id}.tar.zst`);
  const names = execFileSync("tar", ["--zstd", "-tf", await download.path()], { encoding: "utf8" });
  assert.match(names, /root\/workspace\/kept/);
  await page.click("button:has-text('Resume')");
  await page.waitForSelector("#state:has-text('running')");
  assert.equal(await (await api("GET", `/sandboxes/${id}/file?path=${encodeURIComponent("/workspace/kept")}`)).text(), "kept in the archive");
  await endBox(id);
});

test("the list is live and filtered, and shows no other tenant's sandboxes", { skip }, async () => {
  const mine = await newBox(), foreign = await newBox(OTHER_KEY);
  await signIn();
  await page.waitForSelector(`tr[data-id="${mine}"]`);
  const late = await newBox();
  await page.waitForSelector(`tr[data-id="${late}"]`);
  await page.waitForSelector(`tr[data-id="${late}"] svg.spark polyline`, { state: "attached" }); // an idle cpu is a line without height
  assert.match(await page.textContent(`tr[data-id="${late}"]`), /iB of 512 MiB/);
  await photograph("list");
  await checkAccess();
  assert.equal(await page.locator(`tr[data-id="${foreign}"]`).count(), 0);
  await page.fill("input[type=search]", late);
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await open(`#/sandbox/${foreign}`);
  await page.waitForSelector("text=This sandbox has ended, or it is not yours");
  await endBox(late);
  await endBox(mine);
  await endBox(foreign, OTHER_KEY);
});

test("a name and a password of this machine open the console, a wrong one does not", { skip }, async () => {
  const [name, password] = process.env.COVE_ACCOUNT.split(":");
  await page.goto(`${URL_}/`);
  await page.click("summary");
  await checkAccess();
  for (const [given, wanted] of [["wrong", "form .bad:not(:empty)"], [password, "#create"]]) {
    await page.fill("input[name=user]", name);
    await page.fill("input[name=password]", given);
    await page.click("button[type=submit]");
    await page.waitForSelector(wanted);
  }
  assert.match(await page.textContent("header"), new RegExp(`user-${name}`));
  await page.click("#create");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector("text=connected");
  await page.click("button.danger");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector("#create");
});

// A session that ends in so many seconds, signed as the server signs them.
function endingCookie(seconds) {
  const secret = readFileSync(`${process.env.COVE_RUN_DIR}/token-secret`);
  const text = `${Math.floor(Date.now() / 1000) + seconds}.-.${process.env.COVE_TENANT}`;
  const mac = createHmac("sha256", secret).update(`console session ${text}`).digest("hex");
  return { name: "cove-console", value: `${text}.${mac}`, url: URL_ };
}

test("a session that runs out while the page is open asks to sign in again", { skip }, async () => {
  await context.addCookies([endingCookie(3)]);
  await page.goto(`${URL_}/console/`);
  await page.waitForSelector("#create");
  await open("#/policy");
  await page.fill("textarea", "ls");
  while (!await page.locator("input[name=key]").count()) { // waits for the server's clock, and gives up with the test
    await page.click("button:has-text('Test')", { timeout: 2000 }).catch(() => {});
  }
  assert.match(await page.textContent("form .bad"), /session is over/);
});

test("a snapshot is taken, a sandbox is made of it, another is forked, and it is deleted", { skip }, async () => {
  const id = await newBox();
  await api("PUT", `/sandboxes/${id}/file?path=/workspace/kept.txt`, "kept");
  await signIn();
  await open(`#/sandbox/${id}/snapshots`);
  await page.click("button:has-text('Take a snapshot')");
  await page.fill("dialog input", "by-browser");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector("tr:has-text('by-browser')");
  await photograph("snapshots");
  await checkAccess();
  const here = async () => (await page.evaluate(() => location.hash)).split("/")[2];
  const kept = async (box) => (await api("GET", `/sandboxes/${box}/file?path=/workspace/kept.txt`)).text();
  const made = [];
  for (const label of ["New sandbox", "Fork"]) {
    await open(`#/sandbox/${id}/snapshots`);
    await page.click(`section button:has-text('${label}')`);
    await page.waitForFunction((old) => !location.hash.includes(old), id);
    made.push(await here());
    assert.equal(await kept(made.at(-1)), "kept");
  }
  await open(`#/sandbox/${id}/snapshots`);
  await page.click("tr:has-text('by-browser') button:has-text('Delete')");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector("tr:has-text('by-browser')", { state: "detached" });
  for (const box of [id, ...made]) await endBox(box);
});

test("refused commands are shown with their rule, and why", { skip }, async () => {
  const id = await newBox();
  await signIn();
  await open(`#/sandbox/${id}/processes`);
  await page.click("text=Start a process");
  await page.fill("dialog input", "echo '<b>x</b>'; rm -rf /");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector(".notice.bad:has-text('refused by the rule')");
  await open(`#/sandbox/${id}/refused`);
  await page.waitForSelector("td code:has-text('<b>x</b>')");
  await page.click("button:has-text('Why?')");
  await page.waitForSelector("td:has-text('not allowed')");
  await photograph("refused");
  await checkAccess();
  await endBox(id);
});

test("commands tell how they ended and why, as they end", { skip }, async () => {
  const run = (commands) => fetch(`${URL_}/execute`, { method: "POST", headers: { "X-API-Key": process.env.E2B_API_KEY, "Content-Type": "application/json" },
    body: JSON.stringify({ projectId: "console-commands", commands }) }).then((response) => response.json());
  const id = (await run(["echo '<b>bold</b>'; exit 7"])).sandboxId.replace("sandbox_", "");
  await signIn();
  await open(`#/sandbox/${id}/commands`);
  await page.waitForSelector("tr:has-text('<b>bold</b>') td:has-text('exit code 7')");
  await run(["head -c 700000000 /dev/zero | tail"]); // more memory than the sandbox has
  await page.waitForSelector("tr[data-ended=memory] td:has-text('memory limit')");
  await photograph("commands");
  await checkAccess();
  await endBox(id);
});

test("templates are shown while they are built, with their log and why one failed", { skip }, async () => {
  const build = async (name, ...steps) => {
    const ask = async (path, body) => {
      const response = await fetch(`${URL_}${path}`, { method: "POST", headers: { "X-API-Key": process.env.E2B_API_KEY, "Content-Type": "application/json" }, body: JSON.stringify(body) });
      assert.equal(response.status, 202, await response.clone().text());
      return response;
    };
    const { templateID, buildID } = await (await ask("/v3/templates", { name })).json();
    await ask(`/v2/templates/${encodeURIComponent(templateID)}/builds/${buildID}`, { fromTemplate: "base", steps: steps.map((command) => ({ type: "RUN", args: [command] })) });
    return { templateID, buildID };
  };
  await signIn();
  await open("#/templates");
  await page.waitForSelector("h1:has-text('Templates')");
  const good = await build("console-good", "echo '<b>from the build</b>'; until test -e /etc/hosts; do sleep 0.1; done");
  await page.waitForSelector(`tr[data-build="${good.buildID}"][data-state=ready]`);
  await page.click(`tr[data-build="${good.buildID}"] button`);
  await page.waitForSelector(".log:has-text('<b>from the build</b>')");
  await page.waitForSelector("p.good:has-text('It is ready')");
  const bad = await build("console-bad", "echo before; exit 9");
  await page.waitForSelector(`tr[data-build="${bad.buildID}"][data-state=failed]`);
  await page.click(`tr[data-build="${bad.buildID}"] button`);
  await page.waitForSelector("p.bad:has-text('It failed')");
  await photograph("templates");
  await checkAccess();
  for (const { templateID } of [good, bad])
    await fetch(`${URL_}/templates/${encodeURIComponent(templateID)}`, { method: "DELETE", headers: { "X-API-Key": process.env.E2B_API_KEY } });
});

test("a folder is uploaded whole, and comes back as an archive", { skip }, async () => {
  const id = await newBox(), folder = mkdtempSync(`${tmpdir()}/site-`);
  mkdirSync(`${folder}/deep/er`, { recursive: true });
  writeFileSync(`${folder}/index.html`, "index");
  writeFileSync(`${folder}/deep/er/<i>odd`, "odd");
  await signIn();
  await open(`#/sandbox/${id}/files`);
  await page.setInputFiles("input[webkitdirectory]", folder);
  await page.waitForSelector(".notice:has-text('folder uploaded')");
  const name = folder.split("/").pop();
  assert.equal(await (await api("GET", `/sandboxes/${id}/file?path=${encodeURIComponent(`/workspace/${name}/deep/er/<i>odd`)}`)).text(), "odd");
  await page.waitForSelector(`tr:has-text('${name}')`);
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("button:has-text('Download all')")]);
  assert.equal(download.suggestedFilename(), "workspace.tar.gz");
  assert.deepEqual([...readFileSync(await download.path()).subarray(0, 2)], [0x1f, 0x8b]);
  await endBox(id);
});

test("a thousand sandboxes are listed, searched and filtered", { skip }, async () => {
  const many = Array.from({ length: 1000 }, (_, i) => ({ id: `fake${String(i).padStart(16, "0")}`, project: `project-${i}`, template: "base",
    state: i % 10 ? "running" : "paused", dialect: "execute", created: new Date(Date.now() - i * 1000).toISOString(), ends: new Date(Date.now() + 3600e3).toISOString() }));
  const body = [...many.map((box) => `event: sandbox\ndata: ${JSON.stringify(box)}\n`), `event: ready\ndata: {"count":1000}\n`].join("\n") + "\n";
  await page.route("**/console/api/events", (route) => route.fulfill({ contentType: "text/event-stream", body }));
  await signIn();
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1000);
  await page.fill("input[type=search]", "project-99");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 11);
  await page.fill("input[type=search]", "");
  await page.selectOption("select[aria-label=State]", "paused");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 100);
  await checkAccess();
});

test("a port has a link that opens it in another tab", { skip }, async () => {
  const id = await newBox();
  await signIn();
  await open(`#/sandbox/${id}/ports`);
  await page.waitForSelector("text=Nothing listens in this sandbox");
  await api("POST", `/sandboxes/${id}/processes`, { command: "cd /workspace && exec python3 -m http.server 8000" });
  await page.waitForSelector("td:has-text('8000')"); // by itself
  await photograph("ports");
  await checkAccess();
  assert.match(await page.textContent("td code"), new RegExp(`8000-${id}\\.`));
  const [preview] = await Promise.all([context.waitForEvent("page"), page.click("button:has-text('Open')")]);
  await preview.waitForSelector("text=Directory listing");
  assert.match(preview.url(), new RegExp(`^http://8000-${id}\\.`), "on its own host name, without the link's token");
  assert.equal(await preview.evaluate(() => window.opener), null);
  const stranger = await browser.newContext(), visit = async () => (await (await stranger.newPage()).goto(preview.url())).status();
  assert.equal(await visit(), 401);
  await page.selectOption("select", "public");
  await page.waitForSelector(".notice:has-text('is public now')");
  assert.equal(await visit(), 200);
  await stranger.close();
  await endBox(id);
});

test("charts tell what the sandbox uses", { skip }, async () => {
  const id = await newBox();
  await signIn();
  await open(`#/sandbox/${id}/usage`);
  await page.waitForSelector("figure:has-text('Memory') strong");
  assert.match(await page.textContent("figure:has-text('Memory') strong"), /iB of 512 MiB$/);
  for (const name of ["Network, received", "Network, sent"]) await page.waitForSelector(`svg[aria-label^="${name} over time, now "][aria-label$="/s"]`);
  await photograph("usage");
  await checkAccess();
  await endBox(id);
});

test("the policy's test bench tells rule and form", { skip }, async () => {
  await signIn();
  await open("#/policy");
  await page.fill("textarea", "echo ok; rm -rf /");
  await page.selectOption("select[name=dialect]", "relay");
  const [sent] = await Promise.all([page.waitForRequest("**/policy/test"), page.click("button:has-text('Test')")]);
  assert.deepEqual(JSON.parse(sent.postData()), { command: "echo ok; rm -rf /", dialect: "relay" });
  await page.waitForSelector("p.bad");
  assert.match(await page.textContent("p.bad"), /Refused by the rule rm-/);
  await photograph("policy");
  await checkAccess();
});

test("a page that only listens asks to sign in when its session is over", { skip }, async () => {
  await context.addCookies([endingCookie(4)]);
  await page.goto(`${URL_}/console/`);
  await page.waitForSelector("#create");
  await page.waitForSelector("input[name=key]"); // nothing is pressed
});

test("a session that ended asks for the key again", { skip }, async () => {
  await signIn();
  await context.clearCookies();
  await open("#/policy");
  await page.fill("textarea", "ls");
  await page.click("button:has-text('Test')");
  await page.waitForSelector("input[name=key]");
});

test("it fits on a phone and in the dark", { skip }, async () => {
  await page.setViewportSize({ width: 390, height: 800 });
  await page.emulateMedia({ colorScheme: "dark" });
  const id = await newBox();
  await signIn();
  await page.waitForSelector(`tr[data-id="${id}"] svg.spark polyline`, { state: "attached" });
  const oneLine = await page.evaluate((box) => document.querySelector(`tr[data-id="${box}"] code`).getBoundingClientRect().height < 30, id);
  assert.ok(oneLine, "an id is not broken into pieces");
  await photograph("phone-dark");
  for (const where of ["#/", ...["files", "processes", "commands", "ports", "usage", "snapshots", "refused", "terminal"].map((tab) => `#/sandbox/${id}/${tab}`), "#/templates", "#/policy"]) {
    await open(where);
    await page.waitForSelector("h1");
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${where}: no sideways scrolling`);
    await checkAccess();
  }
  await page.emulateMedia({ colorScheme: "light" });
  await open(`#/sandbox/${id}/terminal`);
  await page.waitForSelector(".xterm-rows");
  await photograph("phone-light");
  await checkAccess();
  await endBox(id);
});

test("no page throws", { skip }, async () => {
  await signIn();
  for (const hash of ["#/", "#/policy", "#/operator", "#/operator/nosuch", "#/sandbox/nosuch", "#/sandbox/%3Cscript%3E/files", "#/nosuch/%zz"]) await open(hash);
  await page.waitForFunction(() => document.querySelector("main").childElementCount > 0);
  assert.deepEqual(problems, []);
});
