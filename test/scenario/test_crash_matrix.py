"""cayd and cay-privd are killed at each of their calls that change or tell something, during each change of crash_changes.py: a
create from the pool, ends, pauses and resumes of both tiers, a snapshot, a fork, a rollback, a resize, the making, removing,
mounting and writing of a volume, the build of a template: counted, not sampled; and cay-privd besides at each call by which its
tasks change layers and records. Afterwards the sandbox is paused or runs, as it is told and as the kernel and the disk have it;
what was answered is so; its program has lost nothing, its files are there; nothing is left.

`make crash-matrix` has all of it; `make test` a tenth of it, another one each day (CAY_CRASH_SEED=N has the tenth N % 10). Takes
strace."""

import itertools
import os
import shutil
import time

import leftovers
import pytest
from client import Client
from conftest import BUILD, OwnServer
from crash_changes import CHANGES, MARK, Files, take_away, tier
from crash_points import CALLS, POINTS_MAX, Killer, TaskKiller
from test_recovery import daemons, wait_ready
from waitlib import until, wait_replaced

ALL = bool(os.environ.get("CAY_CRASH_MATRIX"))
SEED = int(os.environ.get("CAY_CRASH_SEED", time.time() // 86400))
TENTHS = 10
DAEMONS = ("cayd", "cay-privd", "tasks")

COUNTER = "n=0; while :; do n=$((n+1)); echo $n >>/home/user/ticks; sleep 0.005; done >/dev/null 2>&1 & echo $!"
# Changes that are no task of cay-privd's on layers, or only one that makes ahead again.
WITHOUT_LAYERS = ("claim", "pause", "resume", "resize", "resize-frozen")


class Place:
    """A server of its own, made anew after a few kills: cay-keep waits ever longer before it starts again what fails again
    and again."""

    KILLS = 5

    def __init__(self):
        self.server, self.box, self.kills, self.boots = None, None, 0, False

    def ready(self):
        if self.kills >= self.KILLS:
            self.close()
        if self.server is None:
            self.server, self.kills, self.boots = OwnServer(), 0, False
            self.cay = Client(self.server.url, self.server.key())
            assert self.cay.create().kill().status == 204  # says what is to be made ahead
            self.before = leftovers.settled(self.server)
            self.box = self.cay.create(timeout_s=3000)
            self.box.write("/home/user/mark", MARK)
            self.pid, self.boot = self.box.run(COUNTER).out.strip(), self.boot_id()
        return self.cay, self.server, self.box

    def boot_id(self):
        return self.box.run("cat /proc/sys/kernel/random/boot_id").out

    def close(self):
        """Its program has lost nothing, and nothing is left of it."""
        if self.server is None:
            return
        CHANGES["resume"].bring(self.cay, self.box, "running")
        take_away(self.cay, self.box)  # of the last point
        if not self.boots:
            assert self.boot_id() == self.boot
            assert self.box.run(f"kill -0 {self.pid} && echo there").out == "there\n"
        ticks = [int(n) for n in self.box.read("/home/user/ticks").body.split()]
        assert ticks == list(range(1, len(ticks) + 1)) and ticks
        assert self.box.kill().status == 204
        # The number of slots that are made ahead follows what is asked for, and may be less, or one more; else there is
        # nothing that was not there.
        now = leftovers.settled(self.server)
        until(lambda: leftovers._rows(self.server) == 0, what="no row is left, of what served a volume neither")
        assert {name: (self.before[name], now[name]) for name in now if now[name] > self.before[name] + 2} == {}
        self.stop()

    def stop(self):
        if self.server is not None:
            self.server.stop()
        self.server = None


@pytest.fixture()
def place():
    place = Place()
    yield place
    place.stop()


def one(place, daemon, what, call, n):
    """Whether the change came as far as that. daemon "tasks": cay-privd, at a call of its tasks."""
    cay, own_server, box = place.ready()
    change = CHANGES[what]
    place.boots |= isinstance(change, Files)
    if tier(cay, box) not in (None, "", change.tier):  # an earlier point has left it paused otherwise
        change.bring(cay, box, "running")
    change.bring(cay, box, change.start)
    name = "cay-privd" if daemon == "tasks" else daemon
    pid = until(lambda: daemons(own_server, name))[0]
    killer = TaskKiller(pid, n, own_server.base / "calls") if daemon == "tasks" else Killer(pid, call, n)
    try:
        status = change.ask(cay, box)
        if daemon == "tasks":
            time.sleep(change.goes_on_s)
    except OSError:
        status = None  # its connection broke
    finally:
        hit = killer.hit()
    place.kills += hit
    if hit:
        wait_replaced(lambda: daemons(own_server, name), [pid])
    where = f"{daemon} killed at its {call} number {n} of {what}, which was answered {status}"
    until(lambda: cay.call("GET", f"/sandboxes/{box.id}").status == 200, what=f"it is served: {where}", patient=True)
    wait_ready(cay)
    assert status in (None, 500, 503, 504, change.good), where
    now = until(lambda: change.check(own_server, cay, box, status), what=where, patient=True)
    if status == change.good:
        assert now == change.wanted, where
    return hit


def kinds(daemon):
    return ("layers",) if daemon == "tasks" else CALLS


def groups():
    return [(what, daemon, call) for what in CHANGES for daemon in DAEMONS for call in kinds(daemon)]


def all_of(place, what, daemon, call):
    """How many points there are; each was tried."""
    n = next(n for n in itertools.count(1) if not one(place, daemon, what, call, n) or n == POINTS_MAX)
    assert n < POINTS_MAX, f"{daemon}'s {call} in {what} does not come to an end"
    return n - 1


@pytest.mark.skipif(not ALL, reason="`make crash-matrix`")
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("daemon", DAEMONS)
def test_it_is_as_before_or_as_asked_wherever_it_is_stopped(daemon, what, place):
    hits = {call: all_of(place, what, daemon, call) for call in kinds(daemon)}
    place.close()
    with open(BUILD / "crash-matrix.txt", "a", encoding="ascii") as report:
        print(what, daemon, sum(hits.values()), *(f"{call}={n}" for call, n in hits.items()), file=report)
    if daemon != "tasks":
        assert hits["sendmsg"] and hits["pwrite64"]
    elif what not in WITHOUT_LAYERS:
        assert hits["layers"]


def test_a_tenth(place):
    assert shutil.which("strace"), "strace is not installed: scripts/deps test"
    print(f"CAY_CRASH_SEED={SEED}")
    for what, daemon, call in groups()[SEED % TENTHS::TENTHS]:
        print(f"{daemon}, {what}, {call}: {all_of(place, what, daemon, call)} points", flush=True)
    place.close()
