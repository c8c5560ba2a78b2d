// The official CLI, unchanged: every command that needs no person, and the two that need a terminal, in tmux.
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { Sandbox } from 'e2b'
import { until, withSandbox } from './helper.mjs'

const home = mkdtempSync(join(tmpdir(), 'cove-cli-'))
const program = join(process.cwd(), 'node_modules/@e2b/cli/dist/index.js')
const env = { ...process.env, HOME: home, NO_UPDATE_NOTIFIER: '1', FORCE_COLOR: '0', TMUX: '' }
let sandbox

before(async () => { sandbox = await Sandbox.create({ timeoutMs: 300_000 }) })
after(async () => {
  await sandbox.kill()
  rmSync(home, { recursive: true, force: true })
})

// Runs the CLI and gives back what came of it.
function e2b(args, input = '') {
  return new Promise(resolve => {
    const child = spawn(process.execPath, [program, ...args], { env, timeout: 60_000 })
    let stdout = '', stderr = ''
    child.stdout.on('data', d => { stdout += d })
    child.stderr.on('data', d => { stderr += d })
    child.on('close', code => resolve({ code, stdout, stderr }))
    child.stdin.on('error', () => {}) // a command that reads nothing may have gone
    child.stdin.end(input)
  })
}

test('create, list, info, pause, resume, kill', async () => {
  const made = await e2b(['sandbox', 'create', '--detach', '--timeout', '120', 'base'])
  assert.equal(made.code, 0, made.stderr)
  const id = /[a-z0-9]{20}/.exec(made.stdout)[0]
  const list = async state => JSON.parse((await e2b(['sandbox', 'list', '--format', 'json', '--state', state])).stdout).map(s => s.sandboxId)
  assert.ok((await list('running')).includes(id))
  assert.match((await e2b(['sandbox', 'info', id])).stdout, /State: running/)
  assert.equal((await e2b(['sandbox', 'pause', id])).code, 0)
  assert.ok((await list('paused')).includes(id))
  assert.equal((await e2b(['sandbox', 'resume', id])).code, 0)
  assert.ok((await list('running')).includes(id))
  assert.match((await e2b(['sandbox', 'kill', id])).stdout, /has been killed/)
  assert.match((await e2b(['sandbox', 'kill', id])).stderr, /wasn't found/)
})

test('exec: input, output, user, directory, variables, exit code', async () => {
  const id = sandbox.sandboxId
  const cat = await e2b(['sandbox', 'exec', id, 'cat'], 'line\n'.repeat(50_000))
  assert.deepEqual([cat.code, cat.stdout.length], [0, 250_000])
  const run = await e2b(['sandbox', 'exec', '-u', 'root', '-c', '/tmp', '-e', 'A=b', id, '--', 'sh', '-c', 'id -un; pwd; echo $A; echo oops >&2; exit 3'])
  assert.deepEqual([run.code, run.stdout], [3, 'root\n/tmp\nb\n'])
  assert.match(run.stderr, /oops/)
})

test('logs and metrics can be read', withSandbox(async sandbox => {
  await sandbox.commands.run('echo seen-in-the-log')
  const logs = await e2b(['sandbox', 'logs', sandbox.sandboxId])
  assert.equal(logs.code, 0, logs.stderr)
  assert.match(logs.stdout, /INFO .*seen-in-the-log/)
  await until(async () => (await sandbox.getMetrics()).length, 'a sample', 30_000)
  assert.match((await e2b(['sandbox', 'metrics', sandbox.sandboxId])).stdout, /CPU: .* Memory: .* Disk: /)
}))

test('snapshots and templates', async () => {
  const made = await e2b(['sandbox', 'snapshot', 'create', sandbox.sandboxId])
  const id = /snapshot (\S+) from/.exec(made.stdout)[1]
  assert.ok((await e2b(['sandbox', 'snapshot', 'list'])).stdout.includes(id))
  assert.equal((await e2b(['sandbox', 'snapshot', 'delete', id])).code, 0)
  assert.ok(!(await e2b(['sandbox', 'snapshot', 'list'])).stdout.includes(id))
  assert.match((await e2b(['template', 'list'])).stdout, /base/)
})

test('template create, list, publish, delete', async () => {
  const dir = join(home, 'template'), name = `cli-${process.pid}-${Date.now()}`
  mkdirSync(dir)
  writeFileSync(join(dir, 'e2b.Dockerfile'), 'FROM e2bdev/base\nCOPY word.txt /home/user/word.txt\nRUN tr a-z A-Z < /home/user/word.txt > /home/user/loud\n')
  writeFileSync(join(dir, 'word.txt'), 'word\n')
  const made = await e2b(['template', 'create', '--path', dir, name])
  assert.equal(made.code, 0, made.stdout + made.stderr)
  const built = await Sandbox.create(name)
  assert.equal(await built.files.read('loud'), 'WORD\n')
  await built.kill()
  const mine = JSON.parse((await e2b(['template', 'list', '--format', 'json'])).stdout).find(t => t.aliases?.includes(name))
  assert.ok(mine, 'the template is listed')
  const published = await e2b(['template', 'publish', '--yes', mine.templateID])
  assert.match(published.stdout + published.stderr, /that tenant's alone/)
  assert.equal((await e2b(['template', 'unpublish', '--yes', mine.templateID])).code, 0)
  assert.equal((await e2b(['template', 'delete', '--yes', mine.templateID])).code, 0)
  assert.ok(!(await e2b(['template', 'list'])).stdout.includes(name))
  const broken = await e2b(['template', 'delete', '--yes', mine.templateID])
  assert.notEqual(broken.code, 0)
})

test('every command of the program is in docs/api/e2b.md', async () => {
  const text = readFileSync(join(process.env.COVE_EXAMPLES, '../api/e2b.md'), 'utf8').split('## CLI commands')[1].split('\n## ')[0]
  const documented = [...text.matchAll(/^\| ([\w ]+) \| ([\w, ]+) \|/gm)].flatMap(([, group, names]) => names.split(', ').map(n => `${group} ${n}`))
  const commands = async (...group) => [...(await e2b([...group, '--help'])).stdout.split('Commands:')[1].matchAll(/^  ([a-z]+)/gm)].map(m => m[1]).filter(n => n !== 'help')
  const groups = await commands()
  assert.deepEqual(groups.sort(), ['auth', 'sandbox', 'template'])
  const all = []
  for (const group of [['auth'], ['sandbox'], ['template'], ['sandbox', 'snapshot']])
    all.push(...(await commands(...group)).filter(n => n !== 'snapshot').map(n => `${group.join(' ')} ${n}`))
  assert.deepEqual(all.sort(), documented.filter(n => n !== 'group commands').sort())
})

// Runs `body` with a terminal in which the CLI has been started: type(text), shows(pattern, what), ended().
async function inTerminal(t, args, body) {
  const run = promisify(execFile)
  const socket = join(home, 'tmux')
  const tmux = (...args) => run('tmux', ['-S', socket, ...args], { env })
  try {
    await run('tmux', ['-V'])
  } catch {
    return t.skip('tmux is not installed')
  }
  try {
    await tmux('new-session', '-d', '-x', '120', '-y', '30', process.execPath, program, ...args)
    await body({
      type: text => tmux('send-keys', text, 'Enter'),
      shows: (pattern, what) => until(async () => (await tmux('capture-pane', '-p')).stdout.match(pattern), what, 30_000),
      ended: () => until(async () => (await tmux('list-sessions').catch(() => null)) === null, 'the end of the session', 30_000),
    })
  } finally {
    await tmux('kill-server').catch(() => {})
  }
}

test('connect: a terminal in which one types', t => inTerminal(t, ['sandbox', 'connect', sandbox.sandboxId], async terminal => {
  await terminal.shows(/\$ *$/m, 'the prompt')
  await terminal.type('echo $((6*7)) $(tput cols)x$(tput lines) $(id -un)')
  await terminal.shows(/^42 120x30 user$/m, 'what was typed, in a terminal of that size')
  await terminal.type('exit')
  await terminal.ended()
}))

test('create: a new sandbox and a terminal in it, which ends with the terminal', t => inTerminal(t, ['sandbox', 'create', 'base'], async terminal => {
  await terminal.shows(/\$ *$/m, 'the prompt')
  await terminal.type('echo id=$E2B_SANDBOX_ID.')
  const [, id] = await terminal.shows(/^id=([a-z0-9]{20})\.$/m, 'its id')
  assert.equal((await Sandbox.getInfo(id)).state, 'running')
  await terminal.type('exit')
  await terminal.ended()
  await until(async () => !(await Sandbox.getInfo(id).catch(() => null)), 'the end of the sandbox')
}))
