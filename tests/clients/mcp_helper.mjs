// What the tests of MCP share: a server's address with a sandbox of its own, and clients of both generations.
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'

export const key = process.env.E2B_API_KEY
export const origin = process.env.E2B_API_URL
export const url = sandbox => new URL(`${origin}/mcp?sandbox=${sandbox}`)
export const headers = { Authorization: `Bearer ${key}` }
const info = { name: 'cove-tests', version: '1' }

// Runs `body` with a connected client, which is closed whatever happens, and ends the sandbox.
async function using(client, transport, sandbox, body) {
  await client.connect(transport)
  try {
    await body(client, transport)
  } finally {
    await client.close()
    await fetch(`${origin}/cleanup`, { method: 'POST', headers, body: JSON.stringify({ projectId: sandbox }) })
  }
}

// @modelcontextprotocol/sdk: revisions with sessions.
export const withOld = (sandbox, body) => () =>
  using(new OldClient(info), new OldTransport(url(sandbox), { requestInit: { headers } }), sandbox, body)

// @modelcontextprotocol/client: the newest revision that both sides speak.
export const withNew = (sandbox, body) => () =>
  using(new Client(info, { versionNegotiation: { mode: 'auto' } }), new StreamableHTTPClientTransport(url(sandbox), { requestInit: { headers } }), sandbox, body)

export async function shell(client, command) {
  const result = await client.callTool({ name: 'run_command', arguments: { command } })
  return result.structuredContent.stdout
}
