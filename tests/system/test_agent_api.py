"""docs/api/agent.yaml describes what the code serves, neither more nor less."""
import glob
import re

from agent import BASE, routes
from cove import TOP, read
from openapi import Document

API = Document("agent")
# A form's fields, and the wrapper around all replies, are in no table.
FORM, WRAPPER = {"file"}, {"code", "data", "error", "rule", "reason"}


def test_every_route_of_the_code_is_described_and_the_other_way_round():
    in_code = {(method, path.removeprefix(BASE) or "/") for method, path, _ in routes()}
    assert len(in_code) > 20 and set(API.operations()) == in_code


def test_every_field_of_the_code_is_described_and_the_other_way_round():
    code = "".join(read(path) for path in glob.glob(f"{TOP}/fcgi/dialects/agent*.c"))
    rows = re.findall(r"JSON_[A-Z_]+\(\s*struct (\w+),\s*\w+,\s*(?:struct \w+,\s*)?\"(\w+)\"", code)
    asked = {name for struct, name in rows if struct.endswith("_args") or struct == "run_body"}
    told = {name for struct, name in rows} - asked | {name for struct, name in rows if not struct.endswith(("_args", "run_body"))}
    described, answered = API.fields()
    assert len(asked) > 12 and asked == described - FORM
    assert len(told) > 25 and told | WRAPPER == answered


def test_every_name_of_an_error_is_described():
    names = set(re.findall(r'"(\w+(?:Error|Exception))"', "".join(read(p) for p in glob.glob(f"{TOP}/fcgi/dialects/agent*.c"))))
    text = API.all["components"]["responses"]["Failure"]["description"]
    assert len(names) > 10 and {name for name in names if name not in text} == set()
    site = re.search(r"map \$status \$cove_agent_error \{(.*?)\}", read(f"{TOP}/nginx/cove.conf"), re.S).group(1)
    code = dict(re.findall(r'\{ (\d+), "(\w+)" \}', read(f"{TOP}/fcgi/dialects/agent.c")))
    for status, name in re.findall(r"(\d+)\s+(\w+);", site):
        assert code[status] == name, "nginx's own errors have the same names"
