// Others' servers inside a sandbox, others' clients outside, through the sandbox's host names.
import assert from 'node:assert/strict'
import { X509Certificate, createHash } from 'node:crypto'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { apiKey, apiUrl, until, withSandbox } from './helper.mjs'

const port = new URL(apiUrl).port
const CHROMIUM = '/usr/bin/chromium-headless-shell'

// The npm package `ws` as it is, for a server inside.
async function installWs(sandbox) {
  const from = path.dirname(createRequire(import.meta.url).resolve('ws/package.json'))
  const files = ['package.json', 'index.js', ...readdirSync(path.join(from, 'lib')).map(f => 'lib/' + f)]
  await sandbox.files.write(files.map(f => ({ path: `/home/user/app/node_modules/ws/${f}`, data: readFileSync(path.join(from, f), 'utf8') })))
}

const SERVER = `
const http = require('http'), { WebSocketServer } = require('ws')
const page = \`<!doctype html><title>waiting</title><script>
  let ws, events = 0
  const show = () => { document.title = 'ws:' + ws + ' sse:' + events }
  const socket = new WebSocket(location.protocol.replace('http', 'ws') + '//' + location.host + '/hot')
  socket.onopen = () => socket.send('reload?')
  socket.onmessage = e => { ws = e.data; show() }
  new EventSource('/events').onmessage = e => { events = +e.data; show() }
</script>\`
const server = http.createServer((req, res) => {
  if (req.url === '/events') {
    res.writeHead(200, { 'Content-Type': 'text/event-stream' })
    let n = 0
    const timer = setInterval(() => res.write('data: ' + ++n + '\\n\\n'), 50)
    req.on('close', () => clearInterval(timer))
  } else {
    res.setHeader('Content-Type', 'text/html')
    res.end(page)
  }
})
new WebSocketServer({ server, perMessageDeflate: true }).on('connection', (ws, req) => {
  ws.on('message', (data, binary) => ws.send(binary ? data : 'echo ' + data, { binary }))
})
server.listen(3000)
`

async function serve(sandbox) {
  await installWs(sandbox)
  await sandbox.files.write('/home/user/app/server.cjs', SERVER)
  await sandbox.commands.run('cd app && node server.cjs', { background: true })
  const host = `3000-${sandbox.sandboxId}.localhost:${port}`
  await until(async () => (await sandbox.commands.run('grep -q :0BB8 /proc/net/tcp6 && echo up || true')).stdout === 'up\n', 'the server inside')
  return host
}

function connect(host, options = {}) {
  return new WebSocket(`ws://127.0.0.1:${port}/hot`, { ...options, headers: { Host: host, ...options.headers } })
}

const next = ws => new Promise((resolve, reject) => {
  ws.once('message', (data, binary) => resolve(binary ? data : String(data)))
  ws.once('error', reject)
  ws.once('close', code => reject(new Error('closed ' + code)))
})

test('node http and ws inside, ws outside: text, binary, large, compressed, ping, close codes', withSandbox(async sandbox => {
  const ws = connect(await serve(sandbox))
  await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject))
  assert.match(ws.extensions, /permessage-deflate/)
  ws.send('hi')
  assert.equal(await next(ws), 'echo hi')
  const large = Buffer.alloc(3 << 20, 'x')
  ws.send(large)
  assert.ok((await next(ws)).equals(large))
  const pong = new Promise(resolve => ws.once('pong', resolve))
  ws.ping('p')
  assert.equal(String(await pong), 'p')
  const closed = new Promise(resolve => ws.once('close', (code, reason) => resolve([code, String(reason)])))
  ws.close(4321, 'done')
  assert.equal((await closed)[0], 4321)
}))

