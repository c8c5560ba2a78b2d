// @e2b/code-interpreter against a template with the server of docs/examples/code_interpreter.py: every public method, with success and failure.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { InvalidArgumentError, NotFoundError, Sandbox, SandboxError, Template, TimeoutError, waitForPort } from '@e2b/code-interpreter'
import { api, rejects, until } from './helper.mjs'

const name = `interpreter-${process.pid}`
const soon = { requestTimeoutMs: 5000 } // the client's timer goes on after an error, and node waits for it
let sandbox

before(async () => {
  const template = Template({ fileContextPath: process.env.COVE_EXAMPLES })
    .fromTemplate('base')
    .copy('code_interpreter.py', '/opt/code-interpreter/code_interpreter.py')
    .setStartCmd('python3 /opt/code-interpreter/code_interpreter.py', waitForPort(49999))
  await Template.build(template, name)
  sandbox = await Sandbox.create(name)
})

after(async () => {
  await sandbox?.kill()
  await api('DELETE', `/templates/${name}`)
})

test('runCode: a cell has a result, output and a number, and sees the cells before it', async () => {
  const first = await sandbox.runCode('import sys\nx = 20\nprint("out")\nprint("err", file=sys.stderr)\nx + 1')
  assert.equal(first.text, '21')
  assert.equal(first.logs.stdout.join(''), 'out\n')
  assert.equal(first.logs.stderr.join(''), 'err\n')
  assert.equal(first.error, undefined)
  assert.ok(first.results[0].isMainResult)
  const second = await sandbox.runCode('x * 2')
  assert.equal(second.text, '40')
  assert.equal(second.executionCount, first.executionCount + 1)
  assert.equal((await sandbox.runCode('y = 1')).text, undefined)
})

test('runCode: output, results and errors are told while the cell runs', async () => {
  const told = []
  let release
  const seen = new Promise(r => { release = r })
  const run = sandbox.runCode('import time, os\nprint("first", flush=True)\nwhile not os.path.exists("/tmp/go"): time.sleep(0.01)\ndisplay(5)\n1/0', {
    onStdout: m => { told.push(m.line); release() },
    onResult: r => told.push(r.text),
    onError: e => told.push(e.name),
  })
  await seen
  await sandbox.files.write('/tmp/go', '')
  await run
  assert.deepEqual(told.join('').replace('\n', ' '), 'first 5ZeroDivisionError')
})

test('runCode: what a cell shows comes in its formats', async () => {
  const { results } = await sandbox.runCode('class Page:\n  def _repr_html_(self): return "<b>x</b>"\n  def _repr_png_(self): return b"png"\nPage()')
  assert.equal(results[0].html, '<b>x</b>')
  assert.equal(Buffer.from(results[0].png, 'base64').toString(), 'png')
  assert.deepEqual(results[0].formats(), ['html', 'png'])
})

test('runCode: an exception is an error with name, value and traceback; so is text that is no Python', async () => {
  const { error } = await sandbox.runCode('def f():\n  raise ValueError("why")\nf()')
  assert.equal(error.name, 'ValueError')
  assert.equal(error.value, 'why')
  assert.match(error.traceback, /line 2, in f/)
  assert.equal((await sandbox.runCode('for')).error.name, 'SyntaxError')
  assert.equal((await sandbox.runCode('exit(3)')).error.name, 'SystemExit')
  assert.equal((await sandbox.runCode('1 + 1')).text, '2', 'the context goes on')
})

test('runCode: variables of one call are gone after it', async () => {
  const code = 'import os\nos.environ.get("ONLY_HERE")'
  assert.equal((await sandbox.runCode(code, { envs: { ONLY_HERE: 'yes' } })).text, "'yes'")
  assert.equal((await sandbox.runCode(code)).text, undefined)
})

test('runCode: a cell whose client gives up is a TimeoutError, is interrupted, and the next one runs', { timeout: 60000 }, async () => {
  const context = await sandbox.createCodeContext()
  await rejects(sandbox.runCode('import time\nwhile True:\n  print("x", flush=True)\n  time.sleep(0.05)', { context, timeoutMs: 1000 }), TimeoutError, /timed out/)
  assert.equal((await sandbox.runCode('"again"', { context })).text, "'again'")
})

test('runCode: a cell that kills its own process is an error, and its context begins anew', async () => {
  const context = await sandbox.createCodeContext()
  const { error } = await sandbox.runCode('z = 1\nimport os; os.kill(os.getpid(), 9)', { context })
  assert.equal(error.name, 'ContextEnded')
  assert.equal((await sandbox.runCode('z', { context })).error.name, 'NameError')
})

test('runCode: a language that the server does not have is a SandboxError, context and language at once an InvalidArgumentError', async () => {
  await rejects(sandbox.runCode('1', { language: 'r', ...soon }), SandboxError, /400/)
  const context = await sandbox.createCodeContext()
  await rejects(sandbox.runCode('1', { language: 'python', context }), InvalidArgumentError)
})

test('contexts: each has its own names and directory; restarted it has forgotten; removed it is a NotFoundError', async () => {
  const context = await sandbox.createCodeContext({ cwd: '/tmp', language: 'python' })
  assert.deepEqual({ language: context.language, cwd: context.cwd }, { language: 'python', cwd: '/tmp' })
  assert.equal((await sandbox.runCode('import os\nown = 1\nos.getcwd()', { context })).text, "'/tmp'")
  assert.equal((await sandbox.runCode('own')).error.name, 'NameError')
  assert.ok((await sandbox.listCodeContexts()).some(c => c.id === context.id))
  await sandbox.restartCodeContext(context)
  assert.equal((await sandbox.runCode('own', { context })).error.name, 'NameError')
  await sandbox.removeCodeContext(context)
  assert.ok(!(await sandbox.listCodeContexts()).some(c => c.id === context.id))
  await rejects(sandbox.runCode('1', { context, ...soon }), NotFoundError)
  await rejects(sandbox.removeCodeContext(context.id), NotFoundError)
  await rejects(sandbox.restartCodeContext('no-such-context'), NotFoundError)
  await rejects(sandbox.createCodeContext({ cwd: '/no/such/place' }), SandboxError, /400/)
})

test('a sandbox that is killed: the running cell and the next one are TimeoutErrors', { timeout: 60000 }, async () => {
  const other = await Sandbox.create(name)
  const lines = []
  const run = other.runCode('print("runs", flush=True)\nimport time\ntime.sleep(100)', { onStdout: m => lines.push(m.line) })
  const failed = rejects(run, TimeoutError)
  await until(() => lines.length, 'the first line')
  await other.kill()
  await failed
  await rejects(other.runCode('1', soon), TimeoutError, /sandbox/)
  await rejects(other.listCodeContexts(), TimeoutError)
})
