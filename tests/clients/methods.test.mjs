// Every public method of the pinned SDK, once with success and once with failure and the class of its error. The names are read off the SDK itself: a
// method that a newer one brings fails here until it has a row. What the methods do in full is in the other suites.
import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import * as sdk from 'e2b'
import { CommandExitError, FileNotFoundError, InvalidArgumentError, NotFoundError, Sandbox, SandboxError, SandboxNotFoundError, Secret, SecretError,
  Template, TemplateError, TimeoutError, Volume, VolumeError } from 'e2b'
import { api, rejects, until } from './helper.mjs'

process.env.E2B_VOLUME_API_URL ??= process.env.E2B_API_URL
const NOBODY = 'i00000000000000000000' // an id that no sandbox has
let sandbox, gone, dir, repo
const made = []

before(async () => {
  sandbox = await Sandbox.create()
  gone = await Sandbox.create()
  await gone.kill()
  dir = await mkdtemp(join(tmpdir(), 'methods-'))
  repo = '/home/user/repo'
})

after(async () => {
  for (const s of [sandbox, ...made]) await s?.kill().catch(() => {})
  await rm(dir, { recursive: true })
})

const other = async options => {
  const s = await Sandbox.create(options)
  made.push(s)
  return s
}
const git = () => sandbox.git
const files = () => sandbox.files
const volume = () => new Volume('no-volume', 'v', process.env.E2B_API_KEY)
const name = `methods-${process.pid}`
const build = (template, options) => Template.build(template, name, options)
const base = () => Template({ fileContextPath: dir }).fromTemplate('base')
const reads = async (template, command) => {
  await build(template)
  const s = await other(name)
  return (await s.commands.run(command)).stdout.trim()
}
// A build that must fail, with the words of the failure.
const fails = template => () => build(template())

