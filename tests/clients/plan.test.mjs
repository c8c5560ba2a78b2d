// A client that somebody writes by himself, after the document that many such clients were written after: a v1 create without `secure`, ids as they come,
// commands by a Connect client in binary, files by plain HTTP with the token as a Bearer, whatever the token is.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createClient } from '@connectrpc/connect'
import { createConnectTransport } from '@connectrpc/connect-node'
import { Filesystem, Process } from './envd_schema.mjs'
import { api, apiUrl } from './helper.mjs'

const read = async reply => [reply.status, reply.status === 204 ? null : await reply.json()]

test('every call of the plan works, from create to kill', async () => {
  const asked = { templateID: 'base', timeout: 300, envVars: { KEY: 'value' }, metadata: { user: '123' }, network: { egressCIDRs: ['0.0.0.0/0'] } }
  const [status, made] = await read(await api('POST', '/sandboxes', { body: asked }))
  assert.equal(status, 201)
  const id = made.sandboxID, path = `/sandboxes/${id}`
  try {
    assert.ok(made.clientID && made.envdVersion && made.templateID === 'base' && !made.envdAccessToken)
    assert.ok((await read(await api('GET', '/sandboxes')))[1].some(s => s.sandboxID === id))
    for (const name of [path, `${path}-${made.clientID}`]) assert.equal((await read(await api('GET', name)))[1].metadata.user, '123')
    assert.equal((await api('POST', `${path}/timeout`, { body: { timeout: 300 } })).status, 204)
    assert.equal((await api('POST', `${path}/refreshes`, { body: { duration: 60 } })).status, 204)
    assert.equal((await api('GET', `${path}/metrics`)).status, 200)
    assert.equal((await api('GET', `${path}/logs`)).status, 200)

    const headers = { 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '49983', Authorization: `Bearer ${made.envdAccessToken ?? ''}` }
    const add = next => request => {
      for (const name of ['E2b-Sandbox-Id', 'E2b-Sandbox-Port']) request.header.set(name, headers[name])
      return next(request)
    }
    const transport = createConnectTransport({ baseUrl: apiUrl, httpVersion: '1.1', useBinaryFormat: true, interceptors: [add] })
    let out = '', code
    for await (const { event } of createClient(Process, transport).start({ process: { cmd: 'sh', args: ['-c', 'echo hello $KEY; pwd'], cwd: '/tmp' } }))
      if (event.event.case === 'data') out += Buffer.from(event.event.value.output.value)
      else if (event.event.case === 'end') code = event.event.value.exitCode
    assert.deepEqual([out, code], ['hello value\n/tmp\n', 0])

    const form = new FormData()
    form.append('file', new Blob(['content']), 'test.txt')
    assert.equal((await fetch(`${apiUrl}/files?path=/tmp/test.txt`, { method: 'POST', headers, body: form })).status, 200)
    const got = await fetch(`${apiUrl}/files?path=/tmp/test.txt`, { headers })
    assert.deepEqual([got.status, await got.text()], [200, 'content'])
    const files = createClient(Filesystem, transport)
    const { entries } = await files.listDir({ path: '/tmp' })
    assert.ok(entries.some(e => e.name === 'test.txt' && e.path === '/tmp/test.txt'))
    await files.makeDir({ path: '/tmp/d' })
    await files.move({ source: '/tmp/test.txt', destination: '/tmp/d/moved' })
    assert.equal((await files.stat({ path: '/tmp/d/moved' })).entry.size, 7n)
    await files.remove({ path: '/tmp/d' })
    for (const of of ['health', 'metrics']) assert.ok((await fetch(`${apiUrl}/${of}`, { headers })).ok, of)

    assert.equal((await api('POST', `${path}/pause`)).status, 204)
    assert.equal((await api('POST', `${path}/connect`, { body: { timeout: 60 } })).status, 201)
  } finally {
    assert.equal((await api('DELETE', path)).status, 204)
  }
  assert.equal((await api('GET', path)).status, 404)
})
