"""The changes of test_crash_matrix.py: how each is asked for, and what has to be so afterwards, wherever a program of cay was
killed meanwhile. A new change is a class and a line of CHANGES.

start, wanted: the sandbox's state before, and when the change was answered with the status `good`. bring() makes what the change
needs, ask() asks for it and gives the status, check() asserts what is there, removes it, and gives the sandbox's state."""

import os
import pathlib
import subprocess

from crash_points import is_gone
from test_pause import connect, pause
from test_pause_files import disk, kept_on_disk, pause_files
from test_snapshot import all_ids, delete
from waitlib import until

MARK = b"what was written before\n"
MIB = 1 << 20


def is_frozen(own_server, box):
    """The state as the kernel has it."""
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
    """Removes the forks and snapshots that a point has left, as its owner would."""
    for one in others(cay, box):
        cay.call("DELETE", f"/sandboxes/{one}")
    for one in all_ids(cay):
        delete(cay, one)


# -- the changes ---------------------------------------------------------------------------------------


class Frozen:
    """A pause or resume with the memory: a program in it counts on."""

    tier = "frozen"
    boots = False  # whether it may boot, so that its programs end
    goes_on_s = 0  # what tasks do after the answer
    server, killed = None, None  # of the point that is being tried: the server, and which of its programs

    def __init__(self, wanted):
        self.wanted, self.start = wanted, "running" if wanted == "paused" else "paused"
        self.good = 204 if wanted == "paused" else 201

    def ask(self, cay, box):
        return pause(cay, box) if self.wanted == "paused" else connect(cay, box).status

    def bring(self, cay, box, wanted):
        if state(cay, box) == wanted:
            return
        if wanted == "paused":
            assert pause(cay, box) == 204
        else:
            reply = connect(cay, box)
            assert reply.status == 201, reply.body

    def came_true(self, now):
        """Whether an answer of success was true, by the state that it has."""
        return now == self.wanted

    def check(self, own_server, cay, box, status):
        """The state that it has now, once that is so."""
        now = state(cay, box)
        assert now in ("paused", "running")
        assert is_frozen(own_server, box) == (now == "paused")
        return now


class Files(Frozen):
    """The same with the files alone."""

    tier = "files"
    boots = True

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
    """The source runs on; answered forks run with their files; the fork's own snapshot is gone."""

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


class Beside(Frozen):
    """A change that leaves the sandbox running, whose success is the status `good`."""

    def __init__(self, good):
        self.start, self.wanted, self.good = "running", "running", good

    def bring(self, cay, box, wanted):
        """Without what an earlier point has left."""
        super().bring(cay, box, wanted)
        take_away(cay, box)


class Rollback(Beside, Files):
    """It has the snapshot's files, or its own, running or kept; nothing else is kept."""

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
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


def wait_for_members(cay):
    """A privd that was started anew is told what is asked for. All of them: none is being made then."""
    assert cay.create().kill().status == 204
    until(lambda: (rows := cay.call("GET", "/cay/v1/status").json["pool"]) and all(row["ready"] == row["target"] > 0 for row in rows),
          what="the members of the pool")


class GivenToMember:
    """The same, with a member of the pool that is given the files: after a kill of cay-privd there is none but by this."""

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        wait_for_members(cay)


class MemberFiles(GivenToMember, Files):
    pass


class MemberFork(GivenToMember, Fork):
    pass


class MemberRollback(GivenToMember, Rollback):
    pass


class Volumes(Beside):
    """A change of volumes beside the sandbox. A volume is whole and told of, or not there at all."""

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
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


class VolumeWrite(VolumeRemove):
    """A file without a sandbox: what serves it is made, and ends. The volume is whole, and can be had by a sandbox at once."""

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        (self.volume,) = cay.call("GET", "/volumes").json
        self.token = cay.call("GET", f"/volumes/{self.volume['volumeID']}").json["token"]

    def file(self, cay, method, body=None):
        return cay.call(method, f"/volumecontent/{self.volume['volumeID']}/file?path=/mark", body,
                        {"Authorization": f"Bearer {self.token}", "Content-Type": "application/octet-stream"}, key=False)

    def ask(self, cay, box):
        return self.file(cay, "PUT", MARK).status

    def told(self, cay, box, status, names):
        assert names == ["v"] and others(cay, box) == []
        reply = self.file(cay, "GET")
        assert reply.status == 200 or (reply.status == 404 and status != self.good), reply.body
        assert reply.status == 404 or reply.body == MARK or (status != self.good and MARK.startswith(reply.body))
        with cay.create(volumeMounts=[{"name": "v", "path": "/v"}]) as made:
            assert made.read("/v/mark").status == reply.status


class Claim(Beside):
    """A create that has a member of the pool: one that was answered runs, and one that was not is whole or not there."""

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        wait_for_members(cay)

    def ask(self, cay, box):
        return cay.call("POST", "/v2/sandboxes", {"templateID": "host", "timeout": 300, "envVars": {"WHO": "claim"}}).status

    def check(self, own_server, cay, box, status):
        made = others(cay, box)
        assert len(made) <= 1 and (made or status != self.good)
        for one in made:
            asked = cay.call("POST", f"/sandboxes/{one}/connect", {"timeout": 300})
            assert type(box)(cay, asked.json).run("echo $WHO $(hostname)").out == f"claim {one}\n"
        now = super().check(own_server, cay, box, status)
        take_away(cay, box)
        return now


