"""upload-file-from-url and download-to-presigned-url, in a small internet that the test makes (internet.py, fetch_servers.py)."""
import datetime
import hashlib
import hmac
import json
import os
import subprocess
import sys
import threading
import urllib.parse

import pytest

from agent import Agent, is_error
from cove import TOP, read, wait_for
from internet import HOST, HOST6, METADATA, METADATA6, OTHER_PUBLIC, PRIVATE, PRIVATE6, PUBLIC, PUBLIC6, World

NAMES = "203.0.113.2"  # where names are asked, in the internet
SITE = f"http://{PUBLIC}:8080"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"

# Whatever the spelling: each of these answers on port 80 in the test's world, if somebody connects.
REFUSED = [
    "http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://0177.0.0.1/", "http://0x7f.1/", "http://0x7f000001/", "http://0/",
    "http://0.0.0.0/", "http://[::1]/", "http://[::]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::127.0.0.1]/",
    "http://localhost/", f"http://{PRIVATE}/", "http://174260225/", f"http://[{PRIVATE6}]/", f"http://[::ffff:{PRIVATE}]/",
    f"http://{METADATA}/latest/meta-data/", "http://2852039166/", "http://0251.0376.0251.0376/", f"http://[{METADATA6}]/",
    f"http://[::ffff:{METADATA}]/", "http://100.100.100.200/", "http://168.63.129.16/", "http://[64:ff9b::c633:6407]/", "http://[fe80::1]/",
    f"http://{HOST}/", f"http://[{HOST6}]/", "http://rebinds.example/", "http://metadata.example/", "http://loopback.example/",
    "http://mapped.example/", "http://host.example/", "http://alias-inwards.example/",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    directory = tmp_path_factory.mktemp("fetch")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=fetch", "-days", "2", "-addext",
                    f"subjectAltName=IP:{PUBLIC},DNS:public.example", "-keyout", directory / "key.pem", "-out", directory / "cert.pem"],
                   check=True, capture_output=True)
    with World() as world:
        world.directory = directory
        world.servers.append(subprocess.Popen(["ip", "netns", "exec", world.internet, sys.executable,
                                               f"{TOP}/tests/system/fetch_servers.py", NAMES, str(directory)]))
        (directory / "resolv.conf").write_text(f"nameserver {NAMES}\noptions timeout:2 attempts:2\n")
        wait_for(lambda: world.run("curl", "-s", f"{SITE}/file?size=3") == "xxx", what="the servers")
        yield world


def keeper_with_names(world):
    """A keeper whose machine asks the test's name server and trusts the test's certificate: a mount namespace with two other files."""
    return ["unshare", "--mount", "sh", "-c",
            f"mount --bind {world.directory}/resolv.conf /etc/resolv.conf && mount --bind {world.directory}/cert.pem {CERTIFICATES} && "
            f'exec {TOP}/.cove/inst/sbin/coved "$@"', "sh"]


@pytest.fixture(scope="module")
def instance(world):
    from cove import Server, new_dir, stop
    server = Server(new_dir(), pool=1, workers=1, fetch_max="1M", fetch_timeout="3s", network="none").up()
    world.move_keeper(server, keeper_with_names(world))
    yield server
    stop(server)


@pytest.fixture
def agent(instance):
    client = Agent(instance)
    yield client
    client.done()


@pytest.fixture
def sandbox(agent):
    return agent.create()


def fetch(agent, sandbox, url, path="/workspace/f"):
    return agent.post("/upload-file-from-url", sandbox_id=sandbox, url=url, file_path=path)


def put(agent, sandbox, url, path="/workspace/f", **more):
    return agent.post("/download-to-presigned-url", sandbox_id=sandbox, sandbox_path=path, presigned_url=url, **more)


def test_a_file_comes_from_a_url(agent, sandbox):
    data = agent.data(fetch(agent, sandbox, f"{SITE}/file?size=100000", "/workspace/deep/data.csv"))
    assert data == {"success": True, "message": "File downloaded from URL and uploaded to /workspace/deep/data.csv", "bytes": 100000}
    assert agent.output(sandbox, "stat -c %s /workspace/deep/data.csv; ls -A /workspace/deep") == "100000\ndata.csv\n"
    assert agent.data(fetch(agent, sandbox, f"{SITE}/file?size=0"))["bytes"] == 0
    for url in (f"http://[{PUBLIC6}]:8080/file?size=5", "http://public.example:8080/file?size=5", "http://half.example:8080/file?size=5",
                f"{SITE}/redirect?to=" + urllib.parse.quote("http://other.example:8080/file?size=5")):
        assert agent.data(fetch(agent, sandbox, url))["bytes"] == 5, url


