import assert from 'node:assert/strict'
import { test } from 'node:test'
import { NotFoundError } from 'e2b'
import { rejects, until, withSandbox } from './helper.mjs'

function reader() {
  const decoder = new TextDecoder()
  const r = { text: '', onData: bytes => { r.text += decoder.decode(bytes, { stream: true }) } }
  return r
}

test('create: a login shell on a terminal of that size; input, resize, end', withSandbox(async sandbox => {
  const out = reader()
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: out.onData, timeoutMs: 0, envs: { WHO: 'me' } })
  const type = text => sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(text))
  await type('echo "[$WHO $TERM $(tput cols)]"\n')
  await until(() => out.text.includes('[me xterm-256color 80]'), 'the answer')
  await sandbox.pty.resize(terminal.pid, { cols: 123, rows: 30 })
  await type('echo "<$(tput cols)>"\n')
  await until(() => out.text.includes('<123>'), 'the new size')
  await type('exit 4\n')
  const error = await terminal.wait().then(() => null, e => e)
  assert.equal(error.exitCode, 4)
}))

test('kill: the terminal is gone, a second time false', withSandbox(async sandbox => {
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} })
  assert.equal(await sandbox.pty.kill(terminal.pid), true)
  await assert.rejects(terminal.wait())
  assert.equal(await sandbox.pty.kill(terminal.pid), false)
  await rejects(sandbox.pty.resize(terminal.pid, { cols: 1, rows: 1 }), NotFoundError)
}))

test('connect: a second client sees what comes', withSandbox(async sandbox => {
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 0 })
  const out = reader()
  const second = await sandbox.pty.connect(terminal.pid, { onData: out.onData })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('echo $((40+2))!\n'))
  await until(() => out.text.includes('42!'), 'the answer')
  await second.disconnect()
}))
