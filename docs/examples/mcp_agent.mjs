// An agent over MCP: it looks at a project, runs its tests, edits, and runs them again until they pass. decide() is a rule so that this
// program runs without a model: it gets what a model would get (the last result) and gives back what a model would give (a tool call).
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const { COVE_URL, COVE_KEY } = process.env;
const project = `example-agent-${process.pid}`;
const headers = { Authorization: `Bearer ${COVE_KEY}` };
const client = new Client({ name: "example-agent", version: "1" }, { versionNegotiation: { mode: "auto" } });
await client.connect(new StreamableHTTPClientTransport(new URL(`${COVE_URL}/mcp/${project}`), { requestInit: { headers } }));

const call = async (name, args) => {
  console.log(`→ ${name} ${JSON.stringify(args)}`);
  const result = await client.callTool({ name, arguments: args });
  if (result.isError) throw new Error(result.content[0].text);
  return result.structuredContent;
};

// What a model would decide.
function decide(step, last) {
  if (step === 0 || last.tool === "edit_file") return ["run_command", { command: "python3 -B test_add.py", cwd: "/workspace" }];
  if (last.exitCode === 0) return null;
  return ["edit_file", { path: "/workspace/add.py", old_text: "a - b", new_text: "a + b" }];
}

try {
  console.log(`tools: ${(await client.listTools()).tools.map((tool) => tool.name).join(" ")}`);
  await call("write_file", { path: "/workspace/add.py", content: "def add(a, b):\n    return a - b\n" });
  await call("write_file", { path: "/workspace/test_add.py", content: "from add import add\nassert add(2, 3) == 5, add(2, 3)\nprint('all tests pass')\n" });
  for (let step = 0, last = {}; step < 10; step++) {
    const next = decide(step, last);
    if (!next) { console.log(last.stdout.trim()); break; }
    const result = await call(...next);
    last = { tool: next[0], exitCode: result.exit_code, stdout: result.stdout };
  }
} finally {
  await client.close();
  await fetch(`${COVE_URL}/cleanup`, { method: "POST", headers, body: JSON.stringify({ projectId: project }) });
}