@pytest.mark.parametrize("url", REFUSED)
def test_no_spelling_and_no_redirect_leads_inwards(agent, sandbox, url):
    for way in (url, f"{SITE}/redirect?to={urllib.parse.quote(url)}", f"{SITE}/redirect?status=307&to={urllib.parse.quote(url)}"):
        reply = fetch(agent, sandbox, way)
        assert "fetch_allow" in is_error(reply, 403, "SandboxPermissionError"), (way, reply)
    agent.output(sandbox, "echo secret > /workspace/f")
    assert "fetch_allow" in is_error(put(agent, sandbox, url), 403, "SandboxPermissionError")
    assert agent.output(sandbox, "ls -A /workspace; cat /workspace/f") == "f\nsecret\n"


def test_the_refused_addresses_do_answer(world):
    """Otherwise the test above would see nothing."""
    assert world.run("curl", "-s", f"http://{HOST}/") == world.run("curl", "-s", "http://127.0.0.1/") == "host"
    for address in (PRIVATE, METADATA, f"[{PRIVATE6}]", f"[{METADATA6}]"):
        assert world.run("curl", "-gs", f"http://{address}/") == "internet"


def test_a_name_that_changes_its_address_is_looked_at_each_time(agent, sandbox):
    """The first answer is public, the next one loopback: what was checked is what is connected to."""
    again = urllib.parse.quote("http://changes.example/")
    seen = {fetch(agent, sandbox, f"http://changes.example:8080/redirect?to={again}").status for _ in range(4)}
    assert seen == {403}
    assert agent.output(sandbox, "ls -A /workspace") == ""


def test_only_http_is_spoken(agent, sandbox):
    for url in ("file:///etc/passwd", "ftp://198.51.100.7/x", "gopher://198.51.100.7/", "dict://198.51.100.7/", "//198.51.100.7/", "x", "",
                "http://", "http://a b/", "javascript:1", "http://" + "a" * 9000, "http://x\n/"):
        assert "url" in is_error(fetch(agent, sandbox, url), 400, "SandboxValidationError"), url
    for url in ("file:///etc/passwd", "gopher://198.51.100.7/", "ftp://198.51.100.7/"):
        is_error(fetch(agent, sandbox, f"{SITE}/redirect?to={urllib.parse.quote(url)}"), 403, "SandboxPermissionError")
    assert agent.output(sandbox, "ls -A /workspace") == ""


def test_bodies_that_are_too_large_too_slow_or_too_short(agent, sandbox):
    agent.output(sandbox, "echo old > /workspace/f")
    is_error(fetch(agent, sandbox, f"{SITE}/file?size=1048577"), 413, "SandboxPayloadTooLargeError")
    is_error(fetch(agent, sandbox, f"{SITE}/endless"), 413, "SandboxPayloadTooLargeError")
    is_error(fetch(agent, sandbox, f"{SITE}/slow"), 408, "SandboxTimeoutException")
    is_error(fetch(agent, sandbox, f"{SITE}/short"), 502, "SandboxFetchError")
    is_error(fetch(agent, sandbox, f"{SITE}/headers"), 502, "SandboxFetchError")
    is_error(fetch(agent, sandbox, f"{SITE}/loop"), 502, "SandboxFetchError")
    assert "404" in is_error(fetch(agent, sandbox, f"{SITE}/404"), 502, "SandboxFetchError")
    is_error(fetch(agent, sandbox, f"http://{PUBLIC}:8081/"), 502, "SandboxFetchError")
    is_error(fetch(agent, sandbox, "http://nowhere.example/"), 502, "SandboxFetchError")
    is_error(fetch(agent, sandbox, f"https://{PUBLIC}:8080/"), 502, "SandboxFetchError")
    assert agent.output(sandbox, "ls -A /workspace; cat /workspace/f") == "f\nold\n", "what failed left nothing"
    assert agent.data(fetch(agent, sandbox, f"{SITE}/file?size=1048576"))["bytes"] == 1 << 20


def test_no_password_goes_to_another_host(agent, sandbox):
    def seen(url):
        agent.data(fetch(agent, sandbox, url))
        return json.loads(agent.output(sandbox, "cat /workspace/f"))
    assert "authorization" in seen(f"http://me:pass@{PUBLIC}:8080/show")
    there = f"http://me:pass@{PUBLIC}:8080/redirect?to=" + urllib.parse.quote(f"http://{OTHER_PUBLIC}:8080/show")
    headers = seen(there)
    assert "authorization" not in headers and "cookie" not in headers and "referer" not in headers
    assert set(headers) <= {"host", "accept", "user-agent"}, "and nothing of this server's"


