"""GET /cay/v1/events: the events of a tenant's sandboxes, told while they happen. Against the stand-in internet of
egresslib.py."""

import json
import os
import signal
import socket
import subprocess
import time

import pytest

from client import Client, Sandbox
from conftest import BUILD
from egresslib import stack  # noqa: F401: a fixture
from waitlib import until

DENIED = "curl -s --max-time 20 http://web.example.com/secret?key=value"
EACH_MAX = 16  # EVENTS_FOLLOWERS_EACH
TOLD_PER_SECOND = 20  # EVENT_STREAM_PER_SECOND
SECONDS = 60  # for what is to come


class Stream:
    """Lines of an answer, as they come."""

    def __init__(self, client, query="", heartbeats=False):
        self.connection, self.heartbeats = client.connect(timeout=40), heartbeats
        self.connection.request("GET", f"/cay/v1/events{query}", headers={"X-API-Key": client.key})
        self.answer = self.connection.getresponse()
        self.status, self.end = self.answer.status, time.monotonic() + SECONDS

    def __iter__(self):
        return self

    def __next__(self):
        while line := self.answer.readline():
            event = json.loads(line)
            if self.heartbeats or event["type"] != "heartbeat":
                return event
            assert time.monotonic() < self.end, "what was waited for does not come"
        raise StopIteration

    def take(self, n):
        return [next(self) for _ in range(n)]

    def until(self, true):
        return next(event for event in self if true(event))

    def __enter__(self):
        assert self.status == 200, self.answer.read()
        return self

    def __exit__(self, *_):
        self.connection.close()


@pytest.fixture
def own(stack):
    """A sandbox that may go nowhere."""
    made = []

    def make(client=stack.cay, **fields):
        reply = client.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "timeout": 300, **fields})
        assert reply.status == 201, reply.body
        made.append(Sandbox(client, reply.json))
        return made[-1]

    yield make
    for one in made:
        one.kill()


@pytest.fixture
def tenant(stack):
    """A client of the tenant of that name."""
    def make(name):
        reply = stack.cay.call("POST", "/cay/v1/keys", {"tenant": name, "label": "events"})
        assert reply.status == 201, reply.body
        return Client(stack.server.url, reply.json["key"])
    return make


def kept(client, query=""):
    with Stream(client, f"?follow=0{query}") as s:
        assert s.answer.headers["Content-Type"] == "application/x-ndjson"
        return list(s)


def kinds(events):
    return [e["type"] for e in events]


def test_a_refusal_is_told_while_it_happens_to_its_tenant_alone(stack, own, tenant):
    others = tenant("events-others")
    with Stream(stack.cay) as stream, Stream(others, heartbeats=True) as elsewhere:
        one = own()
        one.run(DENIED)
        created, refused = stream.take(2)
        assert (created["type"], created["sandbox"], created["templateID"]) == ("sandbox.created", one.id, "host")
        denials = stack.cay.call("GET", f"/cay/v1/sandboxes/{one.id}/denials").json["denials"]
        # The same, word for word, as where it is asked for.
        assert {k: v for k, v in refused.items() if k not in ("id", "type", "sandbox")} == denials[0]
        assert (refused["type"], refused["sandbox"], refused["name"]) == ("violation", one.id, "web.example.com")
        assert "value" not in json.dumps(refused) and refused["id"] == created["id"] + 1
        # A tenant that had nothing: the sign of life at the begin, and then its own.
        theirs = own(others)
        beat, first = elsewhere.take(2)
        assert (beat["type"], first["type"], first["sandbox"]) == ("heartbeat", "sandbox.created", theirs.id)
        assert first["id"] == beat["id"] + 1  # a tenant's count does not tell what others do
    assert kinds(kept(others)) == ["sandbox.created"]
    reply = stack.cay.call("GET", f"/cay/v1/events?follow=0&sandbox={theirs.id}")
    assert reply.status == 404 and theirs.id in reply.json["message"]


