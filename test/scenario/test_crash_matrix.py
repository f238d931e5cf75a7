"""cayd, cay-privd and cay-egress are killed at each of their calls that change or tell something, during each change of
crash_changes.py, crash_memory.py, crash_archive.py, crash_auto_delete.py, crash_races.py and crash_templates.py: a create from the pool, ends, pauses
and resumes of all tiers, a snapshot, its export and import, forks of files and with memory, the memory of a template, a rollback, a resize, an archive
and a start on one, the making, removing, mounting and writing of a volume, the build of a template, the import and the removal of one, an end by
autoDeleteInterval, two of them at once: counted, not sampled;
cay-privd besides at each call by which its tasks change layers and records; cay-keep, and with it all others, at each of cayd's and
cay-privd's, and at its own while it starts again what has ended; cay-job at its own; cay-checkpoint, CRIU and its action script at theirs while memory is kept
or comes back (crash_programs.py). Afterwards the sandbox is paused or runs, as it is told and as the kernel and the disk have it; its answers were true; its program has lost nothing, its files are there, its policy holds; nothing is left.

`make crash-matrix` has all of it; `make test` a tenth of what cayd and cay-privd do in most changes, another one each day
(CAY_CRASH_SEED=N has the tenth N % 10), and a part of 82 of the rest. Takes strace."""

import functools
import itertools
import os
import shutil
import subprocess
import time

import crash_archive
import crash_auto_delete
import crash_changes
import crash_memory
import crash_programs
import crash_races
import crash_templates
import leftovers
import pytest
from client import Client
from conftest import BUILD, REPOSITORY, OwnServer
from crash_changes import MARK, take_away, tier
from crash_points import CALLS, EGRESS_CALLS, KEEP_CALLS, POINTS_MAX, JobKiller, KeepKiller, Killer, TaskKiller, is_gone
from crash_programs import KEEP_ARGS, PRIVD_ARGS, Outfit, ProgramKiller
from test_checkpoint import CRIU
from test_recovery import daemons, wait_ready
from waitlib import until, wait_replaced