def test_a_file_goes_to_a_url(world, agent, sandbox):
    every = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)"
    agent.output(sandbox, f"python3 -c '{every}' > /workspace/f")
    data = agent.data(put(agent, sandbox, f"{SITE}/bucket/key?sig=1", format="binary"))
    assert data == {"success": True, "message": "File uploaded to presigned URL", "bytes": 256000}
    assert (world.directory / "put").read_bytes() == bytes(range(256)) * 1000
    head = json.loads((world.directory / "put.json").read_text())
    assert head["content-length"] == "256000" and head["content-type"] == "application/octet-stream"
    assert "transfer-encoding" not in head and "expect" not in head
    agent.data(put(agent, sandbox, f"{SITE}/bucket/key", format="text"))
    assert json.loads((world.directory / "put.json").read_text())["content-type"] == "text/plain; charset=utf-8"
    agent.output(sandbox, ": > /workspace/f")
    assert agent.data(put(agent, sandbox, f"{SITE}/bucket/empty"))["bytes"] == 0
    assert (world.directory / "put").read_bytes() == b""


def test_an_upload_that_fails_says_why(agent, sandbox):
    agent.output(sandbox, "echo x > /workspace/f; mkdir /workspace/d; truncate -s 2M /workspace/large")
    assert "403" in is_error(put(agent, sandbox, f"{SITE}/403"), 502, "SandboxFetchError")
    is_error(put(agent, sandbox, f"{SITE}/redirect"), 502, "SandboxFetchError")
    is_error(put(agent, sandbox, f"{SITE}/k", path="/workspace/none"), 404, "FileNotFoundError")
    is_error(put(agent, sandbox, f"{SITE}/k", path="/workspace/d"), 400, "SandboxValidationError")
    is_error(put(agent, sandbox, f"{SITE}/k", path="/workspace/large"), 413, "SandboxPayloadTooLargeError")
    assert "format" in is_error(put(agent, sandbox, f"{SITE}/k", format="zip"), 400, "SandboxValidationError")
    for missing in ("sandbox_id", "sandbox_path", "presigned_url"):
        body = {"sandbox_id": sandbox, "sandbox_path": "/workspace/f", "presigned_url": f"{SITE}/k"}
        assert missing in is_error(agent.post("/download-to-presigned-url", **{k: v for k, v in body.items() if k != missing}), 400,
                                   "SandboxValidationError")


