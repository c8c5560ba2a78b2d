import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AuthenticationError, NotFoundError, Sandbox, SandboxError, SandboxNotFoundError, TimeoutError } from 'e2b'
import { api, apiKey, envd, otherKey, rejects, until, withSandbox } from './helper.mjs'

test('create: a sandbox runs, with the id, metadata and variables that were given', async () => {
  const sandbox = await Sandbox.create({ metadata: { purpose: 'test' }, envs: { COLOUR: 'blue' }, timeoutMs: 60_000 })
  try {
    assert.match(sandbox.sandboxId, /^[a-z0-9]+$/)
    assert.equal(await sandbox.isRunning(), true)
    assert.equal((await sandbox.commands.run('echo $COLOUR $E2B_SANDBOX $E2B_SANDBOX_ID')).stdout, `blue true ${sandbox.sandboxId}\n`)
    const info = await sandbox.getInfo()
    assert.equal(info.templateId, 'base')
    assert.equal(info.state, 'running')
    assert.deepEqual(info.metadata, { purpose: 'test' })
    assert.equal(info.endAt - info.startedAt, 60_000)
    assert.deepEqual(info.lifecycle, { onTimeout: 'kill', autoResume: false })
  } finally {
    await sandbox.kill()
  }
})

test('create: a template that is not there is an error that names it', async () => {
  await rejects(Sandbox.create('no-such-template'), SandboxError, /404.*no-such-template/)
})

test('create: a timeout that is no time is refused', async () => {
  for (const timeout of [0, -5, 100_000_000]) {
    const reply = await api('POST', '/sandboxes', { body: { templateID: 'base', timeout } })
    assert.equal(reply.status, 400)
    assert.equal(reply.headers.get('should-retry'), 'false')
    assert.equal((await reply.json()).code, 400)
  }
})

test('create: bad bodies are 400 and name the field', async () => {
  const cases = [
    ['{}', /templateID/], ['[]', /object/], ['{"templateID":3}', /templateID/], ['{', /JSON/],
    ['{"templateID":"base","metadata":{"a":1}}', /metadata/], ['{"templateID":"base","envVars":{"A=B":"x"}}', /A=B/],
    ['{"templateID":"base","timeout":"soon"}', /timeout/],
  ]
  for (const [text, message] of cases) {
    const reply = await fetch(process.env.E2B_API_URL + '/v2/sandboxes', { method: 'POST', headers: { 'X-API-Key': apiKey }, body: text })
    assert.equal(reply.status, 400, text)
    assert.match((await reply.json()).message, message)
  }
})

test('a wrong key is an AuthenticationError, and so is none', async () => {
  await rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
  const reply = await api('GET', '/v2/sandboxes', { key: '' })
  assert.equal(reply.status, 401)
  assert.equal((await reply.json()).code, 401)
})

test('kill: true, then false; the sandbox answers 502 from then on', async () => {
  const sandbox = await Sandbox.create()
  assert.equal(await sandbox.kill(), true)
  assert.equal(await sandbox.kill(), false)
  assert.equal(await Sandbox.kill('no-such-sandbox'), false)
  assert.equal(await sandbox.isRunning(), false)
  const health = await envd(sandbox.sandboxId, 'GET', '/health')
  assert.equal(health.status, 502)
  assert.deepEqual(await health.json(), { sandboxId: sandbox.sandboxId, message: 'The sandbox was not found', code: 502 })
  await rejects(sandbox.getInfo(), SandboxNotFoundError)
  await rejects(sandbox.setTimeout(1000), SandboxNotFoundError)
  await rejects(Sandbox.connect(sandbox.sandboxId), SandboxNotFoundError)
})

test('a sandbox that is killed ends what runs in it, with the error for that', withSandbox(async sandbox => {
  const running = sandbox.commands.run('sleep 100')
  running.catch(() => {})
  await until(async () => (await sandbox.commands.list()).length === 1, 'the command runs')
  await sandbox.kill()
  await rejects(running, TimeoutError, /killed or reached its end of life/)
}))

for (const [how, end] of [['is killed', sandbox => sandbox.kill()], ['reaches its end', sandbox => sandbox.setTimeout(1000)]])
  test(`a sandbox that ${how} cuts a command, a terminal, a watch, a download and an upload`, withSandbox(async sandbox => {
    const slowly = () => new Promise(resolve => setTimeout(resolve, 20))
    const started = new Set()
    let over = false
    const download = async () => {
      for await (const _ of await sandbox.files.read('big', { format: 'stream', requestTimeoutMs: 0 })) { started.add('download'); await slowly(); if (over) return }
    }
    const endless = new ReadableStream({ async pull(to) { started.add('upload'); await slowly(); over ? to.close() : to.enqueue(new Uint8Array(100_000)) } })
    await sandbox.commands.run('truncate -s 200G big || truncate -s 2G big')
    const cut = [sandbox.commands.run('sleep 100', { timeoutMs: 0 }), (await sandbox.pty.create({ cols: 80, rows: 24, onData() {}, timeoutMs: 0 })).wait(),
      new Promise((resolve, reject) => sandbox.files.watchDir('/tmp', () => {}, { timeoutMs: 0, onExit: reject }).then(() => started.add('watch'), reject))]
    const broken = [download(), sandbox.files.write('up', endless, { useOctetStream: true, requestTimeoutMs: 0 })]
    for (const promise of [...cut, ...broken]) promise.catch(() => {})
    await until(async () => started.size === 3 && (await sandbox.commands.list()).length === 2, 'all of them')
    await end(sandbox)
    for (const promise of cut) await rejects(promise, TimeoutError, /killed or reached its end of life/)
    for (const promise of broken) await assert.rejects(Promise.race([promise, new Promise(resolve => setTimeout(() => { over = true; resolve() }, 20_000))]))
  }))

