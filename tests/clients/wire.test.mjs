// What the SDK leaves to HTTP: lists with their headers, errors of nginx, pages of other sites, pings on streams.
import assert from 'node:assert/strict'
import { createServer, request } from 'node:http'
import { test } from 'node:test'
import { Sandbox } from 'e2b'
import { api, apiKey, apiUrl, envd, envelope, envelopes, withSandbox } from './helper.mjs'

test('list: how many run in all, from a time on, of a template, the oldest first', withSandbox(async sandbox => {
  const list = async query => {
    const reply = await api('GET', `/v2/sandboxes?${query}`)
    assert.equal(reply.status, 200, query)
    return [await reply.json(), reply.headers]
  }
  const second = await Sandbox.create()
  try {
    const [page, headers] = await list('limit=1&state=running')
    assert.equal(page.length, 1)
    assert.ok(Number(headers.get('X-Total-Running')) >= 2 && headers.get('X-Next-Token'))
    const [all] = await list('order=asc')
    const times = all.map(s => Date.parse(s.startedAt))
    assert.deepEqual(times, [...times].sort((a, b) => a - b))
    const { startedAt } = all.find(s => s.sandboxID === second.sandboxId)
    const [since] = await list(`startedAfter=${encodeURIComponent(startedAt)}`)
    assert.ok(since.some(s => s.sandboxID === second.sandboxId), 'the time itself is included')
    assert.deepEqual((await list('startedAfter=2100-01-01T00:00:00Z'))[0], [])
    assert.deepEqual((await list('template=nothing'))[0], [])
    assert.ok((await list('template=base'))[0].some(s => s.sandboxID === sandbox.sandboxId))
  } finally {
    await second.kill()
  }
}))

test('errors of nginx itself have the code and the message that clients look for', async () => {
  const replies = { 413: await api('POST', '/v2/sandboxes', { body: { metadata: { a: 'x'.repeat(24 << 20) } } }), 401: await api('GET', '/v2/sandboxes', { key: 'wrong' }),
    400: await fetch(`${apiUrl}/sandboxes/%zz`, { headers: { 'X-API-Key': apiKey } }) }
  for (const [status, reply] of Object.entries(replies)) {
    const body = await reply.json()
    assert.deepEqual([reply.status, body.code, typeof body.message, reply.headers.get('Should-Retry')], [Number(status), Number(status), 'string', 'false'])
  }
})

// What the SDK sends, as a browser would have to ask for it before.
async function recorded(use) {
  const seen = new Map()
  const proxy = createServer((asked, answer) => {
    const path = asked.url.split('?')[0]
    seen.set(`${asked.method} ${path}`, new Set([...(seen.get(`${asked.method} ${path}`) ?? []), ...Object.keys(asked.headers)]))
    const target = new URL(asked.url, apiUrl)
    asked.pipe(request(target, { method: asked.method, headers: asked.headers }, reply => {
      answer.writeHead(reply.statusCode, reply.headers)
      reply.pipe(answer)
    }))
  })
  await new Promise(done => proxy.listen(0, '127.0.0.1', done))
  try {
    await use(`http://127.0.0.1:${proxy.address().port}`)
  } finally {
    proxy.closeAllConnections()
    proxy.close()
  }
  return seen
}

test('a page of another site may send all that the SDK sends, and read what it needs', async () => {
  const seen = await recorded(async url => {
    const sandbox = await Sandbox.create({ apiUrl: url, sandboxUrl: url })
    try {
      assert.equal((await sandbox.commands.run('echo hi')).stdout, 'hi\n')
      await sandbox.files.write('a', 'b')
      assert.equal(await sandbox.files.read('a'), 'b')
    } finally {
      await sandbox.kill()
    }
  })
  const ownOfBrowsers = new Set(['host', 'connection', 'content-length', 'transfer-encoding', 'accept', 'accept-encoding', 'accept-language', 'sec-fetch-mode', 'origin', 'expect'])
  assert.ok(seen.size >= 5, [...seen.keys()].join())
  for (const [call, headers] of seen) {
    const [method, path] = call.split(' '), wanted = [...headers].filter(name => !ownOfBrowsers.has(name))
    const reply = await fetch(apiUrl + path, { method: 'OPTIONS', headers: { Origin: 'https://page.example', 'Access-Control-Request-Method': method,
      'Access-Control-Request-Headers': wanted.join() } })
    const allowed = new Set((reply.headers.get('Access-Control-Allow-Headers') ?? '').toLowerCase().split(/, */))
    assert.deepEqual([call, wanted.filter(name => !allowed.has(name))], [call, []])
    assert.ok(reply.ok && reply.headers.get('Access-Control-Allow-Methods').includes(method), call)
  }
  const list = await api('GET', '/v2/sandboxes', { headers: { Origin: 'https://page.example' } })
  assert.ok(list.headers.get('Access-Control-Allow-Origin') && list.headers.get('Access-Control-Expose-Headers').includes('X-Next-Token'))
})

test('a stream on which nothing happens is pinged as often as its client asked', withSandbox(async sandbox => {
  const reply = await envd(sandbox.sandboxId, 'POST', '/process.Process/Start', { token: sandbox.envdAccessToken,
    headers: { 'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1', 'Keepalive-Ping-Interval': '1' },
    body: envelope({ process: { cmd: 'sleep', args: ['60'] } }) })
  const [start, ...pings] = await envelopes(reply, 3)
  assert.ok(start.event.start.pid > 0)
  assert.deepEqual(pings.map(p => Object.keys(p.event)), [['keepalive'], ['keepalive']])
}))
