// The official clients of the Model Context Protocol, of both generations, against the MCP server.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import net from 'node:net'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js'
import { until } from './helper.mjs'
import { headers, key, origin, shell, url, withNew, withOld } from './mcp_helper.mjs'

const COVE = process.env.COVE_PROGRAM
const tools = 16

// What holds for any client: `call` is callTool with options, whose place differs between the generations.
// The command sleeps before its end because the SDK drops progress that arrives together with the answer.
async function works(client, call) {
  assert.equal((await client.listTools()).tools.length, tools)
  const told = []
  const ran = await call({ name: 'run_command', arguments: { command: 'echo one; echo two >&2; sleep 0.3; exit 3' } }, { onprogress: p => told.push(p.message) })
  assert.deepEqual([ran.structuredContent.exit_code, ran.structuredContent.stdout, ran.structuredContent.stderr], [3, 'one\n', 'two\n'])
  assert.deepEqual(told.sort(), ['one\n', 'two\n'])
  await call({ name: 'write_file', arguments: { path: '/workspace/f.txt', content: 'a\nb\n' } })
  await call({ name: 'edit_file', arguments: { path: '/workspace/f.txt', old_text: 'b', new_text: 'c' } })
  const read = await client.readResource({ uri: 'file:///workspace/f.txt' })
  assert.equal(read.contents[0].text, 'a\nc\n')
  assert.ok((await client.listResources()).resources.some(r => r.uri === 'file:///workspace/f.txt'))
  const refused = await call({ name: 'run_command', arguments: { command: 'rm -rf /' } })
  assert.ok(refused.isError && refused.content[0].text.includes('rule: rm-root'))
  const wrong = await call({ name: 'read_file', arguments: { path: 7 } })
  assert.ok(wrong.isError && wrong.content[0].text.includes('path'))
  await assert.rejects(call({ name: 'nonsense', arguments: {} }), /nonsense/)
}

// An aborted call ends its command in the sandbox.
async function cancels(client, call) {
  const controller = new AbortController()
  const pending = call({ name: 'run_command', arguments: { command: 'touch /workspace/on; sleep 4321' } }, { signal: controller.signal })
  pending.catch(() => {})
  await until(async () => (await shell(client, 'ls /workspace')).includes('on'), 'the command')
  controller.abort('enough')
  await assert.rejects(pending, /enough/)
  await until(async () => (await shell(client, 'pgrep -x sleep')) === '', 'the end of the command')
}

const oldCall = client => (params, options) => client.callTool(params, undefined, options)
const newCall = client => (params, options) => client.callTool(params, options)

test('the SDK with sessions uses every kind of tool', withOld('mcp-old', async (client, transport) => {
  assert.match(transport.sessionId, /^2025-11-25\./)
  await works(client, oldCall(client))
}))

test('the SDK with sessions cancels a call', withOld('mcp-old-cancel', client => cancels(client, oldCall(client))))

// A way to the server whose connections break on demand.
async function breakable() {
  const ways = new Set()
  const server = net.createServer(near => {
    const far = net.connect(new URL(origin).port, new URL(origin).hostname)
    const way = { cut: () => { near.destroy(); far.destroy() } }
    ways.add(way)
    for (const [from, to] of [[near, far], [far, near]])
      from.on('error', way.cut).on('close', () => { way.cut(); ways.delete(way) }).pipe(to)
  })
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
  return { port: server.address().port, cut: () => ways.forEach(way => way.cut()), close: () => { server.close(); ways.forEach(way => way.cut()) } }
}

