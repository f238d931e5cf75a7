"""cayd and cay-privd are killed at each of their calls that change or tell something, during a pause and a resume of both
tiers, a snapshot, a fork, a rollback, and the making, removing and mounting of a volume: counted, not sampled; and cay-privd
besides at each call by which its tasks change layers and records. Afterwards the sandbox is paused or runs, as it is told and as the kernel and the disk have it; what was answered is
so; its program has lost nothing, its files are there; nothing is left.

`make pause-crashes` has all of it, in some ten minutes; `make test` four points, drawn by a seed that is printed
(CAY_CRASH_SEED=N draws the same again). Takes strace."""

import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import threading
import time

import leftovers
import pytest
from client import Client
from conftest import OwnServer
from test_pause import connect, pause
from test_pause_files import disk, kept_on_disk, pause_files
from test_recovery import daemons, wait_ready
from test_snapshot import all_ids, delete
from waitlib import until, wait_replaced

ALL = bool(os.environ.get("CAY_PAUSE_CRASHES"))
SEED = int(os.environ.get("CAY_CRASH_SEED", random.SystemRandom().randrange(10**6)))

# Journal and records are pwrite64; the freezer's file is openat and write; what is asked and answered is sendmsg; clients
# get write or sendto.
CALLS = ("pwrite64", "openat", "write", "sendmsg", "sendto")
# What tasks of cay-privd do to layers and records. (Namespaces and mounts are made as for any create.)
TASK_CALLS = ("ioctl", "renameat2", "syncfs", "fdatasync", "unlinkat")
TASK_CALL_MS = 40  # each of them waits so long, so that a kill finds it at its beginning
POINTS_MAX = 60  # of one kind of call; more would be a loop

COUNTER = "n=0; while :; do n=$((n+1)); echo $n >>/home/user/ticks; sleep 0.005; done >/dev/null 2>&1 & echo $!"
MARK = b"what was written before\n"


