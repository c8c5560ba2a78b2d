// What the console costs, in headless Chromium: bytes of the page, first paint and the list with many sandboxes, an open console's cpu time in the
// workers, a keystroke's way to the sandbox and back.
//
//   BENCH_PROGRAM=console_bench.mjs bench/e2b.sh        against an instance of its own; E2B_API_URL and E2B_API_KEY name another
//   COVE_BENCH_BOXES=100                                 how many sandboxes are there while the console is open
//
// Figures, not tests. The thousand sandboxes of the list are the server's event stream, replayed to the page: making them is another bench's subject
// (sandboxes.py); the COVE_BENCH_BOXES of the second part are real. Prints a Markdown table.
import { execSync } from "node:child_process";
import { gzipSync } from "node:zlib";
import { readdirSync, readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const { E2B_API_URL: COVE_URL, E2B_API_KEY: COVE_KEY } = process.env, BOXES = Number(process.env.COVE_BENCH_BOXES || 100), ROUNDS = 15, KEYS = 100, WATCH_S = 20;
const rows = [];
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const api = async (method, path, body) => {
  const response = await fetch(`${COVE_URL}/console/api${path}`, { method, headers: { "X-API-Key": COVE_KEY }, body: body && JSON.stringify(body) });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.json();
};
// The keeper of the instance, if its configuration is known ($COVE_CONFIG): other instances on the machine do not count then.
const runDir = process.env.COVE_CONFIG && /^run_dir\s*=\s*(\S+)/m.exec(readFileSync(process.env.COVE_CONFIG, "utf8"))?.[1];
const keeper = runDir ? readFileSync(`${runDir}/coved.pid`, "utf8").trim() : "";

// cpu seconds that the keeper's children of this name have used
function cpuOf(title) {
  const ticks = Number(execSync("getconf CLK_TCK", { encoding: "utf8" }));
  let sum = 0;
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      if (!readFileSync(`/proc/${pid}/cmdline`, "utf8").startsWith(title)) continue;
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/.*\) /, "").split(" ");
      if (keeper && fields[1] !== keeper) continue;
      sum += (Number(fields[11]) + Number(fields[12])) / ticks;
    } catch { /* it has ended */ }
  }
  return sum;
}

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium-headless-shell", args: ["--no-sandbox"] });
const fresh = async () => {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 } });
  const page = await context.newPage();
  await page.goto(`${COVE_URL}/console/`);
  await page.fill("input[name=key]", COVE_KEY);
  await page.click("button[type=submit]");
  await page.waitForSelector("#create");
  return { context, page };
};

// bytes
{
  const context = await browser.newContext(), page = await context.newPage(), seen = new Map();
  page.on("response", async (response) => { if (response.url().includes("/console/")) seen.set(response.url(), await response.body().catch(() => Buffer.alloc(0))); });
  await page.goto(`${COVE_URL}/console/`);
  await page.waitForSelector("input[name=key]");
  await page.waitForLoadState("networkidle");
  const sizes = [...seen.values()];
  rows.push(["bytes of the page with the terminal, compressed", `${Math.round(sizes.reduce((sum, body) => sum + gzipSync(body, { level: 6 }).length, 0) / 1024)} KiB in ${sizes.length} files`]);
  await context.close();
}

// first paint and list, with 1,000 sandboxes
{
  const boxes = Array.from({ length: 1000 }, (_, i) => ({ id: `fake${String(i).padStart(16, "0")}`, project: `project-${i}`, template: "base", state: "running",
    dialect: "execute", created: new Date(Date.now() - i * 1000).toISOString(), ends: new Date(Date.now() + 3600e3).toISOString() }));
  const body = [...boxes.map((box) => `event: sandbox\ndata: ${JSON.stringify(box)}\n`), "event: ready\ndata: {\"count\":1000}\n"].join("\n") + "\n";
  const { context, page } = await fresh(), paints = [], lists = [];
  await page.route("**/console/api/events", (route) => route.fulfill({ contentType: "text/event-stream", body }));
  for (let i = 0; i < ROUNDS; i++) {
    await page.goto("about:blank");
    await page.goto(`${COVE_URL}/console/`);
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1000);
    lists.push(await page.evaluate(() => performance.now()));
    paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN));
  }
  rows.push(["first paint, 1,000 sandboxes", `${median(paints).toFixed(0)} ms (median of ${ROUNDS})`], ["list of 1,000 complete", `${median(lists).toFixed(0)} ms`]);
  await context.close();
}

// an open console, and a keystroke
const made = [];
try {
  for (let i = 0; i < BOXES; i++) made.push((await api("POST", "/sandboxes", { seconds: 900 })).id);
  const { context, page } = await fresh();
  await page.waitForFunction((count) => document.querySelectorAll("tbody tr").length >= count, BOXES);
  const idle = async () => { const before = cpuOf("cove: worker"); await new Promise((resolve) => { setTimeout(resolve, WATCH_S * 1000); }); return (cpuOf("cove: worker") - before) / WATCH_S * 100; };
  const withPage = await idle();
  await page.goto("about:blank");
  const without = await idle();
  rows.push([`cpu of all workers, console open on ${BOXES} sandboxes`, `${withPage.toFixed(2)} % of a core (closed: ${without.toFixed(2)} %)`]);

  await page.addInitScript(() => {
    const Original = WebSocket;
    globalThis.WebSocket = class extends Original { constructor(...all) { super(...all); this.addEventListener("message", () => globalThis.messageCame?.()); } };
  });
  await page.goto("about:blank");
  await page.goto(`${COVE_URL}/console/#/sandbox/${made[0]}/terminal`);
  await page.waitForSelector("text=connected");
  await page.keyboard.type("cat > /dev/null\n");
  // From the key event until the echo has come back on the WebSocket, and until it is drawn. Drawing waits for the browser's next frame (60 a second).
  const times = await page.evaluate(async (keys) => {
    const area = document.querySelector(".xterm-helper-textarea"), screen = document.querySelector(".xterm-rows"), all = { echoed: [], drawn: [] };
    await new Promise((resolve) => { setTimeout(resolve, 500); });
    for (let i = 0; i < keys; i++) {
      const began = performance.now();
      globalThis.messageCame = () => { globalThis.messageCame = undefined; all.echoed.push(performance.now() - began); };
      const drawn = new Promise((resolve) => { const watch = new MutationObserver(() => { watch.disconnect(); resolve(); }); watch.observe(screen, { subtree: true, childList: true, characterData: true }); });
      area.dispatchEvent(new KeyboardEvent("keydown", { key: "a", code: "KeyA", keyCode: 65 }));
      area.dispatchEvent(new KeyboardEvent("keypress", { key: "a", code: "KeyA", charCode: 97, keyCode: 97 }));
      await Promise.race([drawn, new Promise((resolve) => { setTimeout(resolve, 2000); })]);
      all.drawn.push(performance.now() - began);
    }
    return all;
  }, KEYS);
  const figures = (list) => `p50 ${median(list).toFixed(1)} ms, p90 ${[...list].sort((a, b) => a - b)[Math.floor(list.length * 0.9)].toFixed(1)} ms (${list.length} keys)`;
  rows.push(["keystroke until its echo is in the browser", figures(times.echoed)], ["keystroke until it is drawn, at 60 frames a second", figures(times.drawn)]);
  await context.close();
} finally {
  for (const id of made) await api("DELETE", `/sandboxes/${id}`).catch(() => {});
  await browser.close();
}
console.log("| what | figure |\n| --- | --- |");
for (const [what, figure] of rows) console.log(`| ${what} | ${figure} |`);
