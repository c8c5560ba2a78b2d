"""The descriptions of the APIs are served to everybody, as they are in the tree, with a page that leads to all of them."""
import glob
import os
import re

import pytest

from cove import TOP, read

DOCUMENTS = sorted(os.path.basename(path) for path in glob.glob(f"{TOP}/docs/api/*") if path.endswith((".yaml", ".md")))


def test_the_page_leads_to_every_description(server):
    page = server.request("GET", "/openapi/", key=False)
    assert page.status == 200 and page.headers["Content-Type"].startswith("text/html")
    assert sorted(re.findall(r'<a href="([^"]*)">', page.body.decode())) == DOCUMENTS
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert not re.search(rb"https?://|<script|<style|style=", page.body), "nothing comes from elsewhere"
    assert server.request("GET", "/openapi", key=False).headers["Location"] == "/openapi/"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_description_is_served_as_text(server, name):
    reply = server.request("GET", f"/openapi/{name}", key=False)
    assert reply.status == 200 and reply.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert reply.body.decode() == read(f"{TOP}/docs/api/{name}")
    assert reply.headers["X-Content-Type-Options"] == "nosniff" and "default-src 'none'" in reply.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/openapi/../index.html", "/openapi/..%2findex.html", "/openapi/none.yaml", "/openapi/%00"])
def test_nothing_else_is_served_there(server, path):
    assert server.request("GET", path, key=False).status in (400, 401, 404)


def test_only_reading_is_allowed(server):
    assert server.request("POST", "/openapi/mcp.md", b"x", key=False).status in (403, 405)
