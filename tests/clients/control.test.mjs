// The control plane beside the life of a sandbox: metrics, logs, network, idempotency, waking by traffic.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ALL_TRAFFIC, Sandbox, SandboxError, SandboxNotFoundError } from 'e2b'
import { api, apiUrl, envd, otherKey, rejects, until, withSandbox } from './helper.mjs'

test('metrics: samples of cpu, memory and disk, the first within seconds, by time', withSandbox(async sandbox => {
  await sandbox.commands.run('dd if=/dev/urandom of=big bs=1M count=20 2>/dev/null && sync')
  const first = await until(async () => (await sandbox.getMetrics())[0], 'a first sample', 30000)
  assert.ok(first.memUsed > 0 && first.memUsed < first.memTotal)
  assert.ok(first.cpuCount >= 1 && first.diskTotal > 0)
  assert.ok(Math.abs(first.timestamp - Date.now()) < 30_000)
  const busy = await sandbox.commands.run('while :; do :; done', { background: true, timeoutMs: 60000 })
  await until(async () => (await sandbox.getMetrics()).some(s => s.cpuUsedPct > 10 && s.diskUsed > 20e6), 'a sample of a busy sandbox', 30000)
  await busy.kill()
  assert.deepEqual(await sandbox.getMetrics({ start: new Date(Date.now() - 7200e3), end: new Date(Date.now() - 3600e3) }), [])
  const many = await (await api('GET', `/sandboxes/metrics?sandbox_ids=${sandbox.sandboxId},i00000000000000000000`)).json()
  assert.deepEqual(Object.keys(many.sandboxes), [sandbox.sandboxId])
  const now = await (await envd(sandbox.sandboxId, 'GET', '/metrics', { token: sandbox.envdAccessToken })).json()
  assert.ok(now.mem_used > 0 && now.disk_used > 0 && now.cpu_count >= 1)
  assert.equal((await envd(sandbox.sandboxId, 'GET', '/metrics')).status, 401)
  assert.equal((await api('GET', `/sandboxes/${sandbox.sandboxId}/metrics?start=9&end=1`)).status, 400)
  await sandbox.kill()
  await rejects(sandbox.getMetrics(), SandboxNotFoundError)
}))

test('logs: what ran, what it wrote and how it ended; both versions', withSandbox(async sandbox => {
  await sandbox.commands.run('echo to-stdout; echo to-stderr >&2; exit 3').catch(() => {})
  const path = `/sandboxes/${sandbox.sandboxId}/logs`
  const { logs, logEntries } = await (await api('GET', path)).json()
  const lines = logs.map(l => JSON.parse(l.line))
  for (const line of lines) assert.ok(['debug', 'info', 'warn', 'error'].includes(line.level) && line.logger)
  assert.deepEqual(lines.map(l => l.message), logEntries.map(l => l.message))
  const find = text => lines.find(l => l.message.includes(text))
  assert.equal(find('process started: ').level, 'info')
  assert.ok(find('to-stdout') && find('to-stderr') && find('process ended: '))
  assert.equal(lines.find(l => l.message === 'to-stderr').level, 'error')
  const last = Date.parse(logs.at(-1).timestamp)
  assert.deepEqual((await (await api('GET', `${path}?start=${last + 1}`)).json()).logs, [])
  assert.equal((await (await api('GET', `${path}?limit=1`)).json()).logs.length, 1)
  const v2 = async query => (await (await api('GET', `/v2${path}?${query}`)).json()).logs
  assert.deepEqual((await v2('direction=forward')).map(l => l.message), (await v2('')).map(l => l.message).reverse())
  assert.deepEqual((await v2('search=to-std&level=error')).map(l => l.message), ['to-stderr'])
  assert.equal((await api('GET', `/v2${path}?direction=up`)).status, 400)
  assert.equal((await api('GET', path, { key: otherKey })).status, 404)
}))

