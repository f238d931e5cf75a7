"""The end of its time writes what runs to the disk, where its create said so; one that cannot be written is frozen, or its files alone are
kept where that was allowed, and that is told."""

import pytest
from client import Client
from conftest import OwnServer
from test_dump import needs  # noqa: F401 (fixture)
from test_pause import state
from test_pause_memory import COUNTER, PROGRAMS, counted, detail, kept, own, pause, resume, start  # noqa: F401 (fixtures)
from test_pause_memory_ends import goes_on, refuses_to_be_kept, runs, told
from test_recovery import kill_daemons, wait_ready
from waitlib import until


def ends(client, box):
    """Its time is over once the test has made it ready; however long that took."""
    assert client.call("POST", f"/sandboxes/{box.id}/timeout", {"timeout": 1}).status == 204
    until(lambda: told(client, box, "sandbox.paused"), 60, "paused at the end of its time")


def paused_event(client, box):
    last = told(client, box, "sandbox.paused")[-1]
    return last["reason"], last["tier"], last.get("memoryError", "")


def test_it_is_written_and_goes_on_also_after_a_restart(kept, own):  # noqa: F811
    with kept.create(autoPause=True, autoPauseTier="memory", autoResume={"enabled": True}) as box:
        start(box, "count", COUNTER)
        until(lambda: counted(box), 20, "it counts")
        kill_daemons(own, "cayd")
        wait_ready(kept)
        ends(kept, box)
        assert paused_event(kept, box) == ("timeout", "memory", "")
        assert detail(kept, box)["memoryError"] == ""
        kill_daemons(own, "cayd", "cay-privd")
        wait_ready(kept)
        now = detail(kept, box)
        assert (now["state"], now["reason"], now["tier"]) == ("paused", "timeout", "memory")
        assert box.request("GET", "/envs").status == 200 and state(kept, box) == "running"
        goes_on(box)


def test_what_cannot_be_written_is_frozen_and_told(kept):  # noqa: F811
    with kept.create(autoPause=True, autoPauseTier="memory") as box:
        refuses_to_be_kept(box)
        ends(kept, box)
        reason, tier, error = paused_event(kept, box)
        assert (reason, tier) == ("timeout", "frozen") and "no_new_privs" in error
        now = detail(kept, box)
        assert now["tier"] == "frozen" and "no_new_privs" in now["memoryError"]
        assert resume(kept, box).status == 201
        assert detail(kept, box)["memoryError"] == ""
        goes_on(box)


def test_its_files_alone_are_kept_only_where_that_was_allowed(kept):  # noqa: F811
    with kept.create(autoPause=True, autoPauseTier="memory", autoPauseOrFiles=True) as box:
        refuses_to_be_kept(box)
        ends(kept, box)
        reason, tier, error = paused_event(kept, box)
        assert (reason, tier) == ("timeout", "files") and "no_new_privs" in error
        assert "no_new_privs" in detail(kept, box)["memoryError"]
        assert resume(kept, box).status == 201 and not runs(box) and counted(box)


def frozen(client, box):
    assert client.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {"tier": "frozen"}).status == 200


def test_one_that_is_frozen_goes_to_the_disk_by_itself(kept, own):  # noqa: F811
    with kept.create(toDiskAfter=1, autoResume={"enabled": True}) as box, kept.create(toDiskAfter=0) as other:
        assert (detail(kept, box)["toDiskAfter"], detail(kept, other)["toDiskAfter"]) == (1, 0)
        start(box, "count", COUNTER)
        until(lambda: counted(box), 20, "it counts")
        frozen(kept, box)
        frozen(kept, other)
        until(lambda: paused_event(kept, box) == ("api", "memory", ""), 60, "it is on the disk")
        assert not told(kept, box, "sandbox.resumed")
        kill_daemons(own, "cayd", "cay-privd")
        wait_ready(kept)
        now = detail(kept, box)
        assert (now["state"], now["reason"], now["tier"]) == ("paused", "api", "memory")
        assert detail(kept, other)["tier"] == "frozen"  # control: that one is never to
        assert box.request("GET", "/envs").status == 200 and state(kept, box) == "running"
        goes_on(box)


