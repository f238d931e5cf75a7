"""A member of the pool gets kept files before it is claimed (src/runtime/process_files.c): copies and files that are taken. It is
then the same as after a start on those files, and has nothing of the root that it waited in; a failure leaves the files as they
were, also where cay-privd is killed meanwhile."""

import contextlib
import errno
import os
import pathlib
import re
import shutil

import pytest

from crash_points import Killer
from test_kept import (COPY, COPY_OF, CREATE, STAGE_LAYER, after_a_crash, comes_back, copy, create_body, create_copy, create_last, create_on, drop, immutable,
                       inside, keep, kept_body, killed_while_taken, kepts, marks, needs_a_disk, on_disk, pid_of, write_marks)  # noqa: F401
from test_pool import READY, fill, members, privd, ready  # noqa: F401 (the fixture)
from waitlib import until

STAGE_MOUNTS = 8
DELAYS_MS = (0, 0.5, 1, 2, 3, 5, 8)
COLD = READY + 2  # so many at once are not all members


def mounts(p, s):
    """Without numbers, and without `uuid`, which an overlay has for new layers alone."""
    lines = pathlib.Path(f"/proc/{pid_of(p, s)}/mountinfo").read_text().splitlines()
    return sorted(" ".join(line.split()[3:]).replace(",uuid=on", "") for line in lines)


def was_member(p, s, before):
    return s.slot in before and before[s.slot] == pid_of(p, s)


def kept_source(p, c, number, text="one"):
    s = c.create("isource")
    write_marks(p, s, text)
    assert keep(c, s, number).status == 0
    until(lambda: ready(c) == READY)


def layers(p):
    """{slot: generation} of the layers that there are; and the layers that members had before."""
    aside = [path.name for path in on_disk(p, "making").glob("*/*+")]
    return {int(slot): int(gen) for slot, gen in (name.split(".") for name in os.listdir(on_disk(p, "layers")))}, aside


def test_it_is_the_same_as_after_a_start_on_them(privd):  # noqa: F811
    """Mounts, files, names and processes: each mount of the old root would be one more."""
    c = privd.channel()
    fill(c)
    kept_source(privd, c, 2)
    before = members(privd)
    c.events.clear()
    claimed = create_copy(c, "iclaimed", 2)
    assert claimed.status == 0 and was_member(privd, claimed, before)
    requests = [c.send(CREATE, create_body(f"icopy{i}", 2, flags=COPY_OF)) for i in range(COLD)]
    more = [c.wait(seq) for seq in requests]
    assert [s.status for s in more] == [0] * COLD
    of_members = layers(privd)[1]
    cold = [s for s in more if f"{s.slot}.{s.gen}+" not in of_members]
    assert f"{claimed.slot}.{claimed.gen}+" in of_members and cold, "each of so many was a member's"
    assert mounts(privd, claimed) == mounts(privd, cold[0])
    look = "stat -c '%A %U:%G %N' / /* /usr/local/bin/* /root/.[a-z]* /root/* /run/* /etc/*; df -P / /usr | tail -n +2 | cut -d' ' -f1; cat /proc/1/comm"
    assert inside(privd, claimed, look) == inside(privd, cold[0], look) != ""
    assert marks(privd, claimed) == "one\none\n/nowhere\niclaimed"
    root = pathlib.Path(f"/proc/{pid_of(privd, claimed)}/root")
    assert (root / "root/mark").read_text() == "one\n"  # of PID 1 too
    assert (root / "etc/hosts").read_text().count("iclaimed") == 1


def test_its_files_are_its_own(privd):  # noqa: F811
    c = privd.channel()
    fill(c)
    kept_source(privd, c, 2)
    before = members(privd)
    first, second = create_copy(c, "ifirst", 2), create_copy(c, "isecond", 2)
    assert was_member(privd, first, before) and was_member(privd, second, before)
    write_marks(privd, first, "two")
    assert [marks(privd, s).split()[0] for s in (first, second)] == ["two", "one"]
    assert copy(c, first, 3).status == 0
    assert marks(privd, create_copy(c, "iagain", 3)).split()[0] == "two"
    assert marks(privd, create_copy(c, "ithird", 2)).split()[0] == "one"


def test_files_are_taken_and_kept_again(privd):  # noqa: F811
    c = privd.channel()
    fill(c)
    kept_source(privd, c, 2)
    for text in ("two", "three"):
        before = members(privd)
        s = create_on(c, "itaker", 2)
        assert s.status == 0 and was_member(privd, s, before) and kepts(c) == set()
        write_marks(privd, s, text)
        assert keep(c, s, 2).status == 0 and kepts(c) == {2}
        until(lambda: ready(c) == READY)
    comes_back(privd, c, "ilast", 2, "three")


