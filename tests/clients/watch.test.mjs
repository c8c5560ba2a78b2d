import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FileNotFoundError, FilesystemEventType, InvalidArgumentError } from 'e2b'
import { envd, rejects, until, withSandbox } from './helper.mjs'

// Watches, and gathers what is told.
async function watch(sandbox, path, options) {
  const events = []
  let exit = null
  const handle = await sandbox.files.watchDir(path, event => { events.push(event) }, { timeoutMs: 0, onExit: e => { exit = { error: e } }, ...options })
  return { events, handle, exit: () => exit, has: (type, name) => events.some(e => e.type === type && e.name === name) }
}

const call = async (sandbox, method, message) => {
  const reply = await envd(sandbox.sandboxId, 'POST', `/filesystem.Filesystem/${method}`,
    { token: sandbox.envdAccessToken, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(message) })
  return { status: reply.status, body: await reply.json() }
}

test('watchDir: create, write, chmod, rename and remove are told', withSandbox(async sandbox => {
  await sandbox.files.makeDir('dir')
  const w = await watch(sandbox, 'dir')
  await sandbox.commands.run('cd dir && echo 1 > a && chmod 600 a && mv a b && rm b')
  await until(() => w.has(FilesystemEventType.REMOVE, 'b'), 'the removal of b')
  for (const [type, name] of [['create', 'a'], ['write', 'a'], ['chmod', 'a'], ['rename', 'a'], ['create', 'b']])
    assert.ok(w.has(type, name), `${type} ${name}: ${JSON.stringify(w.events)}`)
  const order = ['create', 'rename', 'remove'].map(type => w.events.findIndex(e => e.type === type))
  assert.deepEqual(order, [...order].sort((a, b) => a - b))
  await w.handle.stop()
}))

test('watchDir: with entries, each event has what is at the path', withSandbox(async sandbox => {
  await sandbox.files.makeDir('dir')
  const w = await watch(sandbox, 'dir', { includeEntry: true })
  await sandbox.files.write('dir/x', '12345')
  const event = await until(() => w.events.find(e => e.entry?.name === 'x'), 'an event with its entry')
  assert.equal(event.entry.path, '/home/user/dir/x')
  assert.equal(event.entry.size, 5)
  await w.handle.stop()
}))

test('watchDir: recursive, directories that come later included; not recursive: nothing from below', withSandbox(async sandbox => {
  await sandbox.files.makeDir('dir/old')
  const all = await watch(sandbox, 'dir', { recursive: true })
  const flat = await watch(sandbox, 'dir')
  await sandbox.commands.run('cd dir && echo 1 > old/a && mkdir -p new/er && echo 2 > new/er/b')
  for (const name of ['old/a', 'new/er/b']) await until(() => all.has('create', name), name)
  // Only now is it renamed: a directory that has another name before its watch is there is told under that name alone.
  await sandbox.commands.run('cd dir && mv new moved && echo 3 > moved/er/c && mkdir -p brief/er && echo 4 > brief/er/d && mv brief kept && touch end')
  await until(() => all.has('create', 'end') && flat.has('create', 'end'), 'the last file')
  await until(() => all.has('create', 'moved/er/c'), 'moved/er/c')
  await until(() => all.has('create', 'brief/er/d') || all.has('create', 'kept/er/d'), 'kept/er/d')
  assert.deepEqual(flat.events.filter(e => e.name.includes('/')), [])
  await all.handle.stop()
  await flat.handle.stop()
}))

test('watchDir: 10,000 files change, and every one is told', withSandbox(async sandbox => {
  await sandbox.files.makeDir('many')
  const w = await watch(sandbox, 'many')
  await sandbox.commands.run('cd many && for i in $(seq 10000); do : > $i; done', { timeoutMs: 120000 })
  await until(() => new Set(w.events.filter(e => e.type === 'create').map(e => e.name)).size === 10000, '10,000 creations', 60000)
  await w.handle.stop()
}))

test('watchDir: a directory that vanishes ends the watch, which says so', withSandbox(async sandbox => {
  await sandbox.files.makeDir('dir')
  const w = await watch(sandbox, 'dir')
  await sandbox.commands.run('rm -r dir')
  const exit = await until(w.exit, 'the end of the watch')
  assert.match(exit.error?.message ?? '', /the watched directory is gone/)
  assert.ok(w.has('remove', '.'))
}))

test('watchDir: a missing directory, and a file', withSandbox(async sandbox => {
  await rejects(watch(sandbox, 'nope'), FileNotFoundError)
  await sandbox.files.write('file', '1')
  await rejects(watch(sandbox, 'file'), InvalidArgumentError)
}))

test('watchers: made, asked and removed; unknown ones are not found', withSandbox(async sandbox => {
  await sandbox.files.makeDir('dir/sub')
  const { body: { watcherId } } = await call(sandbox, 'CreateWatcher', { path: 'dir', recursive: true, includeEntry: true })
  assert.deepEqual((await call(sandbox, 'GetWatcherEvents', { watcherId })).body, {})
  await sandbox.files.write('dir/sub/x', '1')
  await sandbox.commands.run('mkdir dir/new && echo 1 > dir/new/y')
  const seen = []
  await until(async () => {
    seen.push(...((await call(sandbox, 'GetWatcherEvents', { watcherId })).body.events ?? []))
    return seen.some(e => e.name === 'sub/x') && seen.some(e => e.name === 'new/y')
  }, 'both files')
  assert.equal(seen.find(e => e.name === 'sub/x').entry.path, '/home/user/dir/sub/x')
  await sandbox.commands.run('echo 2 > dir/new/later')
  await until(async () => (await call(sandbox, 'GetWatcherEvents', { watcherId })).body.events?.some(e => e.name === 'new/later'), 'a file of the new directory')
  assert.equal((await call(sandbox, 'RemoveWatcher', { watcherId })).status, 200)
  for (const method of ['GetWatcherEvents', 'RemoveWatcher']) {
    const { status, body } = await call(sandbox, method, { watcherId })
    assert.equal(status, 404)
    assert.equal(body.code, 'not_found')
  }
  assert.equal((await call(sandbox, 'CreateWatcher', { path: 'nope' })).body.code, 'not_found')
}))
