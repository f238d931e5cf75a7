"""Files that outlive their sandbox: KEEP, CREATE on what was kept, DROP, and what is left of them when cay-privd is killed
between the steps."""

import contextlib
import contextlib
import errno
import os
import pathlib
import signal
import struct
import subprocess
import time

import pytest

import privdlib
from privdlib import CAPACITY, CREATE, HOST, JOB, MIB
from waitlib import until
from test_privd import privd  # noqa: F401 (the fixture)

KEEP, DROP, KEPTS, COPY, KEPT, STAGE_LAYER = 14, 15, 16, 17, 72, 4
COPY_OF, LAST = 1, 8  # PRIVSEP_CREATE_COPY, PRIVSEP_CREATE_LAST
DELAYS_MS = (0, 2, 6, 15, 40)


OWNER, OTHER, NONE = b"isandbox-of-mine", b"isandbox-of-else", b"\0" * 16


def kept_body(number, owner=OWNER, account=0, creates=0):
    return struct.pack("<IIII", number, 0, 0, account) + owner + struct.pack("<II", 0, creates)


def keep(c, s, number, owner=OWNER):
    return c.ask(KEEP, kept_body(number, owner), slot=s.slot, gen=s.gen)


def drop(c, number, owner=OWNER):
    return c.ask(DROP, kept_body(number, owner))


def kepts(c):
    c.events = [m for m in c.events if m.op != KEPT]
    assert c.ask(KEPTS).status == 0
    return {number for number, _, busy in (m.unpack("III") for m in c.events if m.op == KEPT) if not busy}


def create_body(name, number, template=HOST, owner=OWNER, flags=0, key=b"k" * 32):
    body = struct.pack("<II", template, 0) + privdlib.LIMITS.pack(256 * MIB, 256 * MIB, 1000, 256, 1024, 0)
    return body + name.encode().ljust(32, b"\0") + key + struct.pack("<II", flags, number) + (owner if number else NONE)


def create_on(c, name, number, template=HOST, owner=OWNER):
    return c.ask(CREATE, create_body(name, number, template, owner))


def pid_of(p, s):
    with open(p.run / "slots" / "table", "rb") as table:
        table.seek(s.slot * 256)
        record = table.read(256)
    assert struct.unpack_from("<I", record, 12)[0] == s.gen
    return struct.unpack_from("<i", record, 20)[0]


def inside(p, s, script):
    """As root of the sandbox, in its mount and user namespace."""
    return subprocess.run(["nsenter", "-t", str(pid_of(p, s)), "-U", "-m", "-S", "0", "-G", "0", "sh", "-c", script],
                          capture_output=True, text=True, timeout=30).stdout.strip()


def write_marks(p, s, text):
    assert inside(p, s, f"echo {text} > /root/mark && mkdir -p /usr/local/bin && echo {text} > /usr/local/bin/mark && "
                        "rm -f /etc/motd && ln -sf /nowhere /etc/link && cat /root/mark") == text


def marks(p, s):
    return inside(p, s, "cat /root/mark /usr/local/bin/mark; readlink /etc/link; cat /etc/hostname")


@pytest.fixture(autouse=True)
def needs_a_disk(privd):  # noqa: F811
    c = privd.channel()
    if c.ask(CAPACITY).text(32, 16) == "memory":
        pytest.skip("files are in memory here")
    c.close()


def owners(c):
    assert kepts(c) is not None
    return {m.unpack("I")[0]: m.body[16:32] for m in c.events if m.op == KEPT}


def record_of_version_1(p, number):
    """The files that are kept by that number get the record of a cay-privd that knew no owners."""
    with open(p.state / "kept", "r+b") as table:
        table.seek(number * 64)
        record = struct.pack("<II", 0x6361796B, 1) + table.read(64)[8:40] + NONE
        total = 0xCBF29CE484222325
        for byte in record:
            total = (total ^ byte) * 0x100000001B3 % 2**64
        table.seek(number * 64)
        table.write(record + struct.pack("<Q", total))


def on_disk(p, name):
    """By privd's own mounts: the disk is in no other's."""
    return pathlib.Path(f"/proc/{p.process.pid}/root/{p.state}/disk/{name}")


def names_on_disk(p):
    return os.listdir(on_disk(p, "kept"))


def being_made(p):
    """Copies; the layers that members had before they were given kept files are there, too."""
    return [path.name for path in on_disk(p, "making").glob("*/*") if not path.name.endswith("+")]