// name: [what succeeds, what fails, the class of its error, its text]. `null`: there is no way to fail that a client could see.
const rows = {
  'Sandbox.create': [async () => assert.ok((await other()).sandboxId), () => Sandbox.create('no-such-template'), SandboxError, /not found/],
  'Sandbox.connect': [async () => assert.equal((await Sandbox.connect(sandbox.sandboxId)).sandboxId, sandbox.sandboxId), () => Sandbox.connect(NOBODY), SandboxNotFoundError],
  'Sandbox.list': [async () => assert.ok((await Sandbox.list().nextItems()).some(s => s.sandboxId === sandbox.sandboxId)), () => Sandbox.list({ limit: 100000 }).nextItems(), SandboxError, /limit/],
  'Sandbox.fork': [async () => { const all = await Sandbox.fork(sandbox.sandboxId, { count: 2 }); made.push(...all); assert.equal(all.length, 2) }, () => Sandbox.fork(NOBODY), SandboxNotFoundError],
  'Sandbox.kill': [async () => { const s = await other(); assert.equal(await Sandbox.kill(s.sandboxId), true); assert.equal(await Sandbox.kill(NOBODY), false) }, () => Sandbox.kill(sandbox.sandboxId, { apiKey: 'e2b_0000' }), sdk.AuthenticationError],
  'Sandbox.getInfo': [async () => assert.equal((await Sandbox.getInfo(sandbox.sandboxId)).state, 'running'), () => Sandbox.getInfo(NOBODY), SandboxNotFoundError],
  'Sandbox.getFullInfo': [async () => assert.equal((await Sandbox.getFullInfo(sandbox.sandboxId)).sandboxId, sandbox.sandboxId), () => Sandbox.getFullInfo(NOBODY), SandboxNotFoundError],
  'Sandbox.getMetrics': [async () => assert.ok(Array.isArray(await Sandbox.getMetrics(sandbox.sandboxId))), () => Sandbox.getMetrics(NOBODY), SandboxNotFoundError],
  'Sandbox.setTimeout': [() => Sandbox.setTimeout(sandbox.sandboxId, 300_000), () => Sandbox.setTimeout(NOBODY, 1000), SandboxNotFoundError],
  'Sandbox.updateNetwork': [() => Sandbox.updateNetwork(sandbox.sandboxId, {}), () => Sandbox.updateNetwork(NOBODY, {}), SandboxNotFoundError],
  'Sandbox.pause': [async () => { const s = await other(); assert.equal(await Sandbox.pause(s.sandboxId), true); assert.equal(await Sandbox.pause(s.sandboxId), false) }, () => Sandbox.pause(NOBODY), SandboxNotFoundError],
  'Sandbox.betaPause': [async () => { const s = await other(); assert.equal(await Sandbox.betaPause(s.sandboxId), true) }, () => Sandbox.betaPause(NOBODY), SandboxNotFoundError],
  'Sandbox.createSnapshot': [async () => { const s = await Sandbox.createSnapshot(sandbox.sandboxId); assert.equal(await Sandbox.deleteSnapshot(s.snapshotId), true) }, () => Sandbox.createSnapshot(NOBODY), SandboxNotFoundError],
  'Sandbox.listSnapshots': [async () => assert.ok(Array.isArray(await Sandbox.listSnapshots().nextItems())), () => Sandbox.listSnapshots({ limit: -1 }).nextItems(), SandboxError, /limit/],
  'Sandbox.deleteSnapshot': [async () => assert.equal(await Sandbox.deleteSnapshot('no-such-snapshot'), false), () => Sandbox.deleteSnapshot('x', { apiKey: 'e2b_0000' }), sdk.AuthenticationError],
  'sandbox.connect': [async () => assert.equal((await sandbox.connect()).sandboxId, sandbox.sandboxId), () => gone.connect(), SandboxNotFoundError],
  'sandbox.fork': [async () => made.push(...await sandbox.fork()), () => gone.fork(), SandboxNotFoundError],
  'sandbox.getHost': [() => assert.match(sandbox.getHost(3000), /^3000-/), null],
  'sandbox.isRunning': [async () => { assert.equal(await sandbox.isRunning(), true); assert.equal(await gone.isRunning(), false) }, null],
  'sandbox.setTimeout': [() => sandbox.setTimeout(300_000), () => gone.setTimeout(1000), SandboxNotFoundError],
  'sandbox.updateNetwork': [() => sandbox.updateNetwork({}), () => sandbox.updateNetwork({ denyOut: ['not an address'] }), SandboxError, /400/],
  'sandbox.kill': [async () => assert.equal(await (await other()).kill(), true), async () => assert.equal(await gone.kill(), false), null],
  'sandbox.pause': [async () => assert.equal(await (await other()).pause(), true), () => gone.pause(), SandboxNotFoundError],
  'sandbox.betaPause': [async () => assert.equal(await (await other()).betaPause(), true), () => gone.betaPause(), SandboxNotFoundError],
  'sandbox.createSnapshot': [async () => { const s = await sandbox.createSnapshot(); await Sandbox.deleteSnapshot(s.snapshotId) }, () => gone.createSnapshot(), SandboxNotFoundError],
  'sandbox.listSnapshots': [async () => assert.deepEqual(await sandbox.listSnapshots().nextItems(), []), () => sandbox.listSnapshots({ limit: -1 }).nextItems(), SandboxError, /limit/],
  'sandbox.getMcpUrl': [() => assert.match(sandbox.getMcpUrl(), /\/mcp$/), null],
  'sandbox.getMcpToken': [null, () => sandbox.getMcpToken(), FileNotFoundError], // a template without a gateway has none
  'sandbox.uploadUrl': [async () => assert.match(await sandbox.uploadUrl('a'), /\/files\?/), async () => sandbox.uploadUrl('a', { useSignatureExpiration: -1 }).then(url => fetch(url, { method: 'POST', headers: at() })).then(r => assert.equal(r.status, 401)), null],
  'sandbox.downloadUrl': [async () => assert.match(await sandbox.downloadUrl('a'), /\/files\?/), async () => sandbox.downloadUrl('a', { useSignatureExpiration: -1 }).then(url => fetch(url, { headers: at() })).then(r => assert.equal(r.status, 401)), null],
  'sandbox.getInfo': [async () => assert.equal((await sandbox.getInfo()).sandboxId, sandbox.sandboxId), () => gone.getInfo(), SandboxNotFoundError],
  'sandbox.getMetrics': [async () => assert.ok(Array.isArray(await sandbox.getMetrics())), () => gone.getMetrics(), SandboxNotFoundError],

  'commands.run': [async () => assert.equal((await sandbox.commands.run('echo hi')).stdout, 'hi\n'), () => sandbox.commands.run('exit 3'), CommandExitError],
  'commands.start': ['commands.run', null], // what run() is made of
  'commands.list': [async () => assert.ok(Array.isArray(await sandbox.commands.list())), () => gone.commands.list(), TimeoutError],
  'commands.connect': [async () => { const h = await sandbox.commands.run('sleep 30', { background: true }); await (await sandbox.commands.connect(h.pid)).disconnect(); await h.kill() }, () => sandbox.commands.connect(999999), NotFoundError],
  'commands.kill': [async () => { const h = await sandbox.commands.run('sleep 30', { background: true }); assert.equal(await sandbox.commands.kill(h.pid), true); assert.equal(await sandbox.commands.kill(999999), false) }, () => gone.commands.kill(1), TimeoutError],
  'commands.sendStdin': [() => withCat((pid, h) => sandbox.commands.sendStdin(pid, 'word').then(() => sandbox.commands.closeStdin(pid)).then(() => h.wait()).then(r => assert.equal(r.stdout, 'word'))), () => sandbox.commands.sendStdin(999999, 'x'), NotFoundError],
  'commands.closeStdin': [() => withCat((pid, h) => sandbox.commands.closeStdin(pid).then(() => h.wait())), () => sandbox.commands.closeStdin(999999), NotFoundError],
  'commands.supportsStdinClose': [() => assert.equal(sandbox.commands.supportsStdinClose, true), null],
  'handle.wait': [async () => assert.equal((await (await sandbox.commands.run('true', { background: true })).wait()).exitCode, 0), async () => (await sandbox.commands.run('exit 5', { background: true })).wait(), CommandExitError],
  'handle.kill': [async () => assert.equal(await (await sandbox.commands.run('sleep 30', { background: true })).kill(), true), async () => { const h = await sandbox.commands.run('true', { background: true }); await h.wait(); assert.equal(await h.kill(), false) }, null],
  'handle.disconnect': [async () => { const h = await sandbox.commands.run('sleep 30', { background: true }); await h.disconnect(); assert.equal(await h.kill(), true) }, null],
  'handle.sendStdin': [() => withCat((_, h) => h.sendStdin('word').then(() => h.closeStdin()).then(() => h.wait()).then(r => assert.equal(r.stdout, 'word'))), async () => { const h = await sandbox.commands.run('true', { background: true }); await h.wait(); return h.sendStdin('x') }, NotFoundError],
  'handle.closeStdin': [() => withCat((_, h) => h.closeStdin().then(() => h.wait())), async () => { const h = await sandbox.commands.run('true', { background: true }); await h.wait(); return h.closeStdin() }, NotFoundError],

  'files.write': [async () => assert.equal((await files().write('f', 'x')).name, 'f'), () => files().write('/tmp', 'x'), InvalidArgumentError],
  'files.writeFiles': [async () => assert.equal((await files().writeFiles([{ path: 'a', data: '1' }, { path: 'b', data: '2' }])).length, 2), () => files().writeFiles([{ path: 'd', data: '1' }, { path: '/tmp', data: '2' }]), InvalidArgumentError],
  'files.read': [async () => assert.equal(await files().read('f'), 'x'), () => files().read('missing'), FileNotFoundError],
  'files.list': [async () => assert.ok((await files().list('.')).some(e => e.name === 'f')), () => files().list('missing'), FileNotFoundError],
  'files.makeDir': [async () => assert.equal(await files().makeDir('new'), true), () => files().makeDir('f/below'), InvalidArgumentError],
  'files.exists': [async () => assert.deepEqual([await files().exists('f'), await files().exists('missing')], [true, false]), () => gone.files.exists('f'), TimeoutError],
  'files.getInfo': [async () => assert.equal((await files().getInfo('f')).size, 1), () => files().getInfo('missing'), FileNotFoundError],
  'files.rename': [async () => assert.equal((await files().rename('a', 'c')).name, 'c'), () => files().rename('missing', 'z'), FileNotFoundError],
  'files.remove': [async () => { await files().remove('c'); assert.equal(await files().exists('c'), false) }, () => gone.files.remove('c'), TimeoutError],
  'files.watchDir': [async () => { const seen = []; const w = await files().watchDir('new', e => seen.push(e.name)); await files().write('new/x', ''); await until(() => seen.includes('x'), 'the event'); await w.stop() }, () => files().watchDir('missing', () => {}), FileNotFoundError],

  'pty.create': [() => withPty(p => assert.ok(p.pid)), () => sandbox.pty.create({ cols: 80, rows: 24, onData() {}, cwd: '/no/such/place' }), InvalidArgumentError],
  'pty.connect': [() => withPty(async p => (await sandbox.pty.connect(p.pid, { onData() {} })).disconnect()), () => sandbox.pty.connect(999999), NotFoundError],
  'pty.sendInput': [() => withPty(p => sandbox.pty.sendInput(p.pid, new TextEncoder().encode('\n'))), () => sandbox.pty.sendInput(999999, new Uint8Array(1)), NotFoundError],
  'pty.resize': [() => withPty(p => sandbox.pty.resize(p.pid, { cols: 100, rows: 30 })), () => sandbox.pty.resize(999999, { cols: 1, rows: 1 }), NotFoundError],
  'pty.kill': [async () => { const p = await sandbox.pty.create({ cols: 80, rows: 24, onData() {} }); assert.equal(await sandbox.pty.kill(p.pid), true); assert.equal(await sandbox.pty.kill(999999), false) }, () => gone.pty.kill(1), TimeoutError],

  'git.init': [() => git().init(repo), () => git().init('/proc/no'), CommandExitError],
  'git.configureUser': [() => git().configureUser('A', 'a@example.org', { scope: 'local', path: repo }), () => git().configureUser('', ''), InvalidArgumentError],
  'git.setConfig': [() => git().setConfig('user.color', 'red', { scope: 'local', path: repo }), () => git().setConfig('x', 'y'), CommandExitError],
  'git.getConfig': [async () => assert.equal(await git().getConfig('user.color', { scope: 'local', path: repo }), 'red'), () => git().getConfig('a', { scope: 'local' }), InvalidArgumentError],
  'git.status': [async () => assert.equal((await git().status(repo)).hasChanges, false), () => git().status('/tmp'), CommandExitError],
  'git.add': [async () => { await files().write(`${repo}/f`, 'x'); await git().add(repo) }, () => git().add('/tmp'), CommandExitError],
  'git.commit': [() => git().commit(repo, 'first'), () => git().commit(repo, 'nothing'), CommandExitError],
  'git.createBranch': [() => git().createBranch(repo, 'side'), () => git().createBranch(repo, 'side'), CommandExitError],
  'git.branches': [async () => assert.ok((await git().branches(repo)).branches.includes('side')), () => git().branches('/tmp'), CommandExitError],
  'git.checkoutBranch': [async () => { await sandbox.commands.run(`git -C ${repo} branch third`); await git().checkoutBranch(repo, 'third') }, () => git().checkoutBranch(repo, 'missing'), CommandExitError],
  'git.deleteBranch': [() => git().deleteBranch(repo, 'side'), () => git().deleteBranch(repo, 'missing'), CommandExitError],
  'git.remoteAdd': [async () => { await sandbox.commands.run('git init -q --bare /home/user/bare'); await git().remoteAdd(repo, 'origin', '/home/user/bare') }, () => git().remoteAdd(repo, 'origin', 'x'), CommandExitError],
  'git.remoteGet': [async () => assert.equal(await git().remoteGet(repo, 'origin'), '/home/user/bare'), async () => assert.equal(await git().remoteGet(repo, 'missing'), undefined), null],
  'git.push': [() => git().push(repo, { remote: 'origin', branch: 'third', setUpstream: true }), () => git().push(repo, { remote: 'missing', branch: 'third' }), CommandExitError],
  'git.pull': [() => git().pull(repo, { remote: 'origin', branch: 'third' }), () => git().pull(repo, { remote: 'missing', branch: 'third' }), CommandExitError],
  'git.clone': [() => git().clone('/home/user/bare', { path: '/home/user/copy', branch: 'third' }), () => git().clone('/home/user/missing', { path: '/home/user/other' }), CommandExitError],
  'git.reset': [() => git().reset(repo, { mode: 'hard' }), () => git().reset(repo, { target: 'no-such-commit' }), CommandExitError],
  'git.restore': [async () => { await files().write(`${repo}/f`, 'changed'); await git().restore(repo, { paths: ['f'], worktree: true }); assert.equal(await files().read(`${repo}/f`), 'x') }, () => git().restore(repo, { paths: ['missing'], worktree: true }), CommandExitError],
  'git.dangerouslyAuthenticate': [() => git().dangerouslyAuthenticate({ username: 'u', password: 'p', host: 'example.org' }), () => git().dangerouslyAuthenticate({ username: '', password: '' }), InvalidArgumentError],

  'Template.build': [() => build(base()), () => build(base().runCmd('exit 2')), sdk.BuildError],
  'Template.buildInBackground': [async () => { const b = await Template.buildInBackground(base(), name); await until(async () => (await Template.getBuildStatus(b)).status === 'ready', 'the build') }, () => Template.buildInBackground(base(), 'Not A Name'), sdk.BuildError],
  'Template.getBuildStatus': ['Template.buildInBackground', () => Template.getBuildStatus({ templateId: name, buildId: '00000000-0000-4000-8000-000000000001' }), sdk.BuildError],
  'Template.exists': [async () => assert.deepEqual([await Template.exists(name), await Template.exists('no-such')], [true, false]), () => Template.exists('x', { apiKey: 'e2b_0000' }), sdk.AuthenticationError],
  'Template.aliasExists': [async () => assert.equal(await Template.aliasExists(name), true), () => Template.aliasExists('x', { apiKey: 'e2b_0000' }), sdk.AuthenticationError],
  'Template.assignTags': [() => Template.assignTags(name, ['v1']), () => Template.assignTags('no-such', ['v1']), TemplateError],
  'Template.getTags': [async () => assert.ok((await Template.getTags(name)).some(t => t.tag === 'v1')), () => Template.getTags('no-such'), TemplateError],
  'Template.removeTags': [() => Template.removeTags(name, 'v1'), () => Template.removeTags('no-such', 'v1'), TemplateError],
  'Template.toJSON': [async () => assert.match(await Template.toJSON(base()), /base/), null],
  'Template.toDockerfile': [() => assert.match(Template.toDockerfile(Template().fromImage('a:1')), /^FROM a:1/), () => { Template.toDockerfile(base()) }, Error],

  'template.fromTemplate': [() => build(base()), fails(() => Template().fromTemplate('no-such')), sdk.BuildError, /not found/],
  'template.fromBaseImage': [() => build(Template().fromBaseImage()), null],
  'template.fromDockerfile': [() => build(Template().fromDockerfile('FROM e2bdev/base\nRUN true\n')), () => build(Template().fromDockerfile('RUN true\n')), Error],
  'template.copy': [async () => { await writeFile(join(dir, 'one'), '1'); assert.equal(await reads(base().copy('one', '/srv/one'), 'cat /srv/one'), '1') }, fails(() => base().copy('missing', '/srv/')), Error],
  'template.copyItems': [async () => assert.equal(await reads(base().copyItems([{ src: 'one', dest: '/srv/a' }, { src: 'one', dest: '/srv/b' }]), 'cat /srv/a /srv/b'), '11'), fails(() => base().copyItems([{ src: 'missing', dest: '/srv/' }])), Error],
  'template.runCmd': [async () => assert.equal(await reads(base().runCmd(['echo a > x', 'echo b >> x']), 'cat x'), 'a\nb'), fails(() => base().runCmd('false')), sdk.BuildError],
  'template.remove': [async () => assert.equal(await reads(base().runCmd('touch x y').remove('x'), 'ls'), 'y'), fails(() => base().remove('missing')), sdk.BuildError],
  'template.rename': [async () => assert.equal(await reads(base().runCmd('touch x').rename('x', 'z'), 'ls'), 'z'), fails(() => base().rename('missing', 'z')), sdk.BuildError],
  'template.makeDir': [async () => assert.equal(await reads(base().makeDir(['d', 'e'], { mode: 0o700 }), 'stat -c %a:%n d e'), '700:d\n700:e'), fails(() => base().makeDir('/proc/no')), sdk.BuildError],
  'template.makeSymlink': [async () => assert.equal(await reads(base().makeSymlink('/etc/hostname', 'link'), 'readlink link'), '/etc/hostname'), fails(() => base().makeSymlink('a', '/no/such/place')), sdk.BuildError],
  'template.setWorkdir': [async () => assert.equal(await reads(base().setWorkdir('/srv/w'), 'pwd'), '/srv/w'), fails(() => base().setWorkdir('/proc/no')), sdk.BuildError],
  'template.setUser': [async () => assert.equal(await reads(base().setUser('me'), 'id -un'), 'me'), fails(() => base().setUser('no one')), sdk.BuildError],
  'template.setEnvs': [async () => assert.equal(await reads(base().setEnvs({ A: 'b' }), 'echo $A'), 'b'), fails(() => base().setEnvs({ A: 'x'.repeat(100000) })), sdk.BuildError],
  'template.gitClone': [async () => assert.equal(await reads(base().runCmd('git init -q g && cd g && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x').gitClone('/home/user/g', 'h'), 'git -C h log --format=%s'), 'x'), fails(() => base().gitClone('/no/such')), sdk.BuildError],
  'template.pipInstall': [async () => { await sandbox.commands.run('true'); await build(base().copy('one', '/tmp/one').runCmd('mkdir p; echo "from setuptools import setup; setup(name=\'p\', version=\'1\')" > p/setup.py').runCmd('python3 -m pip --version || true')) }, fails(() => base().pipInstall('no-such-package-at-all')), sdk.BuildError],
  'template.npmInstall': [() => build(base().runCmd('mkdir -p p && echo \'{"name":"p","version":"1.0.0"}\' > p/package.json').npmInstall('./p')), fails(() => base().npmInstall('./missing')), sdk.BuildError],
  'template.bunInstall': [null, fails(() => base().bunInstall('x')), sdk.BuildError], // `base` has no bun
  'template.aptInstall': [null, fails(() => base().aptInstall('no-such-package')), sdk.BuildError], // the test's sandboxes have no network
  'template.setStartCmd': [() => build(base().setStartCmd('touch /tmp/up; sleep 100', sdk.waitForFile('/tmp/up'))), fails(() => base().setStartCmd('exit 4', sdk.waitForFile('/never'))), sdk.BuildError],
  'template.setReadyCmd': [() => build(base().setReadyCmd(sdk.waitForTimeout(1))), fails(() => base().setStartCmd('exit 1', sdk.waitForProcess('nothing'))), sdk.BuildError],
  'template.skipCache': [() => build(base().skipCache().runCmd('true')), null],
  'template.fromImage': [null, fails(() => Template().fromImage('no name')), sdk.BuildError, /not a name of an image/], // test_build_images.py
}
// These say fromImage() with a name of Docker's registry; which one, is asked of the SDK. Registries themselves: tests/system/test_build_images.py.
const images = { fromDebianImage: /^debian:/, fromUbuntuImage: /^ubuntu:/, fromFedoraImage: /fedora/, fromAlpineImage: /^alpine:/, fromArchImage: /arch/, fromPythonImage: /^python:/, fromNodeImage: /^node:/, fromBunImage: /bun/ }
for (const [method, says] of Object.entries(images))
  rows[`template.${method}`] = [async () => assert.match(JSON.parse(await Template.toJSON(Template()[method]())).fromImage, says), fails(() => Template()[method]()), sdk.BuildError, /was not fetched|not installed/]
