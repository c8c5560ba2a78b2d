// The SDK in a page of another origin, in Debian's headless Chromium: the browser asks before each call (CORS), and hands a reply to the page
// only if the server allows it.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import http from 'node:http'
import { after, before, test } from 'node:test'
import esbuild from 'esbuild'
import { chromium } from 'playwright-core'
import { apiKey, apiUrl } from './helper.mjs'

const CHROMIUM = '/usr/bin/chromium-headless-shell'
const skip = !existsSync(CHROMIUM) && 'no Chromium'
let server, browser, page

// The SDK as bundlers make it for browsers: modules of Node are empty. (esbuild comes with Vite.)
async function bundle() {
  const empty = { name: 'empty', setup(build) {
    build.onResolve({ filter: /^node:/ }, ({ path }) => ({ path, namespace: 'empty' }))
    build.onLoad({ filter: /./, namespace: 'empty' }, () => ({ contents: 'module.exports = {}' }))
  } }
  const { outputFiles: [file] } = await esbuild.build({
    stdin: { contents: "import * as e2b from 'e2b'; globalThis.e2b = e2b", resolveDir: process.cwd() },
    bundle: true, write: false, format: 'esm', platform: 'browser', logLevel: 'silent', plugins: [empty],
  })
  return file.text
}

before(async () => {
  if (skip) return
  const script = await bundle()
  server = http.createServer((request, reply) => {
    reply.setHeader('Content-Type', request.url === '/sdk.js' ? 'text/javascript' : 'text/html')
    reply.end(request.url === '/sdk.js' ? script : '<!doctype html><title>another site</title><script type="module" src="/sdk.js"></script>')
  })
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] })
  page = await browser.newPage()
  page.on('console', message => console.log(message.text())) // says why the browser has refused a call
  page.on('pageerror', error => console.log(error.stack))
  await page.goto(`http://127.0.0.1:${server.address().port}/`)
  await page.waitForFunction(() => globalThis.e2b, undefined, { timeout: 60000 })
})
after(async () => {
  await browser?.close()
  server?.close()
})

test('a page of another origin creates a sandbox, runs a command, writes and reads a file', { skip }, async () => {
  const got = await page.evaluate(async ([apiUrl, apiKey]) => {
    const { Sandbox } = globalThis.e2b
    const sandbox = await Sandbox.create({ apiUrl, sandboxUrl: apiUrl, apiKey })
    try {
      const lines = []
      const { stdout, exitCode } = await sandbox.commands.run('echo from $E2B_SANDBOX; echo more', { onStdout: text => { lines.push(text) } })
      await sandbox.files.write('page.txt', 'written by a page', { metadata: { by: 'page' } })
      const info = await sandbox.files.getInfo('page.txt')
      return { stdout, exitCode, heard: lines.join(''), text: await sandbox.files.read('page.txt'), size: info.size, metadata: info.metadata,
        names: (await sandbox.files.list('/home/user')).map(entry => entry.name), running: await sandbox.isRunning(),
        listed: (await Sandbox.list({ apiUrl, apiKey }).nextItems()).some(s => s.sandboxId === sandbox.sandboxId) }
    } finally {
      await sandbox.kill()
    }
  }, [apiUrl, apiKey])
  const { names, ...rest } = got
  assert.ok(names.includes('page.txt'))
  assert.deepEqual(rest, { stdout: 'from true\nmore\n', exitCode: 0, heard: 'from true\nmore\n', text: 'written by a page', size: 17, metadata: { by: 'page' },
    running: true, listed: true })
})

test('what is refused is told to the page as the error that it is', { skip }, async () => {
  const kinds = await page.evaluate(async ([apiUrl, apiKey]) => {
    const { Sandbox } = globalThis.e2b
    const kind = promise => promise.then(() => 'none', error => error.constructor.name)
    const sandbox = await Sandbox.create({ apiUrl, sandboxUrl: apiUrl, apiKey })
    try {
      return [await kind(Sandbox.create({ apiUrl, sandboxUrl: apiUrl, apiKey: `e2b_${'0'.repeat(40)}` })), await kind(sandbox.files.read('nothing')),
        await kind(sandbox.commands.run('exit 3')), await kind(sandbox.commands.run('rm -rf /'))]
    } finally {
      await sandbox.kill()
    }
  }, [apiUrl, apiKey])
  assert.deepEqual(kinds, ['AuthenticationError', 'FileNotFoundError', 'CommandExitError', 'SandboxError'])
})
