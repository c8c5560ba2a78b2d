// Quotas, pages and large files, as the SDK meets them. COVE_POOR_KEY is the key of a tenant that may have two sandboxes, COVE_SLOW_KEY that of one with two
// requests a second; COVE_MEMORY is a program that prints the memory of all workers in KiB.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { test } from 'node:test'
import { RateLimitError, Sandbox } from 'e2b'
import { api, rejects, until, withSandbox } from './helper.mjs'

const { COVE_POOR_KEY, COVE_SLOW_KEY, COVE_MANY_KEY, COVE_MEMORY, COVE_LONG } = process.env

test('one sandbox too many is a RateLimitError that says so, and works again when one has gone', async () => {
  const made = [await Sandbox.create({ apiKey: COVE_POOR_KEY }), await Sandbox.create({ apiKey: COVE_POOR_KEY })]
  try {
    const reply = await api('POST', '/v2/sandboxes', { body: { templateID: 'base' }, key: COVE_POOR_KEY })
    assert.equal(reply.status, 429)
    assert.match(reply.headers.get('retry-after'), /^\d+$/)
    assert.equal((await reply.json()).code, 429)
    await rejects(Sandbox.create({ apiKey: COVE_POOR_KEY, requestTimeoutMs: 900 }), RateLimitError, /quota/)
    await made.pop().kill()
    made.push(await Sandbox.create({ apiKey: COVE_POOR_KEY }))
  } finally {
    for (const sandbox of made) await sandbox.kill()
  }
})

test('requests above the quota are 429 with Retry-After; the SDK waits and gets through, or raises RateLimitError', async () => {
  const replies = await Promise.all(Array.from({ length: 20 }, () => api('GET', '/v2/sandboxes', { key: COVE_SLOW_KEY })))
  const refused = replies.filter(r => r.status === 429)
  assert.ok(refused.length > 0 && replies.every(r => r.status === 200 || r.status === 429), replies.map(r => r.status).join())
  for (const reply of refused) {
    assert.match(reply.headers.get('retry-after'), /^[1-9]\d*$/)
    assert.equal((await reply.json()).code, 429)
  }
  const list = options => Sandbox.list({ apiKey: COVE_SLOW_KEY, ...options }).nextItems()
  assert.deepEqual(await list({}), [], 'it waits as it is told, and gets through')
  const many = await Promise.allSettled(Array.from({ length: 20 }, () => list({ requestTimeoutMs: 900 })))
  const failed = many.filter(r => r.status === 'rejected')
  assert.ok(failed.length > 0)
  for (const { reason } of failed) assert.equal(reason.constructor.name, 'RateLimitError', reason.stack)
})

const patience = COVE_LONG ? 1_800_000 : 280_000
const many = COVE_LONG ? 1000 : 300

test(`${many} sandboxes by pages, each once, while others come and go`, { timeout: patience }, async () => {
  const ours = new Set()
  const make = async () => (await (await api('POST', '/v2/sandboxes', { key: COVE_MANY_KEY, body: { templateID: 'base', timeout: 3600 } })).json()).sandboxID
  const kill = id => api('DELETE', `/sandboxes/${id}`, { key: COVE_MANY_KEY })
  let walking = true
  const churn = async () => { while (walking) await kill(await make()) }
  try {
    for (let i = 0; i < many; i += 10) for (const id of await Promise.all(Array.from({ length: 10 }, make))) ours.add(id)
    const others = churn()
    for (const options of [{ limit: 7 }, { limit: 100 }, { limit: 33, order: 'asc' }]) {
      const seen = [], pages = Sandbox.list({ apiKey: COVE_MANY_KEY, ...options })
      while (pages.hasNext) seen.push(...(await pages.nextItems()).map(s => s.sandboxId))
      assert.equal(new Set(seen).size, seen.length, 'none comes twice')
      const missing = [...ours].filter(id => !seen.includes(id))
      assert.deepEqual(missing, [], 'none is left out')
    }
    walking = false
    await others
  } finally {
    walking = false
    const left = [...ours]
    while (left.length) await Promise.all(left.splice(0, 20).map(kill))
  }
  await until(async () => (await Sandbox.list({ apiKey: COVE_MANY_KEY }).nextItems()).length === 0, 'the end of all')
})

const megabytes = COVE_LONG ? 5000 : 150

test(`${megabytes} MB up and down at flat memory`, { timeout: patience }, withSandbox(async (sandbox, t) => {
  const workers = () => Number(execFileSync('/bin/sh', ['-c', COVE_MEMORY]).toString())
  const piece = new Uint8Array(1e6).fill(7)
  const upload = () => {
    let left = megabytes
    return new ReadableStream({ pull(to) { left-- > 0 ? to.enqueue(piece) : to.close() } })
  }
  await sandbox.setTimeout(patience)
  const before = workers(), begun = Date.now()
  let most = 0
  const timer = setInterval(() => { most = Math.max(most, workers()) }, 50)
  try {
    await sandbox.files.write('large', upload(), { useOctetStream: true, requestTimeoutMs: 0 })
    const written = Date.now()
    t.diagnostic(`up: ${Math.round(megabytes * 1000 / (written - begun))} MB/s`)
    let bytes = 0
    for await (const chunk of await sandbox.files.read('large', { format: 'stream', requestTimeoutMs: 0 })) bytes += chunk.length
    t.diagnostic(`down: ${Math.round(megabytes * 1000 / (Date.now() - written))} MB/s`)
    assert.equal(bytes, megabytes * 1e6)
  } finally {
    clearInterval(timer)
  }
  assert.equal((await sandbox.commands.run('stat -c %s large')).stdout, `${megabytes * 1e6}\n`)
  t.diagnostic(`workers had ${before} KiB before, and ${most - before} KiB more at most`)
  assert.ok(most > 0 && most - before < 20 * 1024, `workers grew by ${most - before} KiB`)
}))

