// Upload a site, serve it from a sandbox, print a link for a browser, and follow the server's log. Node alone, no package.
const { COVE_URL, COVE_KEY } = process.env;
const api = async (method, path, body) => {
  const response = await fetch(`${COVE_URL}/console/api${path}`, { method, headers: { "X-API-Key": COVE_KEY }, body });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response;
};

const { id } = await (await api("POST", "/sandboxes", JSON.stringify({ seconds: 300 }))).json();
try {
  await api("PUT", `/sandboxes/${id}/file?path=/workspace/site/index.html`, "<h1>Hello from a sandbox</h1>\n");
  const { id: server } = await (await api("POST", `/sandboxes/${id}/processes`,
    JSON.stringify({ command: "cd /workspace/site && exec python3 -u -m http.server 8000" }))).json();

  const link = async () => (await (await api("POST", `/sandboxes/${id}/ports/link`, JSON.stringify({ port: 8000 }))).json()).url;
  console.log(`open ${await link()}`);

  // A visitor. Browsers reach the link above; Node does not resolve names below localhost, so this one is in the sandbox too.
  const visit = async () => (await api("POST", `/sandboxes/${id}/processes`, JSON.stringify({ command: "curl -s http://127.0.0.1:8000/" }))).json();
  const log = await api("GET", `/sandboxes/${id}/processes/${encodeURIComponent(server)}/log`);
  await visit();
  let seen = "";
  for await (const chunk of log.body.pipeThrough(new TextDecoderStream())) {
    seen += chunk;
    if (seen.includes("GET / ")) break;
    if (seen.includes("Serving HTTP")) await visit(); // it listens now
  }
  console.log(/\\"GET \/ HTTP[^\\]*\\" \d+/.exec(seen)?.[0].replaceAll("\\", "") ?? seen);
} finally {
  await api("DELETE", `/sandboxes/${id}`);
}
