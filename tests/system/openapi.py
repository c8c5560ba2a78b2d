"""A document of docs/api, for tests that compare it with the code."""
import pytest

from cove import TOP, read

yaml = pytest.importorskip("yaml")

METHODS = {"get", "put", "post", "delete", "patch"}


class Document:
    def __init__(self, name):
        self.all = yaml.safe_load(read(f"{TOP}/docs/api/{name}.yaml"))

    def operations(self):
        return {(method.upper(), path): op for path, item in self.all["paths"].items() for method, op in item.items()
                if method in METHODS}

    def resolve(self, node):
        """The object that a reference means; another object itself."""
        while "$ref" in node:
            target = self.all
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            node = target
        return node

    def properties(self, schema):
        """All names in a schema, those of inner objects too."""
        schema = self.resolve(schema)
        names = set(schema.get("properties", {}))
        for inner in [*schema.get("properties", {}).values(), schema.get("items", {}), *schema.get("oneOf", []),
                      *schema.get("allOf", []), *schema.get("anyOf", [])]:
            names |= self.properties(inner) if inner else set()
        return names

    def fields(self):
        """The names in the bodies of all requests, and those in the bodies of all replies."""
        asked, told = set(), set()
        for op in self.operations().values():
            for kind in self.resolve(op.get("requestBody", {})).get("content", {}).values():
                asked |= self.properties(kind["schema"])
            for response in op["responses"].values():
                for kind in self.resolve(response).get("content", {}).values():
                    told |= self.properties(kind.get("schema", {}))
        return asked, told
