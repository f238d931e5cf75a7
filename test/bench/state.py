"""Pauses, snapshots, forks, rollback, and requests that wake: by the API, over one kept connection. Each stands beside a floor of
the same rounds: a plain create, a call that does nothing, or a snapshot of a subvolume by one ioctl."""

import contextlib
import fcntl
import http.client
import json
import os
import statistics
import struct
import threading
import time

FILES, FILE_BYTES = 100, 4096  # in each sandbox that is snapshot, forked and rolled back
FORKS = (1, 10, 100)
FORK_GOALS = {1: {"most_value": 5.0}, 100: {"most_value": 300.0}}
MEMBERS, MEMBERS_S = 112, 60  # for a fork of 100 and its source; the longest that they may take
SETTLE_S = 0.2  # removals of before have ended
WINDOW_S, BEFORE_S = 0.4, 0.15  # a program of the source looks at the clock so long; the snapshot begins then
SUBVOL_CREATE, SNAP_CREATE, SNAP_DESTROY = 0x5000940E, 0x50009401, 0x5000940F  # linux/btrfs.h: struct btrfs_ioctl_vol_args
AGENT_PORT = "49983"
# The largest gap between two looks at the clock, in ms.
GAP = (f"import time\nend = time.monotonic() + {WINDOW_S}\nlast, gap = time.monotonic(), 0\nwhile last < end:\n time.sleep(0.0002)\n"
       " now = time.monotonic()\n gap, last = max(gap, now - last), now\nprint(1000 * gap)")


class Api:
    def __init__(self, own):
        self.port, self.key = own.port, own.key
        self.connection = http.client.HTTPConnection("127.0.0.1", own.port, timeout=120)

    def send(self, method, path, body=None, headers=None):
        """(ms, status, data)"""
        sent = headers or {"X-API-Key": self.key, "Content-Type": "application/json"}
        begun = time.perf_counter()
        self.connection.request(method, path, json.dumps(body) if body is not None else None, sent)
        reply = self.connection.getresponse()
        data = reply.read()
        return 1000 * (time.perf_counter() - begun), reply.status, data

    def call(self, method, path, body=None, headers=None):
        """(ms, what it answered); an error ends the bench."""
        ms, status, data = self.send(method, path, body, headers)
        if status >= 300:
            raise SystemExit(f"bench: {method} {path}: {status} {data[:300]}")
        return ms, json.loads(data) if data[:1] in (b"{", b"[") else None

    def create(self, template="host", **more):
        return self.call("POST", "/v2/sandboxes", {"templateID": template, "timeout": 3600, **more})

    def kill(self, one):
        self.call("DELETE", f"/sandboxes/{one}")

    def run(self, one, *words):
        _, done = self.call("POST", f"/cay/v1/sandboxes/{one}/exec", {"command": list(words)})
        return done["stdout"]


def until_ready(own, members):
    """Until so many sandboxes stand that are started ahead."""
    end = time.monotonic() + MEMBERS_S
    while sum(pool["ready"] for pool in own.get("/cay/v1/status")["pool"]) < members:
        if time.monotonic() > end:
            raise SystemExit(f"bench: fewer than {members} sandboxes are started ahead after {MEMBERS_S} s")
        time.sleep(0.05)


def agent(made):
    """Headers of a request for its agent."""
    return {"E2b-Sandbox-Id": made["sandboxID"], "E2b-Sandbox-Port": AGENT_PORT, "X-Access-Token": made["envdAccessToken"]}


