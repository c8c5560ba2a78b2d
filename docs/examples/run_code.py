#!/usr/bin/env python3
"""Run Python that nobody has read, each piece in a sandbox of its own, and see how it ended."""
import json
import os
import urllib.error
import urllib.request
import uuid

URL, KEY = os.environ["COVE_URL"], os.environ["COVE_KEY"]

PIECES = {
    "a sum": "print(sum(range(10)))",
    "an error": "print(1 / 0)",
    "an endless loop": "while True: pass",
    "a look at the host": "import os; print(os.getuid(), sorted(os.listdir('/home')), len(os.listdir('/proc')) < 200)",
}


def post(path, body):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"X-API-Key": KEY, "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:  # a refusal, a limit, a command that ran too long: JSON as well
        return json.load(error)


def run(code):
    project = f"example-{uuid.uuid4().hex[:12]}"
    try:
        command = "timeout 2 python3 - <<'END_OF_CODE'\n" + code + "\nEND_OF_CODE"
        return post("/execute", {"projectId": project, "commands": [command]})
    finally:
        post("/cleanup", {"projectId": project})


for name, code in PIECES.items():
    result = run(code)
    last_error = (result.get("stderr") or "").strip().split("\n")[-1]
    print(f"{name}: exit {result.get('exitCode')}, printed {result.get('stdout', '').strip()!r} {last_error}".rstrip())
