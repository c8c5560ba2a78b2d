// What the client tests share. The server's address and key come from the environment, as a user would set them.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

export const apiUrl = process.env.E2B_API_URL
export const apiKey = process.env.E2B_API_KEY
export const otherKey = process.env.COVE_OTHER_KEY // a key of another tenant

// Runs `body` with a sandbox that is gone afterwards, whatever happens.
export function withSandbox(body, options = {}) {
  return async t => {
    const sandbox = await Sandbox.create(options)
    try {
      await body(sandbox, t)
    } finally {
      await sandbox.kill().catch(() => {})
    }
  }
}

// The error that `promise` ends with must be of this class, and say so.
export async function rejects(promise, kind, message) {
  let error
  try {
    await promise
  } catch (e) {
    error = e
  }
  assert.ok(error, `${kind.name} was expected, but it succeeded`)
  assert.equal(error.constructor.name, kind.name, `${error.stack}`)
  if (message) assert.match(error.message, message)
  return error
}

export async function until(condition, what, ms = 30000) {
  const end = Date.now() + ms
  for (;;) {
    const value = await condition()
    if (value) return value
    assert.ok(Date.now() < end, `${what} did not come true within ${ms} ms`)
    await new Promise(r => setTimeout(r, 20))
  }
}

// A call of the control plane as any HTTP client makes it.
export function api(method, path, { body, key = apiKey, headers = {} } = {}) {
  return fetch(apiUrl + path, {
    method,
    headers: { ...(key ? { 'X-API-Key': key } : {}), ...(body ? { 'Content-Type': 'application/json' } : {}), ...headers },
    body: body && JSON.stringify(body),
  })
}

// A call of a sandbox's envd as any HTTP client makes it.
export function envd(sandboxId, method, path, { token, headers = {}, body } = {}) {
  return fetch(apiUrl + path, {
    method,
    headers: { 'E2b-Sandbox-Id': sandboxId, 'E2b-Sandbox-Port': '49983', ...(token ? { 'X-Access-Token': token } : {}), ...headers },
    body,
    duplex: 'half',
  })
}

// One message of a Connect stream in JSON, as its bytes.
export function envelope(message, flags = 0) {
  const bytes = Buffer.from(JSON.stringify(message))
  const head = Buffer.alloc(5)
  head.writeUInt8(flags)
  head.writeUInt32BE(bytes.length, 1)
  return Buffer.concat([head, bytes])
}

// The messages of such a stream: all until its end, or the first `count`.
export async function envelopes(reply, count = Infinity) {
  const found = []
  let bytes = Buffer.alloc(0)
  for await (const chunk of reply.body) {
    bytes = Buffer.concat([bytes, chunk])
    while (bytes.length >= 5 && bytes.length >= 5 + bytes.readUInt32BE(1)) {
      const end = 5 + bytes.readUInt32BE(1)
      found.push(JSON.parse(bytes.subarray(5, end).toString() || '{}'))
      bytes = bytes.subarray(end)
    }
    if (found.length >= count) break
  }
  return found
}
