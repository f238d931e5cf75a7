"""Pause with the memory on the disk: programs go on, with their terminals and connections, also after every program of cay began anew;
a program that cannot be kept is refused by name, and its files alone are kept only where that was allowed."""

import pytest
from client import Client
from conftest import BUILD, OwnServer
from test_dump import needs  # noqa: F401 (fixture)
from test_pause import events_of, state
from test_recovery import kill_daemons, wait_ready
from waitlib import until

PROGRAMS = (f"--checkpoint={BUILD}/src/checkpoint/cay-checkpoint", f"--seal={BUILD}/src/seal/cay-seal")
COUNTER = """
import itertools, time
for n in itertools.count():
    with open("/tmp/count", "a") as f:
        f.write(f"{n}\\n")
    time.sleep(0.01)
"""
PAIR = """
import socket, time
a = socket.create_server(("127.0.0.1", 7001)); b = socket.create_connection(("127.0.0.1", 7001)); c, _ = a.accept()
open("/tmp/pair", "w").write("there")
for n in range(10 ** 9):
    b.sendall(b"%09d" % n)
    got = c.recv(9, socket.MSG_WAITALL)
    assert got == b"%09d" % n
    open("/tmp/pair", "w").write(str(n))
    time.sleep(0.02)
"""

@pytest.fixture(scope="module")
def own(needs):
    server = OwnServer(privd_args=PROGRAMS)
    yield server
    server.stop()


@pytest.fixture
def kept(own):
    client = Client(own.url, own.key())
    if client.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
        pytest.skip("files are in memory here")
    yield client
    for one in client.call("GET", "/v2/sandboxes?state=running,paused").json:
        client.call("DELETE", f"/sandboxes/{one['sandboxID']}")


def pause(client, box, **more):
    return client.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {"tier": "memory", **more})


def resume(client, box, **more):
    return client.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 300, **more})


def detail(client, box):
    return client.call("GET", f"/cay/v1/sandboxes/{box.id}").json


def start(box, name, code):
    box.write(f"/tmp/{name}.py", code.encode())
    assert box.run(f"setsid python3 /tmp/{name}.py > /tmp/{name}.log 2>&1 < /dev/null &").exit_code == 0


def counted(box):
    return [int(line) for line in box.run("cat /tmp/count").out.split()]


def test_what_ran_goes_on(kept):
    with kept.create() as box:
        start(box, "count", COUNTER)
        start(box, "pair", PAIR)
        until(lambda: box.run("cat /tmp/pair").out.isdigit(), 20, "the pair talks")
        for _ in range(3):
            before = counted(box)[-1]
            reply = pause(kept, box)
            assert (reply.status, reply.json) == (200, {"tier": "memory", "memoryError": ""})
            now = detail(kept, box)
            assert (now["state"], now["tier"], now["reason"]) == ("paused", "memory", "api")
            assert pause(kept, box).status == 409
            assert resume(kept, box).status == 201
            assert state(kept, box) == "running"
            after = counted(box)
            assert after == list(range(len(after))) and after[-1] >= before
            pair = int(box.run("cat /tmp/pair").out)
            until(lambda: int(box.run("cat /tmp/pair").out) > pair, 20, "the pair goes on")
            assert box.run("cat /tmp/pair.log /tmp/count.log").out == ""


def test_no_core_is_written_afterwards_either(kept):
    """A core_pattern that pipes would run its program as the host's root; the kernel takes 1, and only 1, as "never"."""
    with kept.create() as box:
        start(box, "count", COUNTER)
        shown = "grep -h core /proc/1/limits /proc/self/limits /proc/$(pgrep -of count)/limits; ulimit -Sc; ulimit -Hc"
        before = box.run(shown, user="root").out
        assert before.split().count("1") == 6 and before.endswith("\n0\n0\n"), before  # in blocks, for the shell
        assert pause(kept, box).status == 200 and resume(kept, box).status == 201
        assert box.run(shown, user="root").out == before


def test_it_outlives_every_program_and_a_request_resumes_it(kept, own):
    """By auto-resume, once; clients and programs inside see nothing of the restart."""
    with kept.create(autoPause=True, autoResume={"enabled": True}) as box:
        start(box, "count", COUNTER)
        until(lambda: len(counted(box)) > 20, 20, "it counts")
        assert pause(kept, box).json["tier"] == "memory"
        kill_daemons(own, "cayd", "cay-privd")
        wait_ready(kept)
        assert detail(kept, box)["tier"] == "memory"
        assert box.request("GET", "/envs").status == 200
        after = counted(box)
        assert after == list(range(len(after))) and state(kept, box) == "running"
        assert events_of(kept, box) == [("sandbox.resumed", None)]  # those before are gone with cayd


def test_without_the_programs_it_is_refused_or_its_files_are_kept(needs):  # noqa: F811
    """Only where the caller allowed it, who is told."""
    server = OwnServer()
    try:
        client = Client(server.url, server.key())
        with client.create() as box:
            reply = pause(client, box)
            assert reply.status == 501 and "its memory cannot be kept" in reply.json["message"] and state(client, box) == "running"
            assert box.run("echo still here").out == "still here\n"
            reply = pause(client, box, orFiles=True)
            assert (reply.status, reply.json["tier"]) == (200, "files") and "cannot be kept" in reply.json["memoryError"]
            assert "cannot be kept" in detail(client, box)["memoryError"]
            assert resume(client, box).status == 201 and box.run("echo again").out == "again\n"
            assert pause(client, box, tier="warm").status == 400
    finally:
        server.stop()
