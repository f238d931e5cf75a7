"""Forks and snapshots by Daytona's API: what a fork begins with and what it has of its source, what a create can name, and that
another tenant's are not there."""

import concurrent.futures
import datetime
import json
import os
import time

import pytest
from client import Client
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from test_toolbox import Box

REQUIRED = {"id", "general", "name", "state", "size", "entrypoint", "cpu", "gpu", "mem", "disk", "errorReason", "createdAt", "updatedAt",
            "lastUsedAt", "sourceSandboxId"}  # of openapi-specs/api.json


class Account:
    """A tenant's calls; what it has made is gone afterwards."""

    def __init__(self, cay, key):
        self.cay, self.key, self.made = cay, key, []

    def call(self, method, path, body=None):
        sent = b"" if method == "POST" and body is None else body
        return self.cay.call(method, f"/api/{path}", sent, {"Authorization": f"Bearer {self.key}"}, key=False)

    def good(self, method, path, body=None):
        reply = self.call(method, path, body)
        assert reply.status == 200, (reply.status, reply.body)
        return reply.json if reply.body else None

    def refused(self, status, method, path, body=None, why=""):
        reply = self.call(method, path, body)
        assert reply.status == status, (reply.status, reply.body)
        assert {*reply.json} == {"path", "timestamp", "statusCode", "error", "message"} and why in reply.json["message"], reply.json

    def sandbox(self, **fields):
        return self.kept(self.good("POST", "sandbox", {"snapshot": "host", **fields}))

    def kept(self, dto):
        self.made.append(dto["id"])
        return dto

    def run(self, dto, command):
        return Box(self.cay, dto["id"], self.key).run(command)["result"]

    def fork(self, dto, **fields):
        return self.kept(self.good("POST", f"sandbox/{dto['id']}/fork", fields))

    def names(self, query=""):
        return [one["name"] for one in self.good("GET", f"snapshots{query}")["items"]]

    def end(self):
        for one in self.made:
            self.call("DELETE", f"sandbox/{one}")
        for one in self.good("GET", "snapshots")["items"]:
            assert one["general"] or self.call("DELETE", f"snapshots/{one['id']}").status == 200, one


@pytest.fixture
def account(cay, new_key, needs_a_disk):  # noqa: F811
    made = []

    def make(tenant=None):
        made.append(Account(cay, new_key(tenant or f"f{os.urandom(6).hex()}")))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def mine(account):
    return account()


# -- forks


def test_a_fork_begins_with_the_files_and_has_what_the_source_has(mine):
    source = mine.sandbox(name="source", labels={"a": "b"}, env={"A": "b c"}, public=True, networkBlockAll=True, autoStopInterval=30,
                          autoArchiveInterval=60, autoDeleteInterval=20)
    mine.run(source, "echo one >f; sleep 7301 >/dev/null 2>&1 &")
    fork = mine.fork(source, name="fork")
    same = ("labels", "public", "networkBlockAll", "autoStopInterval", "autoArchiveInterval", "autoDeleteInterval", "cpu", "memory",
            "disk", "user", "snapshot", "organizationId", "state", "volumes")
    assert {k: fork[k] for k in same} == {k: source[k] for k in same} and fork["state"] == "started"
    assert fork["name"] == "fork" and fork["id"] != source["id"] and mine.good("GET", "sandbox/fork")["id"] == fork["id"]
    assert mine.run(fork, "cat f; echo $A; pgrep -fc 'sleep 730[1]'") == "one\nb c\n0\n"  # its programs begin anew
    mine.run(fork, "echo two >f")
    assert mine.run(source, "cat f; pgrep -fc 'sleep 730[1]'") == "one\n1\n"  # the source goes on
    unnamed = mine.kept(mine.good("POST", f"sandbox/{fork['id']}/fork"))  # and without a body
    assert unnamed["name"] == unnamed["id"] and mine.run(unnamed, "cat f") == "two\n"
    assert mine.good("DELETE", f"sandbox/{source['id']}")["state"] == "destroyed"
    assert mine.run(fork, "cat f") == "two\n"


