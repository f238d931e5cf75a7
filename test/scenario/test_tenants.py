"""Tenants against a real server: what each role of a key may do, on every route of docs/tenants.md, and that what is
another tenant's is answered as what does not exist."""

import pathlib
import re

import pytest

from client import Client
from conftest import REPOSITORY

PAGE = pathlib.Path(REPOSITORY / "docs/tenants.md").read_text()
ROW = re.compile(r"^\| `([A-Z*]+)` \| `(/[^`]*)` \| (yes|403|no key) \| (yes|403|no key) \| (yes|403|no key) \|$", re.M)
ROUTES = ROW.findall(PAGE)
UNKNOWN = "i" + "0" * 20
# What each route wants in order to get as far as the sandbox.
BODIES = {"/sandboxes/{id}/timeout": {"timeout": 60}, "/sandboxes/{id}/refreshes": {"duration": 60},
          "/sandboxes/{id}/connect": {"timeout": 60}, "/v2/sandboxes/{id}/connect": {"timeout": 60},
          "/cay/v1/sandboxes/{id}/exec": {"command": ["true"]}, "/cay/v1/sandboxes/{id}/asks/{ask}": {"answer": "no", "for": "once"},
          "/cay/v1/sandboxes/{id}/policy/explain": {"to": "https://a.example:443"},
          "/api/sandbox/{id}/network-settings": {"networkBlockAll": True}}


def make_key(cay, tenant, role):
    reply = cay.call("POST", "/cay/v1/keys", {"tenant": tenant, "role": role, "label": role})
    assert reply.status == 201 and reply.json["role"] == role, reply.body
    return reply.json["key"]


def ask(client, method, pattern, sandbox_id):
    """The route of that sandbox; what else is in its path does not exist."""
    path = pattern.replace("{id}", sandbox_id).replace("{interval}", "5").replace("{tenant}", "nobody").replace("*", "nothing")
    path = re.sub(r"\{\w+\}", "nothing", path)
    if path == "/cay/v1/events":
        path += "?follow=0"
    body = None if method in ("GET", "DELETE") else BODIES.get(pattern, {})
    return client.call("POST" if method == "*" else method, path, body)


def same(reply, sandbox_id):
    """But for the id, and the time that errors of Daytona's dialect carry."""
    return reply.status, re.sub(r'"timestamp":"[^"]*"', "", reply.body.decode().replace(sandbox_id, "ID"))


def test_the_page_has_the_routes():
    assert len(ROUTES) > 80


def test_a_read_only_key_reads_and_changes_nothing(cay):
    reader = Client(cay.url, make_key(cay, "default", "read-only"))
    with cay.create(secure=True, network={"allowPublicTraffic": False}) as box:
        before = cay.call("GET", f"/sandboxes/{box.id}").json
        token = before["envdAccessToken"]
        made = cay.call("POST", f"/sandboxes/{box.id}/connect", {"timeout": 300}).json["trafficAccessToken"]
        seen = 0
        for method, pattern, _, _, reads in ROUTES:
            reply = ask(reader, method, pattern, box.id)
            if reads == "403":
                assert reply.status == 403 and b"key" in reply.body, (method, pattern, reply.status, reply.body)
            else:
                assert reply.status not in (401, 403), (method, pattern, reply.body)
            assert token.encode() not in reply.body and made.encode() not in reply.body, (method, pattern)
            seen += reply.status == 200
        assert seen >= 15
        after = cay.call("GET", f"/sandboxes/{box.id}").json
        assert after["state"] == "running" and after["envdAccessToken"] == token
        assert "envdAccessToken" not in reader.call("GET", f"/sandboxes/{box.id}").json


def test_an_owner_is_not_the_operator(cay):
    owner = Client(cay.url, make_key(cay, "default", "owner"))
    status = owner.call("GET", "/cay/v1/status").json
    assert status["operator"] is False and status["role"] == "owner" and status["tenant"] == "default"
    for method, pattern, operator, owns, _ in ROUTES:
        if owns == "403":
            assert operator == "yes"
            assert ask(owner, method, pattern, UNKNOWN).status == 403, (method, pattern)
    assert owner.call("POST", "/cay/v1/keys", {"role": "operator"}).status == 403
    assert owner.call("POST", "/cay/v1/keys", {"tenant": "others"}).status == 403
    made = owner.call("POST", "/cay/v1/keys", {})
    assert made.status == 201 and made.json["role"] == "owner"
    for key in cay.call("GET", "/cay/v1/keys?tenant=default").json:
        if key["role"] == "operator":
            assert owner.call("DELETE", f"/cay/v1/keys/{key['id']}").status == 404
    assert owner.call("DELETE", f"/cay/v1/keys/{made.json['id']}").status == 204


@pytest.mark.parametrize("role", ["", "admin", "Owner", "OPERATOR", 1, None, ["owner"]])
def test_a_role_is_one_of_three_names(cay, role):
    reply = cay.call("POST", "/cay/v1/keys", {"role": role})
    assert (reply.status == 201) == (role is None), reply.body
    if role is not None:
        assert reply.status == 400 and "role" in reply.json["message"]


def test_only_the_operators_tenant_has_operators(cay):
    reply = cay.call("POST", "/cay/v1/keys", {"tenant": "others", "role": "operator"})
    assert reply.status == 400 and "default" in reply.json["message"]


def test_what_is_anothers_is_not_there(cay, other_tenant):
    """The same answer, byte for byte, for another tenant's sandbox and for none."""
    with cay.create(secure=True) as box:
        for method, pattern, _, owns, _ in ROUTES:
            if "sandbox" not in pattern or "{id}" not in pattern or owns != "yes":
                continue
            foreign, none = (same(ask(other_tenant, method, pattern, i), i) for i in (box.id, UNKNOWN))
            assert foreign == none, (method, pattern)
            assert foreign[0] in (404, 501), (method, pattern, foreign)
            if method == "GET":  # for its own tenant it is there
                assert ask(cay, "GET", pattern, box.id).status in (200, 503), pattern
        assert box.id not in other_tenant.call("GET", "/v2/sandboxes").body.decode()
        assert cay.call("GET", f"/sandboxes/{box.id}").json["state"] == "running"
