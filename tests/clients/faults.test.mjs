// What a broken or hostile client sends, and what happens to a sandbox under an open stream.
import assert from 'node:assert/strict'
import http from 'node:http'
import { test } from 'node:test'
import { Sandbox, TimeoutError } from 'e2b'
import { api, apiUrl, envd, envelope, envelopes, rejects, until, withSandbox } from './helper.mjs'

const raw = (sandbox, method, type, body, headers = {}) => envd(sandbox.sandboxId, 'POST', method,
  { token: sandbox.envdAccessToken, headers: { 'Content-Type': type, ...headers }, body })
const prefix = (flags, length) => { const b = Buffer.alloc(5); b.writeUInt8(flags); b.writeUInt32BE(length, 1); return b }

test('envelopes that are none are invalid_argument or resource_exhausted, in the stream’s own end', withSandbox(async sandbox => {
  const whole = envelope({ process: { cmd: 'true' } })
  const cases = [
    ['nothing', Buffer.alloc(0), 'invalid_argument'], ['half a prefix', whole.subarray(0, 3), 'invalid_argument'],
    ['half a message', whole.subarray(0, -1), 'invalid_argument'], ['unknown flags', envelope({ process: { cmd: 'true' } }, 0x80), 'invalid_argument'],
    ['an end instead of a message', envelope({}, 2), 'invalid_argument'], ['compressed without saying so', envelope({}, 1), 'invalid_argument'],
    ['two messages', Buffer.concat([whole, whole]), 'invalid_argument'], ['4 GiB', Buffer.concat([prefix(0, 0xffffffff), Buffer.alloc(10)]), 'resource_exhausted'],
    ['no JSON', Buffer.concat([prefix(0, 3), Buffer.from('{{{')]), 'invalid_argument'],
  ]
  for (const type of ['application/connect+json', 'application/connect+proto'])
    for (const [what, body, code] of cases) {
      const reply = await raw(sandbox, '/process.Process/Start', type, body)
      assert.equal(reply.status, 200, what)
      const { error } = (await envelopes(reply)).at(-1)
      assert.ok(error && [code, 'invalid_argument'].includes(error.code), `${type}, ${what}: ${JSON.stringify(error)}`)
    }
  assert.equal((await sandbox.commands.run('echo fine')).stdout, 'fine\n')
}))

test('messages that are none name the field; unknown fields and enum values pass or are refused as protobuf has it', withSandbox(async sandbox => {
  const call = async (method, body, headers) => {
    const reply = await raw(sandbox, method, 'application/json', typeof body === 'string' ? body : JSON.stringify(body), headers)
    return [reply.status, await reply.json()]
  }
  const invalid = async (method, body, headers) => {
    const [status, answer] = await call(method, body, headers)
    assert.deepEqual([status, answer.code], [400, 'invalid_argument'], `${JSON.stringify(body).slice(0, 80)}: ${JSON.stringify(answer)}`)
    return answer.message
  }
  assert.match(await invalid('/process.Process/SendInput', { process: { pid: 1 }, input: { stdin: '%%%' } }), /stdin/)
  assert.match(await invalid('/filesystem.Filesystem/ListDir', { path: 5 }), /path/)
  assert.match(await invalid('/filesystem.Filesystem/ListDir', { path: '/', depth: -1 }), /depth/)
  await invalid('/filesystem.Filesystem/Stat', '{"path":'.repeat(3000) + '1' + '}'.repeat(3000))
  await invalid('/filesystem.Filesystem/Stat', '')
  await invalid('/filesystem.Filesystem/Stat', '[]')
  await invalid('/filesystem.Filesystem/Stat', { path: '/' }, { 'Connect-Timeout-Ms': '12345678901' })
  await invalid('/filesystem.Filesystem/Stat', { path: '/' }, { 'Connect-Protocol-Version': '2' })
  await invalid('/filesystem.Filesystem/Stat', { path: '/' }, { 'Content-Encoding': 'br' })
  await invalid('/filesystem.Filesystem/Stat', 'no gzip', { 'Content-Encoding': 'gzip' })
  await invalid('/filesystem.Filesystem/Stat', { path: '/' + 'x'.repeat(5000) })
  assert.equal((await call('/filesystem.Filesystem/Stat', { path: '/', unknown: { deep: [1] } }))[0], 200)
  assert.equal((await call('/filesystem.Filesystem/Stat', '{"path":"/nope","path":"/"}'))[0], 200)
  for (const garbage of [Buffer.from([0xff, 0xff, 0xff]), Buffer.from([0x0a, 0x80, 0x80, 0x80, 0x80, 0x10]), Buffer.alloc(1000, 0x0b)])
    assert.equal((await raw(sandbox, '/filesystem.Filesystem/Stat', 'application/proto', garbage)).status, 400)
  assert.equal((await raw(sandbox, '/filesystem.Filesystem/Stat', 'text/plain', '{}')).status, 415)
  assert.equal((await raw(sandbox, '/filesystem.Filesystem/Stat', 'application/connect+json', envelope({}))).status, 415)
  assert.equal((await raw(sandbox, '/filesystem.Filesystem/Nothing', 'application/json', '{}')).status, 404)
}))