def test_the_last_copy_is_had_itself(privd):  # noqa: F811
    c = privd.channel()
    fill(c)
    s = c.create("isource")
    write_marks(privd, s, "one")
    until(lambda: ready(c) == READY)
    before = members(privd)
    assert c.ask(COPY, kept_body(2, creates=1), slot=s.slot, gen=s.gen).status == 0
    last = create_last(c, "ilast", 2)
    assert last.status == 0 and was_member(privd, last, before) and os.listdir(on_disk(privd, "kept")) == []
    assert marks(privd, last).split()[0] == "one"
    assert drop(c, 2).status == 0


def test_nothing_is_left_of_either_layer(privd):  # noqa: F811
    """The one that the member waited with is beside, by a name that a start removes, until its sandbox ends."""
    c = privd.channel()
    fill(c)
    kept_source(privd, c, 2)
    s = create_on(c, "itaker", 2)
    assert layers(privd)[1] == [f"{s.slot}.{s.gen}+"]
    assert c.kill(s).status == 0
    until(lambda: layers(privd)[1] == [] and layers(privd)[0].get(s.slot) != s.gen)
    s = c.create("iother")
    assert keep(c, s, 3).status == 0
    until(lambda: ready(c) == READY)
    s = create_on(c, "itaker", 3)
    assert len(layers(privd)[1]) == 1
    c = after_a_crash(privd)
    assert layers(privd)[1] == [] and "itaker" in c.list()
    assert keep(c, c.list()["itaker"], 4).status == 0


def test_what_a_member_cannot_have_stays_as_it_was(privd):  # noqa: F811
    """Before its own layer is aside (the directory for it takes nothing), and when its root is made (a link at /proc, which no
    program inside can make)."""
    c = privd.channel()
    fill(c)
    kept_source(privd, c, 2)
    with contextlib.ExitStack() as stack:
        for path in on_disk(privd, "making").iterdir():
            stack.enter_context(immutable(path))
        r = create_on(c, "inever", 2)
    assert r.status < 0 and r.stage == STAGE_LAYER and kepts(c) == {2}
    until(lambda: ready(c) == READY)
    proc = on_disk(privd, "kept/2/root/proc")
    if proc.exists():
        proc.rmdir()
    proc.symlink_to("/tmp")
    r = create_on(c, "inever", 2)
    assert (r.status, r.stage) == (-errno.ELOOP, STAGE_MOUNTS) and kepts(c) == {2}
    r = create_copy(c, "inever", 2)
    assert (r.status, r.stage) == (-errno.ELOOP, STAGE_MOUNTS)
    proc.unlink()
    comes_back(privd, c, "ilater", 2, "one")
    assert c.list().keys() == {"ilater"}


@pytest.mark.parametrize("delay_ms", DELAYS_MS)
def test_killed_while_a_member_takes_them(privd, delay_ms):  # noqa: F811
    c = privd.channel()
    fill(c)
    kept_source(privd, c, 2)
    killed_while_taken(privd, c, 2, delay_ms, "one")
    until(lambda: len(layers(privd)[1]) <= 1)


def test_a_member_that_ends_meanwhile_leaves_the_files(privd):  # noqa: F811
    """PID 1 is killed just before: the create ends with an error or begins in another slot, and nothing is lost."""
    c = privd.channel()
    fill(c)
    kept_source(privd, c, 2)
    for pid in members(privd).values():
        os.kill(pid, 9)
    r = create_on(c, "itaker", 2)
    if r.status < 0:
        assert kepts(c) == {2}
        r = create_on(c, "iagain", 2)
    assert r.status == 0 and marks(privd, r).split()[0] == "one"


class CommitKiller(Killer):
    """Kills each task of cay-privd's when it begins its second syncfs, and notes what became of all of them."""

    def __init__(self, pid, log):
        self.pid = pid
        self.trace(["-f", "-b", "execve", "-o", str(log), "-e", "signal=none", "-e", "trace=syncfs",
                    "-e", "inject=syncfs:signal=KILL:when=2"])


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not there")
def test_files_that_go_back_are_on_the_disk_before_their_number_is_free(privd, tmp_path):  # noqa: F811
    """A start that took them fails, and the task that ends it is killed when they have their number again, before a commit has
    that. The next one commits it: a record that says they are kept, and a file system that says they are not, would lose them
    at the start after a loss of power."""
    c = privd.channel()
    fill(c)
    kept_source(privd, c, 2)
    proc = on_disk(privd, "kept/2/root/proc")
    if proc.exists():
        proc.rmdir()
    proc.symlink_to("/tmp")
    killer = CommitKiller(privd.process.pid, tmp_path / "calls")
    assert create_on(c, "inever", 2).status == -errno.ELOOP and kepts(c) == {2}
    assert not killer.hit()
    calls = re.findall(r"^\d+ +syncfs\(\d+\) += (\S+)", (tmp_path / "calls").read_text(), re.M)
    assert "?" in calls, "control: a task was killed"
    assert "0" in calls[len(calls) - calls[::-1].index("?"):], calls
    proc.unlink()
    comes_back(privd, c, "ilater", 2, "one")