def test_a_commands_refusal_names_it(stack, own):
    one = own(policy={"default": "public"})
    with Stream(stack.cay, f"?sandbox={one.id}&type=violation") as stream:
        done = stack.cay.call("POST", f"/cay/v1/sandboxes/{one.id}/exec", {"shell": DENIED, "policy": "deny"}).json
        told = next(stream)
    assert {k: v for k, v in told.items() if k not in ("id", "type", "sandbox")} == done["violations"][0]
    assert told["command"] >= 1 and told["sandbox"] == one.id


def test_of_a_sandboxs_life(stack, own, tenant):
    client = tenant("events-lives")
    with Stream(client) as stream:
        one, short = own(client), own(client, timeout=1)
        assert client.call("PUT", f"/cay/v1/sandboxes/{one.id}/policy", {"default": "public"}).status == 204
        one.kill()
        events = stream.take(3)
        ends = {}
        while len(ends) < 2:
            event = next(stream)
            events.append(event)
            if event["type"] == "sandbox.ended":
                ends[event["sandbox"]] = event["reason"]
    assert ends == {one.id: "killed", short.id: "timeout"}
    mine = [e for e in events if e["sandbox"] == one.id]
    assert kinds(mine) == ["sandbox.created", "sandbox.policy", "sandbox.ended"]
    ids = [e["id"] for e in events]
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    # The list that is kept is the same, also of one that has ended; from any place of it; of any kind.
    assert kept(client)[:len(events)] == events
    assert kept(client, f"&sandbox={one.id}") == mine
    assert kept(client, f"&since={ids[2]}")[0]["id"] == ids[3]
    assert kept(client, f"&sandbox={one.id}&type=sandbox.policy,sandbox.ended") == mine[1:]
    with Stream(client, "?since=0&type=sandbox.created") as stream:
        assert [e["sandbox"] for e in stream.take(2)] == [one.id, short.id]


def test_what_is_too_much_is_counted(stack, own, tenant):
    client = tenant("events-flood")
    one = own(client)
    attempts = 150
    with Stream(client, "?type=violation") as stream:
        one.run(f"for i in $(seq {attempts}); do (exec 3<>/dev/tcp/web.example.com/443) 2>/dev/null; done", timeout=120)
        told = dropped = 0
        while told + dropped < attempts:
            event = next(stream)
            assert event["sandbox"] == one.id
            told += event["type"] == "violation"
            if event["type"] == "dropped":
                dropped += event["count"]
                assert event["reason"] == "too_many"
    assert told + dropped == attempts and told >= TOLD_PER_SECOND and dropped > 0


def test_a_reader_that_never_reads_harms_nobody(stack, own):
    with Stream(stack.cay, "?since=0"), Stream(stack.cay) as other:  # the first is never read
        one = own()
        assert other.until(lambda e: e["type"] == "sandbox.created")["sandbox"] == one.id
        for _ in range(20):
            assert stack.cay.call("PUT", f"/cay/v1/sandboxes/{one.id}/policy", {}).status == 204
        assert set(kinds(other.take(20))) == {"sandbox.policy"}


def test_bad_input_is_refused_with_the_reason(stack, own):
    one = own()
    for query, status, word in (
            ("type=violation,nonsense", 400, "nonsense"), ("type=,", 400, "sandbox.created"),
            ("since=-1", 400, "since"), ("since=yesterday", 400, "since"), ("follow=no", 400, "follow"),
            ("since=9007199254740992", 400, "no event"), ("sandbox=../x", 400, "sandbox"),
            ("sandbox=i" + "0" * 20, 404, "no sandbox"), ("type=" + "x" * 200, 400, "type")):
        reply = stack.cay.call("GET", f"/cay/v1/events?{query}&follow=0")
        assert reply.status == status and word in reply.json["message"], (query, reply.status, reply.body)
    assert stack.cay.call("GET", "/cay/v1/events", key=False).status == 401
    assert stack.cay.call("POST", "/cay/v1/events", {}).status == 405
    assert kinds(kept(stack.cay, f"&sandbox={one.id}")) == ["sandbox.created"]