def test_files_are_kept_taken_and_kept_again(privd):  # noqa: F811
    c = privd.channel()
    s = c.create("ifirst")
    write_marks(privd, s, "one")
    assert keep(c, s, 7).status == 0
    assert c.list() == {} and kepts(c) == {7}
    for n in range(2):
        t = create_on(c, f"inext{n}", 7)
        assert t.status == 0 and kepts(c) == set()
        assert (t.slot, t.gen) != (s.slot, s.gen)
        assert marks(privd, t).split() == ["one", "one", "/nowhere", f"inext{n}"]
        assert create_on(c, "itwice", 7).status == -errno.ENOENT
        assert keep(c, t, 7).status == 0
    assert drop(c, 7).status == 0 and kepts(c) == set()
    assert drop(c, 7).status == -errno.ENOENT
    assert names_on_disk(privd) == []


def test_what_is_refused(privd):  # noqa: F811
    c = privd.channel()
    s = c.create("irefused")
    for number in (0, 1025, 2**32 - 1):
        assert keep(c, s, number).status == -errno.EINVAL
        assert drop(c, number).status == -errno.EINVAL
    assert create_on(c, "inone", 9).status == -errno.ENOENT
    assert create_on(c, "irange", 1025).status == -errno.EINVAL
    assert keep(c, s, 9).status == 0
    other = c.create("iother")
    assert keep(c, other, 9).status == -errno.EEXIST
    assert keep(c, s, 10).status == -errno.ESTALE
    assert "iother" in c.list()
    # The template that kept files lie on is not taken away below them.
    assert c.ask(JOB, struct.pack("<II", 2, HOST)).status == -errno.EBUSY
    assert drop(c, 9).status == 0


def test_a_number_of_another_owner_is_refused(privd):  # noqa: F811
    """A cayd that is mistaken about whose a number is, or lies: neither given out nor removed. The control is the same
    requests by the owner, and to a record without one."""
    c = privd.channel()
    assert keep(c, c.create("imine"), 7).status == 0
    s = c.create("icopied")
    assert copy(c, s, 8, owner=OTHER).status == 0
    assert keep(c, s, 9, owner=NONE).status == copy(c, s, 9, owner=NONE).status == -errno.EINVAL
    for _ in range(2):
        assert owners(c) == {7: OWNER, 8: OTHER}
        for wrong in (OTHER, OWNER[:15] + b"x"):
            assert create_on(c, "itaker", 7, owner=wrong).status == -errno.EPERM
            assert create_copy(c, "icopy", 7, owner=wrong).status == -errno.EPERM
            assert drop(c, 7, owner=wrong).status == -errno.EPERM
        assert create_copy(c, "icopy", 8).status == drop(c, 8).status == drop(c, 7, owner=NONE).status == -errno.EPERM
        assert create_on(c, "itaker", 7, owner=NONE).status == -errno.EINVAL
        c = after_a_crash(privd)  # and again by its successor
    t = create_on(c, "itaker", 7)
    assert t.status == 0 and keep(c, t, 7, owner=OTHER).status == 0 and owners(c)[7] == OTHER
    privd.crash()
    record_of_version_1(privd, 7)
    privd.start()
    c = privd.channel()
    assert owners(c) == {7: NONE, 8: OTHER}
    assert create_copy(c, "iolder", 7).status == 0 and drop(c, 7).status == 0


def test_a_start_that_fails_leaves_the_files_as_they_were(privd):  # noqa: F811
    """There is no name left for what a tenant has put in the place of a file of cay's."""
    c = privd.channel()
    s = c.create("ibroken")
    inside(privd, s, "rm -f /etc/hostname; for n in '' $(seq -f .%g 1 64); do mkdir -p /etc/hostname$n/in; done")
    assert keep(c, s, 3).status == 0
    r = create_on(c, "inever", 3)
    assert r.status < 0 and r.stage == STAGE_LAYER
    assert kepts(c) == {3}
    assert c.list() == {}
    assert drop(c, 3).status == 0


