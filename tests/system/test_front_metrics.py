"""/metrics: a strict reading of Prometheus' text format, and whether the figures are true."""
import http.client
import os
import re
import shutil
import subprocess

import pytest

from cove import TOP, wait_for
from test_front_keys import becomes, create

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (-?[0-9.e+]+|\+Inf|NaN)")


def fetch(server, source="127.0.0.1", headers=None):
    c = http.client.HTTPConnection("127.0.0.1", server.http, timeout=10, source_address=(source, 0))
    c.request("GET", "/metrics", headers=headers or {})
    r = c.getresponse()
    return r.status, r.headers.get("Content-Type"), r.read().decode()


def parse(text):
    """{name: {labels: value}}; fails on whatever promtool's `check metrics` would refuse."""
    types, helps, samples, current = {}, {}, {}, None
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if m := re.fullmatch(rf"# HELP ({NAME}) (.+)", line):
            assert m[1] not in helps, f"second HELP: {line}"
            helps[m[1]], current = m[2], m[1]
        elif m := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line):
            assert m[1] == current and m[1] not in types, f"TYPE out of place: {line}"
            types[m[1]] = m[2]
        else:
            m = SAMPLE.fullmatch(line)
            assert m, f"not a sample: {line}"
            family = re.sub(r"_(bucket|sum|count)$", "", m[1]) if types.get(current) == "histogram" else m[1]
            assert family == current, f"a sample apart from its family: {line}"
            assert m[2] not in samples.setdefault(m[1], {}), f"twice: {line}"
            samples[m[1]][m[2]] = float(m[3])
    assert set(types) == set(helps)
    for name, kind in types.items():
        assert (kind == "counter") == name.endswith("_total"), f"{name} is a {kind}"
    return samples


def check_histogram(samples, name):
    series = {}
    for labels, value in samples[name + "_bucket"].items():
        dialect, le = re.fullmatch(r'dialect="(\w+)",le="([^"]+)"', labels).groups()
        series.setdefault(dialect, []).append((float(le.replace("+Inf", "inf")), value))
    for dialect, buckets in series.items():
        assert buckets == sorted(buckets) and [v for _, v in buckets] == sorted(v for _, v in buckets)
        assert buckets[-1] == (float("inf"), samples[name + "_count"][f'dialect="{dialect}"'])


@pytest.fixture
def instance(make_server):
    return make_server()


def test_the_format_is_right(instance):
    instance.execute("m", "echo hi")
    status, kind, text = fetch(instance)
    assert status == 200 and kind.startswith("text/plain; version=0.0.4")
    check_histogram(parse(text), "cove_request_duration_seconds")
    promtool = shutil.which("promtool", path=f"{TOP}/.cove/tools:{os.environ['PATH']}")
    if promtool:  # `./quickstart test` fetches it; without a mirror the reading above is what there is
        done = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True)
        assert done.returncode == 0 and not done.stderr, done


def test_the_figures_are_true(make_server):
    server = make_server(output_max="64K", tenant_sandboxes=1)
    before = parse(fetch(server)[2])
    for _ in range(3):
        server.execute("m", "echo hi")
    server.execute("m", "rm -rf /")
    server.execute("m", "yes")
    server.execute("over", "true")
    server.post("/execute", {}, key=False)

    def grew(name, labels=None):
        return now[name].get(labels, 0) - before.get(name, {}).get(labels, 0)

    def all_counted():  # a request is counted after its answer has left
        nonlocal now
        now = parse(fetch(server)[2])
        return grew("cove_request_duration_seconds_count", 'dialect="execute"') >= 6

    now = {}
    wait_for(all_counted, 30, "the last request to be counted")
    assert grew("cove_requests_total", 'dialect="execute",status="200"') == 4
    assert grew("cove_requests_total", 'dialect="execute",status="400"') == 1
    assert grew("cove_requests_total", 'dialect="execute",status="429"') == 1
    assert grew("cove_request_duration_seconds_count", 'dialect="execute"') == 6
    assert grew("cove_commands_total") == 4
    assert grew("cove_refusals_total", 'when="before"') == 1
    assert grew("cove_limits_total", 'limit="output"') == 1
    assert grew("cove_limits_total", 'limit="tenant_sandboxes"') == 1
    assert grew("cove_auth_failures_total") == 1
    assert grew("cove_output_bytes_total") >= 9 + 64 * 1024 - 1
    assert grew("cove_sandboxes_claimed_total") == 1
    assert now["cove_sandboxes"]['state="live"'] == 1
    assert now["cove_workers"][None] == 1 and now["cove_threads_busy"][None] >= 1


def test_they_are_for_this_machine_or_a_key_of_their_own(instance):
    elsewhere = "127.0.0.2"  # not among the addresses that nginx lets pass
    ordinary, own = create(instance, "acme"), create(instance, "ops", "--dialects", "metrics")
    becomes(instance, ordinary, 200)
    becomes(instance, own, 403)
    assert fetch(instance)[0] == 200
    assert fetch(instance, elsewhere)[0] in (401, 403)
    assert fetch(instance, elsewhere, {"X-API-Key": ordinary})[0] == 403
    assert fetch(instance, elsewhere, {"X-API-Key": own})[0] == 200
    assert fetch(instance, headers={"X-Forwarded-For": "203.0.113.5"})[0] == 403, "what a proxy here forwards is not ours"
    assert fetch(instance, elsewhere, {"X-Real-IP": "127.0.0.1"})[0] in (401, 403)
