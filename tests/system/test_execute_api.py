"""docs/api/execute.yaml describes the fields that the code reads and writes, neither more nor less."""
import re

import yaml

from cove import TOP, read

API = yaml.safe_load(read(f"{TOP}/docs/api/execute.yaml"))
SOURCE = read(f"{TOP}/fcgi/dialects/execute_body.c")


def fields(*tables):
    """Names of the fields in these tables of the source."""
    found = set()
    for table in tables:
        body = re.search(rf"struct json_field {table}\[\] = {{(.*?)JSON_END", SOURCE, re.S).group(1)
        found |= set(re.findall(r'JSON_\w+\([^,]+, [^,]+, "(\w+)"', body))
    return found


def properties(schema):
    return set(API["components"]["schemas"][schema]["properties"])


def test_the_request_has_these_fields():
    assert properties("Execute") == fields("action_fields", "project_fields", "execute_fields")
    assert {"cwd", "timeout", "env"} <= properties("Execute")


def test_replies_have_these_fields():
    assert properties("Outcome") == fields("execute_reply_fields")
    assert properties("Failure") == fields("execute_error_fields")
    ended = API["components"]["schemas"]["Outcome"]["properties"]["ended"]["properties"]
    assert set(ended) == fields("ended_fields")


def test_every_reference_leads_somewhere():
    for ref in re.findall(r'\$ref: "#/([^"]+)"', read(f"{TOP}/docs/api/execute.yaml")):
        at = API
        for part in ref.split("/"):
            at = at[part]
