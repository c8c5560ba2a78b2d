import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, SandboxError, TimeoutError } from 'e2b'
import { envd, envelope, envelopes, rejects, until, withSandbox } from './helper.mjs'

test('run: output of both streams, the exit code, home as the place', withSandbox(async sandbox => {
  const result = await sandbox.commands.run('echo out; echo err >&2; pwd; id -un')
  assert.deepEqual({ ...result }, { exitCode: 0, error: undefined, stdout: 'out\n/home/user\nuser\n', stderr: 'err\n' })
  const error = await rejects(sandbox.commands.run('echo before; exit 3'), CommandExitError, /exit status 3/)
  assert.equal(error.exitCode, 3)
  assert.equal(error.stdout, 'before\n')
}))

test('run: a command that is not there ends with 127', withSandbox(async sandbox => {
  const error = await rejects(sandbox.commands.run('no-such-command'), CommandExitError)
  assert.equal(error.exitCode, 127)
}))

test('run: cwd, envs and user', withSandbox(async sandbox => {
  assert.equal((await sandbox.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  assert.equal((await sandbox.commands.run('echo $A', { envs: { A: 'x y' } })).stdout, 'x y\n')
  assert.equal((await sandbox.commands.run('echo "[$A]"')).stdout, '[]\n')
  assert.equal((await sandbox.commands.run('id -u; pwd', { user: 'root' })).stdout, '0\n/root\n')
  await rejects(sandbox.commands.run('pwd', { cwd: '/nowhere' }), InvalidArgumentError, /cwd '\/nowhere' does not exist/)
  await rejects(sandbox.commands.run('pwd', { user: 'nobody-here' }), AuthenticationError, /invalid username: 'nobody-here'/)
}))

test('run: the deadline kills the command, and what it started', withSandbox(async sandbox => {
  await rejects(sandbox.commands.run('sleep 1000 & sleep 1001', { timeoutMs: 500 }), TimeoutError)
  await until(async () => (await sandbox.commands.list()).length === 0, 'the end of it')
  assert.equal((await sandbox.commands.run('pgrep -c sleep || true')).stdout, '0\n')
}))

test('run: 20 MB of output come whole', withSandbox(async sandbox => {
  let bytes = 0
  const result = await sandbox.commands.run('head -c 20000000 /dev/zero | tr "\\0" x; echo; echo end >&2', { onStdout: d => { bytes += d.length } })
  assert.equal(bytes, 20000001)
  assert.equal(result.stdout.length, 20000001)
  assert.equal(result.stderr, 'end\n')
}))

test('run: what is no UTF-8, and a character on the border of two reads', withSandbox(async sandbox => {
  const result = await sandbox.commands.run("head -c 8191 /dev/zero | tr '\\0' a; printf '\\xe2\\x82\\xac\\xff'")
  assert.equal(result.stdout, 'a'.repeat(8191) + '€\ufffd')
}))

test('background: output as it comes, wait, kill', withSandbox(async sandbox => {
  const seen = []
  const command = await sandbox.commands.run('echo one; cat; echo two', { background: true, stdin: true, onStdout: d => seen.push(d) })
  await until(() => seen.join('') === 'one\n', 'the first line')
  await sandbox.commands.sendStdin(command.pid, 'text\n')
  await until(() => seen.join('') === 'one\ntext\n', 'the echo')
  await sandbox.commands.closeStdin(command.pid)
  assert.equal((await command.wait()).stdout, 'one\ntext\ntwo\n')
}))

// The SDK has 200 connections to a sandbox, so 200 of these streams are open at a time and the others wait in it.
test('a thousand commands in the background at once, all of them followed', withSandbox(async sandbox => {
  const handles = await Promise.all(Array.from({ length: 1000 }, (_, i) =>
    sandbox.commands.run(`echo ${i}; sleep 0.1; echo end`, { background: true, timeoutMs: 0, requestTimeoutMs: 0 })))
  const outputs = await Promise.all(handles.map(async handle => (await handle.wait()).stdout))
  assert.deepEqual(outputs.filter((text, i) => text !== `${i}\nend\n`), [])
}))

test('kill: true for a process that runs, false for one that does not', withSandbox(async sandbox => {
  const command = await sandbox.commands.run('sleep 1000', { background: true })
  assert.equal(await sandbox.commands.kill(command.pid), true)
  const error = await rejects(command.wait(), CommandExitError, /signal: killed/)
  assert.equal(error.exitCode, -1)
  assert.equal(await sandbox.commands.kill(command.pid), false)
  assert.equal(await sandbox.commands.kill(999999), false)
}))

test('list: what runs, with its command line', withSandbox(async sandbox => {
  assert.deepEqual(await sandbox.commands.list(), [])
  const command = await sandbox.commands.run('sleep 1000', { background: true })
  const [only, ...rest] = await sandbox.commands.list()
  assert.deepEqual(rest, [])
  assert.equal(only.pid, command.pid)
  assert.equal(only.cmd, '/bin/bash')
  assert.deepEqual(only.args, ['-l', '-c', 'sleep 1000'])
}))

test('list: the command as it was asked for, with its variables and its directory', withSandbox(async sandbox => {
  const long = 'sleep 1000 # ' + 'x'.repeat(2000)
  await sandbox.commands.run(long, { background: true, envs: { A: '1', B: 'two' }, cwd: '/tmp' })
  const [only] = await sandbox.commands.list()
  assert.deepEqual(only.args, ['-l', '-c', long])
  assert.deepEqual(only.envs, { A: '1', B: 'two' })
  assert.equal(only.cwd, '/tmp')
}))

test('a tag names a process, for whoever has no pid', withSandbox(async sandbox => {
  const stream = body => envd(sandbox.sandboxId, 'POST', '/process.Process/Start',
    { token: sandbox.envdAccessToken, headers: { 'Content-Type': 'application/connect+json' }, body: envelope(body) })
  const started = await stream({ process: { cmd: 'cat' }, tag: 'mine', stdin: true })
  const [event] = await envelopes(started, 1)
  const call = (method, message) => envd(sandbox.sandboxId, 'POST', `/process.Process/${method}`,
    { token: sandbox.envdAccessToken, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(message) })
  const [only] = await sandbox.commands.list()
  assert.deepEqual([only.tag, only.pid], ['mine', event.event.start.pid])
  assert.equal((await call('SendSignal', { process: { tag: 'mine' }, signal: 'SIGNAL_SIGKILL' })).status, 200)
  assert.equal((await call('SendSignal', { process: { tag: 'other' }, signal: 'SIGNAL_SIGKILL' })).status, 404)
  await until(async () => (await sandbox.commands.list()).length === 0, 'its end')
}))

test('StreamInput: input as a stream, each message as it comes', withSandbox(async sandbox => {
  const command = await sandbox.commands.run('cat', { background: true, stdin: true, timeoutMs: 0 })
  const send = (...messages) => envd(sandbox.sandboxId, 'POST', '/process.Process/StreamInput',
    { token: sandbox.envdAccessToken, headers: { 'Content-Type': 'application/connect+json' }, body: Buffer.concat(messages.map(envelope)) })
  let more
  const body = new ReadableStream({ start(controller) { more = controller } })
  const reply = envd(sandbox.sandboxId, 'POST', '/process.Process/StreamInput',
    { token: sandbox.envdAccessToken, headers: { 'Content-Type': 'application/connect+json' }, body })
  more.enqueue(envelope({ start: { process: { pid: command.pid } } }))
  more.enqueue(envelope({ data: { input: { stdin: btoa('one\n') } } }))
  await until(() => command.stdout === 'one\n', 'the first line, before the stream has ended')
  more.enqueue(envelope({ keepalive: {} }))
  more.enqueue(envelope({ data: { input: { stdin: btoa('two\n') } } }))
  more.close()
  assert.deepEqual(await envelopes(await reply), [{}, {}])
  await until(() => command.stdout === 'one\ntwo\n', 'the second line')
  const error = async (...messages) => (await envelopes(await send(...messages))).at(-1).error.code
  assert.equal(await error({ data: { input: { stdin: 'eA==' } } }), 'invalid_argument')
  assert.equal(await error({ start: { process: { pid: 999999 } } }), 'not_found')
  assert.equal(await error(), 'invalid_argument')
  await command.kill()
}))

test('connect: another client follows from now on; the process outlives who started it', withSandbox(async sandbox => {
  const first = await sandbox.commands.run('echo early; read line; echo got $line', { background: true, stdin: true, timeoutMs: 0 })
  await until(() => first.stdout === 'early\n', 'its first words')
  await first.disconnect()
  const second = await sandbox.commands.connect(first.pid)
  await sandbox.commands.sendStdin(first.pid, 'this\n')
  const result = await second.wait()
  assert.equal(result.stdout, 'got this\n')
  await rejects(sandbox.commands.connect(999999), NotFoundError, /process with pid 999999 not found/)
}))

test('sendStdin: to a process that is gone, or has no input', withSandbox(async sandbox => {
  await rejects(sandbox.commands.sendStdin(999999, 'x'), NotFoundError)
  const command = await sandbox.commands.run('sleep 1000', { background: true, stdin: false })
  await rejects(sandbox.commands.sendStdin(command.pid, 'x'), SandboxError)
}))

test('the command policy: a refusal is an error with rule and reason, and nothing ran', withSandbox(async sandbox => {
  await rejects(sandbox.commands.run('touch ran; rm -rf /'), SandboxError, /not allowed: rule .+: .+/)
  assert.equal(await sandbox.files.exists('ran'), false)
}))

test('thirty commands at once', withSandbox(async sandbox => {
  const results = await Promise.all(Array.from({ length: 30 }, (_, i) => sandbox.commands.run(`echo ${i}`)))
  assert.deepEqual(results.map(r => r.stdout), Array.from({ length: 30 }, (_, i) => `${i}\n`))
}))

test('sudo: user becomes root without a password; input, output, exit code, a terminal', withSandbox(async sandbox => {
  assert.equal((await sandbox.commands.run('sudo -n true && sudo id -u && sudo -u www-data id -un && id -un')).stdout, '0\nwww-data\nuser\n')
  assert.equal((await rejects(sandbox.commands.run('sudo sh -c "exit 9"'), CommandExitError)).exitCode, 9)
  await sandbox.files.write('/root/by-root', 'for root only', { user: 'root' })
  await sandbox.commands.run('chmod 600 /root/by-root', { user: 'root' })
  assert.equal((await sandbox.commands.run('cat /root/by-root 2>&1 || sudo cat /root/by-root')).stdout.split('\n').at(-1), 'for root only')
  const command = await sandbox.commands.run('sudo sh -c "trap \\"echo bye; exit 5\\" TERM; echo ready; sleep 1000 & wait"', { background: true, stdin: true })
  await until(() => command.stdout === 'ready\n', 'the trap')
  await sandbox.commands.run('sudo pkill -TERM -f "trap.*ready"', {}).catch(() => {})
  assert.equal((await rejects(command.wait(), CommandExitError)).exitCode, 5)
  let seen = ''
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: bytes => { seen += new TextDecoder().decode(bytes) } })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('sudo sh -c "tty >/dev/null && echo on-a-\\"\\"terminal; sleep 1000"\n'))
  await until(() => seen.includes('on-a-terminal'), 'a terminal')
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('\x03'))
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('echo "ended:$?"\n'))
  await until(() => seen.includes('ended:130'), 'the interrupt')
}))
