// The official E2B SDK against your own server: prepare a sandbox once, snapshot it, and try variants side by side.
import { Sandbox } from "e2b";

const { COVE_URL, COVE_KEY } = process.env;
const options = { apiKey: COVE_KEY, apiUrl: COVE_URL, sandboxUrl: COVE_URL, timeoutMs: 60_000 };

const prepared = await Sandbox.create(options);
const others = [];
try {
  await prepared.files.write("/workspace/solve.py", "import sys\nn = int(sys.argv[1])\nprint(n, sum(i * i for i in range(n)))\n");
  const { snapshotId } = await prepared.createSnapshot();
  others.push(...await Promise.all([10, 100, 1000].map(() => Sandbox.create(snapshotId, options))));
  const results = await Promise.all(others.map((sandbox, i) => sandbox.commands.run(`python3 /workspace/solve.py ${10 ** (i + 1)}`)));
  for (const { stdout } of results) console.log(stdout.trim());
  await Sandbox.deleteSnapshot(snapshotId, options);
} finally {
  await Promise.all([prepared, ...others].map((sandbox) => sandbox.kill()));
}
