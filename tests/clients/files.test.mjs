import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import { AuthenticationError, FileNotFoundError, FileType, InvalidArgumentError, NotEnoughSpaceError, Sandbox } from 'e2b'
import { api, envd, rejects, withSandbox } from './helper.mjs'

test('write and read: text, bytes, blob, stream, empty; parents are made', withSandbox(async sandbox => {
  const info = await sandbox.files.write('deep/er/a.txt', 'grüße')
  assert.deepEqual({ ...info, metadata: undefined }, { name: 'a.txt', path: '/home/user/deep/er/a.txt', type: 'file', metadata: undefined })
  assert.equal(await sandbox.files.read('deep/er/a.txt'), 'grüße')
  const bytes = new Uint8Array(100_000).map((_, i) => i * 7)
  await sandbox.files.write('b', bytes.buffer)
  assert.deepEqual(await sandbox.files.read('b', { format: 'bytes' }), bytes)
  await sandbox.files.write('c', new Blob(['blob']))
  assert.equal(await (await sandbox.files.read('c', { format: 'blob' })).text(), 'blob')
  await sandbox.files.write('d', new Blob(['str', 'eam']).stream())
  assert.equal(await sandbox.files.read('d'), 'stream')
  for (const format of ['text', 'bytes', 'blob', 'stream']) {
    await sandbox.files.write('empty', '')
    const got = await sandbox.files.read('empty', { format })
    assert.equal(format === 'stream' ? await new Response(got).text() : (got.length ?? got.size) ? 'more' : '', '')
  }
  assert.equal((await sandbox.commands.run('stat -c "%U %G %a" b')).stdout, 'user user 644\n')
}))

test('write: several files in one request, each where its name says', withSandbox(async sandbox => {
  const written = await sandbox.files.write([{ path: 'one', data: '1' }, { path: '/tmp/two', data: '2' }, { path: 'd/größe', data: '3' }])
  assert.deepEqual(written.map(f => f.path), ['/home/user/one', '/tmp/two', '/home/user/d/größe'])
  assert.equal(await sandbox.files.read('d/größe'), '3')
}))

test('write: gzip on the way, and what is not gzip is refused', withSandbox(async sandbox => {
  await sandbox.files.write('packed', 'x'.repeat(100_000), { gzip: true })
  assert.equal((await sandbox.files.read('packed')).length, 100_000)
  const headers = { 'Content-Type': 'application/octet-stream', 'Content-Encoding': 'gzip' }
  const reply = await envd(sandbox.sandboxId, 'POST', '/files?path=packed', { token: sandbox.envdAccessToken, headers, body: 'plain' })
  assert.equal(reply.status, 400)
  assert.equal((await sandbox.files.read('packed')).length, 100_000)
}))

test('write: 50 MB go up and come down the same', withSandbox(async sandbox => {
  const bytes = new Uint8Array(50_000_000)
  for (let i = 0; i < bytes.length; i += 4096) bytes[i] = i >> 12
  await sandbox.files.write('large', new Blob([bytes]).stream())
  const hash = data => createHash('sha256').update(data).digest('hex')
  assert.equal((await sandbox.commands.run('sha256sum < large')).stdout.slice(0, 64), hash(bytes))
  assert.equal(hash(await sandbox.files.read('large', { format: 'bytes' })), hash(bytes))
}))

test('write: root rights, but the file is the user’s', withSandbox(async sandbox => {
  await sandbox.files.write('/opt/there/x', '1')
  assert.equal((await sandbox.commands.run('stat -c %U /opt/there /opt/there/x')).stdout, 'user\nuser\n')
  await sandbox.files.write('x', '1', { user: 'root' })
  assert.equal((await sandbox.commands.run('stat -c %U /root/x', { user: 'root' })).stdout, 'root\n')
  await rejects(sandbox.files.write('x', '1', { user: 'nobody-here' }), AuthenticationError)
}))

