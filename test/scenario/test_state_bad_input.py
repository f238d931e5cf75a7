"""Calls that the state of a sandbox or snapshot does not allow: the documented answer, and nothing has changed."""

import pytest
from client import Sandbox
from routelib import same
from test_dump import needs  # noqa: F401 (fixture)
from test_pause import state
from test_pause_memory import detail, kept, own  # noqa: F401 (fixtures)
from test_pause_memory_ends import told
from test_quota_races import RACES, at_once
from test_tenants import quota, tenant  # noqa: F401 (fixture)

TIERS = ["frozen", "files", "memory"]
NONE = "i" + "0" * 20
NAMES = ["none", "no/such", "no%2Fsuch", "..%2F..%2Fetc%2Fpasswd", "%2F", "a%00b", "x" * 300]


def pause(client, box, tier):
    return client.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {"tier": tier})


def resume(client, box):
    return client.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 300})


@pytest.mark.parametrize("tier", TIERS)
def test_a_pause_of_a_paused_one(kept, tier):  # noqa: F811
    with kept.create() as box:
        box.write("/home/user/file", b"mine")
        assert pause(kept, box, tier).status == 200
        before = detail(kept, box)
        for other in TIERS:
            reply = pause(kept, box, other)
            assert reply.status == 409 and reply.json["message"], (other, reply.body)
        for path, body in ((f"/sandboxes/{box.id}/pause", {}), (f"/sandboxes/{box.id}/pause", {"memory": False})):
            assert kept.call("POST", path, body).status == 409
        after = detail(kept, box)
        assert (after["state"], after["tier"]) == (before["state"], before["tier"]) == ("paused", tier)
        assert resume(kept, box).status == 201 and box.read("/home/user/file").body == b"mine"


@pytest.mark.parametrize("tier, words", [("frozen", "paused"), ("files", "paused with its files alone"),
                                         ("memory", "paused with its memory on the disk")])
def test_what_a_paused_one_cannot_do(kept, tier, words):  # noqa: F811
    """In an owner's words, with the next step."""
    calls = {"exec": ("POST", "/cay/v1/sandboxes/{}/exec", {"command": ["true"]}),
             "fork": ("POST", "/sandboxes/{}/fork", {}),
             "snapshot": ("POST", "/sandboxes/{}/snapshots", {}),
             "resize": ("POST", "/cay/v1/sandboxes/{}/resize", {"cpuMilli": 1000})}
    done = {"frozen": {"snapshot", "resize"}, "files": {"resize"}, "memory": set()}[tier]
    with kept.create() as box:
        assert pause(kept, box, tier).status == 200
        for name, (method, path, body) in calls.items():
            reply = kept.call(method, path.format(box.id), body)
            if name in done:
                assert reply.status in (200, 201), (name, reply.json)
                if name == "snapshot":
                    kept.call("DELETE", f"/templates/{reply.json['snapshotID']}")
                continue
            said = reply.json["message"]
            assert reply.status == 409 and f"is {words}" in said and f"cay resume {box.id}" in said, (name, said)


@pytest.mark.parametrize("tier", [None, *TIERS])
def test_calls_about_one_that_has_ended(kept, tier):  # noqa: F811
    """As about one that never was, in every dialect, but for the reason of its end, which cay's own calls tell."""
    box = kept.create()
    assert tier is None or pause(kept, box, tier).status == 200
    assert box.kill().status == 204
    told = set()
    for path, body in (("/sandboxes/{}/connect", {"timeout": 9}), ("/v2/sandboxes/{}/connect", {"timeout": 9}),
                       ("/sandboxes/{}/resume", {"timeout": 9}), ("/cay/v1/sandboxes/{}/resume", {}),
                       ("/cay/v1/sandboxes/{}/pause", {"tier": "files"}), ("/sandboxes/{}/pause", {}),
                       ("/sandboxes/{}/snapshots", {}), ("/sandboxes/{}/fork", {}), ("/cay/v1/sandboxes/{}/archive", {}),
                       ("/cay/v1/sandboxes/{}/rollback", {"snapshotID": "s"}), ("/api/sandbox/{}/start", {})):
        ended, never = (kept.call("POST", path.format(i), body) for i in (box.id, NONE))
        assert ended.status == never.status == 404, (path, ended.body, never.body)
        if "has ended" in ended.json["message"]:
            told.add(path)
            assert f"sandbox '{box.id}' has ended: killed, at 20" in ended.json["message"], (path, ended.body)
        else:
            assert same(ended, box.id) == same(never, NONE), path
    assert told == {"/cay/v1/sandboxes/{}/archive", "/cay/v1/sandboxes/{}/rollback"}


