"""Tenants against a real server: what each role of a key may do, on every route of docs/tenants.md, and that what is
another tenant's is answered as what does not exist."""

import concurrent.futures
import json
import os
import re
import subprocess
import threading

import pytest

from client import Client
from conftest import BUILD
from routelib import ROUTES, UNKNOWN, ask, same

def make_key(cay, tenant, role):
    reply = cay.call("POST", "/cay/v1/keys", {"tenant": tenant, "role": role, "label": role})
    assert reply.status == 201 and reply.json["role"] == role, reply.body
    return reply.json["key"]


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


OF_ITSELF = {"/api/sandbox/{id}/build-logs-url": "does not have build info", "/api/sandbox/{id}/parent": "Parent sandbox not found"}


def test_what_is_anothers_is_not_there(cay, other_tenant):
    """The same answer, byte for byte, for another tenant's sandbox and for none."""
    with cay.create(secure=True) as box:
        for method, pattern, _, owns, _ in ROUTES:
            if "sandbox" not in pattern or "{id}" not in pattern or owns != "yes":
                continue
            foreign, none = (same(ask(other_tenant, method, pattern, i), i) for i in (box.id, UNKNOWN))
            assert foreign == none, (method, pattern)
            assert foreign[0] in (404, 501), (method, pattern, foreign)
            own = ask(cay, "GET", pattern, box.id) if method == "GET" else None
            if pattern in OF_ITSELF:  # it is there, and says that it has none
                assert own.status == 404 and OF_ITSELF[pattern] in own.json["message"] and own.json != foreign, own.body
            elif own:  # for its own tenant it is there
                assert own.status in (200, 503), pattern
        assert box.id not in other_tenant.call("GET", "/v2/sandboxes").body.decode()
        assert cay.call("GET", f"/sandboxes/{box.id}").json["state"] == "running"


# -- quotas and usage

@pytest.fixture
def tenant(cay):
    """A tenant of the test's own, by an owner's key; its quotas are gone and its sandboxes ended afterwards."""
    name = f"q{os.urandom(6).hex()}"
    client = Client(cay.url, make_key(cay, name, "owner"))
    client.name = name
    yield client
    for box in client.call("GET", "/v2/sandboxes").json:
        client.call("DELETE", f"/sandboxes/{box['sandboxID']}")


def quota(cay, tenant, **most):
    reply = cay.call("PATCH", f"/cay/v1/tenants/{tenant.name}/quota", most)
    assert reply.status == 200, reply.body
    return reply.json


def used(tenant):
    return tenant.call("GET", f"/cay/v1/tenants/{tenant.name}/quota").json["used"]


def create(client):
    return client.call("POST", "/v2/sandboxes", {"templateID": "host", "timeout": 300})


def at_once(n, fn):
    """fn in n threads, which all begin when all are there."""
    begin = threading.Barrier(n)

    def one(_):
        begin.wait()
        return fn()
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(one, range(n)))


@pytest.mark.parametrize("name, each", [("sandboxes", lambda box: 1), ("memoryBytes", lambda box: box["memoryMB"] << 20),
                                        ("cpuMilli", lambda box: box["cpuCount"] * 1000), ("createdPerMinute", lambda box: 1)])
