"""Resources run out, or change, while a server runs: each time a clear answer, the rest goes on, and a resource given back is used again."""

import datetime
import os
import signal
import subprocess
import time

import pytest

import badworld
import clocklib
import conftest
from client import Client
from test_template_builder import address, put, request
from waitlib import until

WHOLE = os.environ.get("CAY_BAD_WORLDS")  # `make bad-worlds`: all of it
MIB = 1 << 20
DAY = 86400


@pytest.fixture
def world():
    if os.geteuid() != 0:
        pytest.skip("cay-keep needs root")
    with badworld.World(conftest.BUILD, conftest.USER, conftest.UID_BASE) as w:
        yield w


def starts(world, **how):
    done = world.start(**how)
    assert done.returncode == 0, done.stderr + world.log_tail()
    return Client(world.url, world.key())


def create(client, **fields):
    return client.call("POST", "/v2/sandboxes", {"templateID": "host", "timeout": 300, **fields})


def fill(directory):
    """Not one byte is left there."""
    path = directory / "filler"
    with open(path, "wb", buffering=0) as f:
        for piece in (65536, 512):
            try:
                while True:
                    f.write(bytes(piece))
            except OSError:
                pass
    return path


def lives(box):
    assert box.run("echo alive").out == "alive\n"


# -- disks ---------------------------------------------------------------------------------------------

def test_no_room_for_the_store(world):
    """cay.db cannot grow: what would have to be written is refused with 507, all else goes on."""
    world.tmpfs(world.state / "cayd", "size=3m,mode=700")
    client = starts(world)
    box, other = client.create(), client.create()
    filler = fill(world.state / "cayd")
    for reply in (create(client), client.call("POST", f"/sandboxes/{box.id}/timeout", {"timeout": 100}),
                  client.call("POST", "/cay/v1/keys", {})):
        assert reply.status == 507 and "free some space" in reply.json["message"], reply.body
    lives(box)
    assert client.call("GET", "/v2/sandboxes").status == 200
    assert other.kill().status == 204
    filler.unlink()
    with client.create() as another:
        lives(another)
    assert box.kill().status == 204


def test_the_state_disk_is_full(world):
    """A sandbox takes all of the image, which is smaller than what sandboxes may have together."""
    client = starts(world, cayd_args=["--sandbox-disk=3G"], privd_args=["--disk-size=400000000"])
    box, other = client.create(), client.create()
    assert "No space left" in box.run("dd if=/dev/zero of=/home/user/x bs=1M; sync").stderr.decode()
    for _ in range(6):  # those that were made ahead do not help either
        reply = create(client)
        assert reply.status == 507 and "No space left" in reply.json["message"], reply.body
    lives(other)
    assert client.call("GET", "/cay/v1/status").json["disk"]["freeBytes"] < 4 * MIB
    assert box.kill().status == 204
    made = []
    until(lambda: made.append(create(client)) or made[-1].status == 201, 60, lambda: f"a create; {made[-1].body}", patient=True)
    assert other.run("echo x > /home/user/y && cat /home/user/y").out == "x\n"


@pytest.mark.skipif(not WHOLE, reason="takes more than a minute: make bad-worlds")
def test_the_hosts_disk_is_full(world):
    """The image is sparse: without room below it the kernel gives the file system up. That is said, and a new
    start mends it."""
    world.tmpfs(world.state, "size=2g,mode=711")
    client = starts(world)
    box = client.create()
    filler = fill(world.state)
    box.run("dd if=/dev/urandom of=/home/user/x bs=1M count=50; sync; touch /home/user/y; sync")
    assert create(client).status == 507
    lives(box)
    filler.unlink()
    reply = create(client)
    assert reply.status == 503 and "read-only" in reply.json["message"] and "cay up" in reply.json["message"]
    world.stop()
    client = starts(world)
    with client.create() as another:
        lives(another)


def test_no_room_for_archives_of_builds(world):
    """They leave a part of the disk to the store: all else goes on, and space given back is used again."""
    world.tmpfs(world.state / "cayd", "size=40m,mode=700")
    client, builds = starts(world), world.state / "cayd" / "builds"
    made = request(client, "x")
    reply = put(address(client, made, "1" * 64).json["url"], bytes(60 * MIB))
    assert reply.status_code == 507 and "free" in reply.json()["message"], reply.text
    until(lambda: os.listdir(builds) == [], what="what was received of it is removed")
    assert address(client, made, "1" * 64).json["present"] is False
    with client.create() as box:
        lives(box)
    assert put(address(client, made, "2" * 64).json["url"], bytes(10 * MIB)).status_code == 200
    filler = fill(world.state / "cayd")
    reply = put(address(client, made, "3" * 64).json["url"], b"x")
    assert reply.status_code == 507, reply.text
    assert [len(one) for one in os.listdir(builds)] == [96]
    filler.unlink()
    assert put(address(client, made, "3" * 64).json["url"], b"x").status_code == 200
    assert [address(client, made, one * 64).json["present"] for one in "123"] == [False, True, True]


