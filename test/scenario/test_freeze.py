"""FREEZE and THAW of privd alone: processes that stand still, those that cannot be stopped, crashes at every moment, ends of frozen
sandboxes."""

import contextlib
import errno
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

import pytest

import privdlib
from leftovers import cgroup_name
from privdlib import FREEZE, HOST, JOB, KILL, STAT, THAW
from test_privd import BUILD, left_behind, slot_processes
from waitlib import until

FROZEN_AT = 80  # of an ITEM's body (src/contract/proto.h)


@pytest.fixture(scope="module")
def privd():
    base = tempfile.mkdtemp(prefix="cay-test-", dir="/var/tmp")
    p = privdlib.Privd(BUILD, base).start()
    with contextlib.closing(p.channel()) as c:
        assert c.ask(JOB, struct.pack("<II", 1, HOST)).status == 0
    yield p
    if p.process.poll() is None:
        with contextlib.closing(p.channel()) as c:
            assert [c.freeze(create(c, f"ilast{n}")).status for n in range(2)] == [0, 0]  # a stop ends them
        assert p.stop() == 0, p.log.read_text()
        assert left_behind(p) == []
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def channel(privd):
    with contextlib.closing(privd.channel()) as c:
        yield c
    with contextlib.closing(privd.channel()) as c:
        assert all(c.kill(s).status == 0 for s in c.list().values())
        assert c.list() == {}


