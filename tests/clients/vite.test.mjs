// Vite's development server inside a sandbox: Chromium sees a change of the source by hot reload, through the sandbox's host name.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, realpathSync } from 'node:fs'
import { test } from 'node:test'
import { apiUrl, until, withSandbox } from './helper.mjs'

const port = new URL(apiUrl).port
const CHROMIUM = '/usr/bin/chromium-headless-shell'
// Vite and what it needs, as npm has installed them. esbuild is a program, rollup comes as WebAssembly (package.json, overrides).
const PACKAGES = ['vite', 'esbuild', '@esbuild/linux-x64', 'rollup', 'fdir', 'nanoid', 'picocolors', 'picomatch', 'postcss', 'source-map-js', 'tinyglobby']

const PAGE = '<!doctype html><title>waiting</title><script type="module" src="/main.js"></script>'
const source = word => `
document.title = '${word}'
if (import.meta.hot) import.meta.hot.accept()
`

async function install(sandbox) {
  const archive = execFileSync('tar', ['-czhf', '-', ...PACKAGES], { cwd: realpathSync('node_modules'), maxBuffer: 1 << 30 })
  await sandbox.files.write('/home/user/vite.tgz', new Blob([archive]))
  await sandbox.commands.run('mkdir -p app/node_modules && tar -xzf vite.tgz -C app/node_modules')
}

async function serve(sandbox) {
  await install(sandbox)
  await sandbox.files.write('/home/user/app/index.html', PAGE)
  await sandbox.files.write('/home/user/app/main.js', source('first'))
  await sandbox.commands.run('cd app && exec node node_modules/vite/bin/vite.js --host 127.0.0.1 --port 5173 --strictPort', { background: true })
  await until(async () => (await sandbox.commands.run('grep -q :1435 /proc/net/tcp && echo up || true')).stdout === 'up\n', 'Vite inside', 60000)
  return `5173-${sandbox.sandboxId}.localhost:${port}`
}

test('hot reload of a Vite server inside, seen by Chromium', { skip: !existsSync(CHROMIUM) && 'no Chromium' },
  withSandbox(async sandbox => {
    const host = await serve(sandbox)
    const { chromium } = await import('playwright-core')
    const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] })
    const titled = (page, word) => page.waitForFunction(w => document.title === w, word, { timeout: 30000 })
    try {
      const page = await browser.newPage()
      const connected = page.waitForEvent('console', { predicate: m => m.text().includes('[vite] connected'), timeout: 30000 })
      await page.goto(`http://${host}/`)
      await titled(page, 'first')
      await connected
      await page.evaluate(() => { window.kept = true })
      await sandbox.files.write('/home/user/app/main.js', source('second'))
      await titled(page, 'second')
      assert.equal(await page.evaluate(() => window.kept), true, 'the module was replaced, the page was not loaded again')
      await sandbox.files.write('/home/user/app/index.html', PAGE.replace('<script', '<p>more</p><script'))
      await page.waitForFunction(() => document.querySelector('p') && !window.kept, null, { timeout: 30000 })
    } finally {
      await browser.close()
    }
  }))
