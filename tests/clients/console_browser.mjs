// A browser for the tests of the web console: Debian's headless Chromium, driven by playwright-core. Each test has a fresh page.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, beforeEach } from "node:test";
import { chromium } from "playwright-core";

export const URL_ = process.env.E2B_API_URL, KEY = process.env.E2B_API_KEY, OTHER_KEY = process.env.COVE_OTHER_KEY;
const PROGRAM = "/usr/bin/chromium-headless-shell";
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const skip = existsSync(PROGRAM) ? false : `${PROGRAM} is missing: install chromium-headless-shell`;
const pictures = process.env.COVE_SCREENSHOTS; // a directory: each page is photographed
export let browser, context, page, problems, failures;

export const api = async (method, path, body, key = KEY) => {
  const headers = { "X-API-Key": key };
  const response = await fetch(`${URL_}/console/api${path}`, { method, headers, body: typeof body === "object" ? JSON.stringify(body) : body });
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
  return response;
};
export const newBox = async (key) => (await (await api("POST", "/sandboxes", {}, key)).json()).id;
export const endBox = (id, key) => api("DELETE", `/sandboxes/${id}`, undefined, key);
export const open = (hash) => page.evaluate((to) => { location.hash = to; }, hash);
export const photograph = (name) => pictures && page.screenshot({ path: `${pictures}/console-${name}.png` });

export async function signIn(key = KEY) {
  await page.goto(`${URL_}/console/`);
  await page.waitForSelector("input[name=key]").catch(async (error) => {
    throw new Error(`${error.message}\n${failures.join("\n")}\n${problems.join("\n")}\n${await page.content()}`);
  });
  await page.fill("input[name=key]", key);
  await page.click("button[type=submit]");
  await page.waitForSelector("#create");
}

// Nothing serious for whoever uses a keyboard or a screen reader. The terminal's own lines are its library's business.
export async function checkAccess() {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => globalThis.axe.run({ exclude: [[".xterm"]] }, { resultTypes: ["violations"] }));
  const serious = found.violations.filter((violation) => ["serious", "critical"].includes(violation.impact));
  assert.deepEqual(serious.map((violation) => [violation.id, violation.nodes.map((node) => node.html)]), []);
}

before(async () => { if (!skip) browser = await chromium.launch({ executablePath: PROGRAM, args: ["--no-sandbox"] }); });
after(() => browser?.close());
beforeEach(async () => {
  if (skip) return;
  await context?.close();
  context = await browser.newContext({ viewport: { width: 1200, height: 800 }, acceptDownloads: true });
  page = await context.newPage();
  page.setDefaultTimeout(20000);
  problems = [];
  failures = [];
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("requestfailed", (request) => failures.push(`${request.url()}: ${request.failure()?.errorText}`));
});