def start_program(c, s, script):
    """A shell inside, by way of the agent; the connection is the caller's."""
    fd, = c.connect(s).fds
    message = json.dumps({"process": {"cmd": "/bin/bash", "args": ["-c", script]}}).encode()
    body = struct.pack(">BI", 0, len(message)) + message
    connection = socket.socket(fileno=fd)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", 49983))
    connection.sendall(b"POST /process.Process/Start HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+json\r\n"
                       b"Connect-Protocol-Version: 1\r\nX-Cay-Agent-Key: " + (b"k" * 32).hex().encode() +
                       b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
    answer = b""
    while b"start" not in answer:
        piece = connection.recv(4096)
        assert piece, answer
        answer += piece
    return connection


def init(c, s):
    fd, = c.connect(s).fds
    body = b'{"defaultUser":"user","defaultWorkdir":"/home/user","envVars":{}}'
    with socket.socket(fileno=fd) as one:
        one.settimeout(10)
        one.connect(("127.0.0.1", 49983))
        one.sendall(b"POST /init HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Cay-Agent-Key: " +
                    (b"k" * 32).hex().encode() + b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
        assert b" 204 " in one.recv(400).split(b"\r\n")[0]


def create(c, name, script=None):
    """The name of one that has just ended is free a moment later."""
    s = c.create(name)
    for _ in range(100):
        if s.status != -errno.EEXIST:
            break
        time.sleep(0.05)
        s = c.create(name)
    assert s.status == 0
    for fd in s.fds:
        os.close(fd)
    init(c, s)
    s.programs = [start_program(c, s, script)] if script else []
    return s


def cpu_us(c, s):
    stat = c.ask(STAT, slot=s.slot, gen=s.gen)
    assert stat.status == 0
    return stat.unpack("QQQQ")[3]


def freezer_file(privd, s):
    v1 = pathlib.Path("/sys/fs/cgroup/freezer", cgroup_name(privd.state), str(s.slot), "freezer.state")
    v2 = pathlib.Path("/sys/fs/cgroup", cgroup_name(privd.state), str(s.slot), "cgroup.freeze")
    return v1 if v1.exists() else v2


def stands(privd, s):
    return freezer_file(privd, s).read_text().strip() in ("FROZEN", "1")


def listed_frozen(c, name):
    return struct.unpack_from("<I", c.list()[name].body, FROZEN_AT)[0]


def runs(c, s):
    before = cpu_us(c, s)
    until(lambda: cpu_us(c, s) > before, 10, "the program goes on")
    return True


# A file system whose directory one process holds locked, as its look-up of a name is never answered, and another wants to
# lock: in that wait the kernel stops no process. It is in a mount namespace of its own, and ends with the program.
STUCK = """
import ctypes, os, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
fd, place = os.open("/dev/fuse", os.O_RDWR), sys.argv[1]
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 1 << 18 | 1 << 14, None) or \\
        libc.mount(b"none", place.encode(), b"fuse", 6, options):
    sys.exit(os.strerror(ctypes.get_errno()))
INIT, GETATTR = 26, 3
ANSWERS = {INIT: struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 1, 1, 4096, 1, 0, 0, *[0] * 8),
           GETATTR: struct.pack("<QII6Q10I", 0, 0, 0, 1, *[0] * 8, 0o40777, 2, *[0] * 5)}
held, over = [], []
def serve():
    while True:
        asked = os.read(fd, 1 << 17)
        _, what, unique = struct.unpack_from("<IIQ", asked)
        if what in ANSWERS:
            os.write(fd, struct.pack("<IiQ", 16 + len(ANSWERS[what]), 0, unique) + ANSWERS[what])
        elif over:
            os.write(fd, struct.pack("<IiQ", 16, -2, unique))
        else:
            held.append(unique)
def look(name):
    libc.access(f"{place}/{name}".encode(), 0)
def state(pid):
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
threading.Thread(target=serve, daemon=True).start()
threading.Thread(target=look, args=["x"], daemon=True).start()
time.sleep(0.3)
pid = os.fork()
if pid == 0:
    os.close(fd)
    libc.mkdir(f"{place}/y".encode(), 0o700)
    os._exit(0)
while state(pid) != "D":
    time.sleep(0.01)
print(pid, flush=True)
sys.stdin.read()
over.append(True)
for unique in held:
    os.write(fd, struct.pack("<IiQ", 16, -2, unique))
os.waitpid(pid, 0)
os._exit(0)
"""


def has_ended(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@contextlib.contextmanager
def stuck(privd, s):
    """A process in the sandbox's freezer group that cannot be stopped. (In a sandbox no such file system can be mounted; a
    disk that does not answer is the same.)"""
    place = privd.base / "unserved"
    place.mkdir(exist_ok=True)
    program = subprocess.Popen([sys.executable, "-c", STUCK, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pid = int(program.stdout.readline())
    file = freezer_file(privd, s)
    (file.parent / ("tasks" if file.name == "freezer.state" else "work/cgroup.procs")).write_text(str(pid))
    try:
        yield
    finally:
        program.stdin.close()  # every question is answered now
        program.wait(20)
        until(lambda: has_ended(pid), 20, "the stuck process is gone")


def test_it_stands_still_and_goes_on(privd, channel):
    s, other = create(channel, "istill", "while :; do :; done"), create(channel, "iother", "while :; do :; done")
    assert runs(channel, s) and listed_frozen(channel, "istill") == 0
    for _ in range(20):
        assert channel.freeze(s).status == 0
        assert stands(privd, s) and listed_frozen(channel, "istill") == 1 and listed_frozen(channel, "iother") == 0
        at = cpu_us(channel, s)
        assert runs(channel, other) and cpu_us(channel, s) == at
        assert channel.thaw(s).status == 0
        assert not stands(privd, s) and listed_frozen(channel, "istill") == 0
        assert runs(channel, s)


def test_what_a_frozen_one_is_asked_is_answered_by_the_table(privd, channel):
    s = create(channel, "itable")
    assert channel.thaw(s).status == 0  # of one that runs
    assert channel.freeze(s).status == 0
    assert channel.freeze(s).status == -errno.EBUSY
    assert channel.connect(s).status == -errno.EBUSY and channel.command_sandbox(s).status == -errno.EBUSY
    assert channel.ask(STAT, slot=s.slot, gen=s.gen).status == 0
    for op in (FREEZE, THAW):
        assert channel.ask(op, slot=s.slot, gen=s.gen + 1).status == -errno.ESTALE
        assert channel.ask(op).status == -errno.EINVAL
    assert channel.kill(s).status == 0 and channel.thaw(s).status == -errno.ESTALE


def test_what_cannot_be_stopped_refuses_and_all_go_on(privd, channel):
    """A process that waits for the disk. When that is over, it can be frozen."""
    s = create(channel, "istuck", "while :; do :; done")
    assert runs(channel, s)
    with stuck(privd, s):
        asked = channel.send(FREEZE, slot=s.slot, gen=s.gen)
        assert channel.ask(privdlib.CAPACITY).status == 0  # privd waits for nothing
        assert channel.freeze(s).status == -errno.EBUSY
        assert channel.wait(asked).status == -errno.ETIMEDOUT
        assert not stands(privd, s) and listed_frozen(channel, "istuck") == 0 and runs(channel, s)
    until(lambda: channel.freeze(s).status == 0, 20, "it can be frozen")
    assert stands(privd, s)
    assert channel.thaw(s).status == 0 and runs(channel, s)


@pytest.mark.parametrize("end", ["thaw", "kill", "peer", "crash"])
def test_a_freeze_that_is_not_complete_can_be_ended(privd, channel, end):
    s = create(channel, "ihalf", "while :; do :; done")
    with stuck(privd, s):
        asked = channel.send(FREEZE, slot=s.slot, gen=s.gen)
        until(lambda: stands(privd, s) or "FREEZING" in freezer_file(privd, s).read_text() or
              freezer_file(privd, s).read_text().strip() == "1", 5, "it is being frozen")
        if end == "thaw":
            assert channel.thaw(s).status == 0 and channel.wait(asked).status == -errno.ECANCELED
        elif end == "kill":
            killed = channel.send(KILL, slot=s.slot, gen=s.gen)
            assert channel.wait(asked).status == -errno.ESTALE
        elif end == "peer":
            channel.close()
        else:
            privd.crash()
            privd.start()
    if end == "kill":
        assert channel.wait(killed).status == 0 and channel.list() == {}
        return
    with contextlib.closing(privd.channel()) as c:
        until(lambda: not stands(privd, s), 5, "it goes on")
        assert runs(c, s) and listed_frozen(c, "ihalf") == 0
        assert c.freeze(s).status == 0 and c.thaw(s).status == 0


def test_a_frozen_one_survives_a_crash_frozen(privd, channel):
    s, running = create(channel, "ifrozen", "while :; do :; done"), create(channel, "iruns", "while :; do :; done")
    assert channel.freeze(s).status == 0
    at = cpu_us(channel, s)
    for _ in range(3):
        privd.crash()
        privd.start()
        with contextlib.closing(privd.channel()) as c:
            assert listed_frozen(c, "ifrozen") == 1 and listed_frozen(c, "iruns") == 0
            assert stands(privd, s) and cpu_us(c, s) == at and runs(c, running)
    with contextlib.closing(privd.channel()) as c:
        assert c.thaw(s).status == 0 and runs(c, s)


def test_neither_record_nor_kernel_alone_is_believed(privd, channel):
    """A frozen record of one that the kernel lets run: it runs. A sandbox that is frozen without a record goes on."""
    thawed, frozen = create(channel, "ithawed", "while :; do :; done"), create(channel, "ifroze", "while :; do :; done")
    assert channel.freeze(thawed).status == 0
    version2 = freezer_file(privd, frozen).name == "cgroup.freeze"
    privd.crash()
    freezer_file(privd, thawed).write_text("0" if version2 else "THAWED")
    freezer_file(privd, frozen).write_text("1" if version2 else "FROZEN")
    privd.start()
    with contextlib.closing(privd.channel()) as c:
        for s, name in ((thawed, "ithawed"), (frozen, "ifroze")):
            assert listed_frozen(c, name) == 0 and not stands(privd, s) and runs(c, s)


def test_a_frozen_one_ends_like_any_other(privd, channel):
    boxes = [create(channel, f"iend{n}", "while :; do sleep 0.01; done") for n in range(6)]
    made = channel.command_sandbox(boxes[0])
    assert made.status == 0
    for fd in made.fds:
        os.close(fd)
    assert [channel.freeze(s).status for s in boxes] == [0] * 6
    seqs = [channel.send(KILL, slot=s.slot, gen=s.gen) for s in boxes[:4]]
    assert [channel.wait(seq).status for seq in seqs] == [0] * 4
    assert set(channel.list()) == {"iend4", "iend5"}


def test_command_sandboxes_stop_with_their_sandbox_and_those_being_made_are_waited_for(privd, channel):
    s = create(channel, "icommands")
    making = [channel.send(privdlib.COMMAND_SANDBOX, struct.pack("<II", 0, 0) + b"r" * 32, slot=s.slot, gen=s.gen) for _ in range(8)]
    asked = channel.send(FREEZE, slot=s.slot, gen=s.gen)
    inner = [channel.wait(seq) for seq in making]
    assert [r.status for r in inner] == [0] * 8 and channel.wait(asked).status == 0
    pids = slot_processes(privd)
    assert len(pids) == 9
    states = {open(f"/proc/{pid}/wchan").read() for pid in pids}
    ended = channel.send(privdlib.COMMAND_SANDBOX_END, struct.pack("<II", inner[0].unpack("I")[0], 0), slot=s.slot, gen=s.gen)
    assert channel.thaw(s).status == 0 and channel.wait(ended).status == 0, states
    for r in inner:
        for fd in r.fds:
            os.close(fd)


BOMB = "f() { while :; do (sleep 0.01) & done; }; f & f & f & wait"
VFORK = ("import os, ctypes, time\n"
         "libc = ctypes.CDLL(None)\n"
         "os.posix_spawn('/bin/sleep', ['sleep', '1000'], {})\n"
         "while True:\n"
         "    pid = os.posix_spawn('/bin/true', ['true'], {})\n"
         "    os.waitpid(pid, 0)\n")


@pytest.mark.parametrize("what", ["forks", "vforks", "stops", "many"])
def test_hostile_ones_are_frozen_or_refused_and_never_half(privd, channel, what):
    """Processes that fork while they are stopped, parents that wait in vfork, processes that are stopped already, hundreds
    of them: each freeze either has all of them, or none."""
    script = {"forks": BOMB, "vforks": f"exec python3 -c \"{VFORK}\"",
              "stops": "for i in $(seq 20); do sleep 1000 & kill -STOP $!; done; while :; do :; done",
              "many": "for i in $(seq 200); do (while :; do sleep 0.05; done) & done; wait"}[what]
    s = create(channel, "ihostile", script)
    time.sleep(0.3)
    frozen = 0
    for _ in range(10):
        status = channel.freeze(s).status
        assert status in (0, -errno.ETIMEDOUT)
        if status == 0:
            frozen += 1
            pids, at = slot_processes(privd), cpu_us(channel, s)
            time.sleep(0.02)
            assert slot_processes(privd) == pids and cpu_us(channel, s) == at
            assert channel.thaw(s).status == 0
        assert not stands(privd, s)
        time.sleep(0.01)
    assert frozen > 0
    assert channel.freeze(s).status in (0, -errno.ETIMEDOUT) and channel.kill(s).status == 0