test('setTimeout: shorter and longer; at the end the sandbox is gone', withSandbox(async sandbox => {
  await sandbox.setTimeout(120_000)
  const longer = await sandbox.getInfo()
  assert.ok(longer.endAt - Date.now() > 100_000)
  await sandbox.setTimeout(1000)
  await until(async () => !(await sandbox.isRunning()), 'its end')
}))

test('connect: the same sandbox, whose end never comes nearer', withSandbox(async sandbox => {
  await sandbox.files.write('note', 'x')
  const before = await sandbox.getInfo()
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 10_000 })
  assert.equal(await again.files.read('note'), 'x')
  assert.equal((await again.getInfo()).endAt.getTime(), before.endAt.getTime())
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 600_000 })
  assert.ok((await again.getInfo()).endAt > before.endAt)
}))

test('refreshes: longer, never shorter', withSandbox(async sandbox => {
  const before = (await sandbox.getInfo()).endAt
  assert.equal((await api('POST', `/sandboxes/${sandbox.sandboxId}/refreshes`, { body: { duration: 20 } })).status, 204)
  assert.equal((await sandbox.getInfo()).endAt.getTime(), before.getTime())
  assert.equal((await api('POST', `/sandboxes/${sandbox.sandboxId}/refreshes`, { body: { duration: 3600 } })).status, 204)
  assert.ok((await sandbox.getInfo()).endAt > before)
  assert.equal((await api('POST', `/sandboxes/${sandbox.sandboxId}/refreshes`, { body: { duration: 3601 } })).status, 400)
}))

test('pause and resume: processes go on with the same pid, files and token stay', withSandbox(async sandbox => {
  const command = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  assert.equal(await sandbox.pause(), true)
  assert.equal(await sandbox.pause(), false)
  assert.equal(await sandbox.isRunning(), false)
  assert.equal((await sandbox.getInfo()).state, 'paused')
  assert.equal((await api('POST', `/sandboxes/${sandbox.sandboxId}/timeout`, { body: { timeout: 60 } })).status, 404)
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
  assert.equal(await again.isRunning(), true)
  assert.equal((await again.getInfo()).state, 'running')
  assert.deepEqual((await again.commands.list()).map(p => p.pid), [command.pid])
  assert.equal((await api('POST', `/sandboxes/${sandbox.sandboxId}/resume`, { body: { timeout: 60 } })).status, 409)
  assert.equal((await sandbox.commands.run('echo on')).stdout, 'on\n')
}))

test('autoPause: at the end of its time a sandbox is paused, not killed', async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 1000, lifecycle: { onTimeout: 'pause' } })
  try {
    await until(async () => (await sandbox.getInfo()).state === 'paused', 'the pause')
    const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
    assert.equal((await again.commands.run('echo on')).stdout, 'on\n')
  } finally {
    await sandbox.kill()
  }
})

test('list: by metadata and state, newest first, in pages', async () => {
  const mark = `k e&=${Math.random()}`
  const made = []
  for (let i = 0; i < 5; i++) made.push(await Sandbox.create({ metadata: { mark, number: `${i}` } }))
  try {
    await made[1].pause()
    const pages = Sandbox.list({ query: { metadata: { mark } }, limit: 2 })
    const seen = []
    while (pages.hasNext) seen.push(...(await pages.nextItems()))
    assert.deepEqual(seen.map(s => s.sandboxId), made.map(s => s.sandboxId).reverse())
    const paused = await Sandbox.list({ query: { metadata: { mark }, state: ['paused'] } }).nextItems()
    assert.deepEqual(paused.map(s => s.metadata.number), ['1'])
    assert.deepEqual(await Sandbox.list({ query: { metadata: { mark, number: '9' } } }).nextItems(), [])
    const old = await (await api('GET', '/sandboxes')).json()
    assert.ok(old.some(s => s.sandboxID === made[0].sandboxId) && old.every(s => s.state === 'running'))
  } finally {
    for (const sandbox of made) await sandbox.kill()
  }
})

test('list: bad questions are 400', async () => {
  for (const query of ['limit=0', 'limit=101', 'limit=x', 'order=up', 'state=dead', 'nextToken=zzz', 'startedAfter=now', 'metadata=%2525zz'])
    assert.equal((await api('GET', `/v2/sandboxes?${query}`)).status, 400, query)
})

