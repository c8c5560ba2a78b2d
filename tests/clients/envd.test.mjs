// envd by the wire: the rules of the reference that the other suites, which use the SDK, do not show. One table a section; each row is a rule.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { envd, envelope, envelopes, until, withSandbox } from './helper.mjs'

// Calls of one sandbox's envd: rpc() is unary, stream() gives the messages until the end, or so many.
function calls(sandbox) {
  const send = (path, body, type, headers = {}) =>
    envd(sandbox.sandboxId, 'POST', path, { token: sandbox.envdAccessToken, headers: { 'Content-Type': type, ...headers }, body })
  const rpc = async (method, message, headers) => {
    const reply = await send(`/${method}`, JSON.stringify(message), 'application/json', headers)
    return { status: reply.status, ...await reply.json() }
  }
  const stream = async (method, message, { count, headers } = {}) => {
    const reply = await send(`/${method}`, envelope(message), 'application/connect+json', headers)
    return envelopes(reply, count)
  }
  const http = (method, path, options = {}) => envd(sandbox.sandboxId, method, path, { token: sandbox.envdAccessToken, ...options })
  return { rpc, stream, http }
}

const START = 'process.Process/Start', CONNECT = 'process.Process/Connect'
const shell = (text, more = {}) => ({ process: { cmd: '/bin/bash', args: ['-l', '-c', text], ...more.process }, stdin: false, ...more.start })
const as = name => ({ Authorization: `Basic ${Buffer.from(`${name}:`).toString('base64')}` })
const outputOf = messages => Buffer.concat(messages.map(m => Buffer.from(m.event?.data?.stdout ?? '', 'base64'))).toString()
const errorOf = messages => messages.at(-1).error

// Starts a process that goes on: its pid, and whether the client is still there is no matter to it.
async function begin(stream, message, headers) {
  const [first] = await stream(START, message, { count: 1, headers })
  assert.ok(first.event?.start?.pid, JSON.stringify(first))
  return { pid: first.event.start.pid }
}

