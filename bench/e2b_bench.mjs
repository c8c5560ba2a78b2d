// The e2b dialect measured with the official SDK: Sandbox.create() until the first output of `echo hi`, one after another and in a
// burst; files, also by curl beside an nginx alone; many commands at once. Every round takes one sample of each contestant: the SDK against this server, the SDK against
// a canned server that does nothing (its own cost), bubblewrap and a bare spawn. Prints Markdown.
//
//   bench/e2b.sh [--rounds 100] [--burst 100] [--mb 100] [--commands 1000]
//
// e2b.sh starts a server and puts this file beside a node_modules that has `e2b`.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import os from 'node:os'
import { parseArgs } from 'node:util'
import { Sandbox } from 'e2b'

const { values: options } = parseArgs({ options: {
  rounds: { type: 'string', default: '100' }, burst: { type: 'string', default: '100' }, mb: { type: 'string', default: '100' }, commands: { type: 'string', default: '1000' } } })
const count = name => Number(options[name])

// ------------------------------------------------------------------ a server that does nothing

const envelope = (message, flags = 0) => {
  const bytes = Buffer.from(JSON.stringify(message)), head = Buffer.alloc(5)
  head.writeUInt8(flags)
  head.writeUInt32BE(bytes.length, 1)
  return Buffer.concat([head, bytes])
}
const started = Buffer.concat([envelope({ event: { start: { pid: 2 } } }), envelope({ event: { data: { stdout: 'aGkK' } } }),
  envelope({ event: { end: { exited: true, status: 'exit status 0' } } }), envelope({}, 2)])
const made = JSON.stringify({ sandboxID: 'i0000000000000000000', templateID: 'base', clientID: 'x', envdVersion: '0.6.13', envdAccessToken: 'x', domain: null })

function answer(request, reply) {
  request.resume()
  request.on('end', () => {
    if (request.url.startsWith('/v2/sandboxes')) reply.writeHead(201, { 'Content-Type': 'application/json' }).end(made)
    else if (request.url.endsWith('/Start')) reply.writeHead(200, { 'Content-Type': 'application/connect+json' }).end(started)
    else if (request.url.startsWith('/files') && request.method === 'POST') reply.writeHead(200, { 'Content-Type': 'application/json' }).end('[{"path":"/x","name":"x","type":"file"}]')
    else if (request.url.startsWith('/files')) reply.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': payload.length }).end(payload)
    else reply.writeHead(204).end()
  })
}
const payload = Buffer.alloc(count('mb') * 1e6, 7)
const canned = http.createServer(answer)
await new Promise(resolve => canned.listen(0, '127.0.0.1', resolve))
const nothing = `http://127.0.0.1:${canned.address().port}`
const servers = { cove: {}, 'the SDK alone (canned server)': { apiUrl: nothing, sandboxUrl: nothing } }

// ------------------------------------------------------------------ samples

async function timed(body) {
  const start = process.hrtime.bigint()
  const value = await body()
  return [Number(process.hrtime.bigint() - start) / 1e6, value]
}

// Creation until the first output; the sandbox is killed afterwards, outside the measurement.
async function first(server) {
  const [ms, sandbox] = await timed(async () => {
    const sandbox = await Sandbox.create(server)
    const { stdout } = await sandbox.commands.run('echo hi')
    if (stdout !== 'hi\n') throw new Error(`'${stdout}' is not what echo hi writes`)
    return sandbox
  })
  return [ms, sandbox]
}

const run = (program, ...args) => timed(() => new Promise((resolve, reject) => {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  child.on('error', reject)
  child.stdout.on('data', () => {})
  child.on('close', code => (code === 0 ? resolve() : reject(new Error(`${program}: exit code ${code}`))))
}))
const bubblewrap = () => run('bwrap', '--unshare-all', '--ro-bind', '/usr', '/usr', '--symlink', 'usr/bin', '/bin', '--symlink', 'usr/lib', '/lib',
  '--symlink', 'usr/lib64', '/lib64', '--proc', '/proc', '--dev', '/dev', '/bin/bash', '-c', 'echo hi')

const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))]
const ms = value => value.toFixed(value < 100 ? 1 : 0)
const row = (...cells) => console.log(`| ${cells.join(' | ')} |`)
function table(title, ...head) {
  console.log(`\n${title}\n`)
  row(...head)
  row(...head.map(() => '---'))
}

// ------------------------------------------------------------------ the parts

async function inSequence() {
  const samples = Object.fromEntries([...Object.keys(servers), 'bubblewrap, bash -c', 'bare spawn, bash -c'].map(name => [name, []]))
  const opening = {} // a process's first call also loads and compiles the SDK's HTTP client, whoever it is made to: told apart
  for (let i = -1; i < count('rounds'); i++) {
    for (const [name, server] of Object.entries(servers)) {
      const [took, sandbox] = await first(server)
      if (i < 0) opening[name] = took
      else samples[name].push(took)
      await sandbox.kill()
    }
    if (i < 0) continue
    samples['bubblewrap, bash -c'].push((await bubblewrap())[0])
    samples['bare spawn, bash -c'].push((await run('/bin/bash', '-c', 'echo hi'))[0])
  }
  table(`create until the first output, ${options.rounds} times one after another (ms)`, 'what', 'p50', 'p99', 'longest', 'the very first')
  for (const [name, list] of Object.entries(samples))
    row(name, ms(quantile(list, 0.5)), ms(quantile(list, 0.99)), ms(Math.max(...list)), name in opening ? ms(opening[name]) : '')
}