test('Idempotency-Key: the same key is the same sandbox, also at the same moment; another tenant’s is its own', async () => {
  const key = `once-${Date.now()}`
  const create = (key, options = {}) => api('POST', '/v2/sandboxes', { body: { templateID: 'base', timeout: 60 }, headers: { 'Idempotency-Key': key }, ...options })
  const replies = await Promise.all(Array.from({ length: 5 }, () => create(key)))
  const made = await Promise.all(replies.map(r => r.json()))
  const ids = new Set(made.map(s => s.sandboxID))
  try {
    assert.deepEqual(replies.map(r => r.status), Array(5).fill(201))
    assert.equal(ids.size, 1)
    const other = await (await create(key, { key: otherKey })).json()
    const second = await (await create(key + '-b')).json()
    assert.equal(new Set([...ids, other.sandboxID, second.sandboxID]).size, 3)
    await api('DELETE', `/sandboxes/${other.sandboxID}`, { key: otherKey })
    await api('DELETE', `/sandboxes/${second.sandboxID}`)
    const sandbox = await Sandbox.connect(made[0].sandboxID)
    assert.equal((await sandbox.commands.run('echo hi')).stdout, 'hi\n')
    for (const bad of ['UPPER', 'x'.repeat(256), 'a_b']) assert.equal((await create(bad)).status, 400, bad)
  } finally {
    for (const id of ids) await api('DELETE', `/sandboxes/${id}`)
  }
  const before = (await (await api('GET', '/v2/sandboxes')).json()).length
  const again = await create(key)
  assert.equal(again.status, 201)
  assert.deepEqual(await again.json(), made[0], 'the answer of the first call, though the sandbox has ended')
  assert.equal((await api('GET', `/sandboxes/${made[0].sandboxID}`)).status, 404)
  assert.equal((await (await api('GET', '/v2/sandboxes')).json()).length, before, 'and no second sandbox')
})

test('errors say whether trying again helps', withSandbox(async sandbox => {
  const missing = await api('GET', '/sandboxes/i00000000000000000000')
  assert.equal(missing.headers.get('should-retry'), 'false')
  const nobody = await api('GET', '/v2/sandboxes', { key: 'e2b_00' })
  assert.equal(nobody.status, 401)
  assert.equal(nobody.headers.get('should-retry'), 'false')
  assert.deepEqual(Object.keys(await nobody.json()).filter(k => ['code', 'message'].includes(k)), ['code', 'message'])
  assert.equal((await api('POST', '/v2/sandboxes', { body: { templateID: 'base', timeout: 'x' } })).headers.get('should-retry'), 'false')
}))

test('network: nothing, a list, and a change while it runs', async () => {
  const sandbox = await Sandbox.create({ network: { denyOut: [ALL_TRAFFIC], allowOut: ['192.0.2.1', '*.example.test'] } })
  try {
    const info = await (await api('GET', `/sandboxes/${sandbox.sandboxId}`)).json()
    assert.deepEqual(info.network.allowOut, ['192.0.2.1', '*.example.test'])
    await sandbox.updateNetwork({ denyOut: ['198.51.100.0/24'] })
    const after = await (await api('GET', `/sandboxes/${sandbox.sandboxId}`)).json()
    assert.deepEqual(after.network.denyOut, ['198.51.100.0/24'])
    assert.equal(after.network.allowOut, undefined)
    await rejects(sandbox.updateNetwork({ allowOut: ['example.test'] }), SandboxError, /When specifying allowed domains/)
    await rejects(sandbox.updateNetwork({ denyOut: ['nonsense!'] }), SandboxError, /network.denyOut: 'nonsense!'/)
    await sandbox.pause()
    const paused = await api('PUT', `/sandboxes/${sandbox.sandboxId}/network`, { body: {} })
    assert.equal(paused.status, 409)
  } finally {
    await sandbox.kill()
  }
  await rejects(sandbox.updateNetwork({}), SandboxNotFoundError)
  const bad = await api('POST', '/v2/sandboxes', { body: { templateID: 'base', network: { allowOut: ['a.test'] } } })
  assert.equal(bad.status, 400)
})

test('allowPublicTraffic false: a traffic token of its own, which opens no files', async () => {
  const sandbox = await Sandbox.create({ network: { allowPublicTraffic: false } })
  try {
    assert.ok(sandbox.trafficAccessToken)
    assert.notEqual(sandbox.trafficAccessToken, sandbox.envdAccessToken)
    const reply = await envd(sandbox.sandboxId, 'GET', '/files?path=/etc/passwd', { token: sandbox.trafficAccessToken })
    assert.equal(reply.status, 401)
    const open = await api('POST', '/sandboxes', { body: { templateID: 'base', network: { allowPublicTraffic: false } } })
    assert.equal(open.status, 400)
  } finally {
    await sandbox.kill()
  }
})