test('read: missing, a directory, /proc', withSandbox(async sandbox => {
  await rejects(sandbox.files.read('nope'), FileNotFoundError, /path '\/home\/user\/nope' does not exist/)
  await rejects(sandbox.files.read('/etc'), InvalidArgumentError, /is a directory/)
  assert.match(await sandbox.files.read('/proc/sys/kernel/random/boot_id'), /^[0-9a-f-]{36}\n$/)
}))

test('read: ranges and conditions', withSandbox(async sandbox => {
  await sandbox.files.write('r', '0123456789')
  const get = headers => envd(sandbox.sandboxId, 'GET', '/files?path=r', { token: sandbox.envdAccessToken, headers })
  const cases = [['bytes=2-4', '234', 'bytes 2-4/10'], ['bytes=7-', '789', 'bytes 7-9/10'], ['bytes=-2', '89', 'bytes 8-9/10'], ['bytes=5-99', '56789', 'bytes 5-9/10']]
  for (const [range, text, told] of cases) {
    const reply = await get({ Range: range })
    assert.equal(reply.status, 206, range)
    assert.equal(await reply.text(), text)
    assert.equal(reply.headers.get('content-range'), told)
  }
  assert.equal((await get({ Range: 'bytes=10-' })).status, 416)
  const whole = await get({ Range: 'bytes=0-1,4-5' })
  assert.equal(whole.status, 200)
  assert.equal((await get({ 'If-None-Match': whole.headers.get('etag') })).status, 304)
  assert.equal((await get({ 'If-Modified-Since': whole.headers.get('last-modified') })).status, 304)
  assert.equal((await get({ Range: 'bytes=0-1', 'If-Range': '"other"' })).status, 200)
}))

test('exists, makeDir, rename, remove', withSandbox(async sandbox => {
  const { files } = sandbox
  assert.equal(await files.exists('d'), false)
  assert.equal(await files.makeDir('d/e/f'), true)
  assert.equal(await files.makeDir('d/e/f'), false)
  assert.equal(await files.exists('d/e'), true)
  await files.write('d/x', '1')
  await rejects(files.makeDir('d/x'), InvalidArgumentError)
  assert.equal((await files.rename('d/x', 'new/place/y')).path, '/home/user/new/place/y')
  await rejects(files.rename('d/x', 'z'), FileNotFoundError)
  await files.remove('d')
  await files.remove('d')
  assert.equal(await files.exists('d'), false)
}))

test('list: order, depth, links, owners', withSandbox(async sandbox => {
  await sandbox.commands.run('mkdir -p t/b/c t/a && touch t/z t/b/f && ln -s b t/link && ln -s nowhere t/broken && chmod 4755 t/z')
  const one = await sandbox.files.list('t')
  assert.deepEqual(one.map(e => e.name), ['a', 'b', 'link', 'z'])
  assert.deepEqual((await sandbox.files.list('t', { depth: 3 })).map(e => e.path.slice(13)), ['a', 'b', 'b/c', 'b/f', 'link', 'z'])
  const link = one.find(e => e.name === 'link')
  assert.equal(link.type, FileType.DIR)
  assert.equal(link.symlinkTarget, '/home/user/t/b')
  const z = one.find(e => e.name === 'z')
  assert.deepEqual([z.type, z.size, z.mode, z.permissions, z.owner, z.group], [FileType.FILE, 0, 0o755, 'urwxr-xr-x', 'user', 'user'])
  await rejects(sandbox.files.list('t/z'), InvalidArgumentError)
  await rejects(sandbox.files.list('nope'), FileNotFoundError)
}))

test('getInfo: a file, a directory, a broken link', withSandbox(async sandbox => {
  await sandbox.commands.run('echo hi > f && ln -s nowhere broken')
  const file = await sandbox.files.getInfo('f')
  assert.deepEqual([file.name, file.size, file.permissions], ['f', 3, '-rw-r--r--'])
  assert.ok(Math.abs(file.modifiedTime - Date.now()) < 60_000)
  assert.equal((await sandbox.files.getInfo('/tmp')).permissions, 'dtrwxrwxrwx')
  assert.equal((await sandbox.files.getInfo('broken')).symlinkTarget, '/home/user/broken')
  await rejects(sandbox.files.getInfo('nope'), FileNotFoundError)
}))

