"""E2B's control plane, route by route: status, code and shape of each answer, as the SDKs read them. JS takes 404 and 409
from the body's `code`; Python wants the exact status of a success and both fields of an error."""

import pytest

LISTED = {"templateID", "sandboxID", "clientID", "startedAt", "endAt", "cpuCount", "memoryMB", "diskSizeMB", "state",
          "envdVersion"}
MADE = {"templateID", "sandboxID", "clientID", "envdVersion"}
UNKNOWN = "i" + "0" * 20
SECRET = {"secretID", "name", "currentVersion", "metadata", "createdAt", "updatedAt"}
BUILD = "/templates/host/builds/00000000-0000-0000-0000-000000000000"

# Requests about a sandbox; {} is its id. (method, path, body, status, keys of the answer, or of each of a list's)
ASKED = [
    ("GET", "/sandboxes/{}", None, 200, LISTED),
    ("GET", "/sandboxes", None, 200, LISTED),
    ("GET", "/v2/sandboxes", None, 200, LISTED),
    ("GET", "/v2/sandboxes?state=running&limit=1&order=asc", None, 200, LISTED),
    ("POST", "/sandboxes/{}/connect", {"timeout": 60}, 200, MADE),
    ("POST", "/v2/sandboxes/{}/connect", {}, 200, MADE),
    ("POST", "/v2/sandboxes/{}/connect", {"timeout": "soon"}, 400, None),
    ("POST", "/v2/sandboxes/{}/connect", {"timeout": -1}, 400, None),
    ("POST", "/sandboxes/{}/resume", {"timeout": 60}, 409, None),
    ("POST", "/sandboxes/{}/timeout", {"timeout": 60}, 204, None),
    ("POST", "/sandboxes/{}/timeout", {}, 400, None),
    ("POST", "/sandboxes/{}/timeout", {"timeout": 10 ** 9}, 400, None),
    ("POST", "/sandboxes/{}/refreshes", {"duration": 60}, 204, None),
    ("GET", "/sandboxes/{}/metrics", None, 200,
     {"timestamp", "timestampUnix", "cpuCount", "cpuUsedPct", "memUsed", "memTotal", "memCache", "diskUsed", "diskTotal"}),
    ("GET", "/sandboxes/{}/metrics?start=x", None, 400, None),
    ("GET", "/sandboxes/{}/logs", None, 200, {"logs", "logEntries"}),
    ("GET", "/v2/sandboxes/{}/logs", None, 200, {"logs"}),
    ("PUT", "/sandboxes/{}/network", {}, 204, None),
    ("PUT", "/sandboxes/{}/network", {"denyOut": ["example.com"]}, 400, None),
    ("POST", "/sandboxes/{}/network", {}, 405, None),
]

MISSING = [(m, p, b) for m, p, b, status, _ in ASKED if "{}" in p and status in (200, 204, 409)] + [
    ("DELETE", "/sandboxes/{}", None), ("POST", "/sandboxes/{}/pause", {}), ("POST", "/sandboxes/{}/fork", {}),
    ("POST", "/sandboxes/{}/snapshots", {})]