test('the SDK with sessions gets the answer of a call whose connection broke', async () => {
  const way = await breakable()
  const client = new OldClient({ name: 'cove-tests', version: '1' })
  const target = url('mcp-old-resume')
  target.port = way.port
  try {
    await client.connect(new OldTransport(target, { requestInit: { headers } }))
    const call = oldCall(client), told = []
    const pending = call({ name: 'run_command', arguments: { command: 'echo one; until test -e /workspace/go; do sleep 0.1; done; echo two' } },
      { onprogress: p => told.push(p.message) })
    await until(() => told.length > 0, 'the first output')
    way.cut()
    await until(() => shell(client, 'touch /workspace/go').then(() => true, () => false), 'a way back to the server')
    assert.equal((await pending).structuredContent.stdout, 'one\ntwo\n')
    assert.equal(told[0], 'one\n')
  } finally {
    await client.close()
    way.close()
    await fetch(`${origin}/cleanup`, { method: 'POST', headers, body: JSON.stringify({ projectId: 'mcp-old-resume' }) })
  }
})

test('the SDK with sessions is told of changed files', withOld('mcp-old-watch', async client => {
  const told = []
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, n => told.push(n.params.uri))
  await client.subscribeResource({ uri: 'file:///workspace/w' })
  await until(async () => await shell(client, 'date > /workspace/w') === '' && told.length > 0, 'the notification')
  assert.equal(told[0], 'file:///workspace/w')
}))

test('an ended session is refused', withOld('mcp-old-end', async (client, transport) => {
  const session = transport.sessionId
  await transport.terminateSession()
  const reply = await fetch(url('mcp-old-end'), {
    method: 'POST', headers: { ...headers, 'Mcp-Session-Id': session }, body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' }) })
  assert.equal(reply.status, 404)
}))

test('the new client speaks the stateless revision and uses every kind of tool', withNew('mcp-new', async (client, transport) => {
  assert.equal(client.getNegotiatedProtocolVersion(), '2026-07-28')
  assert.equal(transport.sessionId, undefined)
  await works(client, newCall(client))
}))

test('the new client cancels a call', withNew('mcp-new-cancel', client => cancels(client, newCall(client))))

test('the new client listens to changed files', withNew('mcp-new-watch', async client => {
  const told = []
  client.setNotificationHandler('notifications/resources/updated', n => told.push(n.params.uri))
  const subscription = await client.listen({ resourceSubscriptions: ['file:///workspace/w'] })
  await shell(client, 'date > /workspace/w')
  await until(() => told.length > 0, 'the notification')
  assert.equal(told[0], 'file:///workspace/w')
  await subscription.close()
}))

test('several clients work in one sandbox at once', withNew('mcp-shared', async client => {
  const names = [1, 2, 3, 4, 5, 6, 7, 8]
  const done = await Promise.all(names.map(n => shell(client, `sleep 0.2; echo ${n}`)))
  assert.deepEqual(done, names.map(n => `${n}\n`))
}))

test('a desktop client works through cove mcp', async () => {
  const client = new OldClient({ name: 'desktop', version: '1' })
  await client.connect(new StdioClientTransport({ command: COVE, args: ['mcp', '--sandbox', 'mcp-desktop'], env: { COVE_URL: origin, COVE_KEY: key } }))
  try {
    await works(client, oldCall(client))
    await cancels(client, oldCall(client))
  } finally {
    await client.close()
    await fetch(`${origin}/cleanup`, { method: 'POST', headers, body: JSON.stringify({ projectId: 'mcp-desktop' }) })
  }
})

test('the MCP inspector calls a tool from its command line', async () => {
  const inspector = new URL('./node_modules/.bin/mcp-inspector-cli', import.meta.url).pathname
  const args = [inspector, '--cli', url('mcp-inspector').href, '--transport', 'http', '--header', `Authorization: Bearer ${key}`,
    '--method', 'tools/call', '--tool-name', 'run_command', '--tool-arg', 'command=echo inspected']
  // It looks for ../package.json from where it is started.
  const cwd = new URL('./node_modules/', import.meta.url).pathname
  const { stdout } = await promisify(execFile)('node', args, { cwd, timeout: 60000 })
  assert.equal(JSON.parse(stdout).structuredContent.stdout, 'inspected\n')
  await fetch(`${origin}/cleanup`, { method: 'POST', headers, body: JSON.stringify({ projectId: 'mcp-inspector' }) })
})
