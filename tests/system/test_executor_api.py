"""docs/api/executor.yaml describes what the code serves, neither more nor less."""
import glob
import re

from cove import TOP, read
from openapi import Document

API = Document("executor")
# Told in the text of the streams: OpenAPI has no schema for events.
EVENT_FIELDS = {"stream", "data", "partial", "timestamp", "of", "lost_bytes"}


def routes_in_code():
    rows = re.findall(r"^    \{ ([A-Z| ]+), \"(/[^\"]*)\", ", read(f"{TOP}/fcgi/dialects/executor.c"), re.M)
    return {(method.strip(), path) for methods, path in rows for method in methods.split("|")}


def test_every_route_of_the_code_is_described_and_the_other_way_round():
    assert len(routes_in_code()) > 15
    assert set(API.operations()) == routes_in_code() | {("GET", "/health")}


def fields_in_code():
    """Names in the tables of requests' structs (..._args, executor_command), and in those of replies."""
    code = "".join(read(path) for path in glob.glob(f"{TOP}/fcgi/dialects/executor*.c"))
    rows = re.findall(r"JSON_[A-Z_]+\(struct (\w+), \w+,(?: struct \w+,)? \"(\w+)\"", code)
    is_request = {struct: struct.endswith("_args") or struct == "executor_command" for struct, _ in rows}
    return ({name for struct, name in rows if is_request[struct]}, {name for struct, name in rows if not is_request[struct]})


def test_every_field_of_the_code_is_described_and_the_other_way_round():
    requests, replies = fields_in_code()
    described, answered = API.fields()
    assert requests == described
    assert replies - answered - EVENT_FIELDS == set()


def references(node):
    if isinstance(node, dict):
        yield from ([node["$ref"]] if "$ref" in node else [])
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from references(item)


def test_it_is_sound():
    """What a linter would say: version, references, ids, and a success and a failure for each operation."""
    assert API.all["openapi"].startswith("3.1") and API.all["info"]["title"] and API.all["servers"]
    used = set(references(API.all))
    for ref in used:
        assert API.resolve({"$ref": ref}), ref
    for kind, parts in API.all["components"].items():
        for name in parts:
            assert kind == "securitySchemes" or f"#/components/{kind}/{name}" in used, f"{name} is not used"
    ids = [op["operationId"] for op in API.operations().values()]
    assert len(ids) == len(set(ids))
    for where, op in API.operations().items():
        codes = {str(code)[0] for code in op["responses"]}
        assert codes & {"1", "2"} and "4" in codes and op["summary"], where  # 1: a WebSocket
        for response in op["responses"].values():
            assert API.resolve(response)["description"], where