def is_gone(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class Killer:
    """Kills a process when it begins its n-th call of a kind."""

    def __init__(self, pid, call, n):
        self.pid = pid
        # Without -f, cay-privd's tasks live on: with it each that privd begins anew would be killed as well, without end.
        threads = ["-f"] if len(os.listdir(f"/proc/{pid}/task")) > 1 else []
        self.trace([*threads, "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={n}"])

    def trace(self, options):
        self.tracer = subprocess.Popen(["strace", "-p", str(self.pid), *options], stderr=subprocess.PIPE, text=True)
        line = self.tracer.stderr.readline()
        assert "attached" in line, line
        time.sleep(0.02)  # its other threads

    def hit(self):
        """Whether that came. Then it is gone; else it is let go of."""
        for _ in range(10):
            if is_gone(self.pid):
                break
            time.sleep(0.01)
        was = is_gone(self.pid)
        self.tracer.send_signal(signal.SIGTERM)
        try:
            self.tracer.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self.tracer.kill()
            self.tracer.communicate()
        return was


class TaskKiller(Killer):
    """Kills cay-privd when its tasks, one after the other, begin their n-th call; the task dies with it, before that call."""

    ENTRY = re.compile(rf"^\d+ +({'|'.join(TASK_CALLS)})\(", re.M)

    def __init__(self, pid, n, log):
        self.pid, self.n, self.log, self.over = pid, n, log, False
        log.write_text("")
        calls = ",".join(TASK_CALLS)
        self.trace(["-f", "-qq", "-e", "signal=none", "-o", str(log), "-e", f"trace={calls}", "-e",
                    f"inject={calls}:delay_enter={TASK_CALL_MS}ms"])
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def trace(self, options):
        self.tracer = subprocess.Popen(["strace", "-p", str(self.pid), *options], stderr=subprocess.PIPE, text=True)
        until(lambda: f"TracerPid:\t{self.tracer.pid}\n" in open(f"/proc/{self.pid}/status").read(), every=0.005)

    def watch(self):
        while not self.over:
            if len(self.ENTRY.findall(self.log.read_text())) >= self.n:
                os.kill(self.pid, signal.SIGKILL)
                return
            time.sleep(0.004)

    def hit(self):
        self.over = True
        self.watcher.join()
        return super().hit()


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


def state(cay, box):
    return cay.call("GET", f"/sandboxes/{box.id}").json["state"]


def tier(cay, box):
    return cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json.get("tier")


def others(cay, box):
    listed = cay.call("GET", "/v2/sandboxes?state=running,paused&limit=100").json
    return [one["sandboxID"] for one in listed if one["sandboxID"] != box.id]


def take_away(cay, box):
    """What a point has left of forks and snapshots, as its owner would."""
    for one in others(cay, box):
        cay.call("DELETE", f"/sandboxes/{one}")
    for one in all_ids(cay):
        delete(cay, one)


# -- the changes ---------------------------------------------------------------------------------------


class Frozen:
    """A pause or resume with the memory: a program in it counts on."""

    tier = "frozen"

    def __init__(self, wanted):
        self.wanted, self.start = wanted, "running" if wanted == "paused" else "paused"
        self.good = 204 if wanted == "paused" else 201

    def ask(self, cay, box):
        return pause(cay, box) if self.wanted == "paused" else connect(cay, box).status

    def bring(self, cay, box, wanted):
        if state(cay, box) != wanted:
            assert (pause(cay, box) if wanted == "paused" else connect(cay, box).status) in (204, 201)

    def check(self, own_server, cay, box, status):
        """What it is now, once that is so."""
        now = state(cay, box)
        assert now in ("paused", "running")
        assert is_frozen(own_server, box) == (now == "paused")
        return now


class Files(Frozen):
    """The same with the files alone."""

    tier = "files"

    def ask(self, cay, box):
        return pause_files(cay, box) if self.wanted == "paused" else connect(cay, box).status

    def bring(self, cay, box, wanted):
        if state(cay, box) != wanted:
            assert (pause_files(cay, box) if wanted == "paused" else connect(cay, box).status) in (204, 201)

    def check(self, own_server, cay, box, status):
        now = state(cay, box)
        assert len(kept_on_disk(own_server)) == (now == "paused")
        assert now == "paused" or box.read("/home/user/mark").body == MARK
        return now


class Snapshot(Frozen):
    """The source runs on; the snapshot is whole or not there."""

    def __init__(self):
        self.start, self.wanted, self.good = "running", "running", 201

    def ask(self, cay, box):
        return cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).status

    def check(self, own_server, cay, box, status):
        ids = all_ids(cay)
        assert len(kept_on_disk(own_server)) == len(ids) <= 1
        assert len(ids) == 1 or status != 201
        now = super().check(own_server, cay, box, status)
        for one in ids:
            with cay.create(template=one) as made:
                assert made.read("/home/user/mark").body == MARK
        take_away(cay, box)
        return now


class Fork(Snapshot):
    """The source runs on; what was answered runs with its files; the fork's own snapshot is gone."""

    def ask(self, cay, box):
        reply = cay.call("POST", f"/sandboxes/{box.id}/fork", {"count": 1, "timeout": 300})
        return 503 if reply.status == 201 and "error" in reply.json[0] else reply.status

    def check(self, own_server, cay, box, status):
        assert all_ids(cay) == [] and kept_on_disk(own_server) == []
        made = others(cay, box)
        assert len(made) == 1 or status != 201
        for one in made:
            assert type(box)(cay, cay.call("POST", f"/sandboxes/{one}/connect", {"timeout": 300}).json).read("/home/user/mark").body == MARK
        now = Frozen.check(self, own_server, cay, box, status)
        take_away(cay, box)
        return now


class Rollback(Files):
    """It has the snapshot's files, or its own, running or kept; nothing else is kept."""

    def __init__(self):
        self.start, self.wanted, self.good = "running", "running", 200

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        take_away(cay, box)
        box.write("/home/user/now", b"then")
        assert cay.call("POST", f"/sandboxes/{box.id}/snapshots", {"name": "then"}).status == 201
        box.write("/home/user/now", b"own")

    def ask(self, cay, box):
        return cay.call("POST", f"/cay/v1/sandboxes/{box.id}/rollback", {"snapshotID": "then"}).status

    def check(self, own_server, cay, box, status):
        now = state(cay, box)
        assert len(kept_on_disk(own_server)) == 1 + (now == "paused")
        if now == "paused":
            assert connect(cay, box).status == 201
        has = box.read("/home/user/now").body
        assert has == b"then" if status == self.good else has in ((b"own",) if now == "paused" else (b"own", b"then"))
        assert box.read("/home/user/mark").body == MARK
        take_away(cay, box)
        return now