test('autoResume: a call to a paused sandbox wakes it, /health does not; without it there is nothing there', async () => {
  const { sandboxID, envdAccessToken } = await (await api('POST', '/v2/sandboxes',
    { body: { templateID: 'base', timeout: 60, autoPause: true, autoResume: { enabled: true } } })).json()
  const read = (token = envdAccessToken) => envd(sandboxID, 'GET', '/files?path=/etc/hostname', { token })
  try {
    assert.equal((await api('POST', `/sandboxes/${sandboxID}/pause`)).status, 204)
    assert.equal((await envd(sandboxID, 'GET', '/health')).status, 502)
    assert.equal((await read('wrong')).status, 401)
    assert.equal((await (await api('GET', `/sandboxes/${sandboxID}`)).json()).state, 'paused')
    assert.equal((await read()).status, 200)
    const info = await (await api('GET', `/sandboxes/${sandboxID}`)).json()
    assert.equal(info.state, 'running')
    assert.ok(Date.parse(info.endAt) - Date.now() > 200_000, info.endAt)
  } finally {
    await api('DELETE', `/sandboxes/${sandboxID}`)
  }
})

test('pause, resume and connect of the old version', async () => {
  const { sandboxID } = await (await api('POST', '/sandboxes', { body: { templateID: 'base', timeout: 60, secure: true } })).json()
  const post = (path, body) => api('POST', `/sandboxes/${sandboxID}/${path}`, { body })
  try {
    assert.equal((await post('resume', { timeout: 60 })).status, 409)
    assert.equal((await post('pause', {})).status, 204)
    assert.equal((await post('pause', {})).status, 409)
    assert.equal((await post('timeout', { timeout: 60 })).status, 404)
    assert.equal((await post('resume', { timeout: 60 })).status, 201)
    assert.equal((await post('connect', { timeout: 60 })).status, 200)
    assert.equal((await post('pause')).status, 204)
    const woken = await post('connect', { timeout: 60 })
    assert.deepEqual([woken.status, (await woken.json()).sandboxID], [201, sandboxID])
    assert.equal((await post('connect', {})).status, 400)
  } finally {
    await api('DELETE', `/sandboxes/${sandboxID}`)
  }
})

test('envs: what every process gets, for whoever has the token', withSandbox(async sandbox => {
  const get = token => envd(sandbox.sandboxId, 'GET', '/envs', { token })
  const envs = await (await get(sandbox.envdAccessToken)).json()
  assert.deepEqual([envs.MINE, envs.E2B_SANDBOX, envs.E2B_SANDBOX_ID], ['yes', 'true', sandbox.sandboxId])
  assert.equal((await sandbox.commands.run('echo $MINE')).stdout, 'yes\n')
  assert.equal((await get()).status, 401)
}, { envs: { MINE: 'yes' } }))

test('teams and keys: a tenant is a team, its keys can be seen and not changed', async () => {
  const [team] = await (await api('GET', '/teams')).json()
  assert.ok(team.isDefault && team.name && /^[0-9a-f-]{36}$/.test(team.teamID))
  const keys = await (await api('GET', '/api-keys')).json()
  assert.ok(keys.length >= 1 && keys[0].mask.prefix === 'e2b_')
  const others = await (await api('GET', '/api-keys', { key: otherKey })).json()
  assert.deepEqual(keys.filter(k => others.some(o => o.id === k.id)), [])
  assert.equal((await api('POST', '/api-keys', { body: { name: 'x' } })).status, 501)
})

