"""The shares of one sandbox in what all use: the audit log, questions about it, connections, handshakes.

Each test does first what a neighbour's loss was shown with (docs/reports/egress-security-tests.md), and then asks whether the
neighbour has what it had. The assertions are about who gives way, never about how fast."""

import contextlib
import hashlib
import json
import os
import select
import socket
import threading
import time

import pytest

import clocklib
from waitlib import until
from worldlib import boxes_fixture, restarted, world_fixture  # isort: skip: it makes the next one found
from internet import ECHO_PORT, TCP_PORT, WEB, UnixConnection, inside

from test_egress_engine import WEB_ONLY, ZONE, address_of, exactly

REFUSALS_PER_SECOND = 100  # AUDIT_REFUSALS_PER_SECOND
OPEN = {"default": "allow"}


world, box = world_fixture(ZONE), boxes_fixture(WEB_ONLY)


def flood(sandbox, requests, host=b"v4.example.com", path=b"/denied", batch=50):
    """Requests that are refused, as many as asked for, sent without waiting for answers; and how often a connection ended."""
    request = b"GET " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
    address = address_of(sandbox, "v4.example.com")
    got = ended = 0
    while got < requests:
        with contextlib.suppress(ConnectionError), sandbox.connect(address, 80) as c:
            c.settimeout(30)
            c.sendall(request * batch)
            tail = b""
            while got < requests and (piece := c.recv(1 << 20)):
                n = (tail + piece).count(b"HTTP/1.1 4")
                tail = (tail + piece)[-9:]
                got += n
                c.sendall(request * n)
        ended += 1
    return got, ended


def test_a_flood_of_refusals_is_counted_and_not_recorded_one_by_one(world, box):
    """Of 6,000 refusals in one connection all were recorded: 19,000 lines a second, of every sandbox in one log. The control
    is that the refusals are said, each of them, and counted."""
    policy = {"rules": [{"name": "some", "domains": ["v4.example.com"], "paths": ["/ok"], "action": "allow"}]}
    loud, quiet = box(policy), box(policy, tenant="tenant2")
    quiet.curl("http://v4.example.com/quiet")
    begun = time.monotonic()
    said, ended = flood(loud, 6000)
    assert ended > 1  # beyond the rate, and 100 answers that say so, a connection is not read on
    took = time.monotonic() - begun

    def recorded():
        records = world.audit(f"tenant=tenant1&sandbox=sandbox{loud.slot}&limit=10000")
        alone = sum(r["verdict"] == "deny" and r["event"] == "request" for r in records)
        counted = sum(r["count"] for r in records if r["event"] == "refused")
        # an answer that was on its way when its connection ended is not counted here
        return (alone, counted) if alone + counted >= said - 1 else None

    alone, counted = until(recorded)
    assert alone <= REFUSALS_PER_SECOND * (took + 3)
    assert counted >= said - 1 - REFUSALS_PER_SECOND * (took + 3)
    assert [r["path"] for r in world.audit("tenant=tenant2&verdict=deny")] == ["/quiet"]
    check = json.loads(world.call("GET", "/v1/audit/verify")[1])
    assert check["ok"] and check["rotated_out"] == 0 and check["logs"] >= 2


def test_a_log_is_its_tenants_own(world, box):
    """Lines that a tenant writes without end take the place of its own lines
    (unit/test_egress::a_flood_takes_its_own_room). Here: neither tenant's lines are in the other's files, and a line that
    is taken out of one is found there."""
    one, other = box(), box(tenant="tenant2")
    one.curl("http://denied-one.example.net/")
    for _ in range(4):
        other.curl("http://denied-two.example.net/")
    until(lambda: world.audit("tenant=tenant2&limit=1"))
    assert b"denied-two" not in world.audit_log("tenant1").read_bytes()
    assert b"denied-one" not in world.audit_log("tenant2").read_bytes()
    log = world.audit_log("tenant2")
    before = log.read_bytes()
    lines = before.splitlines(keepends=True)
    try:
        log.write_bytes(b"".join(lines[:-2] + lines[-1:]))
        check = json.loads(world.call("GET", "/v1/audit/verify")[1])
        assert not check["ok"] and check["file"] == log.name
    finally:
        log.write_bytes(before)