def test_a_fork_stops_and_ends_when_its_source_would(mine, cay):
    end = lambda dto: datetime.datetime.fromisoformat(mine.good("GET", f"sandbox/{dto['id']}")["autoDestroyAt"].replace("Z", "+00:00"))  # noqa: E731
    timed = mine.sandbox(autoDeleteInterval=0, autoStopInterval=0)
    longer = Client(cay.url, mine.key).call("POST", f"/sandboxes/{timed['id']}/timeout", {"timeout": 1200})
    assert longer.status == 204, longer.body  # an end of its own, that no create gives
    fork = mine.fork(timed)
    assert (fork["autoStopInterval"], fork["autoDeleteInterval"]) == (0, 0)
    # It is measured from the answer's moment on, which comes after the look at the source: up to a create's time later.
    assert abs((end(fork) - end(timed)).total_seconds()) < 300
    source = mine.sandbox(ttlMinutes=600, autoStopInterval=5)
    both = mine.fork(source)
    assert (both["autoStopInterval"], both["autoDeleteInterval"]) == (5, -1)
    assert abs((end(both) - end(source)).total_seconds()) < 300
    stays = mine.fork(mine.sandbox(autoStopInterval=0))
    assert (stays["autoStopInterval"], stays["autoDeleteInterval"]) == (0, -1) and "autoDestroyAt" not in stays
    idle = mine.fork(mine.sandbox())
    assert idle["autoStopInterval"] == 15
    mine.run(idle, "echo kept >f")
    assert mine.good("POST", f"sandbox/{idle['id']}/stop")["state"] == "stopped"
    assert mine.good("POST", f"sandbox/{idle['id']}/start")["state"] == "started" and mine.run(idle, "cat f") == "kept\n"


@pytest.mark.parametrize("body", [{"name": 1}, {"name": "a b"}, {"name": "a/b"}, {"name": "x" * 64}, {"name": {}}, [], b"{"])
def test_what_is_no_fork_is_refused(mine, body):
    mine.refused(400, "POST", f"sandbox/{mine.sandbox()['id']}/fork", body)


def test_a_fork_that_cannot_be_made(mine, account, new_key, cay):
    source = mine.sandbox(name="one")
    at = f"sandbox/{source['id']}/fork"
    mine.refused(409, "POST", at, {"name": "one"}, "one already")
    other = account()
    other.refused(404, "POST", at, {}, "not found")
    mine.refused(404, "POST", "sandbox/i00000000000000000000/fork", {}, "not found")
    reader = cay.call("POST", "/cay/v1/keys", {"tenant": source["organizationId"], "label": "r", "role": "read-only"}).json["key"]
    Account(cay, reader).refused(403, "POST", at, {}, "read-only")
    assert cay.call("PATCH", f"/cay/v1/tenants/{source['organizationId']}/quota", {"sandboxes": 1}).status == 200
    mine.refused(429, "POST", at, {})
    assert cay.call("PATCH", f"/cay/v1/tenants/{source['organizationId']}/quota", {"sandboxes": None}).status == 200
    assert mine.good("POST", f"sandbox/{source['id']}/stop")["state"] == "stopped"
    mine.refused(400, "POST", at, {}, "started")
    assert mine.good("GET", "sandbox/paginated")["total"] == 1


# -- snapshots


def test_a_snapshot_of_a_sandbox_is_what_others_begin_with(mine):
    source = mine.sandbox(labels={"a": "b"})
    mine.run(source, "echo one >f")
    assert mine.good("POST", f"sandbox/{source['id']}/snapshot", {"name": "mine-1.0"})["state"] == "started"
    mine.run(source, "echo two >f")
    made = mine.sandbox(snapshot="mine-1.0")
    assert mine.run(made, "cat f") == "one\n" and made["labels"] == {} and made["snapshot"] == "mine-1.0"
    shown = mine.good("GET", "snapshots/mine-1.0")
    assert {*shown} >= REQUIRED and (shown["name"], shown["state"], shown["general"]) == ("mine-1.0", "active", False)
    assert (shown["sourceSandboxId"], shown["cpu"], shown["mem"], shown["disk"]) == (source["id"], source["cpu"], source["memory"], source["disk"])
    assert mine.good("GET", f"snapshots/{shown['id']}") == shown and shown in mine.good("GET", "snapshots")["items"]
    assert mine.good("DELETE", f"sandbox/{source['id']}")["state"] == "destroyed"
    by_id = mine.sandbox(snapshot=shown["id"])
    assert mine.run(by_id, "cat f") == "one\n" and by_id["snapshot"] == "mine-1.0"
    assert mine.good("DELETE", f"snapshots/{shown['id']}") is None
    mine.refused(404, "GET", "snapshots/mine-1.0", why="not found")
    mine.refused(404, "DELETE", "snapshots/mine-1.0", why="not found")
    mine.refused(400, "POST", "sandbox", {"snapshot": "mine-1.0"}, "mine-1.0")
    assert mine.run(made, "cat f") == "one\n" and mine.good("GET", f"sandbox/{made['id']}")["snapshot"] == shown["id"]  # it has no name any more


