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

export async function until(condition, what, ms = 15000) {
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
