"""Every route of every dialect, from their tables: without a key, with one that was revoked or never was, with another
tenant's, and with a body over its limit. The rights of a key of each role are in test_tenants."""

import re

import pytest

from client import Client
from routelib import BODIES, ROUTES, TOOLBOX, UNKNOWN, ask, inside, same, table

API_BODY, TOOLBOX_BODY = 1 << 20, 4 << 20
AGENT = table("src/agent/routes.c", r'^    \{"([A-Z]+)", "(/[^"]+)", \w+\}', r'^    \{"')
CLOSED = ("/init", "/cay/envs", "/cay/go-on", "/cay/hooks", "/cay/logs", "/cay/oom", "/cay/prepare")  # between cayd and the agent: not to be had from outside by any key
OPEN = ("/health",)


@pytest.fixture(scope="module")
def box(cay):
    with cay.create(secure=True, network={"allowPublicTraffic": False}) as made:
        yield made


@pytest.fixture(scope="module")
def revoked(cay):
    made = cay.call("POST", "/cay/v1/keys", {"tenant": "default", "role": "operator"}).json
    client = Client(cay.url, made["key"])
    assert client.call("GET", "/cay/v1/status").status == 200
    assert cay.call("DELETE", f"/cay/v1/keys/{made['id']}").status == 204
    return client


def wrong(rows):
    """All that are not as they are to be, not the first alone."""
    bad = [row for row in rows if row]
    assert not bad, "\n".join(map(str, bad))


def refused(reply, status, *what):
    """The route, where it answers otherwise; errors are JSON with a sentence in every dialect."""
    if reply.status != status:
        return *what, reply.status, reply.body[:200]
    said = reply.json
    told = said.get("message") or said.get("error", {}).get("message")
    return None if told else (*what, said)


def test_the_api_opens_nothing_without_a_key(cay, box, revoked):
    keyless, never = Client(cay.url, False), Client(cay.url, "e2b_" + "0" * 40)
    rows = [(client, row) for client in (keyless, never, revoked) for row in ROUTES if row[2] != "no key"]
    assert len(rows) > 3 * 80
    wrong(refused(ask(client, method, pattern, box.id), 401, method, pattern, client.key)
          for client, (method, pattern, *_) in rows)
    assert cay.call("GET", f"/sandboxes/{box.id}").json["state"] == "running"


BODYLESS = ("build", "archive", "snapshots/import", "ping", "retry")  # these have none, or a file


def test_a_key_that_is_misspelt_is_not_taken_for_absent(cay, box):
    """By cay's own calls: {"rol": "read-only"} made a key of the operator's, {"teir": "memory"} a frozen pause."""
    rows = [(method, pattern) for method, pattern, *_ in ROUTES
            if pattern.startswith("/cay/v1/") and method in ("POST", "PUT", "PATCH") and not pattern.endswith(BODYLESS)]
    assert len(rows) > 15

    def reply(method, pattern):
        path = re.sub(r"\{\w+\}", "nothing", pattern.replace("sandboxes/{id}", f"sandboxes/{box.id}").replace("{tenant}", "default"))
        return cay.call(method, path, {**BODIES.get(pattern, {}), "misspelt": 1})

    wrong(refused(reply(method, pattern), 400, method, pattern) for method, pattern in rows)
    assert cay.call("GET", f"/sandboxes/{box.id}").json["state"] == "running"
    told = cay.call("POST", "/cay/v1/keys", {"rol": "read-only"}).json["message"]
    assert told == 'there is no "rol": this call takes tenant, role, label'


def test_the_api_takes_no_longer_body(cay, box):
    """But for a file, which goes into none of its memory (test_snapshot_file.py)."""
    body = b"[" + b" " * API_BODY
    wrong(refused(cay.call(method.replace("*", "POST"), re.sub(r"\{\w+\}|\*", "nothing", pattern), body), 413, method, pattern)
          for method, pattern, *_ in ROUTES if method in ("POST", "PUT", "PATCH", "*") and pattern != "/cay/v1/snapshots/import")


def test_the_toolbox_opens_nothing_without_a_key(cay, box, revoked):
    keys = ("", "e2b_" + "0" * 40, revoked.key)
    wrong(refused(inside(cay, method, pattern, box.id, key), 401, method, pattern, key)
          for key in keys for method, pattern, _ in TOOLBOX)


def test_the_toolbox_has_no_sandbox_of_anothers(cay, box, other_tenant):
    """The same answer for another tenant's and for none."""
    def compare(method, pattern):
        foreign, none = (same(inside(other_tenant, method, pattern, i), i) for i in (box.id, UNKNOWN))
        return None if foreign == none and foreign[0] == 404 else (method, pattern, foreign, none)

    wrong(compare(method, pattern) for method, pattern, _ in TOOLBOX)


def test_of_two_keys_the_same_one_counts_everywhere(cay, box, other_tenant, revoked):
    """X-API-Key, where both headers have one: else a request would be of one tenant below /api/toolbox, and of another elsewhere."""
    paths = "/cay/v1/status", f"/api/sandbox/{box.id}", f"/api/toolbox/{box.id}/work-dir"
    for first, second, expected in ((cay, other_tenant, (200,) * 3), (other_tenant, cay, (200, 404, 404)), (revoked, cay, (401,) * 3),
                                    (cay, revoked, (200,) * 3)):
        keys = {"X-API-Key": first.key, "Authorization": f"Bearer {second.key}"}
        assert tuple(cay.call("GET", path, None, keys, key=False).status for path in paths) == expected, (first.key, second.key)


def test_the_toolbox_takes_no_longer_body(cay, box):
    """Files are streams, and calls without a body leave it unread."""
    body = b"[" + b" " * TOOLBOX_BODY
    rows = [row for row in TOOLBOX if row[0] in ("POST", "PUT", "PATCH") and not row[2]]
    assert len(rows) > 10
    wrong(refused(inside(cay, method, pattern, box.id, body=body), 413, method, pattern) for method, pattern, _ in rows)


def test_the_agent_opens_nothing_without_its_token(cay, box, revoked):
    """Nor does a key of the API, of its own tenant's operator: the agent's calls go by the sandbox's token alone."""
    with cay.create(secure=True) as other:
        tokens = ({}, {"X-Access-Token": other.token}, {"X-Access-Token": "0" * len(box.token)}, {"X-API-Key": cay.key},
                  {"X-API-Key": revoked.key})
        target = {"E2b-Sandbox-Id": box.id, "E2b-Sandbox-Port": "49983"}
        rows = [(method, path, token) for token in tokens for method, path in AGENT if path not in OPEN]
        for method, path, token in rows:
            reply = cay.call(method, path, None if method in ("GET", "HEAD") else b"{}", {**target, **token}, key=False)
            expected = (404,) if path in CLOSED else (401,)
            assert reply.status in expected, (method, path, token, reply.status, reply.body)
