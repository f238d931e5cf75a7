"""Changes of test_crash_matrix.py that two clients ask for at once, of one sandbox, beside the one that the others are of: it is as before, as
one of them asked, or as one after the other would have it; what each was told is so, and nothing else of it is there."""

import http.client
import threading

from client import Client
from crash_changes import MARK, Beside, others, take_away, tier
from test_pause import connect, pause
from test_pause_files import kept_on_disk, pause_files
from test_snapshot import all_ids
from waitlib import until

# None: its connection broke. 404: the other one has ended it. 409, 429: the other one is under way, or was first.
FAILED = (None, 404, 409, 429, 500, 502, 503, 504)
SLEEPER = "sleep 100000 >/dev/null 2>&1 & echo $!"


def at_once(cay, *calls):
    """The answers to all, each called by a client of its own."""
    answers, start = [None] * len(calls), threading.Barrier(len(calls))

    def one(i):
        own = Client(cay.url, cay.key)
        start.wait()
        try:
            answers[i] = calls[i](own)
        except (OSError, http.client.HTTPException):
            pass

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def end(cay, box):
    return cay.call("DELETE", f"/sandboxes/{box.id}").status


def snapshot(cay, box):
    return cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).status


def fork(cay, box):
    reply = cay.call("POST", f"/sandboxes/{box.id}/fork", {"count": 1, "timeout": 300})
    return 503 if reply.status == 201 and "error" in reply.json[0] else reply.status


def resume(cay, box):
    return connect(cay, box).status


def rollback(cay, box):
    return cay.call("POST", f"/cay/v1/sandboxes/{box.id}/rollback", {"snapshotID": "then"}).status


def write(cay, box):
    """A request to the sandbox."""
    return type(box)(cay, box.made).write("/home/user/asked", MARK).status


PAUSES = {"frozen": pause, "files": pause_files}
GOOD = {pause: (204,), pause_files: (204,), end: (204,), snapshot: (201,), fork: (201,), resume: (200, 201), rollback: (200,), write: (200,)}


class Race(Beside):
    """before: running, frozen or files, as it is when both begin."""

    goes_on_s = 1

    def __init__(self, first, second, before="running"):
        super().__init__(200)  # of the sandbox beside
        self.asked, self.before = (first, second), before

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        self.other, self.looked = cay.create(), False
        assert self.other.write("/home/user/mark", MARK).status == 200
        self.pid = self.other.run(SLEEPER).out.strip()
        if rollback in self.asked:
            assert self.other.write("/home/user/now", b"then").status == 200
            assert cay.call("POST", f"/sandboxes/{self.other.id}/snapshots", {"name": "then"}).status == 201
            assert self.other.write("/home/user/now", b"own").status == 200
        if self.before != "running":
            assert PAUSES[self.before](cay, self.other) == 204

    def ask(self, cay, box):
        self.answers = at_once(cay, *(lambda own, ask=ask: ask(own, self.other) for ask in self.asked))
        for ask, answer in zip(self.asked, self.answers):
            assert answer in (*GOOD[ask], *FAILED), (ask.__name__, self.answers)
        self.done = {ask for ask, answer in zip(self.asked, self.answers) if answer in GOOD[ask]}
        return self.good

    def check(self, own_server, cay, box, status):
        if not self.looked:
            self.look(own_server, cay, box)
        self.looked = True
        take_away(cay, box)
        until(lambda: kept_on_disk(own_server) == [], what="nothing is kept of it")
        return super().check(own_server, cay, box, status)

    def look(self, own_server, cay, box):
        made, ids = others(cay, box), all_ids(cay)
        there = self.other.id in made
        now = (tier(cay, self.other) or "running") if there else None
        assert not there if end in self.done or 404 in self.answers else there or end in self.asked, self.answers
        assert now is None or now in self.may_be(), (now, self.answers)
        assert len(kept_on_disk(own_server)) == len(ids) + (now == "files"), (now, ids, self.answers)
        self.copies(cay, box, ids, [one for one in made if one != self.other.id])
        if there:
            self.goes_on(cay, now)

    def may_be(self):
        """Running, or paused in one of these tiers."""
        if resume in self.done or rollback in self.done:
            return {"running"}
        for name, ask in PAUSES.items():
            if ask in self.done:
                return {name}
        return {"running", self.before, *(name for name, ask in PAUSES.items() if ask in self.asked), *(["files"] if rollback in self.asked else [])}

    def copies(self, cay, box, ids, forks):
        """Snapshots and forks are whole, and those that were answered are there."""
        assert (fork in self.done) <= len(forks) <= (fork in self.asked), (forks, self.answers)
        named = rollback in self.asked
        assert named + (snapshot in self.done) <= len(ids) <= named + (snapshot in self.asked), (ids, self.answers)
        for one in forks:
            asked = cay.call("POST", f"/sandboxes/{one}/connect", {"timeout": 300})
            assert type(box)(cay, asked.json).read("/home/user/mark").body == MARK
        for one in ids:
            with cay.create(template=one) as whole:
                assert whole.read("/home/user/mark").body == MARK

    def goes_on(self, cay, now):
        """It has its files, and its program where nothing has ended it."""
        if now != "running":
            assert connect(cay, self.other).status in (200, 201)
        assert self.other.read("/home/user/mark").body == MARK
        if rollback not in self.asked and "files" not in (self.before, now):
            assert self.other.run(f"kill -0 {self.pid} && echo there").out == "there\n"
        if rollback in self.asked:
            self.has_files_of_either(now)

    def has_files_of_either(self, now):
        """A request's file may have gone with what was written since the snapshot."""
        has, asked = self.other.read("/home/user/now").body, self.other.read("/home/user/asked")
        assert has == b"then" if rollback in self.done else has in (b"then", b"own"), (has, self.answers)
        assert asked.status == 404 or asked.body == MARK or write not in self.done and MARK.startswith(asked.body)
        assert asked.status == 200 or has == b"then" or write not in self.done, (now, self.answers)


CHANGES = {"race-pause-kill": Race(pause, end), "race-files-pause-kill": Race(pause_files, end), "race-resumes": Race(resume, resume, "frozen"),
           "race-files-resumes": Race(resume, resume, "files"), "race-fork-kill": Race(fork, end), "race-snapshot-kill": Race(snapshot, end),
           "race-rollback-request": Race(rollback, write), "race-pause-snapshot": Race(pause, snapshot),
           "race-files-pause-snapshot": Race(pause_files, snapshot)}