rows['template.fromAWSRegistry'] = [null, fails(() => Template().fromAWSRegistry('a/b:1', { accessKeyId: 'k', secretAccessKey: 's', region: 'r' })), sdk.BuildError, /not known here/]
rows['template.fromGCPRegistry'] = [null, fails(() => Template().fromGCPRegistry('a/b:1', { serviceAccountJSON: { project_id: 'p' } })), sdk.BuildError, /not known here/]
rows['template.addMcpServer'] = [null, () => { base().addMcpServer('browserbase') }, sdk.BuildError]
rows['template.betaDevContainerPrebuild'] = [null, () => { base().betaDevContainerPrebuild('/x') }, sdk.BuildError]
rows['template.betaSetDevContainerStart'] = [null, () => { base().betaSetDevContainerStart('/x') }, sdk.BuildError]
// A client that has its key and address bound to it.
rows['E2B.Sandbox'] = [async () => assert.ok((await bound().Sandbox.list().nextItems()).some(s => s.sandboxId === sandbox.sandboxId)), () => bound('e2b_0000').Sandbox.create(), sdk.AuthenticationError]
rows['E2B.Template'] = [async () => assert.equal(await bound().Template.exists('base'), true), () => bound('e2b_0000').Template.exists('base'), sdk.AuthenticationError]
rows['E2B.Volume'] = [null, () => bound().Volume.create('v'), VolumeError, /501/]
rows['E2B.Secret'] = [null, () => bound().Secret.create('s', 'v'), SecretError, /501/]
const bound = (apiKey = process.env.E2B_API_KEY) => new sdk.E2B({ apiKey })
// The commands that say when a start command has started.
const ready = command => [() => build(base().setStartCmd('python3 -m http.server 8124', command)), null]
rows['ready.waitForPort'] = ready(sdk.waitForPort(8124))
rows['ready.waitForURL'] = ready(sdk.waitForURL('http://localhost:8124/'))
rows['ready.waitForProcess'] = ready(sdk.waitForProcess('python3'))
rows['ready.waitForFile'] = ['template.setStartCmd', null]
rows['ready.waitForTimeout'] = ['template.setReadyCmd', null]