const processRules = {
  'Start: a directory that is not there': async ({ stream }) => {
    const { code, message } = errorOf(await stream(START, shell('true', { process: { cwd: '/no/such' } })))
    assert.deepEqual([code, message], ['invalid_argument', "cwd '/no/such' does not exist"])
  },
  'Start: an unknown user': async ({ stream }) => {
    const { code, message } = errorOf(await stream(START, shell('true'), { headers: as('nobody-here') }))
    assert.deepEqual([code, message], ['unauthenticated', "invalid username: 'nobody-here'"])
  },
  'Start: first `start`, then the data, then `end`, then the end of the stream': async ({ stream }) => {
    const messages = await stream(START, shell('echo x'))
    assert.deepEqual(messages.map(m => Object.keys(m.event ?? { over: 1 })[0]), ['start', 'data', 'end', 'over'])
    assert.deepEqual(messages[2].event.end, { exited: true, status: 'exit status 0' })
    assert.deepEqual(messages[3], {})
  },
  'end: a code, and a signal': async ({ stream }) => {
    assert.deepEqual((await stream(START, shell('exit 3'))).at(-2).event.end, { exitCode: 3, exited: true, status: 'exit status 3', error: 'exit status 3' })
    assert.deepEqual((await stream(START, shell('kill -TERM $$'))).at(-2).event.end, { exitCode: -1, status: 'signal: terminated', error: 'signal: terminated' })
  },
  'environment: the request’s own variables win, and no other call sees them': async ({ stream }) => {
    assert.equal(outputOf(await stream(START, shell('echo $HOME $USER $LOGNAME $GLOBAL $E2B_SANDBOX', { process: { envs: { GLOBAL: 'mine' } } }))), '/home/user user user mine true\n')
    assert.equal(outputOf(await stream(START, shell('echo $GLOBAL'))), 'all\n')
  },
  'stdin: false is /dev/null': async ({ stream }) => assert.equal(outputOf(await stream(START, shell('readlink /proc/self/fd/0'))), '/dev/null\n'),
  'chunks: no more than 32 KiB': async ({ stream }) => {
    const sizes = (await stream(START, shell('head -c 300000 /dev/zero'))).map(m => Buffer.from(m.event?.data?.stdout ?? '', 'base64').length)
    assert.equal(sizes.reduce((a, b) => a + b), 300000)
    assert.ok(Math.max(...sizes) <= 32768, `${Math.max(...sizes)}`)
  },
  'deadline: the process is killed and the stream says so': async ({ stream, rpc }) => {
    const messages = await stream(START, shell('exec sleep 1000'), { headers: { 'Connect-Timeout-Ms': '300' } })
    assert.equal(errorOf(messages).code, 'deadline_exceeded')
    await until(async () => !(await rpc('process.Process/List', {})).processes?.length, 'the end of the process')
  },
  'Connect: unknown is not_found; of one that has just ended, `start` and `end`': async ({ stream }) => {
    assert.deepEqual(errorOf(await stream(CONNECT, { process: { pid: 999999 } })), { code: 'not_found', message: 'process with pid 999999 not found' })
    const pid = (await stream(START, shell('exit 4')))[0].event.start.pid
    const late = await stream(CONNECT, { process: { pid } })
    assert.deepEqual([late[0].event.start.pid, late[1].event.end.exitCode], [pid, 4])
  },
  'SendInput: what has no stdin, what is no terminal, nothing at all': async ({ stream, rpc }) => {
    const process = await begin(stream, shell('exec sleep 1000'))
    const stdin = Buffer.from('x').toString('base64')
    assert.equal((await rpc('process.Process/SendInput', { process, input: { stdin } })).code, 'internal')
    assert.equal((await rpc('process.Process/SendInput', { process, input: { pty: stdin } })).code, 'internal')
    assert.equal((await rpc('process.Process/SendInput', { process, input: {} })).code, 'unimplemented')
    assert.equal((await rpc('process.Process/SendInput', { process: { pid: 999999 }, input: { stdin } })).code, 'not_found')
    assert.equal((await rpc('process.Process/Update', { process, pty: { size: { rows: 1, cols: 1 } } })).code, 'internal')
    assert.deepEqual(await rpc('process.Process/Update', { process }), { status: 200 })
    assert.equal((await rpc('process.Process/SendSignal', { process, signal: 'SIGNAL_UNSPECIFIED' })).code, 'unimplemented')
    assert.deepEqual(await rpc('process.Process/SendSignal', { process, signal: 'SIGNAL_SIGKILL' }), { status: 200 })
  },
  'CloseStdin: cat ends, and a second time does no harm': async ({ stream, rpc }) => {
    const process = await begin(stream, { process: { cmd: 'sh', args: ['-c', 'cat; exec sleep 1000'] }, stdin: true })
    for (let i = 0; i < 2; i++) assert.deepEqual(await rpc('process.Process/CloseStdin', { process }), { status: 200 })
    assert.equal((await rpc('process.Process/SendInput', { process, input: { stdin: 'eA==' } })).code, 'internal')
    await rpc('process.Process/SendSignal', { process, signal: 'SIGNAL_SIGKILL' })
  },
  'CloseStdin: a terminal has no such end': async ({ stream, rpc }) => {
    const process = await begin(stream, { process: { cmd: 'sleep', args: ['1000'] }, pty: { size: { rows: 10, cols: 40 } } })
    const { code, message } = await rpc('process.Process/CloseStdin', { process })
    assert.equal(code, 'unknown')
    assert.match(message, /cannot close stdin for PTY process/)
    assert.equal((await rpc('process.Process/SendInput', { process, input: { stdin: 'eA==' } })).code, 'internal')
    await rpc('process.Process/SendSignal', { process, signal: 'SIGNAL_SIGKILL' })
  },
}