@pytest.mark.parametrize("etc", ["ln -s /tmp/in /etc", "ln -s etc.old /etc", "ln -s /nowhere /etc", "echo x >/etc", "true"])
def test_where_etc_is_no_directory_it_starts_and_no_link_is_followed(privd, etc):  # noqa: F811
    """The directory that a link of the tenant's leads to has files by cay's names, on which an opening would wait."""
    c = privd.channel()
    s = c.create("iodd")
    write_marks(privd, s, "two")
    inside(privd, s, f"mkdir /tmp/in; mv /etc /etc.old; rm -f /etc.old/host*; mkfifo /tmp/in/hosts /etc.old/hosts; {etc}")
    there = "ls -ld /etc | cut -c1-10; readlink /etc; cat /root/mark; ls -d /tmp/in/host* /etc.old/host*"
    before = inside(privd, s, there)
    assert "two" in before and "drwx" not in before and before.split()[-2:] == ["/etc.old/hosts", "/tmp/in/hosts"]
    for n in range(2):
        assert keep(c, s, 3).status == 0
        s = create_on(c, f"iodd{n}", 3)
        assert s.status == 0
        assert inside(privd, s, there) == before
    assert copy(c, s, 4).status == 0
    made = create_copy(c, "icopy", 4)
    assert made.status == 0 and inside(privd, made, there) == before
    assert drop(c, 4).status == 0


def test_what_a_tenant_has_put_in_the_way_of_a_start_stays(privd):  # noqa: F811
    """A link at /tmp, a directory with files at /etc/hostname: the next start leaves them to their owner."""
    c = privd.channel()
    s = c.create("ihostile")
    inside(privd, s, "rm -rf /tmp && ln -s /var/tmp /tmp; rm -f /etc/hostname && mkdir -p /etc/hostname/in && echo x > /etc/hostname/in/it")
    assert inside(privd, s, "readlink /tmp; cat /etc/hostname/in/it").split() == ["/var/tmp", "x"]
    for n in range(2):
        assert keep(c, s, 4).status == 0
        s = create_on(c, f"ihostile{n}", 4)
        assert s.status == 0
        assert inside(privd, s, "readlink /tmp; cat /etc/hostname /etc/hostname.1/in/it").split() == ["/var/tmp", f"ihostile{n}", "x"]


def copy(c, s, number, owner=OWNER):
    return c.ask(COPY, kept_body(number, owner), slot=s.slot, gen=s.gen)


def create_copy(c, name, number, owner=OWNER):
    return c.ask(CREATE, create_body(name, number, owner=owner, flags=1))


