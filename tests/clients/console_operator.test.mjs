// The operators' pages in a real browser: the signing key stays in the page, and every change is seen by the server's own API.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { checkAccess, context, KEY, open, page, photograph, problems, signIn, skip, URL_ } from "./console_browser.mjs";

const NAME = "browser-operator";
const cove = (...words) => execFileSync(process.env.COVE_PROGRAM, ["-c", process.env.COVE_CONFIG, ...words], { encoding: "utf8" });
let secret;

before(() => { if (!skip) secret = cove("operator", "add", NAME).trim(); });
after(() => { if (!skip) cove("operator", "remove", NAME); });

async function unlock(hash = "#/operator") {
  await signIn();
  await open(hash);
  for (let tries = 0; tries < 50; tries++) { // the server takes a new operator up within a second
    await page.fill("input[name=secret]", secret);
    await page.click("button:has-text('Unlock')");
    await page.waitForSelector("nav.tabs[aria-label=\"Operator's pages\"], form .bad:not(:empty)");
    if (await page.locator("nav.tabs").count()) return;
  }
  assert.fail(await page.textContent("form .bad"));
}
const asked = (status, key) => fetch(`${URL_}/console/api/session`, { headers: { "X-API-Key": key } }).then((reply) => assert.equal(reply.status, status));

test("a tenant without a signing key sees none of it", { skip }, async () => {
  await signIn();
  await open("#/operator/keys");
  await page.waitForSelector("input[name=secret]");
  await photograph("operator-unlock");
  await checkAccess();
  for (const wrong of ["e2b_something", `coveop_${NAME}_${"1".repeat(192)}`, secret.replace(NAME, "nobody")]) {
    await page.fill("input[name=secret]", wrong);
    await page.click("button:has-text('Unlock')");
    await page.waitForSelector("form .bad:not(:empty)");
    assert.equal(await page.locator("nav.tabs").count(), 0);
  }
});

test("health shows the node and what the doctor found", { skip }, async () => {
  await unlock();
  await page.waitForSelector("dt:has-text('Memory')");
  await page.waitForSelector("section td:has-text('fine')");
  await photograph("operator-health");
  await checkAccess();
});

test("tenants, templates and the audit log are shown", { skip }, async () => {
  await fetch(`${URL_}/execute`, { method: "POST", headers: { "X-API-Key": KEY }, body: JSON.stringify({ projectId: "refused", commands: ["echo '<img src=x onerror=window.taken=1>'; rm -rf /"] }) });
  await unlock("#/operator/tenants");
  await page.waitForSelector("td:has-text('default')");
  await photograph("operator-tenants");
  await checkAccess();
  await open("#/operator/templates");
  await page.waitForSelector("td:has-text('base')");
  await photograph("operator-templates");
  await checkAccess();
  await open("#/operator/audit");
  await page.waitForSelector("p.good:has-text('The chain is whole')");
  await page.waitForSelector("td:has-text('refused')");
  assert.ok(await page.locator("td code:has-text('onerror')").count() > 0);
  assert.equal(await page.evaluate(() => window.taken), undefined);
  await photograph("operator-audit");
  await checkAccess();
  await page.fill("input[aria-label=Tenant]", "nobody-at-all");
  await page.click("button:has-text('Look')");
  await page.waitForSelector("text=No line fits");
  assert.deepEqual(problems, []);
});

test("what an operator makes is shown while it goes on", { skip }, async () => {
  const folder = mkdtempSync(path.join(tmpdir(), "cove-build-")), source = path.join(folder, "source.tar");
  execFileSync("mkfifo", [source]);
  await unlock("#/operator/templates");
  await page.waitForSelector("td:has-text('base')");
  const adding = spawn(process.env.COVE_PROGRAM, ["-c", process.env.COVE_CONFIG, "template", "add", "browser-made", source], { stdio: "ignore" });
  const ended = new Promise((resolve) => { adding.on("exit", resolve); });
  try {
    const row = `tr[data-state="running"]:has-text("browser-made")`;
    await page.waitForSelector(row); // without a reload
    await page.click(`${row} button:has-text("Log")`);
    await page.waitForSelector("pre.log:has-text('reading')");
    await photograph("operator-builds");
    await checkAccess();
    writeFileSync(source, "no archive");
    assert.equal(await ended, 2);
    await page.waitForSelector(`tr[data-state="failed"]:has-text("browser-made")`);
  } finally {
    adding.kill();
    rmSync(folder, { recursive: true });
  }
  assert.deepEqual(problems, []);
});

test("a key is created, shown once, rotated and revoked", { skip }, async () => {
  const seen = [];
  await unlock("#/operator/keys");
  page.on("request", (request) => seen.push(request.postData() || ""));
  await page.click("button:has-text('New key')");
  await page.fill("dialog input[name=tenant]", "by-browser");
  await page.fill("dialog input[name=name]", "made-here");
  await checkAccess();
  await page.click("dialog button[value=yes]");
  await page.waitForSelector("#new-key");
  const first = await page.textContent("#new-key");
  await photograph("operator-new-key");
  await checkAccess();
  await asked(200, first);
  await page.click("text=I have it");
  await page.waitForSelector("#new-key", { state: "detached" });
  assert.equal((await page.content()).includes(first), false, "shown once");
  await photograph("operator-keys");
  await checkAccess();
  await page.click("tr:has-text('made-here') button:has-text('Rotate')");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector("#new-key");
  const second = await page.textContent("#new-key");
  await page.click("text=I have it");
  await page.waitForSelector("#new-key", { state: "detached" });
  await asked(401, first);
  await asked(200, second);
  await page.click("tr:has-text('made-here') button:has-text('Revoke')");
  await page.click("dialog button[value=yes]");
  await page.waitForSelector(".notice:has-text('revoked')");
  await asked(401, second);
  for (const text of [first, second, secret]) assert.ok(!seen.some((body) => body.includes(text)), "neither a key nor the signing key leaves the browser");
});

test("the signing key is gone with the page", { skip }, async () => {
  await unlock();
  assert.equal(await page.evaluate(() => localStorage.length + sessionStorage.length), 0);
  await page.reload();
  await page.fill("input[name=secret]", secret);
  await page.click("button:has-text('Unlock')");
  await page.click("button:text-is('Lock')"); // and not 'Unlock', which may still be there
  await page.waitForSelector("input[name=secret]");
  assert.equal((await context.cookies()).some((cookie) => cookie.value.includes("coveop")), false);
});