// Not built: a clear error of the right class, whatever is asked.
for (const [method, args] of Object.entries({ create: ['v'], connect: ['v'], getInfo: ['v'], list: [], destroy: ['v'] }))
  rows[`Volume.${method}`] = [null, () => Volume[method](...args), VolumeError, /501/]
for (const [method, args] of Object.entries({ list: ['/'], makeDir: ['/d'], getInfo: ['/'], exists: ['/'], updateMetadata: ['/', {}], readFile: ['/f'], writeFile: ['/f', 'x'], remove: ['/f'] }))
  rows[`volume.${method}`] = [null, () => volume()[method](...args), VolumeError]
for (const [method, args] of Object.entries({ create: ['s', 'v'], update: ['s', 'v'], getInfo: ['s'], exists: ['s'], destroy: ['s'] }))
  rows[`Secret.${method}`] = [null, () => Secret[method](...args), SecretError, /501/]
rows['Secret.list'] = [null, () => Secret.list().nextItems(), SecretError, /501/]
rows['Secret.fill'] = rows['Secret.iamToken'] = [null, null] // make a text, call nothing

const at = () => ({ 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' })

async function withCat(body) {
  const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
  await body(handle.pid, handle)
}

async function withPty(body) {
  const pty = await sandbox.pty.create({ cols: 80, rows: 24, onData() {} })
  try {
    await body(pty)
  } finally {
    await sandbox.pty.kill(pty.pid)
  }
}

// ------------------------------------------------------------------ which methods there are

const INTERNAL = /^(constructor|length|name|prototype|resolveOpts|boundOpts|resolveApiOpts|fileUrl|createSandbox|forkSandbox|connectSandbox|defaultTemplate|defaultMcpTemplate|runGit|runShell|getRemoteUrl|resolveRemoteName|withRemoteCredentials|hasUpstream|collectStackTrace|instructionsWithHashes|serialize|handleEvents|iterateEvents|flushDecoders|stdout|stderr|exitCode|error|toJSON|toDockerfile|build)$/

function namesOf(prefix, object, end) {
  const found = []
  for (let at = object; at && at !== end; at = Object.getPrototypeOf(at)) found.push(...Object.getOwnPropertyNames(at))
  return [...new Set(found)].filter(n => !INTERNAL.test(n) && !n.startsWith('_') && !n.startsWith('#')).map(n => `${prefix}.${n}`)
}

test('every public method of the SDK has a row', async () => {
  const handle = await sandbox.commands.run('true', { background: true })
  const all = [
    ...namesOf('Sandbox', Sandbox, Function.prototype), ...namesOf('sandbox', Sandbox.prototype, Object.prototype),
    ...['commands', 'files', 'pty', 'git'].flatMap(part => namesOf(part, Object.getPrototypeOf(sandbox[part]), Object.prototype)),
    ...namesOf('handle', Object.getPrototypeOf(handle), Object.prototype), ...namesOf('Template', Template, Function.prototype),
    ...namesOf('template', sdk.TemplateBase.prototype, Object.prototype), ...namesOf('Volume', Volume, Function.prototype),
    ...namesOf('volume', Volume.prototype, Object.prototype), ...namesOf('Secret', Secret, Function.prototype),
    ...Object.keys(new sdk.E2B({})).map(n => `E2B.${n}`), ...Object.keys(sdk).filter(n => n.startsWith('waitFor')).map(n => `ready.${n}`),
  ]
  assert.deepEqual(all.filter(n => !rows[n]), [], 'methods without a row')
  assert.ok(all.length > 120, `${all.length} were found`)
})

test('every public method of the SDK is in docs/api/e2b.md', async () => {
  const text = await readFile(join(process.env.COVE_EXAMPLES, '../api/e2b.md'), 'utf8')
  const documented = [...text.split('## SDK methods')[1].split('\n## ')[0].matchAll(/^\| (\w+) \| ([\w, ]+) \|/gm)]
    .flatMap(([, of, methods]) => methods.split(', ').map(m => `${of}.${m}`))
  assert.deepEqual(Object.keys(rows).filter(n => !documented.includes(n)), [], 'methods that the document does not have')
  assert.deepEqual(documented.filter(n => n !== 'of.methods' && !rows[n]), [], 'methods that nobody tests')
})

// In the order of the table: later rows use what earlier ones made.
for (const [method, [succeeds, fail, kind, message]] of Object.entries(rows))
  test(method, { timeout: 60000 }, async () => {
    if (typeof succeeds === 'function') await succeeds()
    if (!fail) return
    if (!kind) return await fail()
    const attempt = (async () => fail())()
    await (kind === Error ? assert.rejects(attempt) : rejects(attempt, kind, message))
  })

after(() => api('DELETE', `/templates/${name}`))
