"""Servers in the internet of a test (internet.py) for what cove-fetch may meet: redirects, bodies without an end, names whose
address changes. `fetch_servers.py ADDRESS DIRECTORY` listens on port 8080 of all addresses, with TLS (DIRECTORY/cert.pem, key.pem) on 8443,
and on port 53 of ADDRESS."""
import http.server
import itertools
import json
import os
import socketserver
import ssl
import sys
import threading
import urllib.parse

import internet

asked = itertools.count()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), "Connection": "close", **headers}.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/file":
            self.reply(200, b"x" * int(query["size"]))
        elif url.path == "/redirect":
            self.reply(int(query.get("status", 302)), Location=query["to"])
        elif url.path == "/loop":
            self.reply(302, Location="/loop")
        elif url.path == "/show":
            self.reply(200, json.dumps({k.lower(): v for k, v in self.headers.items()}).encode())
        elif url.path == "/short":
            self.reply(200, b"short", Content_Length="1000")
        elif url.path == "/endless":
            self.reply(200, Content_Length=None)
            self.pour(b"e" * 65536)
        elif url.path == "/slow":
            self.reply(200, Content_Length="1000000")
            self.pour(b"s", 0.05)
        elif url.path == "/headers":
            self.send_response(200)
            self.pour_headers()
        else:
            self.reply(int(url.path[1:]) if url.path[1:].isdigit() else 404)

    def pour(self, piece, pause=0):
        wait = threading.Event()
        for _ in range(2000000):
            self.wfile.write(piece)
            self.wfile.flush()
            if pause:
                wait.wait(pause)

    def pour_headers(self):
        for i in range(1000000):
            self.send_header(f"X-{i}", "x" * 1000)
            self.flush_headers()

    def do_PUT(self):
        """Keeps body and head, unless the path says what to answer."""
        if self.path.startswith("/redirect"):
            return self.reply(307, Location="http://10.99.0.1/")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path[1:4].isdigit():
            return self.reply(int(self.path[1:4]), b"<Error/>")
        with open(f"{sys.argv[2]}/put", "wb") as f:
            f.write(body)
        with open(f"{sys.argv[2]}/put.json", "w") as f:
            json.dump({k.lower(): v for k, v in self.headers.items()}, f)
        self.reply(200)


class Names(internet.Udp):
    """As the internet's name server, but for one name: every second answer is another address."""
    def handle(self):
        packet, sock = self.request
        name, end = internet.decode(packet)
        if name == "changes.example":
            address = "127.0.0.1" if packet[end + 1] == 1 and next(asked) % 2 else sys.argv[1]
            internet.ZONE[name] = ((), [address])
        sock.sendto(internet.answer(packet, 1232), self.client_address)


class Server(socketserver.ThreadingUDPServer):
    daemon_threads = True


def secure():
    server = internet.Both(("::", 8443), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{sys.argv[2]}/cert.pem", f"{sys.argv[2]}/key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


if __name__ == "__main__":
    threading.Thread(target=secure().serve_forever, daemon=True).start()
    threading.Thread(target=Server((sys.argv[1], 53), Names).serve_forever, daemon=True).start()
    internet.Both(("::", 8080), Handler).serve_forever()