class Kill(Beside):
    """Another sandbox is ended, which runs, is frozen, or is kept as files: it is as before, or gone with all that it had."""

    goes_on_s = 1

    def __init__(self, victim, good=204):
        super().__init__(good)
        self.victim = victim

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        self.other = cay.create()
        assert self.other.write("/home/user/mark", MARK).status == 200
        if self.victim != "running":
            assert (pause if self.victim == "frozen" else pause_files)(cay, self.other) == 204

    def ask(self, cay, box):
        return self.other.kill().status

    def check(self, own_server, cay, box, status):
        left = others(cay, box)
        assert left in ([], [self.other.id]) and (left == [] or status != self.good)
        assert len(kept_on_disk(own_server)) == (len(left) if self.victim == "files" else 0)
        if left:
            assert (tier(cay, self.other) or "running") == self.victim
            if self.victim != "running":
                assert connect(cay, self.other).status == 201
            assert self.other.read("/home/user/mark").body == MARK
        now = super().check(own_server, cay, box, status)
        take_away(cay, box)
        return now


class Resize(Frozen):
    """Less or more memory, in turn: it has the old or the new, as the kernel has it and as it is told."""

    SIZES = (211 * MIB, 223 * MIB)

    def __init__(self, start):
        self.start, self.wanted, self.good = start, start, 200

    def now(self, cay, box):
        return cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json["memoryBytes"]

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        self.to = self.SIZES[self.now(cay, box) == self.SIZES[0]]

    def ask(self, cay, box):
        """409: that of an earlier point is being brought to an end."""
        return until(lambda: (s := cay.call("POST", f"/cay/v1/sandboxes/{box.id}/resize", {"memoryBytes": self.to}).status) != 409 and s)

    def in_kernel(self, own_server):
        """Which of both some sandbox has."""
        root = pathlib.Path("/sys/fs/cgroup")
        found = [file.read_text().strip() for pattern in (f"memory/{own_server.cgroup}/*/work/memory.limit_in_bytes",
                                                          f"{own_server.cgroup}/*/work/memory.max") for file in root.glob(pattern)]
        return [size for size in self.SIZES if str(size) in found]

    def check(self, own_server, cay, box, status):
        told = self.now(cay, box)
        assert told == self.to or status != self.good
        assert self.in_kernel(own_server) == ([told] if told in self.SIZES else [])
        return super().check(own_server, cay, box, status)


class Build(Beside):
    """A template of two steps: it is there with what they made, or its build failed and there is nothing of it."""

    NAME = "crash-matrix"
    STEPS = ({"type": "RUN", "args": ["echo one > /srv/one", "root"]}, {"type": "RUN", "args": ["cat /srv/one > /srv/two", "root"]})

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        made = cay.call("POST", "/v3/templates", {"name": self.NAME})
        assert made.status == 202, made.body
        self.template, self.build = made.json["templateID"], made.json["buildID"]

    def state(self, cay):
        reply = cay.call("GET", f"/templates/{self.template}/builds/{self.build}/status")
        assert reply.status == 200, reply.body
        return reply.json["status"]

    def ask(self, cay, box):
        """Its end is part of the change, unless cay-keep was killed: it is not started again before that."""
        status = cay.call("POST", f"/v2/templates/{self.template}/builds/{self.build}", {"fromTemplate": "host", "steps": self.STEPS}).status
        if status != self.good:
            return status
        keep = self.server.keep_pid
        ended = until(lambda: is_gone(keep) or (s := self.state(cay)) in ("ready", "error") and s, 60, "the build ends", patient=True, every=0.3)
        return self.good if ended == "ready" else 503

    def settle(self, cay, box, status):
        """The result that the build has left is right, and goes."""
        ended = until(lambda: (s := self.state(cay)) != "building" and s, 60, "the build ends")
        assert ended == "ready" or status != self.good
        reply = cay.call("POST", "/v2/sandboxes", {"templateID": self.NAME, "timeout": 300})
        assert reply.status == (201 if ended == "ready" else 404), reply.body
        if reply.status == 201:
            assert type(box)(cay, reply.json).run("cat /srv/two").out == "one\n"
        take_away(cay, box)
        assert cay.call("DELETE", f"/templates/{self.template}").status == 204
        self.template = None

    def check(self, own_server, cay, box, status):
        if self.template:
            self.settle(cay, box, status)
        assert kept_on_disk(own_server) == []
        return super().check(own_server, cay, box, status)


CHANGES = {"claim": Claim(201), "kill": Kill("running"), "kill-frozen": Kill("frozen"), "kill-files": Kill("files"),
           "pause": Frozen("paused"), "resume": Frozen("running"), "files-pause": Files("paused"), "files-resume": Files("running"),
           "snapshot": Snapshot(), "fork": Fork(), "rollback": Rollback(200),
           "member-resume": MemberFiles("running"), "member-fork": MemberFork(), "member-rollback": MemberRollback(200),
           "resize": Resize("running"), "resize-frozen": Resize("paused"),
           "volume-create": VolumeCreate(201), "volume-remove": VolumeRemove(204), "volume-mount": VolumeMount(201),
           "volume-write": VolumeWrite(201), "build": Build(202)}
