// E2B's code interpreter against cove: builds a template with code_interpreter.py, a small server for its clients, runs cells in a sandbox of it.
// COVE_URL=http://127.0.0.1:8080 COVE_KEY=... node code_interpreter.mjs
import { dirname } from 'node:path'
import { fileURLToPath } from 'node:url'

process.env.E2B_API_KEY ??= process.env.COVE_KEY
process.env.E2B_API_URL ??= process.env.COVE_URL
process.env.E2B_SANDBOX_URL ??= process.env.COVE_URL
const { Sandbox, Template, waitForPort } = await import('@e2b/code-interpreter')

// The name is the client's default, so that Sandbox.create() finds it. Built once; the next build comes from the cache.
const NAME = 'code-interpreter-v1'
const template = Template({ fileContextPath: dirname(fileURLToPath(import.meta.url)) })
  .fromTemplate('base')
  .copy('code_interpreter.py', '/opt/code-interpreter/code_interpreter.py')
  .setStartCmd('python3 /opt/code-interpreter/code_interpreter.py', waitForPort(49999))
await Template.build(template, NAME)

const sandbox = await Sandbox.create({ metadata: { name: 'example-interpreter' } })
try {
  await sandbox.runCode('import math\nnumbers = [math.factorial(n) for n in range(10)]')
  const { text, logs } = await sandbox.runCode('print("a cell sees the cells before it")\nsum(numbers)')
  console.log(logs.stdout.join('').trim(), '->', text)
  const { error } = await sandbox.runCode('numbers / 2')
  console.log(`${error.name}: ${error.value}`)
} finally {
  await sandbox.kill()
}