ALL = bool(os.environ.get("CAY_CRASH_MATRIX"))
SEED = int(os.environ.get("CAY_CRASH_SEED", time.time() // 86400))
TENTHS = 10
SELDOM = 82  # the days until each point of the programs that have few in a change, or end all others, has had its turn
SELDOM_TRIED = {**crash_memory.FORKS, **crash_archive.CHANGES, **crash_templates.CHANGES, **crash_races.CHANGES, **crash_auto_delete.CHANGES}
CHANGES = {**crash_changes.CHANGES, **crash_memory.CHANGES, **crash_memory.TEMPLATES, **SELDOM_TRIED}
DAEMONS = ("cayd", "cay-privd", "tasks", "cay-egress", "cay-keep", "cay-job", *crash_programs.CALLS)
PROGRAMS = ("cayd", "cay-privd", "cay-egress")  # that cay-keep starts
DENIED = "10.1.2.3"

COUNTER = "n=0; while :; do n=$((n+1)); echo $n >>/home/user/ticks; sleep 0.005; done >/dev/null 2>&1 & echo $!"
# Changes that are no task of cay-privd's on layers, or only one that makes ahead again.
WITHOUT_LAYERS = ("claim", "pause", "resume", "resize", "resize-frozen", "race-pause-kill", "race-resumes")
# Those of which neither cayd nor cay-privd writes a record.
WITHOUT_RECORDS = ("snapshot-export", "template-import", "template-remove")


class Plain(Outfit):
    """Servers as any."""

    def server(self):
        return OwnServer(privd_args=PRIVD_ARGS, keep_args=KEEP_ARGS)


def outfit_of(daemon, what):
    """The kind of server that this takes."""
    if daemon in crash_programs.CALLS:
        return crash_programs.Shims
    if what in crash_archive.AWAY:
        return crash_archive.Bucketed
    return crash_auto_delete.Clocked if what in crash_auto_delete.CHANGES else Plain


class Place:
    """A server of its own, made anew after a few kills: cay-keep waits ever longer before it starts again what fails again
    and again; a cay-keep that has begun anew does not."""

    KILLS, KEEP_KILLS = 5, 20

    def __init__(self):
        self.server, self.box, self.kills, self.boots = None, None, 0, False
        self.outfit = Plain()

    def ready(self, outfit=Plain):
        if self.kills >= self.KILLS or not isinstance(self.outfit, outfit):
            self.close()
        if not isinstance(self.outfit, outfit):
            self.outfit.remove()
            self.outfit = outfit()
        if self.server is None:
            self.server, self.kills, self.boots = self.outfit.server(), 0, False
            self.cay = Client(self.server.url, self.server.key())
            assert self.cay.create().kill().status == 204  # says what is to be made ahead
            self.before = leftovers.settled(self.server)
            self.box = self.cay.create(timeout_s=3000, network={"denyOut": [DENIED]})
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
        crash_templates.give_back(self.cay)
        if not self.boots:
            assert self.boot_id() == self.boot
            assert self.box.run(f"kill -0 {self.pid} && echo there").out == "there\n"
        ticks = [int(n) for n in self.box.read("/home/user/ticks").body.split()]
        assert ticks == list(range(1, len(ticks) + 1)) and ticks
        assert self.box.kill().status == 204
        until(lambda: crash_templates.parts(self.server) == [], 60, "no part of a template is left")
        self.outfit.settled()
        # The number of slots that are made ahead follows what is asked for, and may be less, or one more; else there is
        # nothing that was not there.
        now = leftovers.settled(self.server)
        until(lambda: leftovers._rows(self.server) == 0, what="no row is left, of what served a volume neither")
        more = {name: (self.before[name], now[name]) for name in now if now[name] > self.before[name] + 2}
        assert more == {}, "\n".join(sorted(str(path.relative_to(self.server.state)) for path in self.server.state.rglob("*")))
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
    place.outfit.remove()


def policy_holds(box):
    """cay-egress denies an address that its policy denies."""
    ask = f"exec 3<>/dev/tcp/{DENIED}/80; printf 'GET / HTTP/1.1\\r\\nHost: {DENIED}\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
    until(lambda: "egress_denied" in box.run(f"bash -c \"{ask}\"").out, what="its policy holds")


def killer_of(place, daemon, call, n):
    """call: of which program the n-th of several calls it is, where daemon is "tasks", "cay-job" or "cay-keep"; else which call."""
    own_server = place.server
    if daemon in crash_programs.CALLS:
        return ProgramKiller(place.outfit, daemon, call, n, own_server.base / "calls")
    traced = {"tasks": "cay-privd", "cay-job": "cay-privd", "cay-keep": call}.get(daemon, daemon)
    if traced in KEEP_CALLS and daemon == "cay-keep":
        return Killer(own_server.keep_pid, call, n)
    pid, log = until(lambda: daemons(own_server, traced))[0], own_server.base / "calls"
    if daemon == "tasks":
        return TaskKiller(pid, n, log)
    if daemon == "cay-job":
        return JobKiller(pid, n, log)
    return KeepKiller(pid, n, log, own_server.keep_pid) if daemon == "cay-keep" else Killer(pid, call, n)


def started_again(own_server, daemon, before):
    """The program that was killed is there again: by itself, but for cay-keep, with which all others end."""
    if daemon == "cay-keep":
        until(lambda: all(is_gone(pid) for pids in before.values() for pid in pids), what="all ended with cay-keep")
        own_server.start()
    elif daemon not in ("cay-job", *crash_programs.CALLS):
        name = "cay-privd" if daemon == "tasks" else daemon
        wait_replaced(lambda: daemons(own_server, name), before[name])


def one(place, daemon, what, call, n):
    """Whether the change came as far as that. daemon "tasks": cay-privd, at a call of its tasks."""
    cay, own_server, box = place.ready(outfit_of(daemon, what))
    change = CHANGES[what]
    change.server, change.killed = own_server, daemon
    place.boots |= change.boots
    if tier(cay, box) not in (None, "", change.tier):  # an earlier point has left it paused otherwise
        change.bring(cay, box, "running")
    change.bring(cay, box, change.start)
    before = {name: until(lambda name=name: daemons(own_server, name)) for name in PROGRAMS}
    killer = killer_of(place, daemon, call, n)
    try:
        status = change.ask(cay, box)
        if daemon in ("tasks", "cay-keep", "cay-job"):
            time.sleep(change.goes_on_s)
    except OSError:
        status = None  # its connection broke
    finally:
        hit = killer.hit()
    said = cay.last.body[:400] if status not in (None, change.good) else b""
    place.kills += hit * (Place.KILLS / Place.KEEP_KILLS if daemon in ("cay-keep", *crash_programs.CALLS) else 1)
    if hit:
        started_again(own_server, daemon, before)
    where = f"{daemon} killed at its {call} number {n} of {what}, which was answered {status} {said}"
    until(lambda: cay.call("GET", f"/sandboxes/{box.id}").status == 200, what=f"it is served: {where}", patient=True)
    wait_ready(cay)
    assert status == change.good or hit and status in (None, 500, 503, 504), where
    now = until(lambda: change.check(own_server, cay, box, status), what=where, patient=True)
    assert status != change.good or change.came_true(now), where
    if daemon == "cay-egress" and hit and now == "running":
        policy_holds(box)
    return hit


def kinds(daemon, what):
    """The calls at which that program is killed in that change."""
    if daemon == "cay-keep":
        return KEEP_CALLS if isinstance(CHANGES[what], crash_templates.Restart) else ("cayd", "cay-privd")
    if daemon == "cay-job":
        return ("steps",)
    if daemon in crash_programs.CALLS:
        return crash_programs.points(daemon, what)
    return {"tasks": ("layers",), "cay-egress": EGRESS_CALLS}.get(daemon, CALLS)


def is_tried(daemon, what):
    """A program that ends is started again by cay-keep alone; templates and archives are a cay-job's."""
    if isinstance(CHANGES[what], crash_templates.Restart):
        return daemon == "cay-keep"
    if daemon in crash_programs.CALLS:
        return daemon in crash_programs.STARTS.get(what, ())
    if what in crash_auto_delete.CHANGES:
        return daemon in ("cayd", "cay-privd", "tasks")
    if isinstance(CHANGES[what], crash_races.Race):
        return daemon in ("cayd", "cay-privd", "tasks", "cay-egress")
    return daemon != "cay-job" or what in ("archive", "snapshot-export", "snapshot-import", *crash_archive.AWAY) or isinstance(CHANGES[what], crash_templates.Templates)


def groups():
    return [(what, daemon, call) for what in CHANGES for daemon in DAEMONS if is_tried(daemon, what) for call in kinds(daemon, what)]


def is_long(what, daemon, call):
    """Of cay-keep at each call of cay-privd's in such a change there are up to 200, and each starts all programs; CRIU has hundreds."""
    if daemon in crash_programs.CALLS:
        return True
    return (daemon, call) == ("cay-keep", "cay-privd") and what in {**crash_memory.CHANGES, **crash_memory.TEMPLATES, **crash_memory.FORKS, **crash_archive.CHANGES}


def of_today():
    often = [one for one in groups() if one[1] in ("cayd", "cay-privd", "tasks") and one[0] not in SELDOM_TRIED]
    seldom = [one for one in groups() if one not in often and not is_long(*one)]
    today = often[SEED % TENTHS::TENTHS] + seldom[SEED % SELDOM::SELDOM]
    today = [one for one in today if outfit_of(one[1], one[0]) is Plain or not os.environ.get("CAY_SANITIZED")]
    return [one for one in today if has_criu() or not isinstance(CHANGES[one[0]], crash_memory.NEEDS_CRIU)]


def all_of(place, what, daemon, call):
    """How many points there are; each was tried."""
    n = next(n for n in itertools.count(1) if not one(place, daemon, what, call, n) or n == POINTS_MAX)
    assert n < POINTS_MAX, f"{daemon}'s {call} in {what} does not come to an end"
    return n - 1


@functools.cache
def has_criu():
    return subprocess.run([REPOSITORY / "scripts/criu", "--check", CRIU], capture_output=True).returncode == 0


def needs_criu(what):
    if isinstance(CHANGES[what], crash_memory.NEEDS_CRIU) and not has_criu():
        pytest.skip("CRIU is not there: make criu")


@pytest.mark.skipif(not ALL, reason="`make crash-matrix`")
@pytest.mark.parametrize("daemon, what", [(daemon, what) for daemon in DAEMONS for what in CHANGES if is_tried(daemon, what)])
def test_it_is_as_before_or_as_asked_wherever_it_is_stopped(daemon, what, place):
    needs_criu(what)
    hits = {call: all_of(place, what, daemon, call) for call in kinds(daemon, what)}
    place.close()
    with open(BUILD / "crash-matrix.txt", "a", encoding="ascii") as report:
        print(what, daemon, sum(hits.values()), *(f"{call}={n}" for call, n in hits.items()), file=report)
    if daemon in ("cayd", "cay-privd"):
        assert hits["sendmsg"] and (hits["pwrite64"] or what in WITHOUT_RECORDS)
    elif daemon == "tasks" and what not in WITHOUT_LAYERS:
        assert hits["layers"]


def test_a_tenth(place):
    assert shutil.which("strace"), "strace is not installed: scripts/deps test"
    print(f"CAY_CRASH_SEED={SEED}")
    for what, daemon, call in of_today():
        print(f"{daemon}, {what}, {call}: {all_of(place, what, daemon, call)} points", flush=True)
    place.close()
