"""Snapshots of images by Daytona's API: a Dockerfile and its context become a template, its states and its log are to be read
while it is built, what fails says why, and another tenant's are not there."""

import os
import threading

import pytest
from client import Client
from test_daytona_snapshot import Account, account, mine  # noqa: F401 (fixtures)
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from waitlib import until


def built(account, name, dockerfile, state="active", **fields):
    """The snapshot, when its build has ended."""
    made = account.good("POST", "snapshots", {"name": name, "buildInfo": {"dockerfileContent": dockerfile}, **fields})
    assert (made["name"], made["state"]) == (name, "building")
    return ended(account, made["id"], state)


def ended(account, id, state="active"):
    shown = until(lambda: (s := account.good("GET", f"snapshots/{id}"))["state"] not in ("pending", "building") and s, 100, "the build ends")
    assert shown["state"] == state, shown
    return shown


def log(account, name, follow=False):
    reply = account.call("GET", f"snapshots/{name}/build-logs{'?follow=true' if follow else ''}")
    assert reply.status == 200, reply.body
    return reply.body.decode()


def test_a_dockerfile_becomes_a_snapshot(mine):  # noqa: F811
    shown = built(mine, "built-1", "FROM host\nRUN id -un > /who; pwd >> /who; echo said\nENV GREETING='hello $you' PATH=/opt/tools:$PATH\n"
                  "WORKDIR /opt/tools\nRUN [\"sh\", \"-c\", \"printf '#!/bin/sh\\\\necho tool; pwd\\\\n' > tool; chmod 755 tool\"]\n", cpu=1)
    assert (shown["errorReason"], shown["cpu"], shown["mem"], shown["general"], shown["sourceSandboxId"]) == (None, 1, 1, False, None)
    box = mine.sandbox(snapshot="built-1")
    assert mine.run(box, "cat /who; echo \"$GREETING\"; tool | head -1") == "root\n/\nhello $you\ntool\n"
    assert mine.run(mine.sandbox(snapshot=shown["id"]), "cat /who") == "root\n/\n"
    said = log(mine, "built-1")
    assert "\nsaid\n" in said and said.endswith(": ready\n") and said == log(mine, shown["id"], follow=True)
    url = mine.good("GET", "snapshots/built-1/build-logs-url")["url"]
    assert url.endswith(f"/api/snapshots/{shown['id']}/build-logs") and url.startswith("http")
    mine.refused(409, "POST", "snapshots", {"name": "built-1", "imageName": "host"}, "already exists")
    mine.refused(400, "POST", "snapshots/built-1/activate", why="already active")
    mine.refused(501, "POST", "snapshots/built-1/deactivate", why="not supported")
    # on it
    built(mine, "built-2", "FROM built-1\nRUN echo \"$GREETING\" > /again; pwd >> /again\n")
    assert mine.run(mine.sandbox(snapshot="built-2"), "cat /again") == "hello $you\n/opt/tools\n"
    assert mine.good("DELETE", f"snapshots/{shown['id']}") is None
    mine.refused(404, "GET", "snapshots/built-1")


def test_what_is_started_and_an_image_by_its_name(mine):  # noqa: F811
    made = mine.good("POST", "snapshots", {"name": "named", "imageName": "host", "entrypoint": ["sh", "-c", "echo one > /started; sleep 7302"]})
    ended(mine, made["id"])
    box = mine.sandbox(snapshot="named")
    assert until(lambda: mine.run(box, "cat /started 2>&1") == "one\n", 30, "what is started runs")
    built(mine, "joined", "FROM host\nENTRYPOINT [\"sh\", \"-c\"]\nCMD [\"echo two > /started; sleep 7302\"]\n")
    box = mine.sandbox(snapshot="joined")
    assert until(lambda: mine.run(box, "cat /started 2>&1") == "two\n", 30, "what is started runs")


def test_a_build_that_fails_says_why(mine):  # noqa: F811
    shown = built(mine, "fails", "FROM host\nRUN echo so far; echo why not >&2; exit 7\nRUN echo never\n", "build_failed")
    assert "status 7" in shown["errorReason"] and "why not" in shown["errorReason"]
    said = log(mine, "fails", follow=True)
    assert "\nso far\n" in said and "never" not in said
    assert [one["state"] for one in mine.good("GET", "snapshots?name=fails")["items"]] == ["build_failed"]
    mine.refused(400, "POST", "sandbox", {"snapshot": "fails"}, "Snapshot fails is build_failed: ")
    mine.refused(400, "POST", "snapshots/fails/activate", why="has failed")
    mine.refused(409, "POST", "snapshots", {"name": "fails", "imageName": "host"}, "already exists")
    assert mine.good("DELETE", "snapshots/fails") is None
    shown = built(mine, "fails", "FROM no-such.example/image:1\n", "build_failed")  # the name is free again
    assert "no-such.example" in shown["errorReason"], shown