const FILES = 'filesystem.Filesystem'
const fileRules = {
  'Stat: a link tells what it leads to; a broken one, a FIFO and a socket have no type': async ({ rpc, stream }) => {
    await stream(START, shell('cd /tmp && echo hello > real && chmod 640 real && ln -s real link && ln -s nowhere broken && mkfifo fifo'))
    const stat = async path => (await rpc(`${FILES}/Stat`, { path })).entry
    const link = await stat('/tmp/link')
    assert.deepEqual([link.type, link.mode, link.symlinkTarget, link.path], ['FILE_TYPE_FILE', 0o640, '/tmp/real', '/tmp/link'])
    const broken = await stat('/tmp/broken')
    assert.deepEqual([broken.type, broken.mode ?? 0, broken.symlinkTarget], [undefined, 0, '/tmp/broken'])
    assert.equal((await stat('/tmp/fifo')).type, undefined)
    assert.equal((await stat('/tmp/fifo')).permissions, 'prw-r--r--')
    assert.ok(Number((await stat('/tmp')).size) > 0)
    assert.equal((await rpc(`${FILES}/Stat`, { path: '/tmp/none' })).code, 'not_found')
  },
  'paths: ~, relative and empty ones begin at home, dots are taken out': async ({ rpc }) => {
    const where = async (path, headers) => (await rpc(`${FILES}/Stat`, { path }, headers)).entry.path
    assert.deepEqual([await where('~'), await where(''), await where('.'), await where('/tmp/../etc/./hostname')], ['/home/user', '/home/user', '/home/user', '/etc/hostname'])
    assert.equal(await where('~', as('root')), '/root')
  },
  'MakeDir: its new parts are 0755 and the user’s': async ({ rpc }) => {
    const { entry } = await rpc(`${FILES}/MakeDir`, { path: '/home/user/a/b' })
    assert.deepEqual([entry.path, entry.permissions, entry.owner, entry.group], ['/home/user/a/b', 'drwxr-xr-x', 'user', 'user'])
    assert.equal((await rpc(`${FILES}/Stat`, { path: 'a' })).entry.owner, 'user')
    assert.equal((await rpc(`${FILES}/MakeDir`, { path: 'a/b' })).code, 'already_exists')
    assert.equal((await rpc(`${FILES}/MakeDir`, { path: '/etc/hostname' })).code, 'invalid_argument')
  },
  'ListDir: a link as the root, a link below it, a loop': async ({ rpc, stream }) => {
    await stream(START, shell('mkdir -p tree/deep && touch tree/deep/f && ln -s tree rootlink && ln -s deep tree/inner && ln -s loop loop'))
    const list = async (path, depth) => (await rpc(`${FILES}/ListDir`, { path, depth })).entries.map(e => e.path)
    assert.deepEqual(await list('rootlink', 0), ['/home/user/rootlink/deep', '/home/user/rootlink/inner'])
    assert.deepEqual(await list('rootlink', 5), ['/home/user/rootlink/deep', '/home/user/rootlink/deep/f', '/home/user/rootlink/inner'])
    assert.equal((await rpc(`${FILES}/ListDir`, { path: 'loop' })).code, 'failed_precondition')
  },
  'Remove: what is missing is gone already': async ({ rpc }) => assert.deepEqual(await rpc(`${FILES}/Remove`, { path: '/tmp/never' }), { status: 200 }),
  'watchers: their ids begin with w': async ({ rpc }) => {
    const { watcherId } = await rpc(`${FILES}/CreateWatcher`, { path: '/tmp' })
    assert.match(watcherId, /^w/)
    assert.deepEqual(await rpc(`${FILES}/RemoveWatcher`, { watcherId }), { status: 200 })
  },
}