def test_a_snapshot_that_cannot_be_made(mine, account):
    source = mine.sandbox()
    at = f"sandbox/{source['id']}/snapshot"
    for body in ({}, {"name": ""}, {"name": 1}, {"name": None}, {"name": "a b"}, {"name": "-a"}, {"name": "x" * 101}, [], b"", b"{"):
        mine.refused(400, "POST", at, body)
    mine.refused(400, "POST", at, {"name": "a", "includeMemory": True}, "includeMemory")
    for taken in ("host", "base"):
        mine.refused(409, "POST", at, {"name": taken}, "already exists")
    mine.good("POST", at, {"name": "a", "includeMemory": False})
    first = mine.good("GET", "snapshots/a")["id"]
    mine.refused(409, "POST", at, {"name": "a"}, "already exists")
    mine.refused(409, "POST", at, {"name": first}, "already exists")
    assert mine.good("GET", "snapshots/a")["id"] == first
    other = account()
    other.refused(404, "POST", at, {"name": "b"}, "not found")
    assert mine.good("POST", f"sandbox/{source['id']}/stop")["state"] == "stopped"
    assert mine.good("POST", f"sandbox/{source['id']}/archive")["state"] == "archived"
    mine.refused(400, "POST", at, {"name": "b"}, "archived")
    assert "b" not in mine.names()


def test_a_snapshot_of_one_that_is_stopped(mine):
    source = mine.sandbox()
    at = f"sandbox/{source['id']}"
    mine.run(source, "echo kept >f")
    assert mine.good("POST", f"{at}/stop")["state"] == "stopped"
    assert mine.good("POST", f"{at}/snapshot", {"name": "of-stopped"})["state"] == "stopped"
    assert mine.good("GET", at)["state"] == "stopped" and mine.run(mine.sandbox(snapshot="of-stopped"), "cat f") == "kept\n"
    mine.refused(409, "POST", f"{at}/snapshot", {"name": "of-stopped"}, "already exists")
    assert mine.good("GET", at)["state"] == "stopped"


@pytest.mark.parametrize("stopped", [False, True])
def test_of_snapshots_of_one_name_at_once_one_is_made(mine, stopped):
    """Of one sandbox and of several: E2B's snapshots take each other's names, Daytona's have theirs for good."""
    boxes = [mine.sandbox()["id"] for _ in range(2)]
    for box in boxes if stopped else ():
        mine.good("POST", f"sandbox/{box}/stop")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda n: mine.call("POST", f"sandbox/{boxes[n % 2]}/snapshot", {"name": "one"}), range(6)))
    assert sum(r.status == 200 for r in replies) == 1 and {r.status for r in replies} == {200, 409}, [(r.status, r.body) for r in replies]
    assert [s["name"] for s in mine.good("GET", "snapshots")["items"] if s["sourceSandboxId"]] == ["one"]


def test_a_snapshot_whose_sandbox_ends_meanwhile_is_told(mine):
    """An answer that is no success says so where there is one."""
    for n in range(20):
        box = mine.sandbox()["id"]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            making = pool.submit(mine.call, "POST", f"sandbox/{box}/snapshot", {"name": f"n{n}"})
            time.sleep(n % 5 / 2000)
            mine.call("DELETE", f"sandbox/{box}")
        reply, there = making.result(), mine.call("GET", f"snapshots/n{n}").status == 200
        assert there == (reply.status == 200 or '" was made; its sandbox' in reply.json["message"]), (n, there, reply.status, reply.body)