def test_a_log_is_read_while_it_is_written(mine):  # noqa: F811
    made = mine.good("POST", "snapshots", {"name": "slow", "buildInfo": {"dockerfileContent":
                     "FROM host\nRUN echo first; while [ ! -e /tmp/no ] && [ $((n += 1)) -lt 40 ]; do sleep 0.1; done; echo second\n"}})
    said = []
    reader = threading.Thread(target=lambda: said.append(log(mine, made["id"], follow=True)))
    reader.start()
    until(lambda: "\nfirst\n" in log(mine, "slow"), 60, "the first line is there")
    mine.refused(409, "DELETE", "snapshots/slow")
    mine.refused(400, "POST", "snapshots/slow/activate", why="being built")
    mine.refused(400, "POST", "sandbox", {"snapshot": "slow"}, "Snapshot slow is building")
    reader.join()
    assert "\nfirst\nsecond\n" in said[0] and said[0].endswith(": ready\n")
    ended(mine, made["id"])


@pytest.mark.parametrize("body, why", [
    ({}, "name"), ({"name": "a"}, "imageName"), ({"name": "a", "imageName": ""}, "imageName"), ({"name": 1, "imageName": "host"}, "name"),
    ({"name": "a:b", "imageName": "host"}, "name"), ({"name": "a b", "imageName": "host"}, "name"), ({"name": "x" * 101, "imageName": "host"}, "name"),
    ({"name": "a", "imageName": "host", "buildInfo": {"dockerfileContent": "FROM host\n"}}, "one of"),
    ({"name": "a", "buildInfo": {}}, "dockerfileContent"), ({"name": "a", "buildInfo": []}, "buildInfo"),
    ({"name": "a", "buildInfo": {"dockerfileContent": "RUN x\n"}}, "line 1"),
    ({"name": "a", "buildInfo": {"dockerfileContent": "FROM host\nCOPY a /b\n"}}, "contextHashes"),
    ({"name": "a", "buildInfo": {"dockerfileContent": "FROM host\n"}, "entrypoint": ["x"]}, "entrypoint"),
    ({"name": "a", "imageName": "host", "entrypoint": [1]}, "entrypoint"), ({"name": "a", "imageName": "host", "cpu": 100000}, "cpu"),
    ({"name": "a", "imageName": "host", "memory": 100000}, "memory"), ({"name": "a", "imageName": "host", "disk": 10000000}, "disk"),
    ({"name": "a", "imageName": "host", "gpu": 1}, "GPUs"), ({"name": "a", "imageName": "host", "general": True}, "general"),
    ({"name": "a", "imageName": "host", "regionId": "eu"}, "regionId"), ({"name": "a", "imageName": "host", "sandboxClass": "windows"}, "sandboxClass"),
    ({"name": "a", "imageName": "host", "x": 1}, "should not exist"), ([], ""), (b"{", "")])
def test_what_is_no_snapshot_is_refused(mine, body, why):  # noqa: F811
    mine.refused(400, "POST", "snapshots", body, why)
    assert mine.names("?name=a") in ([], ["base"])


def test_an_instruction_that_is_not_there(mine):  # noqa: F811
    mine.refused(501, "POST", "snapshots", {"name": "a", "buildInfo": {"dockerfileContent": "FROM host\nARG B\n"}}, "line 2: ARG")


def test_they_are_the_tenants_own(mine, account, cay):  # noqa: F811
    id = built(mine, "own", "FROM host\nRUN true\n")["id"]
    other = account()
    for name in ("own", id):
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/build-logs-url"), ("GET", "/build-logs"), ("POST", "/activate")):
            other.refused(404, method, f"snapshots/{name}{path}", why="not found")
    mine.refused(404, "GET", "snapshots/host/build-logs-url", why="build info")
    assert other.names("?name=own") == []
    assert built(other, "own", "FROM host\nRUN true\n")["id"] != id
    reader = Account(cay, cay.call("POST", "/cay/v1/keys", {"tenant": mine.good("GET", "snapshots/own")["organizationId"], "label": "r",
                                                            "role": "read-only"}).json["key"])
    assert "ready" in log(reader, "own")
    for path in ("snapshots", "snapshots/own/activate"):
        reader.refused(403, "POST", path, {}, "read-only")


def test_the_quota_of_templates(mine, cay):  # noqa: F811
    tenant = built(mine, "one", "FROM host\n")["organizationId"]
    assert cay.call("PATCH", f"/cay/v1/tenants/{tenant}/quota", {"templates": 1}).status == 200
    mine.refused(429, "POST", "snapshots", {"name": "two", "imageName": "host"}, "templates")
    mine.refused(409, "POST", "snapshots", {"name": "one", "imageName": "host"})
    assert mine.names("?name=two") == []


def test_four_at_a_time(mine):  # noqa: F811
    slow = {"buildInfo": {"dockerfileContent": "FROM host\nRUN sleep 3\n"}}
    made = [mine.good("POST", "snapshots", {"name": f"s{i}", **slow}) for i in range(4)]
    mine.refused(429, "POST", "snapshots", {"name": "s4", **slow}, "at a time")
    assert mine.names("?name=s4") == []
    for one in made:
        ended(mine, one["id"])


def test_a_template_of_e2bs_builder_has_a_log_here(mine, cay):  # noqa: F811
    tenant = Client(cay.url, mine.key)
    made = tenant.call("POST", "/v3/templates", {"name": f"t{os.urandom(4).hex()}"}).json
    assert mine.good("GET", f"snapshots/{made['templateID']}")["state"] == "pending"
    assert tenant.call("DELETE", f"/templates/{made['templateID']}").status == 204