const httpRules = {
  '/health needs no token and is 204': async ({ http }) => assert.equal((await http('GET', '/health', { token: '' })).status, 204),
  'without the token, or with a wrong one: 401 in plain JSON, on RPC paths too': async ({ http }) => {
    for (const token of ['', 'wrong'])
      for (const path of ['/envs', '/metrics', '/process.Process/List']) {
        const reply = await http(path.startsWith('/p') ? 'POST' : 'GET', path, { token, ...(path.startsWith('/p') ? { headers: { 'Content-Type': 'application/json' }, body: '{}' } : {}) })
        assert.equal(reply.status, 401, path)
        const { code, message } = await reply.json()
        assert.ok((code === 401 || code === 'unauthenticated') && message, path)
      }
  },
  '/metrics has its figures': async ({ http }) => {
    const figures = await (await http('GET', '/metrics')).json()
    for (const name of ['ts', 'cpu_count', 'cpu_used_pct', 'mem_total', 'mem_used', 'mem_cache', 'disk_used', 'disk_total']) assert.equal(typeof figures[name], 'number', name)
  },
  'GET /files: the headers of a file, of an empty one, and what is refused': async ({ http }) => {
    await http('POST', '/files?path=page.html', { headers: { 'Content-Type': 'application/octet-stream' }, body: '<p>' })
    await http('POST', '/files?path=nothing', { headers: { 'Content-Type': 'application/octet-stream' }, body: '' })
    const reply = await http('GET', '/files?path=page.html', { headers: { 'Accept-Encoding': 'identity' } })
    assert.deepEqual(['content-length', 'accept-ranges'].map(name => reply.headers.get(name)), ['3', 'bytes'])
    assert.match(reply.headers.get('content-disposition'), /^inline; filename=/)
    assert.match(reply.headers.get('content-type'), /^text\/html/)
    assert.match(reply.headers.get('vary'), /Accept-Encoding/i)
    assert.ok(Date.parse(reply.headers.get('last-modified')))
    assert.equal((await http('GET', '/files?path=nothing')).headers.get('content-length'), '0')
    const refused = async (query, headers) => { const r = await http('GET', `/files${query}`, { headers }); return [r.status, (await r.json()).message] }
    assert.deepEqual(await refused('?path=/tmp'), [400, "path '/tmp' is a directory"])
    assert.equal((await refused(''))[0], 400)
    assert.deepEqual(await refused('?path=/no/such'), [404, "path '/no/such' does not exist"])
    assert.equal((await refused('?path=page.html&username=nobody-here'))[0], 401)
    assert.equal((await refused('?path=page.html', { 'Accept-Encoding': 'identity;q=0, br' }))[0], 406)
    assert.equal((await refused('?path=page.html', { 'Accept-Encoding': 'br, *;q=0' }))[0], 406)
    assert.equal((await http('GET', '/files?path=page.html', { headers: { 'Accept-Encoding': 'gzip;q=0.5, identity;q=0' } })).headers.get('content-encoding'), 'gzip')
  },
  'POST /files: which bodies are taken': async ({ http }) => {
    const post = async (query, type, body, headers = {}) => { const r = await http('POST', `/files${query}`, { headers: { 'Content-Type': type, ...headers }, body }); return r.status }
    assert.equal(await post('', 'application/octet-stream', 'x'), 400)
    assert.equal(await post('?path=x', 'text/plain', 'x'), 400)
    assert.equal(await post('?path=x', 'application/octet-stream', 'x', { 'Content-Encoding': 'br' }), 400)
    assert.equal(await post('?path=/tmp', 'application/octet-stream', 'x'), 400)
    const form = (...parts) => `${parts.map(([name, file, text]) => `--b\r\nContent-Disposition: form-data; name="${name}"${file ? `; filename="${file}"` : ''}\r\n\r\n${text}\r\n`).join('')}--b--\r\n`
    const multipart = 'multipart/form-data; boundary=b'
    assert.equal(await post('', multipart, form(['file', 'deep/größe', 'one'], ['other', '', 'ignored'])), 200)
    assert.equal(await (await http('GET', `/files?path=${encodeURIComponent('deep/größe')}`)).text(), 'one')
    assert.equal(await post('?path=field', multipart, form(['file', '', 'a plain field'])), 200)
    assert.equal(await (await http('GET', '/files?path=field')).text(), 'a plain field')
    assert.equal(await post('', multipart, form(['file', 'twice', '1'], ['file', 'twice', '2'])), 400)
  },
  'POST /files: a file that is there keeps its mode and changes its owner': async ({ http, stream, rpc }) => {
    await stream(START, shell('echo old > /home/user/kept; chmod 751 /home/user/kept; chown root /home/user/kept'), { headers: as('root') })
    const reply = await http('POST', '/files?path=kept', { headers: { 'Content-Type': 'application/octet-stream' }, body: 'new' })
    assert.deepEqual(await reply.json(), [{ path: '/home/user/kept', name: 'kept', type: 'file' }])
    const { entry } = await rpc(`${FILES}/Stat`, { path: 'kept' })
    assert.deepEqual([entry.mode, entry.owner, entry.group], [0o751, 'user', 'user'])
    await http('POST', '/files?path=hello.txt&username=root', { headers: { 'Content-Type': 'application/octet-stream' }, body: 'x' })
    assert.equal((await rpc(`${FILES}/Stat`, { path: '/root/hello.txt' })).entry.owner, 'root')
  },
}

const insideRules = {
  'its user, umask, home and variables; a login shell prints nothing of its own': async ({ stream }) => {
    const out = async text => outputOf(await stream(START, shell(text)))
    assert.equal(await out('echo $E2B_SANDBOX $E2B_TEMPLATE_ID ${#E2B_SANDBOX_ID}; umask'), 'true base 20\n0022\n')
    assert.equal(await out('id -un; id -gn; getent passwd user | cut -d: -f6,7; pwd'), 'user\nuser\n/home/user:/bin/bash\n/home/user\n')
    assert.equal(await out('true'), '')
  },
}

for (const [section, rules] of Object.entries({ processes: processRules, files: fileRules, http: httpRules, inside: insideRules }))
  test(`${section}, rule by rule`, withSandbox(async (sandbox, t) => {
    for (const [rule, check] of Object.entries(rules)) await t.test(rule, () => check(calls(sandbox)))
  }, { envs: { GLOBAL: 'all' } }))