test('another tenant finds nothing at any endpoint, in the same words as of what never was', withSandbox(async sandbox => {
  const calls = [['GET', ''], ['DELETE', ''], ['POST', '/connect', { timeout: 60 }], ['POST', '/timeout', { timeout: 60 }], ['POST', '/refreshes', { duration: 60 }],
    ['POST', '/pause', {}], ['POST', '/resume', { timeout: 60 }], ['PUT', '/network', {}], ['GET', '/metrics'], ['GET', '/logs'], ['POST', '/fork', {}], ['POST', '/snapshots', {}]]
  const never = 'i' + '0'.repeat(19)
  const tell = async (method, path, body) => {
    const reply = await api(method, path, { body, key: otherKey })
    return [reply.status, (await reply.text()).replaceAll(sandbox.sandboxId, 'ID').replaceAll(never, 'ID')]
  }
  for (const [method, path, body] of calls) {
    const [status, text] = await tell(method, `/sandboxes/${sandbox.sandboxId}${path}`, body)
    assert.equal(status, 404, `${method} ${path}: ${text}`)
    assert.deepEqual([status, text], await tell(method, `/sandboxes/${never}${path}`, body))
  }
  for (const path of ['/connect', '/logs']) {
    const method = path === '/logs' ? 'GET' : 'POST'
    assert.equal((await tell(method, `/v2/sandboxes/${sandbox.sandboxId}${path}`, method === 'POST' ? {} : undefined))[0], 404)
  }
  const listed = await (await api('GET', '/v2/sandboxes', { key: otherKey })).json()
  assert.ok(!listed.some(s => s.sandboxID === sandbox.sandboxId))
  const snapshot = await sandbox.createSnapshot()
  try {
    assert.deepEqual(await (await api('GET', `/snapshots?sandboxID=${sandbox.sandboxId}`, { key: otherKey })).json(), [])
    assert.equal((await tell('DELETE', `/templates/${snapshot.snapshotId}`))[0], 404)
    assert.equal((await tell('POST', '/v2/sandboxes', { templateID: snapshot.snapshotId }))[0], 404)
  } finally {
    await Sandbox.deleteSnapshot(snapshot.snapshotId)
  }
  const { sandboxes } = await (await api('GET', `/sandboxes/metrics?sandbox_ids=${sandbox.sandboxId}`, { key: otherKey })).json()
  assert.deepEqual(sandboxes, {})
  const rpc = { headers: { 'X-API-Key': otherKey, 'Content-Type': 'application/json' }, body: '{}' }
  for (const call of ['process.Process/Connect', 'process.Process/Start', 'process.Process/SendSignal', 'process.Process/Update', 'process.Process/SendInput', 'filesystem.Filesystem/Stat',
    'filesystem.Filesystem/ListDir', 'filesystem.Filesystem/Remove', 'filesystem.Filesystem/CreateWatcher'])
    assert.equal((await envd(sandbox.sandboxId, 'POST', `/${call}`, rpc)).status, 401, call)
  for (const call of ['/files?path=x', '/metrics', '/envs'])
    assert.equal((await envd(sandbox.sandboxId, 'GET', call, { headers: { 'X-API-Key': otherKey } })).status, 401, call)
  assert.equal((await envd(sandbox.sandboxId, 'POST', '/process.Process/List', { headers: { 'X-API-Key': otherKey, 'Content-Type': 'application/json' }, body: '{}' })).status, 401)
  assert.equal((await sandbox.commands.run('echo still here')).stdout, 'still here\n')
}))

test('pause without memory: the files come back, the processes do not; it is listed meanwhile', withSandbox(async sandbox => {
  await sandbox.files.write('kept', 'yes')
  await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  const id = sandbox.sandboxId
  assert.equal((await api('POST', `/sandboxes/${id}/pause`, { body: { memory: false } })).status, 204)
  assert.equal((await api('POST', `/sandboxes/${id}/pause`, { body: { memory: false } })).status, 409)
  assert.equal((await (await api('GET', `/sandboxes/${id}`)).json()).state, 'paused')
  assert.ok((await (await api('GET', '/v2/sandboxes?state=paused')).json()).some(s => s.sandboxID === id))
  assert.equal((await envd(id, 'GET', '/health')).status, 502)
  assert.equal((await api('GET', `/sandboxes/${id}`, { key: otherKey })).status, 404)
  const again = await Sandbox.connect(id)
  assert.equal(await again.files.read('kept'), 'yes')
  assert.deepEqual(await again.commands.list(), [])
}))

test('at one address the headers name any port of the sandbox, and its traffic token opens a private one', withSandbox(async sandbox => {
  await sandbox.commands.run('mkdir -p www && echo from inside > www/x && cd www && nohup python3 -m http.server 8000 >/dev/null 2>&1 &')
  const get = (port, headers = {}) => fetch(`${apiUrl}/x`, { headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': String(port), ...headers } })
  const token = { 'E2b-Traffic-Access-Token': sandbox.trafficAccessToken }
  await until(async () => (await get(8000, token)).status === 200, 'the server inside')
  assert.equal(await (await get(8000, token)).text(), 'from inside\n')
  assert.equal(await (await get(8000, { 'X-Access-Token': sandbox.envdAccessToken })).text(), 'from inside\n')
  assert.ok([401, 403].includes((await get(8000)).status))
  assert.ok([401, 403].includes((await get(8000, { 'E2b-Traffic-Access-Token': 'x' })).status))
  assert.equal((await get(8001, token)).status, 502)
}, { network: { allowPublicTraffic: false } }))