test("another tenant's sandbox is not there: 404 everywhere, 502 at envd or 401 with its own token", withSandbox(async sandbox => {
  const id = sandbox.sandboxId
  const calls = [
    ['GET', `/sandboxes/${id}`], ['DELETE', `/sandboxes/${id}`], ['POST', `/sandboxes/${id}/timeout`, { timeout: 5 }],
    ['POST', `/sandboxes/${id}/pause`], ['POST', `/sandboxes/${id}/resume`], ['POST', `/sandboxes/${id}/refreshes`],
    ['POST', `/sandboxes/${id}/connect`, { timeout: 5 }], ['POST', `/v2/sandboxes/${id}/connect`],
  ]
  for (const [method, path, body] of calls) {
    const reply = await api(method, path, { body, key: otherKey })
    assert.equal(reply.status, 404, `${method} ${path}`)
    assert.equal((await reply.json()).code, 404)
  }
  const list = await (await api('GET', '/v2/sandboxes', { key: otherKey })).json()
  assert.deepEqual(list.filter(s => s.sandboxID === id), [])
  const files = await envd(id, 'GET', '/files?path=/etc/passwd', { headers: { 'X-API-Key': otherKey } })
  assert.equal(files.status, 401)
  assert.equal(await sandbox.isRunning(), true)
}))

test('a secured sandbox wants its token; one that was made without needs none', withSandbox(async sandbox => {
  const rpc = { headers: { 'Content-Type': 'application/json' }, body: '{}' }
  assert.equal((await envd(sandbox.sandboxId, 'POST', '/process.Process/List', rpc)).status, 401)
  assert.equal((await envd(sandbox.sandboxId, 'POST', '/process.Process/List', { ...rpc, token: 'f'.repeat(64) })).status, 401)
  const made = await (await api('POST', '/sandboxes', { body: { templateID: 'base', timeout: 60 } })).json()
  assert.equal(made.envdAccessToken, undefined)
  assert.equal(made.domain, null)
  assert.equal((await envd(made.sandboxID, 'POST', '/process.Process/List', rpc)).status, 200)
  assert.equal((await api('DELETE', `/sandboxes/${made.sandboxID}`)).status, 204)
}))

test('what is not built says so', async () => {
  const calls = [['GET', '/volumes'], ['GET', '/secrets'], ['GET', '/volumecontent/x/dir'], ['POST', '/access-tokens'], ['DELETE', '/access-tokens/x'],
    ['GET', '/teams/x/metrics'], ['GET', '/teams/x/metrics/max'], ['GET', '/events/sandboxes'], ['GET', '/events/sandboxes/x'], ['POST', '/events/webhooks'],
    ['PATCH', '/events/webhooks/x'], ['POST', '/templates'], ['POST', '/v2/templates'], ['POST', '/templates/x'], ['POST', '/templates/x/builds/y'], ['POST', '/api-keys'],
    ['DELETE', '/api-keys/x']]
  for (const [method, path] of calls) {
    const reply = await api(method, path)
    assert.equal(reply.status, 501, path)
    assert.equal((await reply.json()).code, 501)
    assert.equal(reply.headers.get('Should-Retry'), 'false')
  }
})

test('what is not built is refused by its name where a sandbox asks for it, and nothing is made', async () => {
  const count = async () => (await (await api('GET', '/v2/sandboxes')).json()).length
  const before = await count()
  const asked = {
    'iam.tokens': { iam: { tokens: { t: { audience: 'a', tokenType: 'JWT-SVID' } } } },
    'network.rules': { network: { rules: { 'example.com': [{ transform: { headers: { A: 'b' } } }] } } },
    'network.httpsPorts': { network: { httpsPorts: [8443] } },
    'network.egressProxy': { network: { egressProxy: { address: 'proxy:1080' } } },
    'network.maskRequestHost': { network: { maskRequestHost: 'localhost:${PORT}' } },
    volumeMounts: { volumeMounts: [{ name: 'v', path: '/v' }] },
  }
  for (const [name, body] of Object.entries(asked))
    for (const path of ['/v2/sandboxes', '/sandboxes']) {
      const reply = await api('POST', path, { body: { templateID: 'base', ...body } })
      assert.equal(reply.status, 501, name)
      assert.match((await reply.json()).message, new RegExp(`^${name}: not available`))
    }
  assert.equal(await count(), before)
  const sandbox = await Sandbox.create()
  try {
    const put = body => api('PUT', `/sandboxes/${sandbox.sandboxId}/network`, { body })
    assert.equal((await put(asked['network.rules'].network)).status, 501)
    assert.equal((await put({ rules: {} })).status, 204)
  } finally {
    await sandbox.kill()
  }
  const empty = await api('POST', '/v2/sandboxes', { body: { templateID: 'base', mcp: {}, iam: { tokens: {} }, network: { rules: {}, httpsPorts: [] }, volumeMounts: [] } })
  assert.equal(empty.status, 201)
  await api('DELETE', `/sandboxes/${(await empty.json()).sandboxID}`)
})

test('the files of a sandbox that never was are not found', async () => {
  const gone = await Sandbox.create()
  await gone.kill()
  await rejects(gone.files.read('x'), TimeoutError)
  assert.ok(NotFoundError)
})
