#!/usr/bin/env python3
"""A small server for E2B's code interpreter clients: Python cells with state, at port 49999 of a sandbox.

code_interpreter.mjs builds a template with it. Needs nothing but Python; whatever else cells import comes from the template. It is
a sandbox's own program: cove forwards requests for port 49999 to it like for any other port.

    POST /execute {code, context_id?, language?, env_vars?}     one JSON object a line: stdout, stderr, result, error, ...
    GET, POST /contexts    DELETE /contexts/ID    POST /contexts/ID/restart    GET /health
"""
import array
import ast
import asyncio
import base64
import fcntl
import http.server
import inspect
import json
import os
import queue
import signal
import subprocess
import sys
import termios
import threading
import time
import traceback
import uuid

PORT, KEEPALIVE_S, DEFAULT = 49999, 5, "default"
FORMATS = {"html": "_repr_html_", "markdown": "_repr_markdown_", "svg": "_repr_svg_", "png": "_repr_png_", "jpeg": "_repr_jpeg_",
           "pdf": "_repr_pdf_", "latex": "_repr_latex_", "json": "_repr_json_", "javascript": "_repr_javascript_"}


# ------------------------------------------------------------------ a context's own process

class Worker:
    """Reads cells from stdin, a JSON object a line, and writes events to a descriptor."""

    def __init__(self, events):
        self.cells = os.fdopen(os.dup(0))
        self.events, self.lock = os.fdopen(events, "w"), threading.Lock()
        self.names = {"__name__": "__main__", "display": self.display}
        self.loop = asyncio.new_event_loop()
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        self.pipes = [self.follow(1, "stdout"), self.follow(2, "stderr")]
        sys.stdout.reconfigure(line_buffering=True)
        sys.stderr.reconfigure(line_buffering=True)

    def say(self, kind, **more):
        with self.lock:
            self.events.write(json.dumps({"type": kind, **more}) + "\n")
            self.events.flush()

    def follow(self, fd, kind):
        """What is written to this descriptor, by a cell or by what the cell starts, becomes events."""
        read, write = os.pipe()
        os.dup2(write, fd)
        os.close(write)

        def copy():
            while data := os.read(read, 65536):
                self.say(kind, text=data.decode(errors="replace"), timestamp=time.time_ns())
        threading.Thread(target=copy, daemon=True).start()
        return read

    def drain(self):
        sys.stdout.flush()
        sys.stderr.flush()
        unread = array.array("i", [0])
        for read in self.pipes:
            for _ in range(1000):
                fcntl.ioctl(read, termios.FIONREAD, unread)
                if not unread[0]:
                    break
                time.sleep(0.001)
        time.sleep(0.002)  # the piece that was read last is on its way
        with self.lock:
            pass

    def show(self, value, main):
        found = {"text": repr(value)}
        for name, method in FORMATS.items():
            data = getattr(value, method, lambda: None)() if not inspect.isclass(value) else None
            if data is not None:
                found[name] = base64.b64encode(data).decode() if isinstance(data, bytes) else data
        self.drain()
        self.say("result", is_main_result=main, **found)

    def display(self, *values):
        for value in values:
            self.show(value, False)

    def show_figures(self):
        plots = sys.modules.get("matplotlib.pyplot")
        for number in plots.get_fignums() if plots else ():
            import io
            picture = io.BytesIO()
            plots.figure(number).savefig(picture, format="png")
            self.say("result", is_main_result=False, text=f"<Figure {number}>", png=base64.b64encode(picture.getvalue()).decode())
            plots.close(number)

    def evaluate(self, tree, kind):
        code = compile(tree, "<cell>", kind, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(code, self.names)
        return self.loop.run_until_complete(value) if code.co_flags & inspect.CO_COROUTINE else value

    def run(self, code):
        tree = ast.parse(code, "<cell>")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        self.evaluate(tree, "exec")
        if last is not None:
            value = self.evaluate(ast.Expression(last.value), "eval")
            if value is not None and not code.rstrip().endswith(";"):
                self.names["_"] = value
                self.show(value, True)
        self.show_figures()

    def cell(self, number, code, env):
        before = dict(os.environ)
        os.environ.update(env)
        try:
            self.run(code)
        except BaseException as e:  # SystemExit and KeyboardInterrupt end a cell, not its context
            self.drain()
            frames = e.__traceback__
            while frames and frames.tb_frame.f_code.co_filename != "<cell>":  # this program's own
                frames = frames.tb_next
            self.say("error", name=type(e).__name__, value=str(e), traceback="".join(traceback.format_exception(type(e), e, frames)))
        finally:
            os.environ.clear()
            os.environ.update(before)
        self.drain()
        self.say("number_of_executions", execution_count=number)
        self.say("end_of_execution")

    def serve(self):
        for number, line in enumerate(self.cells, 1):
            request = json.loads(line)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self.cell(number, request["code"], request["env_vars"])
            signal.signal(signal.SIGINT, signal.SIG_IGN)


# ------------------------------------------------------------------ the server

class Context:
    def __init__(self, id, cwd):
        self.id, self.cwd, self.lock = id, cwd, threading.Lock()
        self.start()

    def start(self):
        read, write = os.pipe()
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", str(write)],
                                        stdin=subprocess.PIPE, cwd=self.cwd, text=True, pass_fds=[write], start_new_session=True)
        os.close(write)
        self.events = queue.Queue()
        threading.Thread(target=self.read, args=(os.fdopen(read), self.events), daemon=True).start()

    @staticmethod
    def read(lines, events):
        for line in lines:
            events.put(line)
        events.put(None)

    def stop(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def restart(self):
        self.stop()
        self.start()

    def interrupt(self):
        os.killpg(self.process.pid, signal.SIGINT)

    def execute(self, code, env):
        """The events of one cell. A worker that dies over it is an error of the cell, and another one takes its place."""
        with self.lock:
            events = self.events
            self.process.stdin.write(json.dumps({"code": code, "env_vars": env}) + "\n")
            self.process.stdin.flush()
            while True:
                try:
                    line = events.get(timeout=KEEPALIVE_S)
                except queue.Empty:
                    yield '{"type": "keepalive"}\n'
                    continue
                if line is None:
                    yield json.dumps({"type": "error", "name": "ContextEnded", "value": "the context's process has ended", "traceback": ""}) + "\n"
                    if events is self.events:
                        self.restart()
                    return
                yield line
                if '"end_of_execution"' in line[:40]:
                    return


class Problem(Exception):
    """(status, message)"""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    contexts, lock = {}, threading.Lock()

    def log_message(self, *_):
        pass

    def body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            text = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                text += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            found = json.loads(text or "{}")
        except ValueError as e:
            raise Problem(400, f"the body is not JSON: {e}")
        if not isinstance(found, dict):
            raise Problem(400, "the body is not an object")
        return {k: v for k, v in found.items() if v is not None}

    def answer(self, status, value=None):
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def find(self, id):
        with self.lock:
            if id == DEFAULT and id not in self.contexts:
                self.contexts[id] = Context(id, os.path.expanduser("~"))
            if id not in self.contexts:
                raise Problem(404, f"Context {id} not found")
            return self.contexts[id]

    @staticmethod
    def check_language(body):
        if body.get("language", "python") != "python":
            raise Problem(400, f"language {body['language']!r}: this server runs python alone")

    def execute(self):
        body = self.body()
        self.check_language(body)
        if not isinstance(body.get("code"), str):
            raise Problem(400, "code: is missing")
        context = self.find(body.get("context_id", DEFAULT))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        gone = False
        for line in context.execute(body["code"], body.get("env_vars", {})):
            data = line.encode()
            try:
                if not gone:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            except OSError:  # nobody listens any more: the cell ends, too
                gone = self.close_connection = True
                context.interrupt()
        if not gone:
            self.wfile.write(b"0\r\n\r\n")

    def create(self):
        body = self.body()
        self.check_language(body)
        cwd = body.get("cwd", os.path.expanduser("~"))
        if not os.path.isdir(cwd):
            raise Problem(400, f"cwd: {cwd} is not a directory")
        context = Context(str(uuid.uuid4()), cwd)
        with self.lock:
            self.contexts[context.id] = context
        self.answer(201, self.describe(context))

    @staticmethod
    def describe(context):
        return {"id": context.id, "language": "python", "cwd": context.cwd}

    def remove(self, id):
        self.find(id).stop()
        with self.lock:
            self.contexts.pop(id, None)
        self.answer(204)

    def route(self):
        path = self.path.split("?")[0].strip("/").split("/")
        match (self.command, *path):
            case ("GET", "health"):
                self.answer(200, {"status": "ok"})
            case ("POST", "execute"):
                self.execute()
            case ("GET", "contexts"):
                self.find(DEFAULT)
                self.answer(200, [self.describe(c) for c in self.contexts.values()])
            case ("POST", "contexts"):
                self.create()
            case ("DELETE", "contexts", id):
                self.remove(id)
            case ("POST", "contexts", id, "restart"):
                self.body()
                self.find(id).restart()
                self.answer(204)
            case _:
                raise Problem(404, "no such path")

    def handle_one(self):
        try:
            self.route()
        except Problem as e:
            self.answer(e.args[0], {"detail": e.args[1]})

    do_GET = do_POST = do_DELETE = handle_one


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        os.set_inheritable(int(sys.argv[2]), False)
        Worker(int(sys.argv[2])).serve()
    else:
        server = http.server.ThreadingHTTPServer(("0.0.0.0", PORT), Handler)
        server.daemon_threads = True
        server.serve_forever()
