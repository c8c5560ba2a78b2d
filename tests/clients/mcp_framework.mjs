// An agent of the AI SDK whose model is a script: it asks for the tools in `calls` one after another and then stops. Prints what came of each
// call as JSON. Run by mcp_framework.test.mjs, with the newer Node that the framework wants.
import { generateText, stepCountIs } from 'ai'
import { MockLanguageModelV4 } from 'ai/test'
import { createMCPClient } from '@ai-sdk/mcp'

const [url, versions, calls] = [process.argv[2], JSON.parse(process.argv[3]), JSON.parse(process.argv[4])]
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } }
const offered = []

const model = new MockLanguageModelV4({
  doGenerate: async ({ tools }) => {
    offered.push(tools.map(tool => tool.name))
    const next = calls[offered.length - 1]
    if (!next)
      return { content: [{ type: 'text', text: 'done' }], finishReason: { unified: 'stop' }, usage, warnings: [] }
    const call = { type: 'tool-call', toolCallId: `call-${offered.length}`, toolName: next.name, input: JSON.stringify(next.arguments) }
    return { content: [call], finishReason: { unified: 'tool-calls' }, usage, warnings: [] }
  },
})

const transport = { type: 'http', url, headers: { Authorization: `Bearer ${process.env.E2B_API_KEY}` } }
const client = await createMCPClient({ transport, ...versions })
try {
  const { steps, text } = await generateText({ model, tools: await client.tools(), prompt: 'Use the tools.', stopWhen: stepCountIs(calls.length + 1) })
  const results = steps.flatMap(step => step.toolResults.map(result => result.output))
  console.log(JSON.stringify({ text, offered: offered[0], results }))
} finally {
  await client.close()
}