# -- descriptors, memory ---------------------------------------------------------------------------------

def test_descriptors_run_out_in_cayd(world):
    """Few are allowed, many clients come: they wait or are refused, and a sandbox goes on being served."""
    client = starts(world, prefix=["sh", "-c", 'ulimit -n 400; exec "$0" "$@"'])
    assert "sandboxes get 400 open files" in world.log_tail()
    with client.create() as box:
        held = []
        for _ in range(600):
            connection = client.connect(timeout=20)
            connection.connect()
            held.append(connection)
        until(lambda: box.run("echo alive").out == "alive\n", 30, patient=True)
        for connection in held:
            connection.close()
        lives(box)
    pid = world.cayd()
    until(lambda: len(os.listdir(f"/proc/{pid}/fd")) < 60, patient=True)


def memory_cgroup(name):
    """A group of its own, in whichever version this machine has; None where memory cannot be limited."""
    for base, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        path = os.path.join(base, name)
        try:
            os.mkdir(path)
        except OSError:
            continue
        if os.path.exists(os.path.join(path, limit)):
            return path, os.path.join(path, limit)
        os.rmdir(path)
    return None, None


def test_cayd_has_no_memory(world):
    """It is ended by the kernel and started again; sandboxes do not notice."""
    client = starts(world)
    path, limit = memory_cgroup(f"cay-test-bad-{os.getpid()}")
    if not path:
        pytest.skip("no memory controller that the test can use")
    try:
        box = client.create()
        pid = world.cayd()
        with open(limit, "w") as f:
            f.write(str(40 * MIB))
        with open(os.path.join(path, "cgroup.procs"), "w") as f:
            f.write(str(pid))
        # With the key: a body is held only when its key is known.
        head = f"POST /v2/sandboxes HTTP/1.1\r\nHost: a\r\nX-API-Key: {client.key}\r\nContent-Length: 1048576\r\n\r\n"
        held, body = [], head.encode() + b"x" * 1048000
        for _ in range(300):
            try:
                connection = client.connect(timeout=10)
                connection.connect()
                held.append(connection)
                connection.sock.sendall(body)
            except OSError:
                break
        until(lambda: world.cayd() not in (None, pid), patient=True)
        for connection in held:
            connection.close()
        until(lambda: box.run("echo alive").out == "alive\n", 30, patient=True)
        with client.create() as another:
            lives(another)
    finally:
        until(lambda: os.rmdir(path) is None, patient=True)


@pytest.mark.skipif(not WHOLE, reason="makes 300 sandboxes: make bad-worlds")
def test_descriptors_run_out_in_privd(world):
    client = starts(world, prefix=["sh", "-c", 'ulimit -n 330; exec "$0" "$@"'],
                    privd_args=["--slots-max=400"])
    made, refused = [], None
    while len(made) < 400 and not refused:
        reply = create(client)
        if reply.status == 201:
            made.append(reply.json["sandboxID"])
        else:
            refused = reply
    assert refused is not None and refused.status in (429, 503, 507) and refused.json["message"], refused.body
    for box in made:
        assert client.call("DELETE", f"/sandboxes/{box}").status == 204
    until(lambda: create(client).status == 201, 30, patient=True)


# -- the clock -------------------------------------------------------------------------------------------

class Clock(clocklib.Clock):
    """cayd's idea of the real time, moved at will."""

    def left_of(self, client, box):
        """Seconds until the end that is told, by that clock."""
        end = client.call("GET", f"/sandboxes/{box.id}").json["endAt"]
        end = datetime.datetime.fromisoformat(end.replace("Z", "+00:00")).timestamp()
        return end - (time.time() + self.real_s)


def test_the_clock_jumps(world):
    clock = Clock(world.base)
    client = starts(world, cayd=clock.lines)
    long, short = client.create(timeout_s=1000), client.create(timeout_s=40)
    for offset in (DAY, -2 * DAY, 30 * 365 * DAY):
        clock.jump_to(offset)
        lives(long)
        assert 0 < clock.left_of(client, long) <= 1000
        assert client.call("GET", f"/sandboxes/{short.id}").status == 200
    assert "the clock was set by" in world.log_tail()
    assert client.call("POST", f"/sandboxes/{long.id}/timeout", {"timeout": 500}).status == 204
    assert 0 < clock.left_of(client, long) <= 500
    # Told before the restart, or not told at all: nothing ends early, and nothing lives for ever.
    pid = world.cayd()
    os.kill(pid, signal.SIGKILL)
    until(lambda: world.cayd() not in (None, pid), patient=True)
    until(lambda: client.call("GET", "/cay/v1/status").json["ready"] is True, patient=True)
    lives(long)
    assert 0 < clock.left_of(client, long) <= 500
    until(lambda: client.call("GET", f"/sandboxes/{short.id}").status == 404, 90, patient=True)
    lives(long)
