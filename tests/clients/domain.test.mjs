// With a domain and TLS, as a real installation has it: the newest SDK, and old ones that know no other way.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { apiKey, rejects } from './helper.mjs'

const domain = process.env.COVE_DOMAIN // with its port
for (const name of ['E2B_API_URL', 'E2B_SANDBOX_URL']) delete process.env[name]
process.env.E2B_DOMAIN = domain // what 2.0.1 asks for its domain where it forgets the option

for (const [module, version] of [['e2b', '2.51.0'], ['e2b-2-0', '2.0.1'], ['e2b-1', '1.13.2']]) {
  test(`${version}: create, commands, files, list, timeout, kill`, async () => {
    const { CommandExitError, Sandbox } = await import(module)
    const options = { apiKey, domain }
    const sandbox = await Sandbox.create({ ...options, metadata: { version }, timeoutMs: 60_000 })
    try {
      const result = await sandbox.commands.run('echo $((6 * 7)); id -un')
      assert.equal(result.stdout, '42\nuser\n')
      await rejects(sandbox.commands.run('exit 3'), CommandExitError)
      await sandbox.files.write('deep/file', 'grüße')
      assert.equal(await sandbox.files.read('deep/file'), 'grüße')
      assert.deepEqual((await sandbox.files.list('deep')).map(e => e.name), ['file'])
      const events = []
      const watch = await sandbox.files.watchDir('deep', e => { events.push(e) })
      await sandbox.files.write('deep/other', '1')
      for (let i = 0; i < 500 && !events.length; i++) await new Promise(r => setTimeout(r, 20))
      assert.ok(events.length)
      await watch.stop()
      await sandbox.setTimeout(120_000)
      assert.equal(await sandbox.isRunning(), true)
      const listed = await Sandbox.list({ ...options, query: { metadata: { version } } })
      const items = Array.isArray(listed) ? listed : await listed.nextItems()
      assert.ok(items.some(s => s.sandboxId.startsWith(sandbox.sandboxId.split('-')[0])))
      assert.equal(sandbox.getHost(3000), `3000-${sandbox.sandboxId}.${domain}`)
      const url = await sandbox.downloadUrl('deep/file')
      assert.equal(await (await fetch(url)).text(), 'grüße')
    } finally {
      await sandbox.kill()
    }
    assert.equal(await sandbox.isRunning(), false)
  })
}

test('2.0.1: a paused sandbox is resumed by connect', async () => {
  const { Sandbox } = await import('e2b-2-0')
  const options = { apiKey, domain }
  const sandbox = await Sandbox.create({ ...options, timeoutMs: 60_000 })
  try {
    await sandbox.files.write('kept', 'yes')
    await sandbox.betaPause()
    const again = await Sandbox.connect(sandbox.sandboxId, options)
    assert.equal(await again.files.read('kept'), 'yes')
  } finally {
    await sandbox.kill()
  }
})

test('a key of metadata with an underscore comes back with a dash', async () => {
  const { Sandbox, InvalidArgumentError } = await import('e2b')
  const sandbox = await Sandbox.create({ apiKey, domain })
  try {
    const written = await sandbox.files.write('m', 'x', { metadata: { some_name: 'a', 'my-key': 'b' } })
    assert.deepEqual(written.metadata, { 'some-name': 'a', 'my-key': 'b' })
    assert.deepEqual((await sandbox.files.getInfo('m')).metadata, { 'some-name': 'a', 'my-key': 'b' })
    await assert.rejects(sandbox.files.write('m', 'y', { metadata: { a_b: '1', 'a-b': '2' } }), InvalidArgumentError)
    assert.equal(await sandbox.files.read('m'), 'x')
  } finally {
    await sandbox.kill()
  }
})

test('a program inside is reached at PORT-ID.DOMAIN, its files by a signed address', async () => {
  const { Sandbox } = await import('e2b')
  const sandbox = await Sandbox.create({ apiKey, domain })
  try {
    await sandbox.files.write('index.html', 'from inside')
    await sandbox.commands.run('python3 -m http.server 8000', { background: true, timeoutMs: 0 })
    let text = ''
    for (let i = 0; i < 500 && text !== 'from inside'; i++) {
      text = await (await fetch(`https://${sandbox.getHost(8000)}/index.html`)).text()
      await new Promise(r => setTimeout(r, 20))
    }
    assert.equal(text, 'from inside')
    const closed = await fetch(`https://${sandbox.getHost(8001)}/`)
    assert.equal(closed.status, 502)
  } finally {
    await sandbox.kill()
  }
  const gone = await fetch(`https://${sandbox.getHost(8000)}/`)
  assert.equal(gone.status, 502)
  assert.equal((await gone.json()).message, 'The sandbox was not found')
})
