// The relay API by fetch and npm's WebSocket client: a line-echo agent through pause and resume.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { apiKey, apiUrl, until } from './helper.mjs'

const AGENT = 'cat /workspace/said 2>/dev/null; while IFS= read -r line; do echo "$line" >>/workspace/said; echo "agent: $line"; done'
const secret = { 'X-Relay-Secret': apiKey }

async function relay(method, path, body) {
  const headers = { ...secret, ...(body ? { 'Content-Type': 'application/json' } : {}) }
  const reply = await fetch(`${apiUrl}/api/sandboxes${path}`, { method, headers, body: body && JSON.stringify(body) })
  assert.ok(reply.ok, `${method} ${path}: ${reply.status} ${await reply.clone().text()}`)
  return reply.json().catch(() => null)
}

// A connection that remembers its lines, and how it was closed.
async function connect(id) {
  const ws = new WebSocket(`${apiUrl.replace('http', 'ws')}/ws/sandboxes/${id}`, { headers: secret })
  const client = { ws, lines: [], closed: null }
  ws.on('message', data => client.lines.push(...data.toString().split('\n').filter(Boolean)))
  ws.on('close', (code, reason) => { client.closed = { code, reason: reason.toString() } })
  await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject))
  return client
}

test('an agent that echoes lines goes through pause and resume, and its files with it', async () => {
  const id = `ws-${process.pid}`
  const envVars = { PI_COMMAND: AGENT }
  try {
    await relay('POST', `/${id}`, { envVars })
    const before = await connect(id)
    before.ws.send('one')
    await until(() => before.lines.includes('agent: one'), 'the answer before the pause')
    await relay('POST', `/${id}/pause`)
    await until(() => before.closed, 'the connection to be closed by the pause')
    for (let round = 0; round < 3; round++) {
      await relay('POST', `/${id}/resume`, { envVars })
      const after = await connect(id)
      await until(() => after.lines.includes('one'), 'the agent to show what it had written down')
      after.ws.send(`round ${round}`)
      await until(() => after.lines.includes(`agent: round ${round}`), 'the answer after the resume')
      await relay('POST', `/${id}/pause`)
      await until(() => after.closed, 'the connection to be closed by the pause')
    }
    assert.equal((await relay('GET', `/${id}/status`)).status, 'paused')
  } finally {
    await relay('DELETE', `/${id}`)
  }
})