test('a client that stops reading holds up its own process, and nothing else', withSandbox(async sandbox => {
  const body = envelope({ process: { cmd: '/bin/sh', args: ['-c', 'yes | head -c 50000000; echo done >&2'] }, stdin: false })
  const stalled = await new Promise((resolve, reject) => {
    const request = http.request(`${apiUrl}/process.Process/Start`, { method: 'POST', headers: {
      'Content-Type': 'application/connect+json', 'Content-Length': body.length, 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983',
      'X-Access-Token': sandbox.envdAccessToken } }, resolve)
    request.on('error', reject)
    request.end(body)
  })
  for (let i = 0; i < 20; i++) assert.equal((await sandbox.commands.run(`echo ${i}`)).stdout, `${i}\n`)
  assert.equal((await sandbox.commands.list()).length, 1, 'it waits for its reader')
  let bytes = 0
  for await (const chunk of stalled) bytes += chunk.length
  assert.ok(bytes > 50_000_000, 'all of it comes once the client reads')
}))

for (const [how, end] of [['killed', s => s.kill()], ['expired', s => s.setTimeout(1000)]])
  test(`a sandbox that is ${how} under its streams: all of them break off, and say why`, withSandbox(async sandbox => {
    await sandbox.files.makeDir('d')
    let exit
    await sandbox.files.watchDir('d', () => {}, { timeoutMs: 0, onExit: e => { exit = { e } } })
    const running = [1, 2, 3].map(() => sandbox.commands.run('sleep 1000', { timeoutMs: 0 }))
    const results = running.map(r => rejects(r, TimeoutError))
    await until(async () => (await sandbox.commands.list()).length === 3, 'three processes')
    await end(sandbox)
    await Promise.all(results)
    await until(() => exit, 'the end of the watch')
    assert.equal(await sandbox.isRunning(), false)
  }))

test('paused under a stream: nothing is lost, and it goes on after the resume', withSandbox(async sandbox => {
  const command = await sandbox.commands.run('i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.05; done', { background: true, timeoutMs: 0 })
  await until(() => command.stdout.includes('5\n'), 'its first lines')
  await sandbox.pause()
  await Sandbox.connect(sandbox.sandboxId)
  const result = await command.wait()
  assert.deepEqual(result.stdout.trim().split('\n').map(Number), Array.from({ length: 40 }, (_, i) => i))
}))

test('one file written by two clients is one of the two, never a mixture', withSandbox(async sandbox => {
  const one = 'a'.repeat(3_000_000), two = 'b'.repeat(3_000_000)
  for (let round = 0; round < 3; round++) {
    await Promise.all([sandbox.files.write('f', one), sandbox.files.write('f', two)])
    const got = await sandbox.files.read('f')
    assert.ok(got === one || got === two)
  }
  assert.equal((await sandbox.commands.run('ls -A | grep -c part || true')).stdout, '0\n')
}))