def test_one_that_is_frozen_and_cannot_be_kept_is_frozen_again(kept):  # noqa: F811
    with kept.create(toDiskAfter=1) as box:
        refuses_to_be_kept(box)
        frozen(kept, box)
        until(lambda: len(told(kept, box, "sandbox.paused")) == 2, 60, "it is frozen again")
        reason, tier, error = paused_event(kept, box)
        assert (reason, tier) == ("api", "frozen") and "no_new_privs" in error
        assert resume(kept, box).status == 201
        goes_on(box)


@pytest.mark.parametrize(("fields", "word"), [
    ({"toDiskAfter": -1}, "toDiskAfter"),
    ({"toDiskAfter": "1m"}, "toDiskAfter"),
    ({"autoPauseTier": "memory"}, "autoPause is true"),
    ({"autoPause": True, "autoPauseTier": "warm"}, "none of frozen"),
    ({"autoPause": True, "autoPauseTier": ""}, "none of frozen"),
    ({"autoPause": True, "autoPauseTier": 1}, "autoPauseTier"),
    ({"autoPause": True, "autoPauseTier": "memory", "autoPauseMemory": False}, "one of the two"),
    ({"autoPause": True, "autoPauseOrFiles": True}, "autoPauseTier"),
    ({"autoPause": True, "autoPauseTier": "files", "autoPauseOrFiles": True}, "autoPauseTier"),
    ({"autoPause": True, "autoPauseTier": "files", "autoResume": {"enabled": True}}, "autoResume"),
])
def test_what_a_create_refuses(cay, fields, word):
    for path in ("/v2/sandboxes", "/cay/v1/sandboxes"):
        reply = cay.call("POST", path, {"templateID": "host", **fields})
        assert reply.status == 400 and word in reply.json["message"], reply.body


def test_memory_is_given_up_by_age_only_where_that_is_allowed():
    """A sandbox that is kept with its memory becomes an archive of its files, and is told so; without its owner's word it stays as it is."""
    server = OwnServer(privd_args=PROGRAMS, cayd_args=("--pause-archive-after=2s",))
    try:
        cay = Client(server.url, server.key())
        if cay.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
            pytest.skip("files are in memory here")
        stays, goes = cay.create(), cay.create()
        for box in (stays, goes):
            assert box.run("echo one > here; sleep 3333 >/dev/null 2>&1 & echo $! > pid").exit_code == 0
        assert pause(cay, stays).status == 200 and pause(cay, goes, orFiles=True).status == 200
        assert detail(cay, stays)["tier"] == "memory"
        until(lambda: detail(cay, goes)["tier"] == "archive", 30, "its archive")
        shown = detail(cay, goes)
        assert "given up when its files were archived" in shown["memoryError"] and shown["reason"] == "api"
        seen = told(cay, goes, "sandbox.paused")
        assert [e["tier"] for e in seen] == ["memory", "archive"] and seen[1]["memoryError"] == shown["memoryError"]
        assert cay.call("POST", f"/cay/v1/sandboxes/{stays.id}/archive", {}).status == 409 and detail(cay, stays)["tier"] == "memory"
        kill_daemons(server, "cayd", "cay-privd")
        wait_ready(cay)
        assert (detail(cay, stays)["tier"], detail(cay, goes)["tier"]) == ("memory", "archive")
        assert resume(cay, goes).status == 201 and goes.run("cat here; kill -0 $(cat pid) || echo booted").out.split() == ["one", "booted"]
        assert resume(cay, stays).status == 201 and stays.run("cat here; kill -0 $(cat pid) && echo goes on").out.split() == ["one", "goes", "on"]
    finally:
        server.stop()
