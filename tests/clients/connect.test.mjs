// A plain Connect client in binary, over HTTP/1.1 at one address and over HTTP/2 with TLS at the sandbox's own host name.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { Code, ConnectError, createClient } from '@connectrpc/connect'
import { createConnectTransport } from '@connectrpc/connect-node'
import { Filesystem, Process } from './envd_schema.mjs'
import { apiUrl, until, withSandbox } from './helper.mjs'

const lookup = (name, options, done) => (options.all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4))
const ways = {
  'HTTP/1.1 at one address': sandbox => ({ baseUrl: apiUrl, httpVersion: '1.1', headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' } }),
  'HTTP/2 at 49983-ID.DOMAIN': sandbox => ({ baseUrl: `https://49983-${sandbox.sandboxId}.${process.env.COVE_DOMAIN}`, httpVersion: '2',
    nodeOptions: { ca: readFileSync(process.env.COVE_CERT), lookup } }),
}

function clients(sandbox, way, options = {}) {
  const { headers = {}, ...rest } = ways[way](sandbox)
  const add = next => request => {
    for (const [name, value] of Object.entries({ ...headers, 'X-Access-Token': sandbox.envdAccessToken })) request.header.set(name, value)
    return next(request)
  }
  const transport = createConnectTransport({ useBinaryFormat: true, interceptors: [add], ...rest, ...options })
  return { processes: createClient(Process, transport), files: createClient(Filesystem, transport) }
}

const text = bytes => Buffer.from(bytes).toString()

async function failure(promise) {
  try {
    await promise
  } catch (e) {
    return ConnectError.from(e).code
  }
}

for (const way of Object.keys(ways)) {
  test(`${way}: a process with its output, a negative exit code, input, and a list`, withSandbox(async sandbox => {
    const { processes } = clients(sandbox, way)
    let out = '', end
    for await (const { event } of processes.start({ process: { cmd: '/bin/bash', args: ['-c', 'echo $A; echo err >&2; exit 3'], envs: { A: 'grüße' }, cwd: '/tmp' } }))
      if (event.event.case === 'data') out += `${event.event.value.output.case}:${text(event.event.value.output.value)}`
      else if (event.event.case === 'end') end = event.event.value
    assert.deepEqual(out.split('\n').sort().join('\n'), '\nstderr:err\nstdout:grüße')
    assert.deepEqual([end.exitCode, end.exited, end.status], [3, true, 'exit status 3'])
    let pid, echoed = '', killed
    const run = (async () => {
      for await (const { event } of processes.start({ process: { cmd: 'cat' }, tag: 'cat', stdin: true }))
        if (event.event.case === 'start') pid = event.event.value.pid
        else if (event.event.case === 'data') echoed += text(event.event.value.output.value)
        else if (event.event.case === 'end') killed = event.event.value
    })()
    await until(() => pid, 'its pid')
    await processes.sendInput({ process: { selector: { case: 'pid', value: pid } }, input: { input: { case: 'stdin', value: Buffer.from('one ') } } })
    async function* input() {
      yield { event: { case: 'start', value: { process: { selector: { case: 'tag', value: 'cat' } } } } }
      yield { event: { case: 'data', value: { input: { input: { case: 'stdin', value: Buffer.from('two') } } } } }
    }
    await processes.streamInput(input())
    await until(() => echoed === 'one two', 'both inputs')
    const { processes: [listed] } = await processes.list({})
    assert.deepEqual([listed.pid, listed.tag, listed.config.cmd], [pid, 'cat', 'cat'])
    await processes.sendSignal({ process: { selector: { case: 'pid', value: pid } }, signal: 9 })
    await run
    assert.deepEqual([killed.exitCode, killed.exited, killed.status], [-1, false, 'signal: killed'])
  }))

  test(`${way}: files, a watch, and errors by their codes`, withSandbox(async sandbox => {
    const { files, processes } = clients(sandbox, way)
    const { entry } = await files.makeDir({ path: 'd' })
    assert.deepEqual([entry.path, entry.type, entry.permissions], ['/home/user/d', 2, 'drwxr-xr-x'])
    await sandbox.files.write('d/x', '12345', { metadata: { k: 'v' } })
    const { entries } = await files.listDir({ path: 'd', depth: 1 })
    assert.deepEqual(entries.map(e => [e.name, e.size, e.metadata]), [['x', 5n, { k: 'v' }]])
    const events = []
    const abort = new AbortController()
    const watch = (async () => {
      for await (const { event } of files.watchDir({ path: 'd' }, { signal: abort.signal })) events.push(event)
    })().catch(() => {})
    await until(() => events[0]?.case === 'start', 'the start of the watch')
    await sandbox.files.write('d/y', '1')
    await until(() => events.some(e => e.case === 'filesystem' && e.value.name === 'y'), 'the event')
    abort.abort()
    await watch
    assert.equal(await failure(files.stat({ path: 'nope' })), Code.NotFound)
    assert.equal(await failure(files.makeDir({ path: 'd' })), Code.AlreadyExists)
    assert.equal(await failure(files.listDir({ path: 'd/x' })), Code.InvalidArgument)
    assert.equal(await failure(processes.sendSignal({ process: { selector: { case: 'pid', value: 999999 } }, signal: 9 })), Code.NotFound)
    const drain = async stream => { for await (const message of stream) void message }
    assert.equal(await failure(drain(processes.start({ process: { cmd: 'sleep', args: ['1000'] } }, { timeoutMs: 300 }))), Code.DeadlineExceeded)
    assert.equal(await failure(drain(processes.start({ process: { cmd: '/bin/sh', args: ['-c', 'rm -rf /'] } }))), Code.PermissionDenied)
    sandbox.envdAccessToken = 'wrong'
    assert.equal(await failure(clients({ sandboxId: sandbox.sandboxId, envdAccessToken: 'wrong' }, way).files.stat({ path: '/' })), Code.Unauthenticated)
  }))

  test(`${way}: what the client compressed is unpacked`, withSandbox(async sandbox => {
    const { compressionGzip } = await import('@connectrpc/connect-node')
    const { processes } = clients(sandbox, way, { sendCompression: compressionGzip, compressMinBytes: 0 })
    let out = ''
    for await (const { event } of processes.start({ process: { cmd: '/bin/sh', args: ['-c', `echo ${'x'.repeat(5000)} | wc -c`] } }))
      if (event.event.case === 'data') out += text(event.event.value.output.value)
    assert.equal(out.trim(), '5001')
    assert.deepEqual((await processes.list({})).processes, [])
  }))
}