class Floor:
    """A subvolume with the same files on the state disk, and what one call of the kernel takes with it."""

    def __init__(self, disk):
        self.disk = os.open(disk, os.O_RDONLY)
        self.name = f"bench-{os.getpid()}"
        self.ioctl(SUBVOL_CREATE, self.name)
        self.source = os.open(self.name, os.O_RDONLY, dir_fd=self.disk)
        for i in range(FILES):
            fd = os.open(f"{i}", os.O_WRONLY | os.O_CREAT, dir_fd=self.source)
            os.write(fd, os.urandom(FILE_BYTES))
            os.close(fd)

    def ioctl(self, request, name, fd=0):
        fcntl.ioctl(self.disk, request, bytearray(struct.pack("=q4088s", fd, name.encode())))

    def snapshots(self, count):
        """ms of so many, together."""
        names = [f"{self.name}-{i}" for i in range(count)]
        begun = time.perf_counter()
        for name in names:
            self.ioctl(SNAP_CREATE, name, self.source)
        ms = 1000 * (time.perf_counter() - begun)
        for name in names:
            self.ioctl(SNAP_DESTROY, name)
        return ms

    def close(self):
        os.close(self.source)
        self.ioctl(SNAP_DESTROY, self.name)
        os.close(self.disk)


def p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