test('signed addresses: read and write without a token, until they run out', withSandbox(async sandbox => {
  await sandbox.files.write('s', 'secret')
  const fetchSigned = (url, options = {}) => fetch(url, { ...options, headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' } })
  const down = await sandbox.downloadUrl('s', { useSignatureExpiration: 60 })
  assert.equal(await (await fetchSigned(down)).text(), 'secret')
  const up = await sandbox.uploadUrl('s', { useSignatureExpiration: 60 })
  const form = new FormData()
  form.append('file', new Blob(['changed']), 'ignored')
  assert.equal((await fetchSigned(up, { method: 'POST', body: form })).status, 200)
  assert.equal(await sandbox.files.read('s'), 'changed')
  const bad = await fetchSigned(down.replace(/signature=[^&]*/, 'signature=v1_x'))
  assert.deepEqual([bad.status, await bad.json()], [401, { message: 'invalid signature', code: 401 }])
  const late = await fetchSigned(await sandbox.downloadUrl('s', { useSignatureExpiration: -60 }))
  assert.deepEqual([late.status, await late.json()], [401, { message: 'signature is already expired', code: 401 }])
  const none = await fetchSigned(down.replace(/signature=[^&]*&?/, ''))
  assert.deepEqual([none.status, await none.json()], [401, { message: 'missing signature query parameter', code: 401 }])
}))

test('signed addresses: at one address for all, they need no header that names the sandbox', withSandbox(async sandbox => {
  await sandbox.files.write('mine', 'of the first')
  const other = await Sandbox.create()
  try {
    await other.files.write('mine', 'of the second')
    const link = await sandbox.downloadUrl('mine', { useSignatureExpiration: 60 })
    assert.deepEqual([await (await fetch(link)).text(), await (await fetch(await other.downloadUrl('mine'))).text()], ['of the first', 'of the second'])
    const form = new FormData()
    form.append('file', new Blob(['changed']), 'ignored')
    assert.equal((await fetch(await sandbox.uploadUrl('mine'), { method: 'POST', body: form })).status, 200)
    assert.deepEqual([await sandbox.files.read('mine'), await other.files.read('mine')], ['changed', 'of the second'])
    const told = async url => { const reply = await fetch(url); return [reply.status, (await reply.json()).message] }
    assert.deepEqual(await told(await sandbox.downloadUrl('mine', { useSignatureExpiration: -60 })), [401, 'signature is already expired'])
    const invalid = [401, 'invalid signature']
    for (const bad of [link.replace('path=mine', 'path=other'), link.replace(/signature=[^&]*/, 'signature='), link.replace(/(signature=)[^&]*/, `$1v1_${'a'.repeat(43)}`),
      link.replace(/expiration=\d+/, 'expiration=9999999999'), link.replace('path=mine', `path=${'x'.repeat(5000)}`)])
      assert.deepEqual(await told(bad), invalid, bad.slice(0, 200))
    assert.equal((await fetch(link.replace(/signature=[^&]*&?/, ''))).status, 401)
    assert.equal((await fetch(link.replace('/files?', '/envs?'))).status, 401, 'it opens nothing but the file')
    await sandbox.kill()
    assert.deepEqual(await told(link), invalid)
  } finally {
    await other.kill()
  }
}))

test('an upload that breaks off leaves the old file as it was', withSandbox(async sandbox => {
  await sandbox.files.write('old', 'whole')
  const broken = new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode('half'))
      setTimeout(() => controller.error(new Error('gone')), 100)
    },
  })
  await assert.rejects(sandbox.files.write('old', broken))
  assert.equal(await sandbox.files.read('old'), 'whole')
  assert.equal((await sandbox.commands.run('ls -A | grep -c part || true')).stdout, '0\n')
}))