def test_a_tenant_has_its_share_of_fetches(agent, sandbox):
    """Four that take their time, and the fifth is refused at once."""
    refused = threading.Event()

    def keep_fetching(i):
        while not refused.is_set():
            fetch(agent, sandbox, f"{SITE}/slow", f"/workspace/{i}")

    threads = [threading.Thread(target=keep_fetching, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    try:
        wait_for(lambda: fetch(agent, sandbox, f"{SITE}/file?size=1").status == 503, 30, "all four to be under way")
    finally:
        refused.set()
        for t in threads:
            t.join()
    assert agent.data(fetch(agent, sandbox, f"{SITE}/file?size=1"))["bytes"] == 1


def test_the_log_tells_of_fetches_without_their_secrets(instance, agent, sandbox):
    agent.data(fetch(agent, sandbox, f"{SITE}/file?size=7&X-Amz-Signature=topsecret"))
    ended = [line for line in instance.log_lines() if line.get("event") == "fetch ended" and line.get("bytes") == 7]
    assert ended and ended[-1]["host"] == PUBLIC and ended[-1]["status"] == 200
    for name in os.listdir(f"{instance.dir}/log"):
        assert "topsecret" not in read(f"{instance.dir}/log/{name}"), name


def test_the_helper_knows_no_proxy_and_dies_alone(instance, agent, sandbox):
    pid = min(instance.titles("cove: fetch"))
    assert read(f"/proc/{pid}/environ") == "LC_ALL=C.UTF-8\0"
    os.kill(pid, 9)
    wait_for(lambda: fetch(agent, sandbox, f"{SITE}/file?size=1").status == 200, what="its successor")
    assert min(instance.titles("cove: fetch")) != pid


def test_fetch_allow_opens_a_range(world, agent, sandbox, instance):
    instance.change_config(fetch_allow=f"{PRIVATE}/32 127.0.0.1")
    wait_for(lambda: fetch(agent, sandbox, f"http://{PRIVATE}/").status == 200, what="the new configuration")
    assert agent.output(sandbox, "cat /workspace/f") == "internet"
    agent.data(fetch(agent, sandbox, "http://127.0.0.1/"))
    assert agent.output(sandbox, "cat /workspace/f") == "host"
    is_error(fetch(agent, sandbox, f"http://{METADATA}/"), 403, "SandboxPermissionError")


# ---------------------------------------------------------------- TLS

def test_https_goes_both_ways_where_the_certificate_is_trusted_and_is_that_hosts(world, agent, sandbox):
    for host in (PUBLIC, "public.example"):
        assert agent.data(fetch(agent, sandbox, f"https://{host}:8443/file?size=7"))["bytes"] == 7
    assert agent.data(put(agent, sandbox, f"https://{PUBLIC}:8443/bucket/tls"))["bytes"] == 7
    assert (world.directory / "put").read_bytes() == b"x" * 7
    for wrong in ("https://other.example:8443/file?size=7", f"https://{PUBLIC}:8080/file?size=7"):  # another name; no TLS there
        is_error(fetch(agent, sandbox, wrong), 502, "SandboxFetchError")
    assert agent.output(sandbox, "stat -c %s /workspace/f") == "7\n"


# ---------------------------------------------------------------- a store that checks signatures

S3 = f"{PUBLIC}:9000"
S3RVER = """const S3rver = require(process.argv[1]);
new S3rver({ address: process.argv[2], port: 9000, silent: true, directory: process.argv[3], configureBuckets: [{ name: "bucket" }] })
  .run().then(() => console.log("ready"))"""


def presigned(method, key, expires=60, date=None, secret="S3RVER"):
    """The URL by which whoever has it may do this one thing (AWS Signature Version 4, by query)."""
    date = date or datetime.datetime.now(datetime.timezone.utc)
    stamp, day = date.strftime("%Y%m%dT%H%M%SZ"), date.strftime("%Y%m%d")
    scope = f"{day}/us-east-1/s3/aws4_request"
    query = urllib.parse.urlencode(sorted({"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": f"S3RVER/{scope}", "X-Amz-Date": stamp,
                                           "X-Amz-Expires": expires, "X-Amz-SignedHeaders": "host"}.items()), quote_via=urllib.parse.quote, safe="")
    request = f"{method}\n/bucket/{key}\n{query}\nhost:{S3}\n\nhost\nUNSIGNED-PAYLOAD"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signer = f"AWS4{secret}".encode()
    for part in (day, "us-east-1", "s3", "aws4_request"):
        signer = hmac.digest(signer, part.encode(), "sha256")
    return f"http://{S3}/bucket/{key}?{query}&X-Amz-Signature={hmac.digest(signer, text.encode(), 'sha256').hex()}"


@pytest.fixture(scope="module")
def store(world):
    lock = hashlib.sha256(open(f"{TOP}/tests/clients/package-lock.json", "rb").read()).hexdigest()[:16]
    cache = os.environ.get("COVE_CLIENTS_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cove")
    package = f"{cache}/clients-{lock}/node_modules/@20minutes/s3rver"
    if not os.path.isdir(package):
        pytest.skip("s3rver is not installed: ./quickstart test --only clients does that")
    server = subprocess.Popen(["ip", "netns", "exec", world.internet, "node", "-e", S3RVER, package, PUBLIC, world.directory / "s3"],
                              stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline() == "ready\n"
    yield
    server.kill()
    server.wait()


def test_a_presigned_url_of_a_store_that_checks_signatures(store, agent, sandbox):
    agent.output(sandbox, "head -c 300000 /dev/urandom > /workspace/f; sha256sum < /workspace/f > /workspace/sum")
    assert agent.data(put(agent, sandbox, presigned("PUT", "out.bin"), format="binary"))["bytes"] == 300000
    assert agent.data(fetch(agent, sandbox, presigned("GET", "out.bin"), "/workspace/back"))["bytes"] == 300000
    assert agent.output(sandbox, "sha256sum < /workspace/back | cmp - /workspace/sum && echo same") == "same\n"
    yesterday = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    for refused in (presigned("PUT", "out.bin", secret="wrong"), presigned("PUT", "out.bin", date=yesterday), presigned("GET", "out.bin"),
                    presigned("PUT", "out.bin").replace("out.bin", "other.bin")):
        assert "403" in is_error(put(agent, sandbox, refused), 502, "SandboxFetchError"), refused