# Requests about no sandbox.
OTHERS = [
    ("POST", "/v2/sandboxes", {}, 400, None),
    ("POST", "/v2/sandboxes", [], 400, None),
    ("POST", "/v2/sandboxes", {"templateID": "nothing"}, 404, None),
    ("POST", "/v2/sandboxes", {"templateID": "host", "timeout": 0}, 400, None),
    ("POST", "/v2/sandboxes", {"templateID": "host", "timeout": 10 ** 9}, 400, None),
    ("POST", "/v2/sandboxes", {"templateID": "host", "metadata": {"a": 1}}, 400, None),
    ("POST", "/v2/sandboxes", {"templateID": "host", "envVars": {"a": None}}, 400, None),
    ("POST", "/v2/sandboxes", {"templateID": "host", "autoPauseMemory": False}, 400, None),
    ("GET", "/v2/sandboxes?limit=0", None, 400, None),
    ("GET", "/v2/sandboxes?template=nothing", None, 200, LISTED),
    ("GET", "/templates", None, 200, {"templateID"}),
    ("GET", "/v2/templates", None, 200, {"templateID"}),
    ("GET", "/templates/aliases/host", None, 200, {"templateID", "public"}),
    ("GET", "/templates/aliases/nothing", None, 404, None),
    ("DELETE", "/templates/nothing", None, 404, None),
    ("POST", "/v3/templates", {"name": "x"}, 202, {"templateID", "buildID", "public", "aliases", "names", "tags"}),
    ("POST", "/v2" + BUILD, {}, 404, None),
    ("GET", BUILD + "/status?logsOffset=0", None, 404, None),
    ("POST", "/templates/tags", {"target": "a", "tags": ["b"]}, 404, None),
    ("DELETE", "/templates/tags", {"name": "a", "tags": ["b"]}, 404, None),
    ("GET", "/templates/host/tags", None, 200, {"tag", "buildID", "createdAt"}),
    ("GET", "/volumes", None, 200, {"volumeID", "name"}),
    ("POST", "/volumes", {}, 400, None),
    ("POST", "/volumes", {"name": "a/b"}, 400, None),
    ("GET", "/volumes/nothing", None, 404, None),
    ("DELETE", "/volumes/nothing", None, 404, None),
    ("GET", "/secrets", None, 200, SECRET),
    ("GET", "/secrets/nothing", None, 404, None),
    ("DELETE", "/secrets/nothing", None, 404, None),
    ("GET", "/nothing-of-e2b", None, 404, None),
    ("PATCH", "/v2/sandboxes", {}, 405, None),
]


def check(reply, status, keys):
    assert reply.status == status, reply.body
    if status == 204:
        assert reply.body == b""
    elif status >= 400:
        assert reply.json["code"] == status and isinstance(reply.json["message"], str) and reply.json["message"], reply.body
    else:
        for one in reply.json if isinstance(reply.json, list) else [reply.json]:
            assert keys <= set(one), keys - set(one)


def ids(row):
    return f"{row[0]} {row[1]} {row[2] or ''}".strip()


@pytest.mark.parametrize("row", ASKED, ids=ids)
def test_of_a_sandbox(cay, sandbox, row):
    method, path, body, status, keys = row
    check(cay.call(method, path.format(sandbox.id), body), status, keys)


@pytest.mark.parametrize("row", MISSING, ids=ids)
def test_of_one_that_is_not_there_or_another_tenants(cay, sandbox, other_tenant, row):
    """An unknown id is a 404 before anything else, and so is another tenant's."""
    method, path, body = row
    check(cay.call(method, path.format(UNKNOWN), body), 404, None)
    check(other_tenant.call(method, path.format(sandbox.id), body), 404, None)


@pytest.mark.parametrize("path, hint", [
    ("/sandbox", "DAYTONA_API_URL"), ("/sandbox/ione/start", "DAYTONA_API_URL"), ("/config", "DAYTONA_API_URL"),
    ("/api", "DAYTONA_API_URL"), ("/mcp/", "ends in /mcp")])
def test_an_address_that_is_not_quite_right_is_told_the_right_one(cay, path, hint):
    refused = cay.call("POST", path, {}, key=False)
    assert refused.status == 404 and hint in refused.body.decode(), refused.body


def test_an_address_that_has_nothing_to_do_with_those_is_told_none(cay):
    for path in ("/sandboxing", "/configured", "/mcps", "/"):
        refused = cay.call("POST", path, {}, key=False)
        assert refused.status == 404 and "hint" not in refused.json


def test_there_is_no_dashboard_and_that_is_said(cay):
    """E2B's command line makes an address of one from the domain."""
    refused = cay.call("GET", "/dashboard/inspect/sandbox/inone", key=False)
    assert refused.status == 404 and "no dashboard" in refused.json["message"] and "cay ls" in refused.json["hint"]
    assert "hint" not in cay.call("GET", "/nothing-of-e2b").json


@pytest.mark.parametrize("row", OTHERS, ids=ids)
def test_without_a_sandbox(cay, row):
    method, path, body, status, keys = row
    check(cay.call(method, path, body), status, keys)


@pytest.mark.parametrize("row", [r for r in ASKED + OTHERS if r[3] != 405 and "nothing-of" not in r[1]], ids=ids)
def test_without_a_key(cay, sandbox, row):
    method, path, body = row[:3]
    check(cay.call(method, path.format(sandbox.id), body, key=False), 401, None)
