import assert from 'node:assert/strict'
import { createHash, randomUUID } from 'node:crypto'
import { mkdtemp, mkdir, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { BuildError, CommandExitError, Sandbox, SandboxError, Template, TemplateError, waitForFile, waitForPort } from 'e2b'
import { api, otherKey, rejects, until } from './helper.mjs'

let count = 0
const fresh = word => `${word}-${process.pid}-${Date.now()}-${count++}`
const path = text => encodeURIComponent(text)

// Runs `body` with the name of a template that is gone afterwards.
function withTemplate(body) {
  return async t => {
    const name = fresh('tpl')
    try {
      await body(name, t)
    } finally {
      await api('DELETE', `/templates/${path(name)}`)
    }
  }
}

async function inSandbox(template, body) {
  const sandbox = await Sandbox.create(template)
  try {
    return await body(sandbox)
  } finally {
    await sandbox.kill()
  }
}

const out = async (sandbox, command, options) => (await sandbox.commands.run(command, options)).stdout.trim()

// Files for COPY, below a directory of their own.
async function withFiles(body) {
  const dir = await mkdtemp(join(tmpdir(), 'copy-'))
  try {
    await mkdir(join(dir, 'app/sub'), { recursive: true })
    await writeFile(join(dir, 'one.txt'), 'one\n')
    await writeFile(join(dir, 'app/a.js'), 'a\n')
    await writeFile(join(dir, 'app/b.js'), 'b\n')
    await writeFile(join(dir, 'app/sub/c.txt'), 'c\n')
    await symlink('a.js', join(dir, 'app/link.js'))
    return await body(dir)
  } finally {
    await rm(dir, { recursive: true })
  }
}

test('build: steps, variables, user and work directory are those of its sandboxes', withTemplate(async name => {
  const lines = []
  const template = Template()
    .fromTemplate('base')
    .setEnvs({ GREETING: 'hello', TWICE: '$GREETING $GREETING' })
    .runCmd('echo "$TWICE" > /home/user/greeting')
    .setUser('builder')
    .setWorkdir('/srv/work')
    .runCmd('pwd > place; id -un >> place')
    .runCmd('echo root > /root/made', { user: 'root' })
  const info = await Template.build(template, name, { onBuildLogs: e => lines.push(e) })
  assert.equal(info.name, name)
  assert.match(info.templateId, new RegExp(`/${name}$`))
  assert.match(info.buildId, /^[0-9a-f]{8}-[0-9a-f]{4}-4/)
  assert.ok(lines.some(l => l.message.includes('RUN echo "$TWICE"')), lines.map(l => l.message).join('\n'))
  await inSandbox(name, async sandbox => {
    assert.equal(await out(sandbox, 'cat /home/user/greeting'), 'hello hello')
    assert.equal(await out(sandbox, 'cat place'), '/srv/work\nbuilder')
    assert.equal(await out(sandbox, 'pwd; id -un; echo $GREETING'), '/srv/work\nbuilder\nhello')
    assert.equal(await out(sandbox, 'cat /root/made', { user: 'root' }), 'root')
    assert.equal(await out(sandbox, 'stat -c %U /srv/work'), 'builder')
    assert.equal((await sandbox.getInfo()).templateId, name)
  })
}))

test('build: on top of another one, of a snapshot, and of the default image', withTemplate(async name => {
  await Template.build(Template().fromBaseImage().setEnvs({ A: '1' }).runCmd('echo first > f'), name)
  const snapshot = await inSandbox(name, async s => {
    await s.files.write('own', 'kept')
    return await s.createSnapshot()
  })
  const second = fresh('tpl')
  try {
    await Template.build(Template().fromTemplate(name).setEnvs({ B: '${A}2' }).runCmd('echo second >> f'), second)
    await inSandbox(second, async s => assert.equal(await out(s, 'cat f; echo $A $B'), 'first\nsecond\n1 12'))
    await Template.build(Template().fromTemplate(snapshot.snapshotId).runCmd('echo third >> f'), second)
    await inSandbox(second, async s => assert.equal(await out(s, 'cat f own; echo $A'), 'first\nthird\nkept1'))
    await inSandbox(snapshot.snapshotId, async s => assert.equal(await out(s, 'cat f; echo $A'), 'first\n1'))
  } finally {
    await api('DELETE', `/templates/${path(second)}`)
    await Sandbox.deleteSnapshot(snapshot.snapshotId)
  }
}))

test('build: cpuCount and memoryMB are the limits of its sandboxes, within those of the server', withTemplate(async name => {
  const usual = await inSandbox('base', async s => {
    const info = await s.getInfo()
    assert.equal(await out(s, 'nproc'), String(info.cpuCount))
    return info
  })
  assert.ok(usual.memoryMB > 128)
  await Template.build(Template().fromTemplate('base'), name, { cpuCount: 1, memoryMB: 128 })
  const told = async sandbox => {
    const { cpuCount, memoryMB } = await sandbox.getInfo()
    const listed = (await Sandbox.list().nextItems()).find(s => s.sandboxId === sandbox.sandboxId)
    assert.deepEqual([listed.cpuCount, listed.memoryMB], [cpuCount, memoryMB])
    const [sample] = await until(async () => { const all = await sandbox.getMetrics(); return all.length && all }, 'a sample', 30000)
    assert.deepEqual([sample.cpuCount, sample.memTotal], [cpuCount, memoryMB * 2 ** 20])
    return { cpuCount, memoryMB }
  }
  const shown = async () => (await (await api('GET', '/templates')).json()).find(t => t.aliases.includes(name))
  await inSandbox(name, async s => {
    assert.deepEqual(await told(s), { cpuCount: 1, memoryMB: 128 })
    assert.equal(await out(s, 'nproc'), '1')
    await rejects(s.commands.run('python3 -c "len(bytearray(300 << 20))"'), CommandExitError)
    await s.pause({ keepMemory: false })
    await s.connect()
    assert.equal((await s.getInfo()).memoryMB, 128)
    await rejects(s.commands.run('python3 -c "len(bytearray(300 << 20))"'), CommandExitError)
    const [fork] = await s.fork()
    try {
      await rejects(fork.commands.run('python3 -c "len(bytearray(300 << 20))"'), CommandExitError)
    } finally {
      await fork.kill()
    }
  })
  assert.equal((await shown()).memoryMB, 128)
  await Template.build(Template().fromTemplate('base'), name, { cpuCount: 512, memoryMB: 1 << 20 })
  const limits = ({ cpuCount, memoryMB }) => ({ cpuCount, memoryMB })
  await inSandbox(name, async s => assert.deepEqual(limits(await s.getInfo()), limits(usual)))
  assert.deepEqual(limits(await shown()), limits(usual))
}))

test('build: a start command runs in each sandbox, the ready command decides', withTemplate(async name => {
  const template = Template()
    .fromTemplate('base')
    .setStartCmd('python3 -m http.server 8123 --bind 127.0.0.1 & sleep 0.3; date +%s%N > /tmp/started; wait', waitForPort(8123))
  await Template.build(template, name)
  const started = []
  for (let i = 0; i < 2; i++)
    await inSandbox(name, async s => {
      assert.match(await out(s, 'curl -s http://127.0.0.1:8123/ | head -c 9 || true'), /DOCTYPE|html/i)
      started.push(await out(s, 'until [ -s /tmp/started ]; do sleep 0.05; done; cat /tmp/started'))
    })
  assert.notEqual(started[0], started[1])
}))

test('build: a start command that fails, or a ready command that never succeeds, is an error at the end', withTemplate(async name => {
  const template = Template().fromTemplate('base').setStartCmd('exit 3', waitForFile('/never'))
  await rejects(Template.build(template, name), BuildError, /start command ended with code 3/)
  assert.equal(await Template.exists(name), false)
  await rejects(Sandbox.create(name), SandboxError, /not found/)
}))

test('build: a failing RUN tells command, exit status and its last words; nothing is left', withTemplate(async name => {
  const lines = [], listed = async () => (await (await api('GET', '/v2/sandboxes')).json()).map(s => s.sandboxID)
  const before = await listed()
  const template = Template().fromTemplate('base').runCmd('echo to-stdout; echo broken >&2; exit 7')
  await rejects(Template.build(template, name, { onBuildLogs: e => lines.push(e) }), BuildError,
    /failed to run command 'echo to-stdout.*exit status 7: broken/)
  assert.ok(lines.some(l => l.message === 'to-stdout' && l.level === 'info'))
  assert.ok(lines.some(l => l.message === 'broken'))
  assert.equal(await Template.exists(name), false)
  assert.deepEqual((await listed()).filter(id => !before.includes(id)), [])
}))

test('build: an unknown user is told in the words of the document', withTemplate(async name => {
  await rejects(Template.build(Template().fromTemplate('base').runCmd('whoami', { user: 'root123' }), name), BuildError,
    /^failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'$/)
}))

test('build: a command that the policy forbids does not run', withTemplate(async name => {
  await rejects(Template.build(Template().fromTemplate('base').runCmd('rm -rf /'), name), BuildError, /refused by rule/)
}))

test('build: a template that is not there is an error of the first step', withTemplate(async name => {
  await rejects(Template.build(Template().fromTemplate('no-such-thing'), name), BuildError, /template 'no-such-thing' not found/)
}))

test('build: an image whose registry is not reached is an error that says so', withTemplate(async name => {
  await rejects(Template.build(Template().fromImage('registry.test/some/image:1'), name), BuildError, /image 'registry.test\/some\/image:1' was not fetched/)
}))

test('build: steps that were built before come from the cache, unless it is forced', withTemplate(async name => {
  const nonce = fresh('nonce')
  const make = (last = 'true') => Template().fromTemplate('base').runCmd(`echo ${nonce}; date +%s%N > stamp`).runCmd(last)
  const build = async (template, options = {}) => {
    const lines = []
    await Template.build(template, name, { onBuildLogs: e => lines.push(e.message), ...options })
    const stamp = await inSandbox(name, s => out(s, 'cat stamp'))
    return { stamp, cached: lines.filter(l => l.startsWith('CACHED')).length }
  }
  const first = await build(make())
  assert.equal(first.cached, 0)
  assert.deepEqual(await build(make()), { stamp: first.stamp, cached: 2 })
  assert.deepEqual(await build(make('echo other')), { stamp: first.stamp, cached: 1 })
  const forced = await build(make(), { skipCache: true })
  assert.equal(forced.cached, 0)
  assert.notEqual(forced.stamp, first.stamp)
}))

test('build: files, directories, globs and links are copied; owner and mode are those asked for', withTemplate(async name => {
  await withFiles(async dir => {
    const template = Template({ fileContextPath: dir })
      .fromTemplate('base')
      .copy('one.txt', '/home/user/one')
      .copy('one.txt', '/srv/into/', { mode: 0o600, user: 'root' })
      .copy('app', 'app')
      .copy('app/*.js', '/opt/js/')
      .copy('app/sub', '/opt/js/')
    await Template.build(template, name)
    await inSandbox(name, async s => {
      assert.equal(await out(s, 'cat one; stat -c "%U" one'), 'one\nuser')
      assert.equal(await out(s, 'stat -c "%U %a" /srv/into/one.txt'), 'root 600')
      assert.equal(await out(s, 'cd app && find . -type f | sort && readlink link.js'), './a.js\n./b.js\n./sub/c.txt\na.js')
      assert.equal(await out(s, 'cd /opt/js && ls'), 'a.js\nb.js\nc.txt\nlink.js')
      assert.equal(await out(s, 'ls -d /tmp/.cove* || true'), '')
      assert.equal(await out(s, 'stat -c %U /opt /home'), 'root\nroot')
    })
    await writeFile(join(dir, 'one.txt'), 'changed\n')
    await Template.build(template, name)
    await inSandbox(name, async s => assert.equal(await out(s, 'cat one'), 'changed'))
  })
}))

test('build: from a Dockerfile', withTemplate(async name => {
  await withFiles(async dir => {
    const template = Template({ fileContextPath: dir }).fromDockerfile(`FROM e2bdev/base
ENV COLOUR=green
WORKDIR /srv/app
COPY one.txt copied.txt
RUN cat copied.txt > ran && echo $COLOUR >> ran
CMD sleep 1000
`)
    await Template.build(template, name)
    await inSandbox(name, async s => {
      assert.equal(await out(s, 'cat /srv/app/ran'), 'one\ngreen')
      assert.match(await out(s, 'ps -eo args'), /sleep 1000/)
    })
  })
}))

test('build: in the background, with status and logs by offset', withTemplate(async name => {
  const template = Template().fromTemplate('base').runCmd(`true ${name}; for i in $(seq 250); do echo line-$i; done`)
  const info = await Template.buildInBackground(template, name)
  let offset = 0, status
  const seen = []
  do {
    status = await Template.getBuildStatus(info, { logsOffset: offset })
    assert.ok(status.logEntries.length <= 100)
    offset += status.logEntries.length
    seen.push(...status.logEntries.map(e => e.message))
  } while (status.status === 'waiting' || status.status === 'building' || status.logEntries.length)
  assert.equal(status.status, 'ready')
  assert.deepEqual(seen.filter(m => /^line-/.test(m)), Array.from({ length: 250 }, (_, i) => `line-${i + 1}`))
  const base = `/templates/${path(info.templateId)}/builds/${info.buildId}`
  const all = (await (await api('GET', `${base}/logs?limit=1000`)).json()).logs.map(e => e.message)
  assert.deepEqual(all, seen)
  const last = (await (await api('GET', `${base}/logs?limit=1&direction=backward`)).json()).logs
  assert.equal(last[0].message, seen.at(-1))
  assert.equal((await (await api('GET', `${base}/status?level=error`)).json()).logEntries.length, 0)
  const again = await api('POST', `/v2${base}`, { body: { fromTemplate: 'base' } })
  assert.equal(again.status, 400)
  const details = await (await api('GET', `/templates/${path(info.templateId)}`)).json()
  assert.deepEqual(details.builds.map(b => [b.buildID, b.status]), [[info.buildId, 'ready']])
}))

test('tags: given by a build, moved, listed, removed', withTemplate(async name => {
  const v1 = await Template.build(Template().fromTemplate('base').runCmd('echo 1 > v'), `${name}:v1`, { tags: ['stable'] })
  assert.deepEqual(v1.tags.sort(), ['stable', 'v1'])
  const v2 = await Template.build(Template().fromTemplate('base').runCmd('echo 2 > v'), name)
  const tags = async () => Object.fromEntries((await Template.getTags(name)).map(t => [t.tag, t.buildId]))
  assert.deepEqual(await tags(), { v1: v1.buildId, stable: v1.buildId, default: v2.buildId })
  for (const [tag, v] of [[':v1', '1'], [':stable', '1'], ['', '2'], [':default', '2']])
    await inSandbox(name + tag, async s => assert.equal(await out(s, 'cat v'), v))
  assert.equal((await Template.assignTags(`${name}:default`, ['stable', 'new'])).buildId, v2.buildId)
  await Template.removeTags(name, 'v1')
  assert.deepEqual(await tags(), { stable: v2.buildId, new: v2.buildId, default: v2.buildId })
  await rejects(Sandbox.create(`${name}:v1`), SandboxError, /tag 'v1' does not exist for template/)
  await rejects(Template.removeTags(name, 'default'), TemplateError, /cannot be removed/)
  await rejects(Template.removeTags(name, 'none'), TemplateError, /does not exist/)
  await rejects(Template.assignTags('nothing:v1', 'x'), TemplateError, /not found/)
  await rejects(Template.assignTags(name, 'No Tag'), TemplateError, /tags/)
}))

test('exists, list, delete', withTemplate(async name => {
  assert.equal(await Template.exists(name), false)
  assert.equal(await Template.exists('base'), true)
  const { templateId } = await Template.build(Template().fromTemplate('base'), name)
  assert.equal(await Template.exists(name), true)
  const mine = (await (await api('GET', '/templates')).json()).find(t => t.templateID === templateId)
  assert.deepEqual([mine.aliases, mine.names, mine.public, mine.buildStatus], [[name], [templateId], false, 'ready'])
  assert.equal((await api('DELETE', `/templates/${path(templateId)}`)).status, 204)
  assert.equal((await api('DELETE', `/templates/${path(templateId)}`)).status, 404)
  assert.equal(await Template.exists(name), false)
}))

test('build: other tenants see nothing of it', withTemplate(async name => {
  const { templateId, buildId } = await Template.build(Template().fromTemplate('base').runCmd('echo secret > s'), name)
  const base = `/templates/${path(templateId)}`
  for (const [method, where, body] of [
    ['GET', base], ['GET', `${base}/tags`], ['DELETE', base], ['PATCH', `/v2${base}`, { public: true }],
    ['GET', `${base}/builds/${buildId}/status`], ['GET', `${base}/builds/${buildId}/logs`],
    ['POST', `/v2${base}/builds/${buildId}`, { fromTemplate: 'base' }],
    ['GET', `/templates/aliases/${path(templateId)}`], ['GET', `${base}/files/${'0'.repeat(64)}`],
    ['POST', '/templates/tags', { target: name, tags: ['x'] }], ['DELETE', '/templates/tags', { name, tags: ['x'] }],
    ['POST', '/v2/sandboxes', { templateID: templateId }], ['POST', '/v2/sandboxes', { templateID: name }],
  ]) assert.equal((await api(method, where, { key: otherKey, body })).status, 404, `${method} ${where}`)
  await rejects(Template.build(Template().fromTemplate(templateId), fresh('tpl'), { apiKey: otherKey }), BuildError, /not found/)
  assert.equal(await Template.exists(name), true)
  assert.equal((await api('PATCH', `/v2${base}`, { body: { public: true } })).status, 403)
  assert.equal((await api('PATCH', `/v2${base}`, { body: { public: false } })).status, 200)
}))

test('uploads: a URL is good for its own name only, and not without its signature', async () => {
  const name = fresh('tpl'), hash = createHash('sha256').update(name).digest('hex')
  assert.equal((await api('GET', `/templates/${name}/files/${hash}`)).status, 404, 'nobody has asked for a template of this name')
  for (const key of [undefined, otherKey]) assert.equal((await api('POST', '/v3/templates', { key, body: { name } })).status, 202)
  const link = await api('GET', `/templates/${name}/files/${hash}`)
  assert.equal(link.status, 201)
  const { present, url } = await link.json()
  assert.equal(present, false)
  const put = (where, body = 'x'.repeat(100)) => fetch(where, { method: 'PUT', body }).then(r => r.status)
  const ticket = url.split('/').at(-1)
  for (const bad of [ticket.replace(hash, 'cd'.repeat(32)), ticket.slice(0, -1), ticket.replace(/^\d/, '9'), 'x', 'a.b.c.d'])
    assert.equal(await put(url.replace(ticket, bad)), 401, bad)
  assert.equal((await api('GET', `/templates/${name}/files/nohash`)).status, 400)
  assert.equal(await put(url), 204)
  assert.deepEqual(await (await api('GET', `/templates/${name}/files/${hash}`)).json(), { present: true })
  assert.equal((await (await api('GET', `/templates/${name}/files/${hash}`, { key: otherKey })).json()).present, false)
})

test('bad orders are refused', async () => {
  for (const [body, what] of [
    [{}, /name/], [{ name: 'UPPER' }, /name/], [{ name: 'a/b' }, /name/], [{ name: '.x' }, /name/], [{ name: 'x:' }, /tag/],
    [{ name: 'x', tags: ['a b'] }, /tags/], [{ name: 'x', cpuCount: 0 }, /cpuCount/], [{ name: 'x', memoryMB: 1 }, /memoryMB/],
    [{ name: 'x', cpuCount: 3 }, /cpuCount: must be 1 or an even number/], [{ name: 'x', memoryMB: 513 }, /memoryMB: must be an even number/],
    [{ name: 'x', tags: [randomUUID()] }, /tags: .*UUID/], [{ name: `x:${randomUUID()}` }, /name: .*UUID/],
    [{ name: 'a'.repeat(64) }, /name/], [{ name: 5 }, /name/],
  ]) {
    const reply = await api('POST', '/v3/templates', { body })
    assert.equal(reply.status, 400, JSON.stringify(body))
    assert.match((await reply.json()).message, what)
  }
  const { templateID, buildID } = await (await api('POST', '/v3/templates', { body: { name: fresh('tpl') } })).json()
  for (const [body, what] of [
    [{}, /fromTemplate/], [{ fromTemplate: 'base', fromImage: 'x' }, /fromTemplate/],
    [{ fromTemplate: 'base', steps: [{ type: 'FLY' }] }, /steps\[0\].type/],
    [{ fromTemplate: 'base', steps: [{ type: 'COPY', args: ['a', 'b'] }] }, /filesHash/],
    [{ fromTemplate: 'base', steps: 'x' }, /steps/],
    [{ fromTemplate: 'base', steps: Array.from({ length: 201 }, () => ({ type: 'RUN', args: ['true'] })) }, /steps/],
  ]) {
    const reply = await api('POST', `/v2/templates/${path(templateID)}/builds/${buildID}`, { body })
    assert.equal(reply.status, 400, JSON.stringify(body).slice(0, 200))
    assert.match((await reply.json()).message, what)
  }
  const other = await api('POST', `/v2/templates/other/builds/${buildID}`, { body: { fromTemplate: 'base' } })
  assert.equal(other.status, 404)
})
