import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, SandboxError, SandboxNotFoundError, Template } from 'e2b'
import { api, otherKey, rejects, until, withSandbox } from './helper.mjs'

const kill = sandboxes => Promise.all(sandboxes.map(s => s.kill().catch(() => {})))

test('snapshot: sandboxes made of it have its files, and go their own ways', withSandbox(async sandbox => {
  await sandbox.files.write('state', 'before')
  const snapshot = await sandbox.createSnapshot()
  const made = []
  try {
    await sandbox.files.write('state', 'after')
    made.push(await Sandbox.create(snapshot.snapshotId), await Sandbox.create(snapshot.snapshotId))
    for (const one of made) assert.equal(await one.files.read('state'), 'before')
    await made[0].files.write('state', 'own')
    assert.equal(await made[1].files.read('state'), 'before')
    assert.equal((await made[0].commands.run('stat -c %U state')).stdout, 'user\n')
    assert.equal(await sandbox.files.read('state'), 'after')
  } finally {
    await kill(made)
  }
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
  await rejects(Sandbox.create(snapshot.snapshotId), SandboxError)
}))

test('snapshot: a name, which the next one of that name takes over', withSandbox(async sandbox => {
  const name = `snap-${Date.now()}`
  await sandbox.files.write('v', '1')
  const first = await sandbox.createSnapshot({ name })
  await sandbox.files.write('v', '2')
  const second = await sandbox.createSnapshot({ name })
  assert.match(second.snapshotId, new RegExp(`/${name}:default$`))
  assert.equal(first.snapshotId, second.snapshotId)
  const made = [await Sandbox.create(name), await Sandbox.create(second.snapshotId)]
  for (const one of made) assert.equal(await one.files.read('v'), '2')
  await kill(made)
  const foreign = await api('POST', '/v2/sandboxes', { body: { templateID: second.snapshotId }, key: otherKey })
  assert.ok([403, 404].includes(foreign.status))
  assert.equal((await api('DELETE', `/templates/${encodeURIComponent(second.snapshotId)}`, { key: otherKey })).status, 404)
  assert.equal(await Sandbox.deleteSnapshot(second.snapshotId), true)
}))

test('snapshots: listed by pages, by sandbox and by name', withSandbox(async sandbox => {
  const made = []
  for (let i = 0; i < 3; i++) made.push(await sandbox.createSnapshot())
  const paginator = Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId, limit: 2 })
  const seen = []
  while (paginator.hasNext) seen.push(...(await paginator.nextItems()))
  assert.deepEqual(seen.map(s => s.snapshotId), made.map(s => s.snapshotId).reverse())
  assert.deepEqual(await (await api('GET', '/snapshots?sandboxID=i0000')).json(), [])
  assert.deepEqual(await (await api('GET', '/snapshots?name=none')).json(), [])
  assert.equal((await api('GET', '/snapshots?nextToken=x')).status, 400)
  assert.deepEqual(await (await api('GET', '/snapshots', { key: otherKey })).json(), [])
  for (const one of made) await Sandbox.deleteSnapshot(one.snapshotId)
}))

test('fork: new sandboxes with the files of the moment; the source goes on', withSandbox(async sandbox => {
  await sandbox.files.write('state', 'shared')
  const counter = await sandbox.commands.run('i=0; while :; do echo $((i++)); sleep 0.05; done', { background: true, timeoutMs: 0 })
  const forks = await sandbox.fork({ count: 3, timeoutMs: 60_000 })
  const made = forks.map(f => f.sandbox ?? f)
  try {
    assert.equal(made.length, 3)
    for (const one of made) {
      assert.equal(await one.files.read('state'), 'shared')
      assert.deepEqual(await one.commands.list(), [], 'processes are not forked')
    }
    const before = counter.stdout
    await until(() => counter.stdout.length > before.length, 'the source going on')
  } finally {
    await kill(made)
  }
  await sandbox.pause()
  assert.equal((await api('POST', `/sandboxes/${sandbox.sandboxId}/fork`, { body: {} })).status, 409)
  assert.equal((await api('POST', `/sandboxes/${sandbox.sandboxId}/fork`, { body: { count: 101 } })).status, 400)
  await sandbox.kill()
  await rejects(sandbox.fork(), SandboxNotFoundError)
}, { metadata: { forked: 'yes' } }))

test('templates: listed, found by their names', withSandbox(async sandbox => {
  const name = `listed-${Date.now()}`
  const { snapshotId } = await sandbox.createSnapshot({ name })
  const list = async key => (await (await api('GET', '/templates', { key })).json()).flatMap(t => t.names)
  const mine = await list()
  assert.ok(mine.includes('base') && mine.some(n => n.endsWith(`/${name}`)))
  assert.ok(!(await list(otherKey)).some(n => n.endsWith(`/${name}`)))
  const shown = await (await api('GET', '/templates/base')).json()
  const listed = (await (await api('GET', '/templates')).json()).find(t => t.templateID === 'base')
  assert.deepEqual([shown.templateID, shown.names, shown.aliases, shown.public], ['base', listed.names, listed.aliases, true])
  assert.deepEqual(shown.builds.map(b => [b.buildID, b.status, b.memoryMB]), [[listed.buildID, 'ready', listed.memoryMB]])
  for (const time of [listed.createdAt, listed.updatedAt, shown.createdAt, shown.builds[0].createdAt, shown.builds[0].finishedAt])
    assert.ok(Date.parse(time) > Date.parse('2020-01-01') && Date.parse(time) <= Date.now(), `the operator's template was made at ${time}`)
  assert.equal((await api('GET', '/templates/no-such-template')).status, 404)
  assert.equal(await Template.exists('base'), true)
  assert.equal(await Template.exists(name), true)
  assert.equal(await Template.exists('no-such-template'), false)
  assert.equal((await api('GET', `/templates/aliases/${name}`, { key: otherKey })).status, 404)
  await Sandbox.deleteSnapshot(snapshotId)
}))
