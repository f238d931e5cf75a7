"""autoDeleteInterval of Daytona's API: a sandbox that was stopped for so many minutes, and not started, is deleted. Time is
moved for cayd alone (clocklib), so that minutes are not waited for."""

import concurrent.futures
import json
import os
import signal
import sqlite3

import badworld
import clocklib
import conftest
import pytest
from client import Client, Sandbox
from waitlib import until

DAY_S = 86400


class Clock(clocklib.Clock):
    def pass_minutes(self, n):
        self.real_s += 60 * n
        self.pass_by(60 * n)


class Place:
    """A server whose cayd has a clock of its own."""

    def __init__(self, world):
        self.world, self.clock = world, Clock(world.base)
        done = world.start(cayd=self.clock.lines)
        assert done.returncode == 0, done.stderr + world.log_tail()
        self.client = Client(world.url, world.key())

    def call(self, method, path, body=None, key=None):
        sent = {"Authorization": f"Bearer {key or self.client.key}"}
        return self.client.call(method, f"/api/{path}", b"" if method == "POST" and body is None else body, sent, key=False)

    def make(self, minutes, **more):
        made = self.call("POST", "sandbox", {"snapshot": "host", "autoDeleteInterval": minutes, **more})
        assert made.status == 200, made.body
        assert made.json["autoDeleteInterval"] == minutes
        return made.json["id"]

    def make_stopped(self, minutes, **more):
        id = self.make(minutes, **more)
        self.stop(id)
        return id

    def stop(self, id):
        reply = self.call("POST", f"sandbox/{id}/stop")
        assert (reply.status, reply.json["state"]) == (200, "stopped"), reply.body

    def state(self, id):
        reply = self.call("GET", f"sandbox/{id}")
        return reply.json["state"] if reply.status == 200 else reply.status

    def run(self, id, command):
        return self.call("POST", f"toolbox/{id}/process/execute", {"command": command}).json["result"]

    def minutes_pass(self, n):
        """And cayd has looked at the time since: a due one is done, or under way."""
        self.clock.pass_minutes(n)
        assert self.call("GET", "config").status == 200

    def reasons(self, id):
        lines = self.client.call("GET", f"/cay/v1/events?sandbox={id}&since=0&follow=0").body.splitlines()
        return [e.get("reason") for e in map(json.loads, lines) if e["type"] == "sandbox.ended"]

    def rows(self, id):
        db = sqlite3.connect(f"file:{self.world.state}/cayd/cay.db?mode=ro", uri=True, timeout=5)
        try:
            return db.execute("SELECT count(*) FROM sandboxes WHERE id=?", [id]).fetchone()[0]
        finally:
            db.close()

    def kill_cayd(self):
        pid = self.world.cayd()
        os.kill(pid, signal.SIGKILL)
        return pid

    def is_back(self, pid):
        until(lambda: self.world.cayd() not in (None, pid), 30, patient=True)
        until(lambda: self.client.call("GET", "/cay/v1/status").json["ready"] is True, 30, patient=True)


@pytest.fixture(scope="module")
def place():
    if os.geteuid() != 0:
        pytest.skip("cay-keep needs root")
    with badworld.World(conftest.BUILD, conftest.USER, conftest.UID_BASE) as world:
        made = Place(world)
        if made.client.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
            pytest.skip("files are in memory here")
        yield made


@pytest.fixture
def gone(place):
    """Waits until nothing is left of one, and was not before; the rest is deleted at the end of a test."""
    def wait(id):
        until(lambda: place.state(id) == 404, 30, patient=True)
        until(lambda: place.rows(id) == 0, 30, patient=True)

    yield wait
    for s in place.call("GET", "sandbox").json["items"]:
        place.call("DELETE", f"sandbox/{s['id']}")


def test_one_is_deleted_when_it_was_stopped_for_so_long(place, gone):
    id, stays = place.make(15), place.make_stopped(-1)
    shown = [place.call("GET", f"sandbox/{id}").json, *place.call("GET", "sandbox").json["items"],
             *place.call("GET", "sandbox/paginated").json["items"]]
    assert [s["autoDeleteInterval"] for s in shown if s["id"] == id] == [15, 15, 15]
    place.run(id, "echo kept >f")
    place.stop(id)
    place.minutes_pass(14)
    assert place.state(id) == "stopped"
    assert place.call("POST", f"sandbox/{id}/start").json["state"] == "started" and place.run(id, "cat f") == "kept\n"
    place.stop(id)
    place.minutes_pass(14)
    assert place.state(id) == "stopped" and place.reasons(id) == []
    place.minutes_pass(1)
    gone(id)
    assert place.reasons(id) == ["auto_delete"] and place.state(stays) == "stopped"
    assert 'cay_sandboxes_ended_total{reason="auto_delete"} 1' in place.client.call("GET", "/metrics").body.decode()