def fill_log(world, tenant, megabytes):
    """A log with so many lines of a tenant, as cay-egress finds it at its start."""
    line = json.dumps({"time": "2026-01-02T03:04:05.678Z", "event": "request", "sandbox": "x", "tenant": tenant,
                       "verdict": "allow", "path": "/" + "p" * 400, "prev": "0" * 64}, separators=(",", ":")) + "\n"
    with open(world.state / f"audit-0.{tenant}.log", "w") as f:
        for _ in range(megabytes * 1024 * 1024 // len(line) // 1000):
            f.write(line * 1000)


def ask(world, path):
    c = UnixConnection(world.control, 60)
    c.request("GET", path)
    return c


def test_questions_about_the_log_leave_places_for_others(world, box):
    """64 questions at a time over a long log took every place of the control channel, and went on when their callers had gone."""
    fill_log(world, "tenant9", 32)
    with restarted(world):  # it finds the log
        s = box()
        questions_leave_places(world, s)
        world.audit_log("tenant9").unlink()


def questions_leave_places(world, s):
    asked = [ask(world, "/v1/audit?tenant=&verdict=deny&sandbox=none&limit=10000") for _ in range(40)]
    statuses = []
    threads = [threading.Thread(target=lambda c=c: statuses.append(c.getresponse().status)) for c in asked]
    for t in threads:
        t.start()
    assert world.put(s, WEB_ONLY)[0] == 204  # while they are asked
    assert world.call("POST", "/v1/seal", {"tenant": "t", "name": "A", "value": "long-enough",
                                           "bind": {"domains": ["a.example.com"]}})[0] in (200, 400)
    for t in threads:
        t.join(60)
    assert len(statuses) == 40 and set(statuses) <= {200, 429}
    assert 429 in statuses and 200 in statuses  # a tenant (here: none) has two at a time
    for c in asked:
        c.close()
    assert world.call("GET", "/v1/audit?tenant=tenant1&limit=1")[0] == 200


def test_questions_about_the_log_take_turns(world, box):
    """A tenant's two questions over a long log held both workers until they had read all of it. Now another tenant's,
    which comes after them, is answered before either. The machine may let them overtake what is looked at: once in five is
    enough, for before it could not happen at all."""
    fill_log(world, "tenant9", 96)
    with restarted(world):
        box()
        try:
            assert any(is_answered_first(world) for _ in range(5))
        finally:
            world.audit_log("tenant9").unlink()


def is_answered_first(world):
    long = [ask(world, "/v1/audit?tenant=tenant9&sandbox=none&limit=10000") for _ in range(2)]
    assert world.call("GET", "/v1/audit?tenant=tenant1&limit=1")[0] == 200
    answered, _, _ = select.select([c.sock for c in long], [], [], 0)
    for c in long:
        r = c.getresponse()
        assert r.status == 200 and r.read() == b""
        c.close()
    return not answered


def fill_chain(world, tenant, megabytes):
    """As fill_log, and each line fits the one before it."""
    prev, line, seq, size = "0" * 64, "", 0, 0
    with open(world.state / f"audit-0.{tenant}.log", "w", encoding="ascii") as f:
        while size < megabytes << 20:
            seq += 1
            line = '{"event":"request","tenant":"%s","path":"/%s","seq":%d,"prev":"%s"}' % (tenant, "p" * 4000, seq, prev)
            prev, size = hashlib.sha256(line.encode()).hexdigest(), size + len(line) + 1
            f.write(line + "\n")
    return seq


def test_checks_of_the_log_take_turns(world, box):
    """A check of the chains held a helper thread until it had read the whole log, and two of them both. Now a question that comes
    after them is answered before either; what they find is what one reading found, over the ends of their slices. Once in five
    is enough, as above."""
    lines = fill_chain(world, "tenant9", 96)
    log = world.audit_log("tenant9")
    with restarted(world):
        box()
        try:
            assert any(is_answered_during_checks(world, lines) for _ in range(5))
            with open(log, "r+b") as f:  # in the middle, far behind the first slice
                f.seek(60 << 20)
                f.write(b"#")
            check = json.loads(world.call("GET", "/v1/audit/verify")[1])
            assert not check["ok"] and check["file"] == log.name and check["broken_line"] > 1
        finally:
            log.unlink()


def is_answered_during_checks(world, lines):
    checks = [ask(world, "/v1/audit/verify") for _ in range(2)]
    assert world.call("GET", "/v1/audit?tenant=tenant1&limit=1")[0] == 200
    answered, _, _ = select.select([c.sock for c in checks], [], [], 0)
    for c in checks:
        check = json.loads(c.getresponse().read())
        assert check["ok"] and check["lines"] >= lines and check["rotated_out"] == 0
        c.close()
    return not answered


def test_a_check_of_the_log_opens_plain_files_alone(world, box):
    """A file in the place of a log file could block the process that opens it: a pipe without a writer."""
    box().curl("http://v4.example.com/")
    log = until(lambda: world.audit_log() if world.audit_log().exists() else None)
    kept = log.with_name("kept")
    log.rename(kept)  # it is written to there
    os.mkfifo(log)
    log.chmod(0o666)
    try:
        assert world.call("GET", "/v1/audit/verify", timeout=20)[0] == 500
        assert world.call("GET", "/v1/none", timeout=20)[0] == 404
    finally:
        kept.rename(log)
    assert json.loads(world.call("GET", "/v1/audit/verify")[1])["ok"]


def test_lines_are_found_however_they_are_spelled(world):
    """Lines whose JSON is not read are those that cannot be meant: not one whose sandbox is written with an escape, whose time
    stands elsewhere, or that has the name asked for in another member only."""
    lines = [
        '{"time":"2026-01-02T03:04:05.678Z","event":"request","sandbox":"wanted","tenant":"tenant8","verdict":"deny","n":1}',
        r'{"time":"2026-01-02T03:04:06.678Z","event":"request","sandbox":"w\u0061nted","tenant":"tenant8","verdict":"deny","n":2}',
        '{"event":"request","sandbox":"wanted","tenant":"tenant8","verdict":"deny","time":"2026-01-02T03:04:07.678Z","n":3}',
        '{"time":"2026-01-02T03:04:08.678Z","event":"request","sandbox":"other","tenant":"tenant8","verdict":"deny","path":"/wanted","n":4}',
        '{"time":"2026-01-02T03:04:09.678Z","event":"request","sandbox":"wanted","tenant":"tenant8","verdict":"allow","n":5}',
        "wanted, deny, and no JSON",
    ]
    (world.state / "audit-0.tenant8.log").write_text("".join(line + "\n" for line in lines), encoding="ascii")
    with restarted(world):  # it finds the log
        def numbers(query):
            return [r["n"] for r in world.audit("tenant=tenant8&" + query)]
        assert numbers("sandbox=wanted&verdict=deny") == [1, 2, 3]
        assert numbers("sandbox=wanted") == [1, 2, 3, 5]
        assert numbers("sandbox=wanted&since=2026-01-02T03:04:06Z") == [2, 3, 5]
        assert numbers("sandbox=other&since=2026-01-02T03:04:09Z") == []
        assert numbers("verdict=deny") == [1, 2, 3, 4]
        world.audit_log("tenant8").unlink()


def test_a_question_ends_with_its_caller(world, box):
    """Two abandoned questions held their tenant's places, and a helper thread each, until they had read everything."""
    box()
    for _ in range(20):
        asked = [ask(world, "/v1/audit?sandbox=none&limit=10000") for _ in range(2)]
        time.sleep(0.02)
        for c in asked:
            c.close()
    assert until(lambda: world.call("GET", "/v1/audit?limit=1")[0] == 200)


@contextlib.contextmanager
def few_places(world):
    """cay-egress with descriptors for 64 connections, the fewest that it starts with."""
    world.open_files = 2600
    try:
        with restarted(world):
            yield
            world.open_files = None
    finally:
        world.open_files = None


def test_connections_of_all_are_shared_out(world, box):
    """With places for 64 connections (a process with few descriptors), one sandbox takes what it gets; a neighbour that
    comes last has a place. Before, it waited in its backlog for as long as the others liked."""
    with few_places(world):
        loud, quiet = box(OPEN), box(OPEN, tenant="tenant2")
        held = []
        for _ in range(60):
            c = loud.connect(address_of(loud, "v4.example.com"), ECHO_PORT)
            c.settimeout(0.5)
            held.append(c)
            try:
                c.sendall(b"x\n")
                if c.recv(2) != b"x\n":
                    break
            except TimeoutError:
                break  # it waits: the share is taken
        else:
            raise AssertionError("one sandbox has all places")
        assert 15 <= len(held) < 40
        with quiet.connect(address_of(quiet, "v4.example.com"), ECHO_PORT) as c:
            c.sendall(b"y\n")
            assert exactly(c, 2) == b"y\n"
        for c in held:
            c.close()
        until(lambda: usage(world, loud)["connections"] == 0)


@contextlib.contextmanager
def with_clock(world):
    """cay-egress whose clock the test moves, with few places."""
    directory = world.dir / "clock"
    directory.mkdir(exist_ok=True)
    clock = clocklib.Clock(directory)
    before, world.program = world.program, clock.program(world.program)
    try:
        with few_places(world):
            yield clock
            world.program = before
    finally:
        world.program = before


SILENT_PORT = 9200


def half_open(world, s, listener):
    """A connection of which the client has ended its side, and whose server says nothing more: both ends."""
    c = s.connect(address_of(s, "v4.example.com"), SILENT_PORT)
    c.sendall(b"x\n")
    server, _ = listener.accept()
    assert exactly(server, 2) == b"x\n"
    c.shutdown(socket.SHUT_WR)
    assert server.recv(1) == b""  # the end went on: now it is half open
    return c, server


def turn_over(world, s):
    """The loop has looked at its clock, and its timers have run."""
    for _ in range(3):
        usage(world, s)


def crowd(sandbox):
    """As many connections as the sandbox gets."""
    held = []
    while True:
        c = sandbox.connect(address_of(sandbox, "v4.example.com"), ECHO_PORT)
        c.settimeout(0.5)
        held.append(c)
        try:
            c.sendall(b"x\n")
            exactly(c, 2)
        except TimeoutError:
            return held


def test_half_open_connections_go_where_places_are_few(world, box):
    """Six sandboxes took all places, and kept them for 300 s after their clients had closed. Where more than half of the places
    are taken, such a connection has 10 s. The control: where they are not, it is still there after 11 s, and gone after 300."""
    with with_clock(world) as clock, contextlib.ExitStack() as stack:
        waiting, others = box(OPEN), [box(OPEN, tenant=f"tenant{i}") for i in (2, 3)]
        listener = stack.enter_context(inside(world.net, lambda: socket.create_server((WEB, SILENT_PORT))))
        c, server = (stack.enter_context(end) for end in half_open(world, waiting, listener))
        clock.pass_by(11)
        turn_over(world, waiting)
        assert usage(world, waiting)["connections"] == 1
        held = [crowd(other) for other in others]
        assert sum(usage(world, other)["connections"] for other in others) + 1 > 32
        clock.pass_by(6)
        assert until(lambda: usage(world, waiting)["connections"] == 0)
        assert c.recv(1) == b""
        held[0][0].sendall(b"y\n")  # those that are whole stay
        assert exactly(held[0][0], 2) == b"y\n"
        for connection in sum(held, []):
            connection.close()
        until(lambda: sum(usage(world, other)["connections"] for other in others) == 0)
        c, server = (stack.enter_context(end) for end in half_open(world, waiting, listener))
        clock.pass_by(290)
        turn_over(world, waiting)
        assert usage(world, waiting)["connections"] == 1
        clock.pass_by(20)
        assert until(lambda: usage(world, waiting)["connections"] == 0)


def usage(world, s):
    return json.loads(world.call("GET", f"/v1/sandboxes/{s.slot}/{s.gen}/usage")[1])


def streams_go_on(world, loud, neighbour, port, count=8, least=1 << 19):
    """So many downloads of one sandbox, all at once, and requests of its neighbour's between: each of them gets on."""
    there, here = address_of(loud, "v4.example.com"), address_of(neighbour, "v4.example.com")
    got, answered = {}, 0
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            c = stack.enter_context(loud.connect(there, port))
            c.sendall(b"GET /bytes/20000000 HTTP/1.1\r\nHost: v4.example.com\r\n\r\n")
            got[c] = 0

        def all_have_enough():
            nonlocal answered
            for c in select.select(list(got), [], [], 0.05)[0]:
                got[c] += len(c.recv(1 << 16))
            with neighbour.connect(here, 80) as c:
                c.sendall(b"GET /0 HTTP/1.1\r\nHost: v4.example.com\r\nConnection: close\r\n\r\n")
                answered += c.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
            return min(got.values()) >= least

        until(all_have_enough, 60)
    assert answered > 0


def test_streams_of_a_sandbox_take_turns(world, box):
    """Forty streams of one sandbox moved 4 MiB each before another's event was looked at: its neighbour's requests took 40
    times as long (unit/test_egress_turns is the control; how long they take is in docs/reports/fairness.md). Now a sandbox
    has a share of each turn, and of its own streams none is left behind: carried, and with their requests read."""
    neighbour = box(tenant="tenant2")
    streams_go_on(world, box(OPEN), neighbour, 80)
    streams_go_on(world, box({"rules": [{"name": "some", "domains": ["v4.example.com"], "paths": ["/bytes/*"], "action": "allow"}]}),
                  neighbour, 80)


def ends_of_egress(sandbox):
    """The kernel's view of the ends of the sandbox's connections that cay-egress has: a line of words for each."""
    found = sandbox.run("ss", "-HOtin", "state", "established", f"sport = :{TCP_PORT}").stdout
    return [line.split() for line in found.splitlines()]


def test_what_a_sandbox_is_sent_is_not_paced(box):
    """With BBR, which hosts choose for the way outside, each download set timers of the kernel on cay-egress's processor, which
    a neighbour's packets waited for. The control is the program's own end, which has what the namespace chooses."""
    loud = box(OPEN)
    known = loud.run("sysctl", "-n", "net.ipv4.tcp_available_congestion_control").stdout.split()
    other = next(name for name in known if name != "reno")
    loud.run("sysctl", "-qw", f"net.ipv4.tcp_congestion_control={other}", check=True)
    with loud.connect(address_of(loud, "v4.example.com"), ECHO_PORT) as c:
        c.sendall(b"x\n")
        assert exactly(c, 2) == b"x\n"
        assert c.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode() == other
        ends = ends_of_egress(loud)
        assert ends
        assert all("reno" in words and other not in words for words in ends)