test('git helpers: init, commit, branches, status, clone', withSandbox(async sandbox => {
  const { git } = sandbox
  await git.init('repo')
  await git.configureUser('Me', 'me@example.test', { scope: 'local', path: 'repo' })
  await sandbox.files.write('repo/a', '1')
  assert.equal((await git.status('repo')).hasUntracked, true)
  await git.add('repo')
  await git.commit('repo', 'first')
  assert.equal((await git.status('repo')).isClean, true)
  await git.createBranch('repo', 'other')
  assert.ok((await git.branches('repo')).branches.includes('other'))
  await git.clone('/home/user/repo', { path: 'copy' })
  assert.equal(await sandbox.files.read('copy/a'), '1')
  await assert.rejects(git.clone('/home/user/nothing', { path: 'none' }))
}))

test('git helpers: remotes, push and pull, checkout, reset, restore, configuration', withSandbox(async sandbox => {
  const { git } = sandbox
  await sandbox.commands.run('git init -q --bare -b main origin.git')
  await git.init('repo', { initialBranch: 'main' })
  await git.setConfig('user.name', 'Me', { scope: 'local', path: 'repo' })
  await git.setConfig('user.email', 'me@example.test', { scope: 'local', path: 'repo' })
  assert.equal(await git.getConfig('user.name', { scope: 'local', path: 'repo' }), 'Me')
  await git.remoteAdd('repo', 'origin', '/home/user/origin.git')
  assert.equal(await git.remoteGet('repo', 'origin'), '/home/user/origin.git')
  assert.equal(await git.remoteGet('repo', 'nobody'), undefined)
  await sandbox.files.write('repo/a', '1')
  await git.add('repo', { files: ['a'] })
  await git.commit('repo', 'first', { authorName: 'Other', authorEmail: 'other@example.test' })
  await git.push('repo', { remote: 'origin', branch: 'main', setUpstream: true })
  await git.clone('/home/user/origin.git', { path: 'copy', branch: 'main' })
  await sandbox.files.write('repo/a', '2')
  await git.add('repo')
  await git.commit('repo', 'second')
  await git.push('repo')
  await git.pull('copy')
  assert.equal(await sandbox.files.read('copy/a'), '2')
  await git.createBranch('repo', 'side')
  await git.checkoutBranch('repo', 'main')
  assert.equal((await git.branches('repo')).currentBranch, 'main')
  await git.deleteBranch('repo', 'side')
  assert.ok(!(await git.branches('repo')).branches.includes('side'))
  await assert.rejects(git.checkoutBranch('repo', 'nowhere'))
  await sandbox.files.write('repo/a', 'spoilt')
  await git.restore('repo', { paths: ['a'] })
  assert.equal(await sandbox.files.read('repo/a'), '2')
  await git.reset('repo', { mode: 'hard', target: 'HEAD~1' })
  assert.equal(await sandbox.files.read('repo/a'), '1')
  await git.dangerouslyAuthenticate({ username: 'me', password: 'secret', host: 'git.example.test' })
  assert.match((await sandbox.commands.run('cat ~/.git-credentials')).stdout, /me:secret@git.example.test/)
}))

test('calls that only the platform makes are 404 from outside, with and without a token', withSandbox(async sandbox => {
  for (const path of ['/init', '/freeze', '/unfreeze', '/collapse', '/fsfreeze', '/fsthaw', '/upgrade'])
    for (const token of [undefined, sandbox.envdAccessToken]) {
      const reply = await envd(sandbox.sandboxId, 'POST', path, { token, headers: { 'Content-Type': 'application/json' }, body: '{"accessToken":"mine","envVars":{"A":"1"}}' })
      assert.equal(reply.status, 404, `${path}: ${await reply.text()}`)
    }
  assert.equal((await sandbox.commands.run('echo "[$A]"')).stdout, '[]\n')
}))

test('two hundred questions for sandboxes that are not there are all answered alike', async () => {
  const replies = await Promise.all(Array.from({ length: 200 }, (_, i) => api('GET', `/sandboxes/i${String(i).padStart(19, '0')}`)))
  assert.deepEqual(new Set(replies.map(r => r.status)), new Set([404]))
})