def test_one_that_stops_by_itself_is_deleted_after_it(place, gone):
    id = place.make(5, autoStopInterval=2)
    place.minutes_pass(2)
    until(lambda: place.call("GET", "sandbox").json["items"][0]["state"] == "stopped", 30, patient=True)  # no use of it
    place.minutes_pass(4)
    assert place.state(id) == "stopped"
    place.minutes_pass(1)
    gone(id)


def test_what_is_no_time_is_refused(place, gone):
    for minutes in ("15", 15.5, True, {}, [], 2**31, 10**20, -2**31 - 1):
        assert place.call("POST", "sandbox", {"snapshot": "host", "autoDeleteInterval": minutes}).status == 400, minutes
    made = place.call("POST", "sandbox", {"snapshot": "host", "autoDeleteInterval": None, "autoStopInterval": 0}).json
    assert made["autoDeleteInterval"] == -1
    at = f"sandbox/{made['id']}/autodelete"
    for minutes in ("", "x", "15.5", "0x10", "1e3", "99999999999", str(2**31), "9" * 30):
        assert place.call("POST", f"{at}/{minutes}").status in ((404, 501) if not minutes else (400,)), minutes
    for minutes in (15, 32767, 32768, 65536, 2**31 - 1, 0, -1, -7):
        shown = place.call("POST", f"{at}/{minutes}").json
        assert shown["autoDeleteInterval"] == max(minutes, -1), shown
        if minutes == 0:  # of one that has no other end
            assert place.call("POST", f"{at}/5").status == place.call("POST", f"{at}/-1").status == 409
            assert place.call("POST", f"sandbox/{made['id']}/autostop/60").status == 200


def test_the_time_since_the_stop_counts_when_it_is_changed(place, gone):
    later, at_once, never, shorter = (place.make_stopped(n) for n in (15, 15, 15, -1))
    place.minutes_pass(10)
    assert place.call("POST", f"sandbox/{later}/autodelete/30").json["autoDeleteInterval"] == 30
    assert place.call("POST", f"sandbox/{never}/autodelete/-1").json["autoDeleteInterval"] == -1
    assert place.call("POST", f"sandbox/{at_once}/autodelete/0").json["state"] == "destroyed"
    assert place.call("POST", f"sandbox/{shorter}/autodelete/10").status == 200
    gone(at_once)
    gone(shorter)
    assert (place.reasons(at_once), place.reasons(shorter)) == (["killed"], ["auto_delete"])
    place.minutes_pass(19)
    assert (place.state(later), place.state(never)) == ("stopped", "stopped")
    place.minutes_pass(1)
    gone(later)
    assert place.state(never) == "stopped"


def test_it_is_the_tenants_own(place, gone):
    key = place.client.call("POST", "/cay/v1/keys", {"tenant": "else", "label": "t"}).json["key"]
    reader = place.client.call("POST", "/cay/v1/keys", {"tenant": "default", "label": "t", "role": "read-only"}).json["key"]
    id = place.make_stopped(-1)
    assert place.call("POST", f"sandbox/{id}/autodelete/0", key=key).status == 404
    assert place.call("POST", f"sandbox/{id}/autodelete/1", key=key).status == 404
    assert place.call("POST", f"sandbox/{id}/autodelete/0", key=reader).status == 403
    assert place.state(id) == "stopped"


def test_archived_ones_are_deleted_and_what_is_due_first_counts(place, gone):
    by_hand, by_time, before = place.make_stopped(10), place.make_stopped(10, autoArchiveInterval=5), place.make_stopped(4, autoArchiveInterval=5)
    assert place.call("POST", f"sandbox/{by_hand}/archive").json["state"] == "archived"
    place.minutes_pass(4)
    gone(before)
    place.minutes_pass(1)
    assert place.state(by_time) == place.state(by_hand) == "archived"
    place.minutes_pass(5)
    gone(by_hand)
    gone(by_time)