def test_sixteen_creates_at_once_do_not_exceed_a_quota(cay, tenant, name, each):
    first = [create(tenant).json["sandboxID"] for _ in range(2)]
    cost = each(tenant.call("GET", f"/sandboxes/{first[0]}").json)
    assert used(tenant)[name] == 2 * cost
    quota(cay, tenant, **{name: 3 * cost + cost // 2})
    replies = at_once(16, lambda: create(tenant))
    assert sorted(r.status for r in replies) == [201] + [429] * 15
    refused = next(r for r in replies if r.status == 429)
    assert f"the quota {name} of tenant {tenant.name}" in refused.json["message"]
    assert f"cay tenant quota {tenant.name} {name}=" in refused.json["message"] and refused.headers["Retry-After"]
    assert len(tenant.call("GET", "/v2/sandboxes").json) == 3 and used(tenant)[name] == 3 * cost
    quota(cay, tenant, **{name: None})
    assert create(tenant).status == 201


def test_pauses_at_once_do_not_exceed_a_quota(cay, tenant):
    ids = [create(tenant).json["sandboxID"] for _ in range(4)]
    quota(cay, tenant, paused=1)
    waiting = iter(ids)
    replies = at_once(4, lambda: tenant.call("POST", f"/sandboxes/{next(waiting)}/pause", {}))
    assert sorted(r.status for r in replies) == [204, 429, 429, 429], [r.body for r in replies]
    assert used(tenant)["paused"] == 1 and used(tenant)["sandboxes"] == 4
    paused = next(i for i in ids if tenant.call("GET", f"/sandboxes/{i}").json["state"] == "paused")
    assert tenant.call("POST", f"/sandboxes/{paused}/connect", {"timeout": 300}).status == 201
    assert used(tenant)["paused"] == 0


def test_snapshots_at_once_do_not_exceed_a_quota(cay, tenant):
    """Those that forks are made by do not count."""
    if cay.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
        pytest.skip("files are in memory here")
    box = create(tenant).json["sandboxID"]
    quota(cay, tenant, snapshots=2)
    replies = at_once(16, lambda: tenant.call("POST", f"/sandboxes/{box}/snapshots", {}))
    assert sorted(r.status for r in replies) == [201] * 2 + [429] * 14, [r.body for r in replies]
    refused = next(r for r in replies if r.status == 429)
    assert f"the quota snapshots of tenant {tenant.name}" in refused.json["message"]
    assert used(tenant)["snapshots"] == 2
    assert tenant.call("POST", f"/sandboxes/{box}/fork", {}).status == 201 and used(tenant)["snapshots"] == 2
    made = next(r for r in replies if r.status == 201).json["snapshotID"]
    assert tenant.call("DELETE", f"/templates/{made}").status == 204 and used(tenant)["snapshots"] == 1
    assert tenant.call("POST", f"/sandboxes/{box}/snapshots", {}).status == 201
    for one in tenant.call("GET", "/snapshots").json:
        assert tenant.call("DELETE", f"/templates/{one['snapshotID']}").status == 204
    assert used(tenant)["snapshots"] == 0


@pytest.mark.parametrize("body", [{"sandboxes": -1}, {"sandboxes": 1.5}, {"sandboxes": "5"}, {"sandboxes": 1 << 63},
                                  {"kept": 1}, {"sandboxes": True}, {"": 1}, {"sandboxes": {}}, []])
def test_quotas_that_are_none(cay, tenant, body):
    path = f"/cay/v1/tenants/{tenant.name}/quota"
    before = cay.call("GET", path).json
    refused = cay.call("PATCH", path, body)
    assert refused.status == 400 and refused.json["message"], refused.body
    assert cay.call("GET", path).json == before


def test_a_quota_of_zero(cay, tenant):
    assert quota(cay, tenant, sandboxes=0)["quota"]["sandboxes"] == 0
    refused = create(tenant)
    assert refused.status == 429 and "the quota sandboxes" in refused.json["message"]
    assert cay.call("PATCH", "/cay/v1/tenants/nobody/quota", {"sandboxes": 1}).status == 404
    assert tenant.call("PATCH", f"/cay/v1/tenants/{tenant.name}/quota", {"sandboxes": 1}).status == 403
    for what in ("quota", "usage"):
        hidden = [tenant.call("GET", f"/cay/v1/tenants/{name}/{what}") for name in ("default", "nobody")]
        assert [r.status for r in hidden] == [404, 404]
        assert hidden[0].json["message"].replace("default", "nobody") == hidden[1].json["message"]


def test_usage_by_the_hour(cay, tenant):
    path = f"/cay/v1/tenants/{tenant.name}/usage"
    assert tenant.call("GET", path).json == []
    box = create(tenant).json["sandboxID"]
    ran = tenant.call("POST", f"/cay/v1/sandboxes/{box}/exec", {"command": ["true"]})
    assert ran.status == 200, ran.body
    hours = tenant.call("GET", path).json
    assert sum(h["created"] for h in hours) == 1 and sum(h["commands"] for h in hours) == 1
    assert tenant.call("DELETE", f"/sandboxes/{box}").status == 204
    done = cay.call("GET", path).json
    assert sum(h["sandboxSeconds"] for h in done) > 0 and sum(h["memoryGiBSeconds"] for h in done) > 0
    assert max(h["peakSandboxes"] for h in done) == 1
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:00:00(\.000)?Z", h["hour"]) for h in done)
    assert tenant.call("GET", f"{path}?hours=0").status == 400 and tenant.call("GET", f"{path}?hours=745").status == 400
    # Nothing more is counted of what has ended.
    assert cay.call("GET", path).json == done


def test_the_command_line_sets_and_shows_quotas(cay, tenant):
    def run(*args):
        return subprocess.run([BUILD / "src/cli/cay", *args], capture_output=True, text=True, timeout=60,
                              env={"PATH": os.environ["PATH"], "E2B_API_URL": cay.url, "E2B_API_KEY": cay.key})
    done = run("tenant", "quota", tenant.name, "sandboxes=7", "memoryBytes=4G")
    assert done.returncode == 0, done.stderr
    assert ["sandboxes", "7", "0"] in [line.split() for line in done.stdout.splitlines()]
    shown = json.loads(run("tenant", "quota", tenant.name, "--json").stdout)
    assert shown["quota"] == {"sandboxes": 7, "createdPerMinute": None, "cpuMilli": None, "memoryBytes": 4 << 30,
                              "diskBytes": None, "paused": None, "snapshots": None, "volumes": None, "templates": None,
                              "templateBytes": None}
    assert run("tenant", "quota", tenant.name, "sandboxes=none").returncode == 0
    for bad in ("sandboxes", "sandboxes=", "sandboxes=-1", "sandboxes=1X", "sandboxes=99999999999999999999", "=1"):
        assert run("tenant", "quota", tenant.name, bad).returncode != 0, bad
    assert json.loads(run("tenant", "quota", tenant.name, "--json").stdout)["quota"]["sandboxes"] is None
    create(tenant)
    usage = run("tenant", "usage", tenant.name)
    assert usage.returncode == 0 and usage.stdout.split()[0] == "HOUR" and len(usage.stdout.splitlines()) >= 2
    key = json.loads(run("key", "create", f"--tenant={tenant.name}", "--role=read-only", "--json").stdout)
    assert key["role"] == "read-only" and create(Client(cay.url, key["key"])).status == 403
    assert any(key["id"] in line and "read-only" in line for line in run("key", "ls").stdout.splitlines())