def test_so_many_may_follow_and_a_revoked_key_ends(stack, tenant):
    client = tenant("events-many")
    streams = [Stream(client) for _ in range(EACH_MAX)]
    try:
        assert {s.status for s in streams} == {200}
        reply = client.call("GET", "/cay/v1/events")
        assert reply.status == 429 and "limit" in reply.json["message"]
        assert stack.cay.call("GET", "/cay/v1/events?follow=0").status == 200  # others go on
        streams.pop().connection.close()
        until(lambda: client.call("GET", "/cay/v1/events?follow=0").status == 200)
        key = next(k["id"] for k in client.call("GET", "/cay/v1/keys").json if k["current"])
        assert stack.cay.call("DELETE", f"/cay/v1/keys/{key}").status == 204
        assert [list(s) for s in streams] == [[] for _ in streams]  # whole: no stream was cut
    finally:
        for s in streams:
            s.connection.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_cay_egress_is_restarted(stack, own, how):
    one = own()
    with Stream(stack.cay) as stream:
        killed = stack.kill("cay-egress", how)
        gap = next(stream)
        assert (gap["type"], gap["reason"], gap["count"]) == ("dropped", "egress_restarted", None)
        # A connection that was being made while it died is no refusal; what the one that ends refuses is not told.
        stack.wait_replaced("cay-egress", killed)
        until(lambda: "egress_denied" in one.run(DENIED).out)
        assert stream.until(lambda e: e["type"] == "violation")["sandbox"] == one.id
    assert "signal 11" not in stack.server.log.read_text()


def test_cayd_that_is_stopped_ends_its_streams_whole(stack, own):
    with socket.create_connection((stack.cay.host, stack.cay.port), timeout=40) as s:
        s.sendall(f"GET /cay/v1/events HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {stack.cay.key}\r\n\r\n".encode())
        data = b""
        while b"heartbeat" not in data:
            data += s.recv(4096)
        killed = stack.kill("cayd", signal.SIGTERM)
        while piece := s.recv(4096):
            data += piece
    assert data.endswith(b"\r\n0\r\n\r\n"), data
    stack.wait_replaced("cayd", killed)
    until(lambda: stack.cay.call("GET", "/cay/v1/status").json["ready"], patient=True)


def run_cli(stack, *arguments):
    return [BUILD / "src/cli/cay", *arguments], {**os.environ, "CAY_URL": stack.server.url,
                                                 "E2B_API_KEY": stack.server.key()}


def test_the_command_line_goes_on_over_a_restart_of_cayd(stack, own):
    one = own()
    command, env = run_cli(stack, "events", "-f", "--json", "--type=sandbox.created,sandbox.ended")
    with Stream(stack.cay, "?since=0") as stream, subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE,
                                                                   stderr=subprocess.PIPE) as p:
        try:
            lines = (json.loads(line) for line in p.stdout)
            last = next(e for e in lines if e.get("sandbox") == one.id)
            killed = stack.kill("cayd")
            list(stream)  # it ends with cayd
            stack.wait_replaced("cayd", killed)
            until(lambda: stack.cay.call("GET", "/cay/v1/status").status == 200, patient=True)
            gap = next(lines)
            assert (gap["type"], gap["reason"], gap["count"]) == ("dropped", "restarted", None)
            assert gap["id"] > last["id"]
            one.kill()
            end = next(lines)
            assert (end["type"], end["sandbox"], end["reason"]) == ("sandbox.ended", one.id, "killed")
        finally:
            p.kill()
    command, env = run_cli(stack, "events", f"--sandbox={one.id}")
    shown = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0 and "sandbox.ended" in shown.stdout and "killed" in shown.stdout, shown
    command, env = run_cli(stack, "events", "--type=nonsense")
    shown = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 1 and "nonsense" in shown.stderr
