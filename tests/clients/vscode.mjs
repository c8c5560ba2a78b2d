// node vscode.mjs LINK CHROMIUM: opens VS Code by its link, changes a file and saves it, runs a command in the editor's terminal.
// test_vscode.py looks at what came of it.
import { chromium } from "playwright-core";

const [link, program] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox"] });
const page = await (await browser.newContext({ viewport: { width: 1200, height: 800 } })).newPage();
page.setDefaultTimeout(60000);
const said = [];
page.on("console", (message) => said.push(message.text()));
const step = (name) => console.log(name);

try {
  // The first request starts code-server; while it starts, the gate says so and the page is asked for again.
  for (let i = 0; ; i++) {
    const response = await page.goto(link);
    if (response.ok()) break;
    if (i === 60) throw new Error(`${response.status()} ${await response.text()}`);
    await page.waitForTimeout(1000);
  }
  step("open");
  await page.waitForSelector(".monaco-workbench");
  const trust = page.getByRole("button", { name: "Yes, I trust the authors" });
  await Promise.race([trust.waitFor().then(() => trust.click()), page.waitForSelector('.explorer-folders-view [aria-label^="note.txt"]')]);
  await page.dblclick('.explorer-folders-view [aria-label^="note.txt"]');
  await page.waitForSelector('.editor-instance .view-line:has-text("first")');
  step("a file is shown");
  await page.click(".editor-instance .view-line >> nth=0");
  await page.keyboard.press("Control+Home");
  await page.keyboard.type("typed in the editor ");
  await page.keyboard.press("Control+s");
  await page.waitForSelector(".tab.active:not(.dirty)");
  step("saved");
  await page.keyboard.press("Control+Backquote");
  const terminal = page.locator(".terminal-wrapper.active .xterm-helper-textarea");
  await terminal.waitFor({ state: "attached" });
  // What is typed before the shell reads is lost, and nothing on the page tells when it does: typed until the explorer shows what came of it.
  const made = page.locator('.explorer-folders-view [aria-label^="from-42"]');
  for (let i = 0; i < 12 && !await made.count(); i++) {
    await terminal.focus();
    await page.keyboard.type("touch /workspace/from-$((6*7))\n");
    await made.waitFor({ timeout: 5000 }).catch(() => {});
  }
  await made.waitFor();
  step("the terminal works");
  if (process.env.COVE_SCREENSHOTS) await page.screenshot({ path: `${process.env.COVE_SCREENSHOTS}/vscode.png` });
} catch (error) {
  console.log(`${error.message}\n${said.slice(-20).join("\n")}\n${(await page.content()).slice(0, 3000)}`);
  await page.screenshot({ path: "vscode-failed.png" });
  process.exitCode = 1;
} finally {
  await browser.close();
}