def test_it_holds_a_place_until_then(place, gone):
    key = place.client.call("POST", "/cay/v1/keys", {"tenant": "places", "label": "t"}).json["key"]
    used = lambda: place.client.call("GET", "/cay/v1/tenants/places/quota").json["used"]["sandboxes"]  # noqa: E731
    assert place.client.call("PATCH", "/cay/v1/tenants/places/quota", {"sandboxes": 1}).status == 200
    made = place.call("POST", "sandbox", {"snapshot": "host", "autoDeleteInterval": 5}, key)
    assert place.call("POST", f"sandbox/{made.json['id']}/stop", key=key).status == 200
    assert place.call("POST", "sandbox", {"snapshot": "host"}, key).status == 429 and used() == 1
    place.minutes_pass(5)
    until(lambda: used() == 0, 30, patient=True)
    made = place.call("POST", "sandbox", {"snapshot": "host"}, key)
    assert made.status == 200 and place.call("DELETE", f"sandbox/{made.json['id']}", key=key).status == 200


def test_a_fork_has_the_same_times(place, gone):
    id = place.make(20, autoArchiveInterval=7)
    made = place.client.call("POST", f"/sandboxes/{id}/fork", {"timeout": 60})
    assert made.status == 201, made.body
    fork = place.call("GET", f"sandbox/{made.json[0]['sandbox']['sandboxID']}").json
    assert (fork["autoDeleteInterval"], fork["autoArchiveInterval"]) == (20, 7)


def test_a_start_that_comes_when_it_is_due_wins_or_finds_none(place, gone):
    """Whichever of both is first: one that was started has its files, and one that was not is gone whole."""
    ids = [place.make_stopped(10, autoStopInterval=0) for _ in range(6)]
    for id in ids:
        place.call("POST", f"sandbox/{id}/start")
        place.run(id, "echo kept >f")
        place.stop(id)
    place.clock.pass_minutes(10)
    with concurrent.futures.ThreadPoolExecutor(len(ids)) as pool:
        replies = list(pool.map(lambda id: place.call("POST", f"sandbox/{id}/start"), ids))
    for id, reply in zip(ids, replies):
        assert reply.status in (200, 404), reply.body
        if reply.status == 200:
            assert reply.json["state"] == "started" and place.run(id, "cat f") == "kept\n"
        else:
            gone(id)
            assert place.reasons(id) == ["auto_delete"]
    assert place.call("GET", "config").status == 200


def test_the_time_goes_on_without_cayd(place, gone):
    due, not_due = place.make_stopped(15), place.make_stopped(60)
    place.minutes_pass(10)
    pid = place.kill_cayd()
    place.clock.pass_minutes(5)
    place.is_back(pid)
    gone(due)
    assert place.state(not_due) == "stopped"
    place.minutes_pass(45)
    gone(not_due)


def test_a_cayd_that_is_killed_while_it_deletes_is_followed_by_one_that_goes_on(place, gone):
    for delay in range(4):
        ids = [place.make_stopped(5) for _ in range(4)]
        place.clock.pass_minutes(5)
        for _ in range(delay):
            place.call("GET", "config")
        pid = place.kill_cayd()
        place.is_back(pid)
        for id in ids:
            gone(id)


def test_a_clock_that_is_set_deletes_none(place, gone):
    id = place.make_stopped(15)
    for by in (DAY_S, -3 * DAY_S, 30 * 365 * DAY_S, 0):
        place.clock.jump_to(place.clock.real_s + by if by else 0)
        assert place.state(id) == "stopped"
    pid = place.kill_cayd()
    place.clock.jump_to(-DAY_S)  # the stop is still to come
    place.is_back(pid)
    place.minutes_pass(14)
    assert place.state(id) == "stopped"
    place.minutes_pass(1)
    gone(id)


def test_where_no_files_can_be_kept_it_is_refused():
    """And so is the stop of one that is paused: it stays so."""
    server = conftest.OwnServer(privd_args=("--disk-backend=memory",))
    try:
        client = Client(server.url, server.key())
        reply = client.call("POST", "/api/sandbox", {"snapshot": "host", "autoDeleteInterval": 15})
        assert reply.status == 501 and "memory" in reply.json["message"], reply.body
        made = client.call("POST", "/api/sandbox", {"snapshot": "host"}).json
        with Sandbox(client, {"sandboxID": made["id"]}):
            assert made["autoDeleteInterval"] == 0
            assert client.call("POST", f"/api/sandbox/{made['id']}/autodelete/15", b"").status in (409, 501)
            assert client.call("GET", f"/api/sandbox/{made['id']}").json["autoDeleteInterval"] == 0
            assert client.call("POST", f"/api/sandbox/{made['id']}/pause", b"").status == 200
            reply = client.call("POST", f"/api/sandbox/{made['id']}/stop", b"")
            assert reply.status == 501 and "memory" in reply.json["message"], reply.body
            assert client.call("GET", f"/api/sandbox/{made['id']}").json["state"] == "paused"
    finally:
        server.stop()