@pytest.mark.parametrize("tier", [None, *TIERS])
def test_a_delete_of_a_snapshot_in_use(kept, tier):  # noqa: F811
    """A sandbox that was made of it goes on, paused or not, and so does its source; a second delete finds none."""
    with kept.create() as source:
        source.write("/home/user/file", b"kept")
        made = kept.call("POST", f"/sandboxes/{source.id}/snapshots", {}).json["snapshotID"]
        with Sandbox(kept, kept.call("POST", "/v2/sandboxes", {"templateID": made, "timeout": 300}).json) as box:
            assert tier is None or pause(kept, box, tier).status == 200
            assert [kept.call("DELETE", f"/templates/{made}").status for _ in range(2)] == [204, 404]
            assert kept.call("POST", "/v2/sandboxes", {"templateID": made}).status == 404
            assert tier is None or resume(kept, box).status == 201
            assert [one.read("/home/user/file").body for one in (box, source)] == [b"kept"] * 2


@pytest.mark.parametrize("name", NAMES)
def test_names_that_none_has(kept, name):  # noqa: F811
    with kept.create() as box:
        for method, path, body in (("DELETE", f"/templates/{name}", None), ("DELETE", f"/sandboxes/{name}", None),
                                   ("DELETE", f"/cay/v1/volumes/{name}", None), ("POST", f"/sandboxes/{name}/pause", {}),
                                   ("POST", f"/v2/sandboxes/{name}/connect", {"timeout": 9}),
                                   ("POST", f"/cay/v1/sandboxes/{box.id}/rollback", {"snapshotID": name}),
                                   ("POST", "/v2/sandboxes", {"templateID": name}),
                                   ("POST", f"/sandboxes/{box.id}/snapshots", {"name": name})):
            reply = kept.call(method, path, body)
            given = path.endswith("/snapshots") and name == "none"  # which is a name that one may have
            assert reply.status == 201 if given else reply.status in (400, 404), (method, path, reply.body)
            assert given or reply.json["message"]
        assert state(kept, box) == "running"
        kept.call("DELETE", "/templates/none")


@pytest.mark.parametrize("tier", TIERS)
def test_resumes_at_once(kept, tier):  # noqa: F811
    with kept.create() as box:
        box.write("/home/user/file", b"mine")
        assert pause(kept, box, tier).status == 200
        statuses = {r.status for r in at_once(2, lambda: resume(kept, box))}
        assert statuses <= {200, 201} and 201 in statuses  # 200: it runs already
        assert state(kept, box) == "running" and box.read("/home/user/file").body == b"mine"
        assert len(told(kept, box, "sandbox.resumed")) == 1


@pytest.mark.parametrize("name", sorted({name for name, _, _ in RACES}))
def test_a_quota_of_zero(cay, tenant, name):  # noqa: F811
    call, part = next((call, part) for which, call, part in RACES if which == name)
    box = None if part == "number" else tenant.call("POST", "/v2/sandboxes", {"templateID": "host", "timeout": 300}).json["sandboxID"]
    quota(cay, tenant, **{name: 0})
    status, body = call(tenant, box or "zero")
    assert status == 429 and f"the quota {name} of tenant {tenant.name} is 0" in body, (status, body)
    assert box is None or tenant.call("GET", f"/sandboxes/{box}").json["state"] == "running"
    quota(cay, tenant, **{name: None})
