"""cayd and cay-privd are killed at each of their calls that change or tell something, during a pause and a resume: counted,
not sampled. Afterwards the sandbox is paused or runs, as it is told and as the kernel has it; what was answered is so; its
program has lost nothing; nothing is left. By `make pause-crashes` alone: it takes strace, and two minutes."""

import os
import pathlib
import signal
import subprocess
import time

import leftovers
import pytest
from client import Client
from conftest import OwnServer
from test_pause import connect, pause
from test_recovery import daemons, wait_ready
from waitlib import until

pytestmark = pytest.mark.skipif(not os.environ.get("CAY_PAUSE_CRASHES"), reason="`make pause-crashes`")

# Journal and records are pwrite64; the freezer's file is openat and write; what is asked and answered is sendmsg; clients
# get write or sendto.
CALLS = ("pwrite64", "openat", "write", "sendmsg", "sendto")
POINTS_MAX = 60  # of one kind of call; more would be a loop

COUNTER = "n=0; while :; do n=$((n+1)); echo $n >>/home/user/ticks; sleep 0.005; done >/dev/null 2>&1 & echo $!"


class Killer:
    """Kills a process when it begins its n-th call of a kind."""

    def __init__(self, pid, call, n):
        self.pid = pid
        self.tracer = subprocess.Popen(["strace", "-f", "-p", str(pid), "-o", "/dev/null", "-e", f"trace={call}",
                                        "-e", f"inject={call}:signal=KILL:when={n}"], stderr=subprocess.PIPE, text=True)
        line = self.tracer.stderr.readline()
        assert "attached" in line, line
        time.sleep(0.02)  # its other threads

    def hit(self):
        """Whether that came. Then it is gone; else it is let go of."""
        def gone():
            try:
                return open(f"/proc/{self.pid}/stat").read().rpartition(")")[2].split()[0] in "ZX"
            except OSError:
                return True
        for _ in range(10):
            if gone():
                break
            time.sleep(0.01)
        was = gone()
        self.tracer.send_signal(signal.SIGTERM)
        try:
            self.tracer.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self.tracer.kill()
            self.tracer.communicate()
        return was


def is_frozen(own_server, box):
    """What the kernel says."""
    root = pathlib.Path("/sys/fs/cgroup")
    for file in [*root.glob(f"freezer/{own_server.cgroup}/*/freezer.state"), *root.glob(f"{own_server.cgroup}/*/cgroup.freeze")]:
        procs = (file.parent / "cgroup.procs").read_text().split()
        if any(box.id == name(pid) for pid in procs):
            return file.read_text().strip() in ("FROZEN", "1")
    raise AssertionError("it has no control group")


def name(pid):
    """The host name that a process sees: its sandbox's id."""
    done = subprocess.run(["nsenter", f"--uts=/proc/{pid}/ns/uts", "hostname"], capture_output=True, text=True)
    return done.stdout.strip()


def ask(cay, box, what):
    try:
        return pause(cay, box) if what == "pause" else connect(cay, box).status
    except OSError:
        return None  # its connection broke


def state(cay, box):
    return cay.call("GET", f"/sandboxes/{box.id}").json["state"]


def bring_to(cay, box, wanted):
    if state(cay, box) != wanted:
        assert ask(cay, box, "pause" if wanted == "paused" else "resume") in (204, 201)


class Place:
    """A server of its own, made anew after a few kills: cay-keep waits ever longer before it starts again what fails again
    and again."""

    KILLS = 5

    def __init__(self):
        self.server, self.box, self.kills = None, None, 0

    def ready(self):
        if self.kills >= self.KILLS:
            self.close()
        if self.server is None:
            self.server, self.kills = OwnServer(), 0
            self.cay = Client(self.server.url, self.server.key())
            assert self.cay.create().kill().status == 204  # says what is to be made ahead
            self.before = leftovers.settled(self.server)
            self.box = self.cay.create(timeout_s=3000)
            self.pid = self.box.run(COUNTER).out.strip()
        return self.cay, self.server, self.box

    def close(self):
        """Its program has lost nothing, and nothing is left of it."""
        if self.server is None:
            return
        bring_to(self.cay, self.box, "running")
        assert self.box.run(f"kill -0 {self.pid} && echo there").out == "there\n"
        ticks = [int(n) for n in self.box.read("/home/user/ticks").body.split()]
        assert ticks == list(range(1, len(ticks) + 1))
        assert self.box.kill().status == 204
        # What is made ahead follows what is asked for, and may be less, or one more; else there is nothing that was not there.
        now = leftovers.settled(self.server)
        assert leftovers._rows(self.server) == 0
        assert {name: (self.before[name], now[name]) for name in now if now[name] > self.before[name] + 2} == {}
        self.server.stop()
        self.server = None


@pytest.mark.parametrize("what", ["pause", "resume"])
@pytest.mark.parametrize("daemon", ["cayd", "cay-privd"])
def test_it_is_paused_or_runs_wherever_it_is_stopped(daemon, what):
    hits, tried, place = {}, 0, Place()
    try:
        for call in CALLS:
            for n in range(1, POINTS_MAX):
                tried += 1
                if not one(*place.ready(), daemon, what, call, n):
                    break
                place.kills += 1
                hits[call] = hits.get(call, 0) + 1
            assert n < POINTS_MAX - 1, f"{call} does not come to an end"
        place.close()
    finally:
        if place.server is not None:
            place.server.stop()
    print(f"{daemon}, {what}: killed at {sum(hits.values())} of {tried} points: {hits}")
    assert hits.get("sendmsg") and hits.get("pwrite64")


def one(cay, own_server, box, daemon, what, call, n):
    bring_to(cay, box, "running" if what == "pause" else "paused")
    killer = Killer(daemons(own_server, daemon)[0], call, n)
    try:
        status = ask(cay, box, what)
    finally:
        hit = killer.hit()
    where = f"{daemon} killed at its {call} number {n} of {what}, which was answered {status}"
    until(lambda: cay.call("GET", f"/sandboxes/{box.id}").status == 200, what=f"it is served: {where}", patient=True)
    wait_ready(cay)
    now = state(cay, box)
    assert now in ("paused", "running"), where
    assert is_frozen(own_server, box) == (now == "paused"), where
    assert status in (None, 503, 500, 204, 201), where
    if status in (204, 201):
        assert now == ("paused" if status == 204 else "running"), where
    return hit
