"""The n-th call of cay-privd, or of each of its tasks, fails during a change of crash_changes.py, crash_memory.py or crash_archive.py,
as it does where the disk is broken or full (EIO, ENOSPC), a table of the kernel is full, or memory is short (EMFILE, ENOMEM): for
every n. The answer is true, the sandbox is as before or as was asked, or has ended with a reason that is told; its programs have
lost nothing, nothing is left, and cay-privd lives on.

`make crash-matrix` has all of it; `make test` one kind of call in one change, another each day (CAY_CRASH_SEED=N has that of day N).
Takes strace."""

import collections
import itertools
import shutil

import crash_archive
import crash_changes
import crash_memory
import pytest
from crash_changes import tier
from crash_points import Counted, Fault
from test_crash_matrix import ALL, SEED, Place, has_criu, needs_criu
from test_recovery import daemons, wait_ready
from waitlib import until

FILES = ("claim", "volume-mount", "kill", "pause", "files-pause", "files-resume", "snapshot")
CHANGES = {**{what: crash_changes.CHANGES[what] for what in FILES}, **crash_memory.CHANGES, **crash_memory.FORKS, **crash_archive.CHANGES}
# Of each call the errors that it may have.
TABLES = ("EMFILE", "ENOMEM")
DISK = ("EIO", "ENOSPC")
CALLS = {**{call: TABLES for call in ("clone", "clone3", "socketpair", "pipe2", "memfd_create", "fcntl", "epoll_ctl", "mmap", "fsopen",
                                      "fsmount", "open_tree", "move_mount", "mount_setattr", "timerfd_settime")},
         **{call: DISK for call in ("write", "pwrite64", "read", "ioctl", "renameat2", "unlinkat", "mkdirat", "fdatasync", "syncfs",
                                    "fchown", "sendfile")},
         "openat": (*TABLES, *DISK), "openat2": (*TABLES, *DISK), "sendmsg": ("ENOMEM",)}
# Of those of cay-privd, what `make test` has.
OFTEN = [(what, call, error) for what in ("pause", "files-pause", "files-resume", "memory-pause", "memory-resume")
         for call, error in (("pwrite64", "EIO"), ("openat", "EIO"))]
POINTS_MAX = 200
REFUSED = (429, 500, 501, 502, 503, 504, 507)


@pytest.fixture()
def place():
    place = Place()
    yield place
    place.stop()


def prepared(place, what):
    """The sandbox is as it is before the change; the program."""
    cay, own_server, box = place.ready()
    change = CHANGES[what]
    change.server, change.killed = own_server, "faults"
    place.boots |= change.boots
    if tier(cay, box) not in (None, "", change.tier):
        change.bring(cay, box, "running")
    change.bring(cay, box, change.start)
    return until(lambda: daemons(own_server, "cay-privd"))


def made(place, what, who):
    """How many of each call it makes when none fails: the most of a process, in two times."""
    most = collections.Counter()
    for _ in range(2):
        privd = prepared(place, what)
        cay, own_server, box = place.ready()
        counted = Counted(privd[0], CALLS, own_server.base / "calls", who == "tasks")
        try:
            status = CHANGES[what].ask(cay, box)
        finally:
            most |= counted.most()
        assert status == CHANGES[what].good
        until(lambda: CHANGES[what].check(own_server, cay, box, status), what=f"{what} without a fault", patient=True)
    return most


def one(place, what, who, call, error, n):
    """Whether that call was made, so that it failed."""
    privd = prepared(place, what)
    cay, own_server, box = place.ready()
    change = CHANGES[what]
    fault = Fault(privd[0], call, n, error, own_server.base / "calls", who == "tasks")
    try:
        status = change.ask(cay, box)
    finally:
        hit = fault.hit()
    where = f"{call} number {n} of {who} failed with {error} in {what}, which was answered {status}"
    assert status == change.good or status in REFUSED, where
    until(lambda: cay.call("GET", f"/sandboxes/{box.id}").status == 200, what=f"it is served: {where}", patient=True)
    wait_ready(cay)
    now = until(lambda: change.check(own_server, cay, box, status), what=where, patient=True)
    assert status != change.good or change.came_true(now), where
    # The kernel lets the removal of a watch fail for a mistake alone: for that cay-privd ends, and takes over when it starts again.
    ended = daemons(own_server, "cay-privd") != privd
    assert call == "epoll_ctl" or not ended, where
    place.kills += ended
    return hit


def all_of(place, what, who, call, error):
    n = next(n for n in itertools.count(1) if not one(place, what, who, call, error, n) or n == POINTS_MAX)
    assert n < POINTS_MAX, f"{call} of {who} in {what} does not come to an end"
    return n - 1


@pytest.mark.skipif(not ALL, reason="`make crash-matrix`")
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("who", ["cay-privd", "tasks"])
def test_every_call(place, what, who):
    needs_criu(what)
    there = made(place, what, who)
    failed = sum(all_of(place, what, who, call, error) for call, errors in CALLS.items() if there[call] for error in errors)
    place.close()
    print(f"{what}: {failed} calls of {who} failed", flush=True)
    assert failed


def test_some_calls(place):
    assert shutil.which("strace"), "strace is not installed: scripts/deps test"
    print(f"CAY_CRASH_SEED={SEED}")
    what, call, error = OFTEN[SEED % len(OFTEN)]
    needs_criu(what)
    print(f"cay-privd, {what}, {call}, {error}: {all_of(place, what, 'cay-privd', call, error)} points", flush=True)
    place.close()
