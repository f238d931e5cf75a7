"""The routes of every dialect, from their tables, and requests to them: for test_tenants, test_routes and the bench of
refusals (test/bench/refusals.py)."""

import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/tenants.md").read_text()
ROW = re.compile(r"^\| `([A-Z*]+)` \| `(/[^`]*)` \| (yes|403|no key) \| (yes|403|no key) \| (yes|403|no key) \|$", re.M)
ROUTES = ROW.findall(PAGE)
UNKNOWN = "i" + "0" * 20
# The body that each route wants in order to get as far as the sandbox.
BODIES = {"/sandboxes/{id}/timeout": {"timeout": 60}, "/sandboxes/{id}/refreshes": {"duration": 60},
          "/sandboxes/{id}/connect": {"timeout": 60}, "/v2/sandboxes/{id}/connect": {"timeout": 60},
          "/cay/v1/sandboxes/{id}/exec": {"command": ["true"]}, "/cay/v1/sandboxes/{id}/asks/{ask}": {"answer": "no", "for": "once"},
          "/cay/v1/sandboxes/{id}/rollback": {"snapshotID": "nothing"},
          "/cay/v1/sandboxes/{id}/policy/explain": {"to": "https://a.example:443"},
          "/api/sandbox/{id}/network-settings": {"networkBlockAll": True}}


def ask(client, method, pattern, sandbox_id):
    """The route of that sandbox; what else is in its path does not exist."""
    path = pattern.replace("{id}", sandbox_id).replace("{interval}", "5").replace("{port}", "80").replace("{tenant}", "nobody").replace("*", "nothing")
    path = re.sub(r"\{\w+\}", "nothing", path)
    if path == "/cay/v1/events":
        path += "?follow=0"
    body = None if method in ("GET", "DELETE") else BODIES.get(pattern, {})
    return client.call("POST" if method == "*" else method, path, body)


def same(reply, sandbox_id):
    """But for the id, and the time that errors of Daytona's dialect carry."""
    return reply.status, re.sub(r'"timestamp":"[^"]*"', "", reply.body.decode().replace(sandbox_id, "ID"))


def table(path, row, begins):
    """Rows that begin with groups of row; each line that begins as one does has to be read."""
    text = (REPOSITORY / path).read_text()
    rows = re.findall(row, text, re.M)
    assert len(rows) == len(re.findall(begins, text, re.M)) > 20
    return rows


TOOLBOX = table("src/toolbox/routes.c", r'^    \{"([A-Z*]+)", "(/[^"]+)", \w+(?:, (\w+))?', r'^    \{"')


def inside(client, method, pattern, sandbox_id, key=None, body=b"{}"):
    path = pattern.replace("{}", "nothing").replace("*", "nothing")
    key = client.key if key is None else key
    return client.call("POST" if method == "*" else method, f"/api/toolbox/{sandbox_id}{path}", None if method == "GET" else body,
                       {"Authorization": f"Bearer {key}"} if key else {}, key=False)
