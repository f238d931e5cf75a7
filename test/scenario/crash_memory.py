"""Changes of test_crash_matrix.py that keep the memory on the disk, and that take it from there: a program goes on, or is kept with
the image, or, where it was lost as docs/pause.md says, its files are kept and it is told why."""

import json

from crash_changes import Beside, Frozen, others, state, take_away
from test_pause import connect
from test_pause_files import kept_on_disk
from waitlib import until

# With whom CRIU dies in the middle of a dump, or what opened the image of a resume.
LOSES = ("cay-privd", "tasks", "cay-keep", "faults", "cay-checkpoint", "criu", "script")
PLACE = "/home/user/memory-counter"
COUNTER = f"n=0; : >{PLACE}.n; while :; do n=$((n+1)); echo $n >>{PLACE}.n; sleep 0.02; done\n"


def detail(cay, box):
    return cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json


def pause(cay, box):
    return cay.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {"tier": "memory"}).status


def counted(box):
    return [int(line) for line in box.read(f"{PLACE}.n").body.split()]


def runs(box):
    """The counter, which no boot starts."""
    return box.run("pgrep -f '[m]emory-counter'").exit_code == 0


def goes_on(box):
    """It has lost no step."""
    assert runs(box)
    last = len(counted(box))
    until(lambda: len(counted(box)) > last, what="the counter goes on")
    numbers = counted(box)
    assert numbers == list(range(1, len(numbers) + 1))


class Memory(Frozen):
    tier = "memory"
    boots = True  # it has another boot id afterwards
    resumes = False  # after what the answer tells of

    def __init__(self, wanted):
        super().__init__(wanted)
        self.good = 200 if wanted == "paused" else 201
        self.answered = None  # of a pause, what it was answered with success
        self.lost = 0  # how often its files alone were kept

    def ask(self, cay, box):
        self.answered = None
        if self.wanted != "paused":
            return connect(cay, box).status
        status = pause(cay, box)
        self.answered = cay.last.json if status == self.good else None
        return status

    def answer_tells(self, told):
        """That the files alone are kept, and why."""
        return self.answered and (self.answered["tier"], self.answered["memoryError"]) == ("files", told["memoryError"])

    def bring(self, cay, box, wanted):
        if state(cay, box) == "paused":
            if wanted == "paused" and detail(cay, box)["tier"] == "memory":
                return
            self.wake(cay, box)
        if not runs(box):
            box.write(PLACE, COUNTER.encode())
            assert box.run(f"setsid sh {PLACE} >/dev/null 2>&1 </dev/null &").exit_code == 0
            until(lambda: counted(box), what="the counter runs", patient=True)
        if wanted == "paused":
            assert pause(cay, box) == 200

    def wake(self, cay, box):
        """The memory that an earlier point has kept is there; or it was lost in a resume that failed, which the refusal says."""
        had = detail(cay, box)["tier"]
        reply = connect(cay, box)
        if reply.status == 503 and self.killed == "faults" and b"not there any more" in reply.body:
            had, self.lost = "files", self.lost + 1
            reply = cay.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 300, "memory": False})
        assert reply.status == 201, reply.body
        if had == "memory":
            goes_on(box)

    def may_boot(self, status, told):
        return False

    def check(self, own_server, cay, box, status):
        now = state(cay, box)
        assert now in ("paused", "running")
        assert len(kept_on_disk(own_server)) == (now == "paused")
        told = detail(cay, box)
        if now == "running":
            if runs(box) or not self.may_boot(status, told):
                goes_on(box)
            return now
        if told["tier"] == "files":
            # Of a call that fails the answer tells it; of a kill there is none.
            assert told["memoryError"] and self.killed in LOSES and (
                status != self.good or self.killed == "faults" or self.resumes or self.answer_tells(told)), told
            self.lost += 1
        else:
            assert told["tier"] == "memory", told
        return now


class Fork(Memory):
    """A fork with memory, of one that runs or is paused with its memory: a fork goes on as its source does. A source that cannot
    be resumed is paused with its memory; one whose memory was lost in the pause boots on its files, and is told so."""

    def __init__(self, wanted):
        super().__init__(wanted)
        self.start, self.good = wanted, 201

    resumes = True

    def came_true(self, now):
        return now in ("paused", self.wanted)

    def may_boot(self, status, told):
        return told["memoryError"] and self.killed in LOSES and status != self.good

    def ask(self, cay, box):
        reply = cay.call("POST", f"/sandboxes/{box.id}/fork", {"count": 1, "timeout": 300, "memory": True})
        return 503 if reply.status == 201 and "error" in reply.json[0] else reply.status

    def check(self, own_server, cay, box, status):
        made = others(cay, box)
        assert len(made) <= 1 and (made or status != self.good)
        for one in made:
            goes_on(type(box)(cay, cay.call("POST", f"/sandboxes/{one}/connect", {"timeout": 300}).json))
        now = super().check(own_server, cay, box, status)
        take_away(cay, box)
        return now


class TemplateMemory(Beside):
    """A snapshot is given the memory of its start command's program, beside the sandbox, which runs on: it has it whole, or none, and is good
    either way. Of the sandbox that the memory is made in nothing is left."""

    NAME, COMMAND = "crash-memory", "exec bash -c 'exec -a template-memory sleep 100000'"

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        with cay.create() as made:
            assert made.run("mkdir -p /etc/cay", user="root").exit_code == 0
            assert made.write("/etc/cay/start.json", json.dumps({"cmd": self.COMMAND}).encode(), user="root").status == 200
            assert cay.call("POST", f"/sandboxes/{made.id}/snapshots", {"name": self.NAME}).status == 201

    def ask(self, cay, box):
        return cay.call("POST", f"/cay/v1/snapshots/{self.NAME}/memory", {}).status

    def check(self, own_server, cay, box, status):
        until(lambda: others(cay, box) == [], 60, "the sandbox of the memory has ended")
        found = [one for one in cay.call("GET", "/snapshots").json if self.NAME in str(one)]
        if found:  # else an earlier look has seen that all is well, and taken it away
            (snapshot,) = found
            assert snapshot["memory"] or status != self.good
            until(lambda: len(kept_on_disk(own_server)) == 1 + snapshot["memory"], 60, "nothing is kept beside")
            with cay.create(template=self.NAME) as made:
                assert made.run("pgrep -f '[t]emplate-memory'").exit_code == 0
                assert detail(cay, made).get("memoryError", "") == ""
            take_away(cay, box)
        return super().check(own_server, cay, box, status)


CHANGES = {"memory-pause": Memory("paused"), "memory-resume": Memory("running")}
TEMPLATES = {"template-memory": TemplateMemory(200)}
FORKS = {"memory-fork": Fork("running"), "memory-create": Fork("paused")}
NEEDS_CRIU = (Memory, TemplateMemory)