def test_they_are_the_tenants_own(mine, account, cay):
    source = mine.sandbox()
    mine.good("POST", f"sandbox/{source['id']}/snapshot", {"name": "own"})
    id = mine.good("GET", "snapshots/own")["id"]
    other = account()
    for name in ("own", id):
        other.refused(404, "GET", f"snapshots/{name}", why="not found")
        other.refused(404, "DELETE", f"snapshots/{name}", why="not found")
        other.refused(400, "POST", "sandbox", {"snapshot": name})
    assert "own" not in other.names() and other.names(f"?sourceSandboxId={source['id']}") == []
    theirs = other.sandbox()
    other.good("POST", f"sandbox/{theirs['id']}/snapshot", {"name": "own"})  # a name is one of a kind for the tenant
    assert other.good("GET", "snapshots/own")["id"] != id
    reader = Account(cay, cay.call("POST", "/cay/v1/keys", {"tenant": source["organizationId"], "label": "r", "role": "read-only"}).json["key"])
    assert reader.good("GET", "snapshots/own")["id"] == id and "own" in reader.names()
    reader.refused(403, "DELETE", "snapshots/own", why="read-only")
    reader.refused(403, "POST", f"sandbox/{source['id']}/snapshot", {"name": "b"}, "read-only")
    assert mine.names(f"?sourceSandboxId={source['id']}") == ["own"]


def test_the_servers_templates_are_for_all_and_stay(mine, account):
    general = [one for one in mine.good("GET", "snapshots")["items"] if one["general"]]
    assert {"host", "base"} <= {one["name"] for one in general}
    for one in general:
        assert {*one} >= REQUIRED and one["state"] in ("active", "inactive", "building") and one["sourceSandboxId"] is None
        assert all(isinstance(one[k], int) and one[k] >= 1 for k in ("cpu", "mem", "disk"))
    assert mine.good("GET", "snapshots/host")["state"] == "active"
    mine.refused(403, "DELETE", "snapshots/host", why="stays")
    assert account().good("GET", "snapshots/host")["general"]


def test_a_list_by_pages_and_names(mine):
    source = mine.sandbox()
    for name in ("p-1", "p-2", "p-3"):
        mine.good("POST", f"sandbox/{source['id']}/snapshot", {"name": name})
    assert mine.names("?name=p-") == ["p-3", "p-2", "p-1"] and mine.names("?name=p-2") == ["p-2"] and mine.names("?name=q") == []
    pages = [mine.good("GET", f"snapshots?name=p-&limit=2&page={n}") for n in (1, 2, 3)]
    assert [[one["name"] for one in p["items"]] for p in pages] == [["p-3", "p-2"], ["p-1"], []]
    assert all((p["total"], p["totalPages"]) == (3, 2) for p in pages) and [p["page"] for p in pages] == [1, 2, 3]
    for query in ("page=0", "page=x", "limit=0", "limit=201", "limit=-1", "page=99999999999", "sort=name", "order=asc",
                  "name=" + "x" * 1000):
        mine.refused(400, "GET", f"snapshots?{query}")


def test_what_is_not_there_says_so(mine):
    mine.refused(501, "POST", "snapshots/host/deactivate", {}, "not supported")
    for method, path in (("POST", "sandbox/x/ssh-access?expiresInMinutes=5"), ("DELETE", "sandbox/x/ssh-access?token=t")):
        mine.refused(501, method, path, why="access by SSH: there is no SSH server")


def test_a_template_of_e2bs_builder_is_one_too(mine, cay):
    """The record that core has of it before it was built: a name that is asked for, and no files."""
    tenant = Client(cay.url, mine.key)
    made = tenant.call("POST", "/v3/templates", {"name": "t1", "cpuCount": 1, "memoryMB": 512})
    assert made.status in (200, 201, 202), made.body
    template = made.json["templateID"]
    shown = [one for one in mine.good("GET", "snapshots?name=t1")["items"]]
    assert [(one["id"], one["name"], one["state"], one["general"]) for one in shown] == [(template, "t1", "pending", False)], json.dumps(shown)
    assert tenant.call("DELETE", f"/templates/{template}").status == 204