test('metadata: written with a file, told of it, replaced by the next write', withSandbox(async sandbox => {
  const { files } = sandbox
  const written = await files.write('m', '1', { metadata: { author: 'me', 'my-key': 'two words' } })
  assert.deepEqual(written.metadata, { author: 'me', 'my-key': 'two words' })
  assert.deepEqual((await files.getInfo('m')).metadata, { author: 'me', 'my-key': 'two words' })
  assert.deepEqual((await files.list('.')).find(e => e.name === 'm').metadata, { author: 'me', 'my-key': 'two words' })
  await files.rename('m', 'n')
  assert.deepEqual((await files.getInfo('n')).metadata.author, 'me')
  await files.write('n', '2', { metadata: { other: 'x' } })
  assert.deepEqual((await files.getInfo('n')).metadata, { other: 'x' })
  await files.write('n', '3')
  assert.equal((await files.getInfo('n')).metadata, undefined)
  const post = metadata => envd(sandbox.sandboxId, 'POST', '/files?path=n',
    { token: sandbox.envdAccessToken, headers: { 'Content-Type': 'application/octet-stream', ...metadata }, body: 'x' })
  assert.equal((await post({ 'X-Metadata-k': 'x'.repeat(5000) })).status, 400)
  assert.equal((await post({ ['X-Metadata-' + 'k'.repeat(247)]: 'x' })).status, 400)
  assert.equal(await files.read('n'), '3')
}))

test('read: packed for whoever asks for gzip alone, as it is for others', withSandbox(async sandbox => {
  const text = 'all work and no play '.repeat(50_000)
  await sandbox.files.write('t', text)
  const get = encoding => envd(sandbox.sandboxId, 'GET', '/files?path=t', { token: sandbox.envdAccessToken, headers: { 'Accept-Encoding': encoding } })
  const packed = await get('gzip')
  assert.equal(packed.headers.get('content-encoding'), 'gzip')
  assert.equal(await packed.text(), text)
  const plain = await get('gzip, deflate')
  assert.equal(plain.headers.get('content-encoding'), null)
  assert.equal(plain.headers.get('content-length'), String(text.length))
  assert.equal(await plain.text(), text)
  assert.equal(await sandbox.files.read('t', { gzip: true }), text)
}))

test('compose: files become one, in order, and are removed', withSandbox(async sandbox => {
  const compose = message => envd(sandbox.sandboxId, 'POST', '/files/compose',
    { token: sandbox.envdAccessToken, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(message) })
  await sandbox.files.write([{ path: 'p/1', data: 'one ' }, { path: 'p/2', data: 'two ' }, { path: 'p/3', data: 'three' }])
  const reply = await compose({ source_paths: ['p/1', 'p/2', 'p/3'], destination: 'deep/whole' })
  assert.deepEqual([reply.status, await reply.json()], [200, { path: '/home/user/deep/whole', name: 'whole', type: 'file' }])
  assert.equal(await sandbox.files.read('deep/whole'), 'one two three')
  assert.deepEqual(await sandbox.files.list('p'), [])
  await sandbox.files.write('left', 'x')
  const missing = await compose({ source_paths: ['left', 'nope'], destination: 'deep/whole' })
  assert.equal(missing.status, 404)
  assert.equal(await sandbox.files.read('deep/whole'), 'one two three')
  assert.equal(await sandbox.files.read('left'), 'x')
  assert.equal((await compose({ source_paths: [], destination: 'd' })).status, 400)
}))

test('write: a full disk is NotEnoughSpaceError, and the old file stays', withSandbox(async sandbox => {
  await sandbox.files.write('old', 'whole')
  const chunk = new Uint8Array(1 << 20).fill(7)
  let left = (await (await api('GET', `/sandboxes/${sandbox.sandboxId}`)).json()).diskSizeMB + 8
  const endless = new ReadableStream({ pull(controller) { left-- > 0 ? controller.enqueue(chunk) : controller.close() } })
  await rejects(sandbox.files.write('old', endless, { requestTimeoutMs: 0 }), NotEnoughSpaceError, /not enough disk space/)
  assert.equal(await sandbox.files.read('old'), 'whole')
}))