@contextlib.contextmanager
def counter(p, s, path="/root/ticks"):
    """A program in the sandbox's mount namespace that writes all the time; it ends with the block, whatever happens."""
    script = f"n=0; while :; do n=$((n+1)); echo $n; done >{path}"
    writer = subprocess.Popen(["nsenter", "-t", str(pid_of(p, s)), "-U", "-m", "-S", "0", "-G", "0", "sh", "-c", script],
                              stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # nsenter becomes sh: no fork
    try:
        until(lambda: inside(p, s, f"tail -n1 {path}"), what="the first tick")
        yield writer
    finally:
        writer.kill()
        writer.wait()


def test_a_copy_of_one_that_runs(privd):  # noqa: F811
    """It goes on; the copy has what was written before, and neither changes with the other."""
    c = privd.channel()
    s = c.create("isource")
    write_marks(privd, s, "one")
    with counter(privd, s) as writer:
        # Not one of the sandbox's own processes, which stand still while a copy is made; a file that is being written may be empty in it.
        writer.send_signal(signal.SIGSTOP)
        assert copy(c, s, 5).status == 0 and kepts(c) == {5}
        writer.send_signal(signal.SIGCONT)
        assert "isource" in c.list() and copy(c, s, 5).status == -errno.EEXIST
        before = int(inside(privd, s, "tail -n1 /root/ticks"))
        until(lambda: int(inside(privd, s, "tail -n1 /root/ticks")) > before, what="another tick: it goes on")
        t, u = create_copy(c, "ifork1", 5), create_copy(c, "ifork2", 5)
    assert t.status == 0 and u.status == 0 and kepts(c) == {5}
    for one, name in ((t, "ifork1"), (u, "ifork2")):
        assert marks(privd, one).split() == ["one", "one", "/nowhere", name]
        ticks = inside(privd, one, "cat /root/ticks").split()
        assert ticks == [str(n) for n in range(1, len(ticks) + 1)] and 0 < len(ticks) <= before
    assert inside(privd, t, "echo two > /root/mark; cat /root/mark") == "two"
    assert marks(privd, s).split()[0] == marks(privd, u).split()[0] == "one"
    assert drop(c, 5).status == 0 and c.kill(s).status == 0 and names_on_disk(privd) == []
    assert marks(privd, u).split()[0] == "one" and marks(privd, t).split()[0] == "two"  # nothing below them was theirs
    assert keep(c, t, 6).status == 0
    again = create_on(c, "iagain", 6)
    assert again.status == 0 and marks(privd, again).split()[0] == "two"


def test_copies_of_what_stands_still_and_of_many(privd):  # noqa: F811
    c = privd.channel()
    s = c.create("ifrozen")
    write_marks(privd, s, "one")
    assert c.freeze(s).status == 0 and copy(c, s, 1).status == 0
    assert c.thaw(s).status == 0
    others = [c.create(f"iother{n}") for n in range(4)]
    seqs = [c.send(COPY, kept_body(10 + n), slot=o.slot, gen=o.gen) for n, o in enumerate(others)]
    assert [c.wait(seq).status for seq in seqs] == [0] * 4
    seqs = [c.send(COPY, kept_body(20 + n), slot=s.slot, gen=s.gen) for n in range(4)]
    assert set(c.wait(seq).status for seq in seqs) <= {0, -errno.EBUSY}
    t = create_copy(c, "icopy", 1)
    assert t.status == 0 and marks(privd, t).split()[0] == "one"


def test_what_is_refused_of_copies(privd):  # noqa: F811
    c = privd.channel()
    s = c.create("irefused")
    for number in (0, 1025, 2**32 - 1):
        assert copy(c, s, number).status == -errno.EINVAL
    assert create_copy(c, "inone", 9).status == -errno.ENOENT
    assert create_copy(c, "izero", 0).status == -errno.EINVAL
    assert c.ask(COPY, struct.pack("<IIII", 1, 1, 1, 0) + OWNER, slot=s.slot, gen=s.gen).status == -errno.EINVAL
    assert c.kill(s).status == 0
    assert copy(c, s, 9).status == -errno.ESTALE and kepts(c) == set()


def create_last(c, name, number, owner=OWNER):
    return c.ask(CREATE, create_body(name, number, owner=owner, flags=COPY_OF | LAST))


def test_the_last_that_begins_with_a_copy_has_the_copy_itself(privd):  # noqa: F811
    """It leaves a number without files, which DROP ends. A slot that was prepared is used, and keeps no file of its own."""
    c = privd.channel()
    s = c.create("isource")
    write_marks(privd, s, "five")
    assert c.ask(COPY, kept_body(2, creates=1), slot=s.slot, gen=s.gen).status == 0
    first, last = create_copy(c, "ifirst", 2), create_last(c, "ilast", 2)
    assert first.status == last.status == 0
    assert names_on_disk(privd) == [] and kepts(c) == {2} and being_made(privd) == []
    for one in (first, last):
        assert marks(privd, one).split()[0] == "five"
    write_marks(privd, last, "six")
    assert [marks(privd, one).split()[0] for one in (s, first, last)] == ["five", "five", "six"]
    assert create_copy(c, "ilate", 2).status == -errno.ENOENT
    assert drop(c, 2).status == 0 and kepts(c) == set()


def test_copies_for_creates_are_made_at_once_and_end_with_their_number(privd):  # noqa: F811
    """The source changes meanwhile. Creates beyond those copies have one of their own; those that none has taken are dropped."""
    c = privd.channel()
    s = c.create("isource")
    write_marks(privd, s, "five")
    assert c.ask(COPY, kept_body(2, creates=40), slot=s.slot, gen=s.gen).status == 0
    assert len(being_made(privd)) == 40
    write_marks(privd, s, "six")
    made = [create_copy(c, f"icopy{i}", 2) for i in range(3)]
    assert [m.status for m in made] == [0, 0, 0] and len(being_made(privd)) == 37
    assert {marks(privd, m).split()[0] for m in made} == {"five"}
    assert drop(c, 2).status == 0 and being_made(privd) == [] and names_on_disk(privd) == []
    assert c.ask(COPY, kept_body(2, creates=2), slot=s.slot, gen=s.gen).status == 0
    made = [create_copy(c, f"iagain{i}", 2) for i in range(3)]
    assert {marks(privd, m).split()[0] for m in made} == {"six"} and being_made(privd) == []
    assert c.ask(COPY, kept_body(3, creates=5), slot=s.slot, gen=s.gen).status == 0
    assert len(being_made(privd)) == 5
    c = after_a_crash(privd)
    assert being_made(privd) == [] and kepts(c) == {2, 3}


def test_copies_that_were_made_for_creates_go_to_none_of_another_number(privd):  # noqa: F811
    """Their number ends by DROP alone, which removes them: the next that has the number, which may be another's, must not begin with them."""
    c = privd.channel()
    s, other = c.create("isource"), c.create("iother")
    write_marks(privd, s, "five")
    write_marks(privd, other, "six")
    assert c.ask(COPY, kept_body(2, creates=8), slot=s.slot, gen=s.gen).status == 0
    taken = create_on(c, "itakes", 2)
    if taken.status == 0:
        assert keep(c, other, 2, OTHER).status == 0
        assert marks(privd, create_copy(c, "inext", 2, OTHER)).split()[0] == "six"
    assert taken.status == -errno.EBUSY and kepts(c) == {2}
    assert drop(c, 2).status == 0 and being_made(privd) == [] and names_on_disk(privd) == []
    assert keep(c, other, 2, OTHER).status == 0
    assert marks(privd, create_on(c, "inext", 2, owner=OTHER)).split()[0] == "six"


def test_a_number_whose_copy_failed_can_be_had_as_any(privd):  # noqa: F811
    """How many creates were to follow is forgotten with it."""
    c = privd.channel()
    before, s = c.create("ibefore"), c.create("isource")
    first = c.send(COPY, kept_body(1, creates=100), slot=before.slot, gen=before.gen)
    seq = c.send(COPY, kept_body(2, creates=8), slot=s.slot, gen=s.gen)  # which waits for that one
    assert c.kill(s).status == 0
    assert c.wait(seq).status == -errno.ESTALE and c.wait(first).status == 0
    assert drop(c, 1).status == 0 and kepts(c) == set() and being_made(privd) == []
    assert keep(c, c.create("iother"), 2).status == 0
    assert create_on(c, "inext", 2).status == 0


def test_nothing_else_is_done_with_what_the_last_has(privd):  # noqa: F811
    c = privd.channel()
    s = c.create("isource")
    assert copy(c, s, 2).status == 0
    seqs = [c.send(op, body) for op, body in ((CREATE, create_body("ilast", 2, flags=COPY_OF | LAST)),
                                              (CREATE, create_body("ilate", 2, flags=COPY_OF)), (DROP, kept_body(2)))]
    assert [c.wait(seq).status for seq in seqs] == [0, -errno.EBUSY, -errno.EBUSY]
    assert drop(c, 2).status == 0


def test_files_that_are_not_there_any_more_hold_no_slot(privd):  # noqa: F811
    """The last create of a copy has them, or they were removed by hand: a create that would take them fails, and its slot is
    free again. (A slot that is not ends the fixture's stop with an error.)"""
    c = privd.channel(timeout=10)
    s = c.create("isource")
    for number, name in ((2, "ilast"), (3, "iother")):
        assert copy(c, s, number).status == 0
        if number == 2:
            assert create_last(c, name, number).status == 0
        else:
            subprocess.run(["nsenter", "-t", str(privd.process.pid), "-m", "btrfs", "subvolume", "delete",
                            f"{privd.state}/disk/kept/3"], check=True, stdout=subprocess.DEVNULL)
        late = create_on(c, f"ilate{number}", number)
        assert (late.status, late.stage) == (-errno.ENOENT, STAGE_LAYER)
        assert kepts(c) == set() and drop(c, number).status == -errno.ENOENT
        assert copy(c, s, number).status == 0 and kepts(c) == {number} and drop(c, number).status == 0


def test_flags_of_copies(privd):  # noqa: F811
    c = privd.channel()
    s = c.create("isource")
    for creates in (101, 2**31):
        assert c.ask(COPY, kept_body(2, creates=creates), slot=s.slot, gen=s.gen).status == -errno.EINVAL, creates
    assert c.ask(DROP, kept_body(2, creates=1)).status == -errno.EINVAL
    assert copy(c, s, 2).status == 0
    for flags in (LAST, LAST | COPY_OF | 2, LAST | 2, LAST | COPY_OF | 4, 16, 4):
        assert c.ask(CREATE, create_body("iflags", 2, flags=flags)).status == -errno.EINVAL, flags


def test_a_copy_that_was_being_made_is_gone_after_a_start(privd):  # noqa: F811
    """privd died between its snapshot and its new name."""
    c = privd.channel()
    assert copy(c, c.create("isource"), 2).status == 0
    subprocess.run(["nsenter", "-t", str(privd.process.pid), "-m", "btrfs", "subvolume", "snapshot", f"{privd.state}/disk/kept/2",
                    f"{privd.state}/disk/making/7/7.1234"], check=True, stdout=subprocess.DEVNULL)
    assert being_made(privd) == ["7.1234"]
    c = after_a_crash(privd)
    assert being_made(privd) == [] and kepts(c) == {2}
    assert create_copy(c, "icopy", 2).status == 0


@pytest.mark.parametrize("delay_ms", DELAYS_MS)
def test_killed_while_the_last_takes_a_copy(privd, delay_ms):  # noqa: F811
    """The sandbox is there with the files, or the number has them, or both are gone, as no peer was told of either."""
    c = privd.channel()
    s = c.create("isource")
    write_marks(privd, s, "five")
    assert copy(c, s, 2).status == 0
    c.send(CREATE, create_body("ilast", 2, flags=COPY_OF | LAST))
    time.sleep(delay_ms / 1000)
    c = after_a_crash(privd)
    listed, kept = c.list(), kepts(c)
    assert being_made(privd) == [] and kept == {int(name) for name in names_on_disk(privd)}
    if "ilast" in listed:
        assert marks(privd, listed["ilast"]).split()[0] == "five" and kept == set()
    if kept:
        t = create_last(c, "iagain", 2)
        assert t.status == 0 and marks(privd, t).split()[0] == "five"
    assert marks(privd, listed["isource"]).split()[0] == "five"


@pytest.mark.parametrize("delay_ms", DELAYS_MS)
def test_killed_while_it_copies(privd, delay_ms):  # noqa: F811
    """The source lives and goes on; of the copy there is all or nothing, and nothing of a copy without a row."""
    c = privd.channel()
    s = c.create("isource")
    write_marks(privd, s, "five")
    c.send(COPY, kept_body(2), slot=s.slot, gen=s.gen)
    time.sleep(delay_ms / 1000)
    privd.crash()
    privd.start()
    c = privd.channel()
    assert "isource" in c.list()
    assert c.thaw(s).status == 0  # as cayd does with one that is to run
    assert marks(privd, s).split()[0] == "five"
    if kepts(c) == {2}:  # it was complete
        t = create_copy(c, "icopy", 2)
        assert t.status == 0 and marks(privd, t).split()[0] == "five"
    else:
        assert names_on_disk(privd) == [] and copy(c, s, 2).status == 0


def test_the_end_of_what_is_being_copied(privd):  # noqa: F811
    c = privd.channel()
    for n in range(6):
        s = c.create(f"iends{n}")
        seq = c.send(COPY, kept_body(3), slot=s.slot, gen=s.gen)
        time.sleep(n / 1000)
        assert c.kill(s).status == 0
        status = c.wait(seq).status
        assert status in (0, -errno.ESTALE, -errno.ENOENT, -errno.ECANCELED), status
        assert kepts(c) == ({3} if status == 0 else set())
        if status == 0:
            assert drop(c, 3).status == 0


def test_many_are_dropped_at_once(privd):  # noqa: F811
    c = privd.channel()
    for number in range(1, 9):
        assert keep(c, c.create(f"imany{number}"), number).status == 0
    seqs = [c.send(DROP, kept_body(number)) for number in range(1, 9)]
    assert [c.wait(seq).status for seq in seqs] == [0] * 8
    assert kepts(c) == set() and names_on_disk(privd) == []


def test_files_whose_taker_is_gone_are_kept_still(privd):  # noqa: F811
    """Its answer could not be given: no peer would know of the sandbox, and nothing of its files may be lost."""
    c = privd.channel()
    s = c.create("igone")
    write_marks(privd, s, "six")
    assert keep(c, s, 6).status == 0
    c.send(CREATE, create_body("itaker", 6))
    c.close()
    c = privd.channel()
    until(lambda: kepts(c) == {6} or "itaker" in c.list())
    listed = c.list()  # answered before the channel went: the next peer finds it
    t = listed["itaker"] if "itaker" in listed else create_on(c, "ilater", 6)
    assert t.status == 0 and marks(privd, t).split()[0] == "six"


def after_a_crash(p):
    """A channel to its successor."""
    p.crash()
    p.start()
    return p.channel()


def comes_back(p, c, name, number, mark):
    """A sandbox on the files that are kept under this number has what was written into them."""
    t = create_on(c, name, number)
    assert t.status == 0 and marks(p, t).split()[0] == mark


def killed_while_taken(p, c, number, delay_ms, mark):
    """They are the sandbox's that lives, or kept still; never neither, never both."""
    c.send(CREATE, create_body("itaker", number))
    time.sleep(delay_ms / 1000)
    c = after_a_crash(p)
    listed, kept = c.list(), kepts(c)
    assert ("itaker" in listed) != (kept == {number}), (list(listed), kept)
    t = listed["itaker"] if "itaker" in listed else create_on(c, "iagain", number)
    assert t.status == 0 and marks(p, t).split()[0] == mark


def test_what_is_kept_outlives_privd(privd):  # noqa: F811
    c = privd.channel()
    s = c.create("ilasting")
    write_marks(privd, s, "three")
    assert keep(c, s, 1024).status == 0
    c = after_a_crash(privd)
    assert kepts(c) == {1024}
    comes_back(privd, c, "ilater", 1024, "three")


def test_a_lost_record_loses_no_files(privd):  # noqa: F811
    """As after a table that was damaged: the files on the disk are found."""
    c = privd.channel()
    s = c.create("iunknown")
    write_marks(privd, s, "four")
    assert keep(c, s, 5).status == 0
    privd.crash()
    os.truncate(f"{privd.state}/kept", 0)
    privd.start()
    c = privd.channel()
    assert kepts(c) == {5}
    comes_back(privd, c, "ifound", 5, "four")


@pytest.mark.parametrize("delay_ms", DELAYS_MS)
def test_killed_while_it_keeps(privd, delay_ms):  # noqa: F811
    """As before, or kept; never neither, never both."""
    c = privd.channel()
    s = c.create("ikilled")
    write_marks(privd, s, "five")
    c.send(KEEP, kept_body(2), slot=s.slot, gen=s.gen)
    time.sleep(delay_ms / 1000)
    c = after_a_crash(privd)
    lives, kept = "ikilled" in c.list(), kepts(c)
    assert lives != (kept == {2}), (lives, kept)
    if lives:
        assert marks(privd, s).split()[0] == "five"
        assert keep(c, s, 2).status == 0
    comes_back(privd, c, "iagain", 2, "five")


@pytest.mark.parametrize("delay_ms", DELAYS_MS)
def test_killed_while_it_takes(privd, delay_ms):  # noqa: F811
    c = privd.channel()
    s = c.create("itaken")
    write_marks(privd, s, "six")
    assert keep(c, s, 2).status == 0
    killed_while_taken(privd, c, 2, delay_ms, "six")


@pytest.mark.parametrize("delay_ms", (0, 5))
def test_killed_while_it_drops(privd, delay_ms):  # noqa: F811
    c = privd.channel()
    assert keep(c, c.create("idropped"), 2).status == 0
    c.send(DROP, kept_body(2))
    time.sleep(delay_ms / 1000)
    c = after_a_crash(privd)
    if kepts(c) == {2}: # it had not begun
        assert drop(c, 2).status == 0
    assert kepts(c) == set() and names_on_disk(privd) == []


@contextlib.contextmanager
def immutable(directory):
    """The kernel refuses each new name in it."""
    subprocess.run(["chattr", "+i", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", directory], check=True)


def test_files_that_cannot_be_kept_are_told_of_and_tried_on(privd):  # noqa: F811
    """The layer does not get its number: the answer says so after half a minute, and it is kept once it can be."""
    c = privd.channel()
    s = c.create("istuck")
    write_marks(privd, s, "one")
    with immutable(f"/proc/{privd.process.pid}/root/{privd.state}/disk/kept"):
        assert keep(c, s, 7).status == -errno.EINPROGRESS
        assert kepts(c) == set() and set(owners(c)) == {7} and c.list() == {}  # it is busy
        assert drop(c, 7).status == create_on(c, "inone", 7).status == -errno.EBUSY
    until(lambda: drop(c, 8).status == -errno.ENOENT and names_on_disk(privd) == ["7"], what="it is kept")
    t = create_on(c, "inext", 7)
    assert t.status == 0 and marks(privd, t).split()[0] == "one"
    assert c.kill(t).status == 0