class State:
    def __init__(self, own, out, count):
        self.api, self.out, self.count, self.own = Api(own), out, count, own
        self.times = {}

    def note(self, name, ms):
        self.times.setdefault(name, []).append(ms)

    def row(self, name, text, against, other, of=None, **goals):
        ours = self.times[of or name]
        self.out.row(name, text, "ms", statistics.median(ours), against, statistics.median(self.times[other]),
                     note=f"p99 {p99(ours):.1f} ms, of the other {p99(self.times[other]):.1f} ms", **goals)

    # -- pauses ----------------------------------------------------------------------------------

    def pauses(self, on_disk):
        """A call that only looks the sandbox up is the floor of freeze and thaw; a request to one that runs, of the others."""
        _, made = self.api.create(autoResume={"enabled": True})
        one, ask = made["sandboxID"], ("GET", "/files?path=/etc/hostname", None, agent(made))
        for _ in range(self.count):
            self.note("look", self.api.call("GET", f"/sandboxes/{one}")[0])
            self.note("asked", self.api.call(*ask)[0])
            self.note("freeze", self.api.call("POST", f"/sandboxes/{one}/pause", {})[0])
            self.note("thaw", self.api.call("POST", f"/sandboxes/{one}/connect", {"timeout": 3600})[0])
            self.api.call("POST", f"/sandboxes/{one}/pause", {})
            self.note("wake_frozen", self.api.call(*ask)[0])
            if on_disk:
                self.pause_files(one, ask)
        self.api.kill(one)
        lookup, served = "GET of a sandbox, which does nothing", "the same of one that runs"
        self.row("freeze", "pause, frozen", lookup, "look")
        self.row("thaw", "resume of a frozen one", lookup, "look", most_value=1.0)
        self.row("wake_frozen", "request to a frozen one until its answer", served, "asked")
        if on_disk:
            self.row("pause_files", "pause with the files alone", "a plain create", "create")
            self.row("wake_files", "resume on its files, and a request until its answer", "a plain create", "create")

    def pause_files(self, one, ask):
        self.note("pause_files", self.api.call("POST", f"/sandboxes/{one}/pause", {"memory": False})[0])
        resumed, _ = self.api.call("POST", f"/sandboxes/{one}/connect", {"timeout": 3600})
        self.note("wake_files", resumed + self.api.call(*ask)[0])
        ms, other = self.api.create()
        self.note("create", ms)
        self.api.kill(other["sandboxID"])

    # -- snapshots -------------------------------------------------------------------------------

    def source(self):
        _, made = self.api.create()
        self.api.run(made["sandboxID"], "sh", "-c", f"cd /home/user && for i in $(seq {FILES}); do head -c {FILE_BYTES} /dev/urandom >f$i; done")
        return made["sandboxID"]

    def gap(self, one, while_it_runs):
        """ms for which a program of the sandbox did not run, at most, while that is done."""
        found = []
        other = Api(self.own)
        thread = threading.Thread(target=lambda: found.append(float(other.run(one, "python3", "-c", GAP))))
        thread.start()
        time.sleep(BEFORE_S)
        while_it_runs()
        thread.join()
        other.connection.close()
        return found[0]

    def snapshots(self, floor):
        one = self.source()
        for _ in range(self.count):
            self.note("by_hand", floor.snapshots(1))
            ms, kept = self.api.call("POST", f"/sandboxes/{one}/snapshots", {})
            self.note("snapshot", ms)
            ms, other = self.api.create(kept["snapshotID"])
            self.note("from_snapshot", ms)
            self.api.kill(other["sandboxID"])
            ms, other = self.api.create()
            self.note("plain", ms)
            self.api.kill(other["sandboxID"])
            self.note("rollback", self.api.call("POST", f"/cay/v1/sandboxes/{one}/rollback", {"snapshotID": kept["snapshotID"]})[0])
            self.api.call("DELETE", f"/templates/{kept['snapshotID']}")
        for _ in range(max(2, self.count // 5)):
            made = []
            self.note("runs_on", self.gap(one, lambda: None))
            self.note("stops", self.gap(one, lambda: made.append(self.api.call("POST", f"/sandboxes/{one}/snapshots", {})[1])))
            self.api.call("DELETE", f"/templates/{made[0]['snapshotID']}")
        self.api.kill(one)
        hand, plain = "one snapshot of a subvolume by hand", "a plain create"
        self.row("snapshot", f"snapshot of a running one with {FILES} files", hand, "by_hand")
        self.row("stops", "a snapshot's source: the longest that a program did not run", "the same without a snapshot", "runs_on", most_value=10.0)
        self.row("from_snapshot", "new sandbox from a snapshot", plain, "plain")
        self.row("rollback", "rollback", plain, "plain")

    # -- forks -----------------------------------------------------------------------------------

    def fork(self, one, n, floor):
        """The removals of either side go on in the kernel for a while: neither is measured beside those of the other."""
        time.sleep(SETTLE_S)
        self.note(f"by_hand_{n}", floor.snapshots(n))
        time.sleep(SETTLE_S)
        ms, made = self.api.call("POST", f"/sandboxes/{one}/fork", {"count": n, "timeout": 600})
        good = [fork["sandbox"]["sandboxID"] for fork in made if fork.get("sandbox")]
        if len(good) != n:
            raise SystemExit(f"bench: {len(good)} of {n} forks: {made[-1]}")
        self.note(f"fork_{n}", ms)
        for fork in good:
            self.api.kill(fork)

    def forks(self, floor):
        one = self.source()
        for n in FORKS:
            for _ in range(max(3, self.count // max(n, 5))):
                self.fork(one, n, floor)
        self.api.kill(one)
        for n in FORKS:
            self.row(f"fork_{n}", f"fork of {n} with files, all together", f"{n} snapshots of a subvolume by hand", f"by_hand_{n}", **FORK_GOALS.get(n, {}))

    def forks_of_members(self, floor):
        """On a server that starts so many ahead as there are forks, each of which is given one."""
        one = self.source()
        until_ready(self.own, MEMBERS)
        for n in (1, 100):
            for _ in range(max(5, self.count // max(n, 5))):
                self.fork(one, n, floor)
                until_ready(self.own, MEMBERS)
            self.row(f"fork_{n}_members", f"fork of {n} with files, all together, where {MEMBERS} sandboxes are started ahead",
                     f"{n} snapshots of a subvolume by hand", f"by_hand_{n}", of=f"fork_{n}", **FORK_GOALS[n])


ON_DISK = {"pause_files": "pause with the files alone", "wake_files": "resume on its files, and a request until its answer",
           "snapshot": "snapshot", "stops": "a snapshot's source", "from_snapshot": "new sandbox from a snapshot", "rollback": "rollback",
           **{f"fork_{n}": f"fork of {n}" for n in FORKS}, **{f"fork_{n}_members": f"fork of {n}, of members" for n in (1, 100)}}


def measure(own, out, count):
    state, disk = State(own, out, count), own.state_disk()
    state.pauses(disk is not None)
    if not disk:
        for name, text in ON_DISK.items():
            out.absent(name, text, "ms", "files are in memory here: nothing is kept without its sandbox")
        return
    with contextlib.closing(Floor(disk)) as floor:
        state.snapshots(floor)
        state.forks(floor)


def measure_members(own, out, count):
    state, disk = State(own, out, count), own.state_disk()
    if disk:
        with contextlib.closing(Floor(disk)) as floor:
            state.forks_of_members(floor)