test('python http.server inside: pages and listings by host name', withSandbox(async sandbox => {
  await sandbox.files.write('/home/user/site/a.txt', 'hello from python')
  await sandbox.commands.run('cd site && python3 -m http.server 8000', { background: true })
  await until(async () => (await sandbox.commands.run('grep -q :1F40 /proc/net/tcp && echo up || true')).stdout === 'up\n', 'the server inside')
  const { request } = await import('node:http')
  const body = await new Promise((resolve, reject) => {
    request({ port, path: '/a.txt', headers: { Host: `8000-${sandbox.sandboxId}.localhost` } }, res => {
      let text = ''
      res.on('data', d => (text += d)).on('end', () => resolve(text))
    }).on('error', reject).end()
  })
  assert.equal(body, 'hello from python')
}))

// The server's self-signed certificate is trusted by its key, and no other certificate is.
function trusted(file) {
  const key = new X509Certificate(readFileSync(file)).publicKey.export({ type: 'spki', format: 'der' })
  return '--ignore-certificate-errors-spki-list=' + createHash('sha256').update(key).digest('base64')
}

test('Chromium shows a page whose script uses WebSocket and server-sent events, over http and https', { skip: !existsSync(CHROMIUM) && 'no Chromium' },
  withSandbox(async sandbox => {
    const host = await serve(sandbox)
    const { chromium } = await import('playwright-core')
    const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', trusted(process.env.COVE_CERT)] })
    try {
      for (const [origin, protocol] of [[`http://${host}`, 'http/1.1'], [`https://3000-${sandbox.sandboxId}.${process.env.COVE_DOMAIN}`, 'h2']]) {
        const page = await browser.newPage()
        await page.goto(origin + '/')
        await page.waitForFunction(() => /^ws:echo reload\? sse:[1-9]/.test(document.title), null, { timeout: 30000 })
        assert.equal(await page.evaluate(() => performance.getEntriesByType('navigation')[0].nextHopProtocol), protocol)
        await page.close()
      }
    } finally {
      await browser.close()
    }
  }))

test('Chromium runs the example page of docs/: a terminal that is typed into', { skip: !existsSync(CHROMIUM) && 'no Chromium' },
  withSandbox(async sandbox => {
    const { chromium } = await import('playwright-core')
    const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] })
    try {
      const page = await browser.newPage()
      await page.goto('file://' + path.resolve(process.env.COVE_PROGRAM, '../../../../docs/terminal.html'))
      await page.fill('#url', `ws://127.0.0.1:${port}`)
      await page.fill('#sandbox', sandbox.sandboxId)
      await page.fill('#token', apiKey)
      await page.evaluate(() => { const W = WebSocket; window.WebSocket = function (url, [kind, secret]) { return new W(url, [kind, secret.replace('cove.token.', 'cove.key.')]) }; window.WebSocket.OPEN = W.OPEN })
      await page.click('button')
      await page.waitForFunction(() => document.getElementById('state').textContent.startsWith('process'), null, { timeout: 20000 })
      await page.focus('#screen')
      await page.keyboard.type("echo typed-''here; exit 5\n")
      await page.waitForFunction(() => document.getElementById('screen').textContent.includes('typed-here'), null, { timeout: 20000 })
      await page.waitForFunction(() => document.getElementById('state').textContent.includes('1000 exit code 5'), null, { timeout: 20000 })
    } finally {
      await browser.close()
    }
  }))

test('ws opens a terminal and reads lines', withSandbox(async sandbox => {
  const terminal = new WebSocket(`ws://127.0.0.1:${port}/terminal?sandbox=${sandbox.sandboxId}&cmd=sh`, { headers: { 'X-API-Key': apiKey } })
  const opened = JSON.parse(await next(terminal))
  assert.equal(opened.type, 'open')
  let seen = ''
  terminal.on('message', (data, binary) => { if (binary) seen += data })
  terminal.send(Buffer.from("echo from-''ws; exit 7\n"))
  const code = await new Promise(resolve => terminal.once('close', (code, reason) => resolve([code, String(reason)])))
  assert.ok(seen.includes('from-ws'))
  assert.deepEqual(code, [1000, 'exit code 7'])
}))