async function atOnce() {
  table(`${options.burst} at once (ms)`, 'what', 'all done after', 'p50', 'p99', 'failed')
  for (const [name, server] of Object.entries(servers)) {
    const [all, results] = await timed(() => Promise.allSettled(Array.from({ length: count('burst') }, () => first(server))))
    const good = results.filter(r => r.status === 'fulfilled').map(r => r.value)
    row(name, ms(all), ms(quantile(good.map(g => g[0]), 0.5)), ms(quantile(good.map(g => g[0]), 0.99)), results.length - good.length)
    await Promise.allSettled(good.map(([, sandbox]) => sandbox.kill()))
  }
}

async function files() {
  table(`a file of ${options.mb} MB (ms)`, 'what', 'up', 'down')
  for (const [name, server] of Object.entries(servers)) {
    const sandbox = await Sandbox.create(server)
    const [up] = await timed(() => sandbox.files.write('big', new Blob([payload]).stream(), { requestTimeoutMs: 0 }))
    const [down, bytes] = await timed(() => sandbox.files.read('big', { format: 'bytes', requestTimeoutMs: 0 }))
    if (bytes.length !== payload.length) throw new Error(`${bytes.length} bytes came back`)
    row(name, ms(up), ms(down))
    await sandbox.kill()
  }
}

// An nginx that keeps what is put and serves it: its port, and how to end it.
async function plainNginx(folder) {
  const probe = http.createServer()
  await new Promise(resolve => probe.listen(0, '127.0.0.1', resolve))
  const { port } = probe.address()
  await new Promise(resolve => probe.close(resolve))
  const temp = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(name => `${name}_temp_path ${folder}/${name};`).join(' ')
  fs.writeFileSync(`${folder}/nginx.conf`, `user root; worker_processes auto; pid ${folder}/pid; error_log ${folder}/log; daemon off; events { }
    http { access_log off; sendfile on; client_max_body_size 0; ${temp} server { listen 127.0.0.1:${port}; root ${folder}; dav_methods PUT; } }`)
  const child = spawn('nginx', ['-c', `${folder}/nginx.conf`, '-e', `${folder}/log`], { stdio: 'inherit' })
  for (let i = 0; i < 100 && !fs.existsSync(`${folder}/pid`); i++) await new Promise(resolve => setTimeout(resolve, 50))
  return [port, () => new Promise(resolve => { child.on('close', resolve); child.kill('SIGQUIT') })]
}

const curl = (...args) => run('curl', '-sf', '-o', '/dev/null', ...args).then(([took]) => took)

// The same file by curl, in turns: through cove into a sandbox and back, and an nginx alone. (An nginx keeps what is put in a file first and then moves it.)
async function filesByCurl() {
  const folder = fs.mkdtempSync(`${os.tmpdir()}/e2b-bench-`), rounds = 7
  const [port, stop] = await plainNginx(folder)
  const sandbox = await Sandbox.create(), samples = { cove: [[], []], 'nginx alone': [[], []] }
  const where = [`${process.env.E2B_SANDBOX_URL}/files?path=big`, '-H', `E2b-Sandbox-Id: ${sandbox.sandboxId}`, '-H', 'E2b-Sandbox-Port: 49983', '-H', `X-Access-Token: ${sandbox.envdAccessToken}`]
  try {
    fs.writeFileSync(`${folder}/big`, payload)
    for (let i = -1; i < rounds; i++) {
      const took = {
        cove: [await curl('-X', 'POST', '-H', 'Content-Type: application/octet-stream', '-T', `${folder}/big`, ...where), await curl(...where)],
        'nginx alone': [await curl('-T', `${folder}/big`, `http://127.0.0.1:${port}/put`), await curl(`http://127.0.0.1:${port}/put`)] }
      if (i >= 0) for (const [name, both] of Object.entries(took)) both.forEach((value, k) => samples[name][k].push(value))
    }
  } finally {
    await sandbox.kill()
    await stop()
    fs.rmSync(folder, { recursive: true })
  }
  table(`a file of ${options.mb} MB by curl, median of ${rounds} (ms)`, 'what', 'up', 'down')
  for (const [name, both] of Object.entries(samples)) row(name, ...both.map(list => ms(quantile(list, 0.5))))
}

async function manyCommands() {
  const sandbox = await Sandbox.create({ timeoutMs: 600_000 })
  const [took, failed] = await timed(async () => {
    let failed = 0
    const handles = await Promise.all(Array.from({ length: count('commands') }, (_, i) =>
      sandbox.commands.run(`echo ${i}; sleep 0.1; echo end`, { background: true, timeoutMs: 0, requestTimeoutMs: 0 })))
    for (const [i, handle] of handles.entries()) failed += (await handle.wait()).stdout !== `${i}\nend\n`
    return failed
  })
  table(`${options.commands} commands in the background, their output followed`, 'all done after (ms)', 'wrong output')
  row(ms(took), failed)
  await sandbox.kill()
}

await inSequence()
await atOnce()
await files()
await filesByCurl()
await manyCommands()
canned.close()