class Volumes(Frozen):
    """A change of volumes beside the sandbox, which runs on. A volume is whole and told of, or not there at all."""

    def __init__(self, good):
        self.start, self.wanted, self.good = "running", "running", good

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        take_away(cay, box)
        for one in cay.call("GET", "/volumes").json:
            assert cay.call("DELETE", f"/volumes/{one['volumeID']}").status == 204

    def check(self, own_server, cay, box, status):
        names = [one["name"] for one in cay.call("GET", "/volumes").json]
        assert len(os.listdir(f"{disk(own_server)}/volumes")) == len(names) <= 1
        self.told(cay, box, status, names)
        now = super().check(own_server, cay, box, status)
        take_away(cay, box)  # the next change counts its own
        return now

    def told(self, cay, box, status, names):
        pass


class VolumeCreate(Volumes):
    def ask(self, cay, box):
        return cay.call("POST", "/volumes", {"name": "v"}).status

    def told(self, cay, box, status, names):
        assert names == ["v"] or status != self.good
        if names:  # it can be used
            with cay.create(volumeMounts=[{"name": "v", "path": "/v"}]) as made:
                assert made.run("echo x > /v/x && cat /v/x").out == "x\n"


class VolumeRemove(Volumes):
    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        assert cay.call("POST", "/volumes", {"name": "v"}).status == 201

    def ask(self, cay, box):
        return cay.call("DELETE", "/volumes/v").status

    def told(self, cay, box, status, names):
        assert names == [] or status != self.good


class VolumeMount(VolumeRemove):
    """A sandbox with it is made, or not; what another wrote to it is there either way, and it can be had again."""

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        with cay.create(volumeMounts=[{"name": "v", "path": "/v"}]) as first:
            assert first.write("/v/mark", MARK).status == 200

    def ask(self, cay, box):
        return cay.call("POST", "/v2/sandboxes", {"templateID": "host", "volumeMounts": [{"name": "v", "path": "/v"}]}).status

    def told(self, cay, box, status, names):
        made = others(cay, box)
        assert names == ["v"] and len(made) <= 1 and (made or status != self.good)
        if made:
            asked = cay.call("POST", f"/sandboxes/{made[0]}/connect", {"timeout": 300})
            assert type(box)(cay, asked.json).read("/v/mark").body == MARK
            return
        with cay.create(volumeMounts=[{"name": "v", "path": "/v"}]) as again:
            assert again.read("/v/mark").body == MARK


CHANGES = {"pause": Frozen("paused"), "resume": Frozen("running"), "files-pause": Files("paused"), "files-resume": Files("running"),
           "snapshot": Snapshot(), "fork": Fork(), "rollback": Rollback(),
           "volume-create": VolumeCreate(201), "volume-remove": VolumeRemove(204), "volume-mount": VolumeMount(201)}


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
            self.server, self.kills = OwnServer(), 0
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
        # What is made ahead follows what is asked for, and may be less, or one more; else there is nothing that was not there.
        now = leftovers.settled(self.server)
        assert leftovers._rows(self.server) == 0
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


@pytest.mark.skipif(not ALL, reason="`make pause-crashes`")
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("daemon", ["cayd", "cay-privd", "tasks"])
def test_it_is_paused_or_runs_wherever_it_is_stopped(daemon, what, place):
    hits, tried = {}, 0
    for call in kinds(daemon):
        for n in range(1, POINTS_MAX):
            tried += 1
            if not one(place, daemon, what, call, n):
                break
            hits[call] = hits.get(call, 0) + 1
        assert n < POINTS_MAX - 1, f"{call} does not come to an end"
    place.close()
    print(f"{daemon}, {what}: killed at {sum(hits.values())} of {tried} points: {hits}")
    if daemon != "tasks":
        assert hits.get("sendmsg") and hits.get("pwrite64")
    elif what not in ("pause", "resume"):
        assert hits.get("layers")


def test_some_points(place):
    """Four, each of another change."""
    assert shutil.which("strace"), "strace is not installed: scripts/deps test"
    draw = random.Random(SEED)
    print(f"CAY_CRASH_SEED={SEED}")
    for what in draw.sample(list(CHANGES), 4):
        daemon = draw.choice(("cayd", "cay-privd", "tasks"))
        one(place, daemon, what, draw.choice(kinds(daemon)), draw.randrange(1, 5))
    place.close()
