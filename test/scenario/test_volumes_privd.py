"""Volumes, of cay-privd alone: made, mounted in one that writes or in many that read, and what is left when it is killed."""

import errno
import os
import struct
import subprocess
import time

import pytest

from privdlib import CAPACITY, MIB
from test_kept import counter, create_body, inside, keep
from test_privd import privd  # noqa: F401 (the fixture)

CREATE, MAKE, REMOVE, VOLUMES, VOLUME = 2, 18, 19, 20, 73
PLACE = "/run/volumes/"
STAGE_VOLUME = 13


OWNER = b"vtheowner".ljust(16, b"\0")


def make(c, number, size=64 * MIB, owner=OWNER):
    return c.ask(MAKE, struct.pack("<IIQ16s", number, 0, size, owner)).status


def remove(c, number, owner=OWNER):
    return c.ask(REMOVE, struct.pack("<IIQ16s", number, 0, 0, owner)).status


def volumes(c):
    c.events = [m for m in c.events if m.op != VOLUME]
    assert c.ask(VOLUMES).status == 0
    return {number: size for number, busy, size in (m.unpack("IIQ") for m in c.events if m.op == VOLUME) if not busy}


def body_with(name, mounts, kept=0, owner=OWNER):
    """mounts: numbers, negative where they are only read."""
    entries = b"".join(struct.pack("<II", abs(n), n < 0) for n in mounts)
    return create_body(name, kept).ljust(128, b"\0") + (owner * len(mounts)).ljust(96, b"\0") + entries


def create_with(c, name, *mounts, kept=0, owner=OWNER):
    return c.ask(CREATE, body_with(name, mounts, kept, owner))


def on_disk(p):
    return os.listdir(f"/proc/{p.process.pid}/root/{p.state}/disk/volumes")


@pytest.fixture(autouse=True)
def needs_a_disk(privd):  # noqa: F811
    c = privd.channel()
    if c.ask(CAPACITY).text(32, 16) == "memory":
        pytest.skip("files are in memory here")
    c.close()


def test_files_outlive_their_sandbox(privd):  # noqa: F811
    c = privd.channel()
    assert make(c, 7) == 0 and volumes(c) == {7: 64 * MIB}
    s = create_with(c, "iwriter", 7)
    assert s.status == 0
    assert inside(privd, s, f"echo one >{PLACE}0/mark; mkdir {PLACE}0/dir; ln -s /etc {PLACE}0/link; cat {PLACE}0/mark") == "one"
    assert inside(privd, s, f"stat -c '%u:%g %a' {PLACE}0") == "1000:1000 777"
    assert remove(c, 7) == -errno.EBUSY
    assert c.kill(s).status == 0
    for n in range(2):  # one that writes, and again: the marks of the overlay before it are gone
        t = create_with(c, f"inext{n}", 7)
        assert t.status == 0 and inside(privd, t, f"cat {PLACE}0/mark; readlink {PLACE}0/link").split() == ["one", "/etc"]
        assert inside(privd, t, f"rm -r {PLACE}0/dir; mkdir {PLACE}0/dir; touch {PLACE}0/dir/{n}; ls {PLACE}0/dir") == str(n)
        assert c.kill(t).status == 0
    assert remove(c, 7) == 0 and volumes(c) == {} and on_disk(privd) == []
    assert remove(c, 7) == -errno.ENOENT
    assert make(c, 7) == 0  # of the same number, and empty
    s = create_with(c, "inew", 7)
    assert inside(privd, s, f"ls -A {PLACE}0; echo end") == "end"


def test_one_writes_or_many_read(privd):  # noqa: F811
    c = privd.channel()
    assert [make(c, n) for n in (1, 2, 3, 4)] == [0] * 4
    s = create_with(c, "ifirst", 1, -2, 3, 4)
    assert s.status == 0
    for n, mounts in enumerate(((1,), (-1,), (2,), (5,), (-2, 1))):
        r = create_with(c, f"irefused{n}", *mounts)
        assert (r.status, r.stage) == (-errno.ENOENT if mounts == (5,) else -errno.EBUSY, STAGE_VOLUME)
    assert inside(privd, s, f"echo x >{PLACE}0/it; echo x >{PLACE}1/it || echo refused; ls {PLACE}").split() == ["refused", *"0123"]
    assert c.kill(s).status == 0
    readers = [create_with(c, f"ireader{n}", -1, 4 if n == 0 else 3) for n in range(2)]
    assert [r.status for r in readers] == [0, 0]
    assert [inside(privd, r, f"cat {PLACE}0/it; echo y >{PLACE}0/it || echo refused") for r in readers] == ["x\nrefused"] * 2
    assert create_with(c, "iwriter", 1).status == -errno.EBUSY
    assert [c.kill(r).status for r in readers] == [0, 0]
    assert create_with(c, "iwriter", 1).status == 0


def test_two_that_would_write_come_at_once(privd):  # noqa: F811
    c = privd.channel()
    assert make(c, 1) == 0
    seqs = [c.send(CREATE, body_with(f"irace{n}", (1,))) for n in range(6)]
    assert sorted(c.wait(seq).status for seq in seqs) == [-errno.EBUSY] * 5 + [0]


def test_its_limit_is_its_own(privd):  # noqa: F811
    """A full volume is full; the sandbox's own files go on."""
    c = privd.channel()
    assert make(c, 1, 4 * MIB) == 0
    s = create_with(c, "ifull", 1)
    said = inside(privd, s, f"dd if=/dev/urandom of={PLACE}0/big bs=1M count=16 2>&1 | grep -c 'quota\\|space'; "
                            "dd if=/dev/urandom of=/root/big bs=1M count=16 2>/dev/null && echo fine")
    assert said.split() == ["1", "fine"]
    assert inside(privd, s, f"rm {PLACE}0/big && echo gone") == "gone"


def test_what_is_refused(privd):  # noqa: F811
    c = privd.channel()
    for number, size in ((0, MIB), (1025, MIB), (1, 0), (1, MIB - 1), (1, 2**62)):
        assert make(c, number, size) == -errno.EINVAL
    assert make(c, 1, MIB) == 0 and make(c, 1, MIB) == -errno.EEXIST
    assert create_with(c, "itwice", 1, -1).status == -errno.EINVAL
    assert create_with(c, "irange", 1025).status == -errno.EINVAL
    assert volumes(c) == {1: MIB}


def test_a_pause_with_the_files_alone_lets_go_of_them(privd):  # noqa: F811
    c = privd.channel()
    assert make(c, 1) == 0
    s = create_with(c, "ipaused", 1)
    inside(privd, s, f"echo one >{PLACE}0/mark; echo own >/root/mark")
    assert keep(c, s, 9).status == 0
    other = create_with(c, "iother", 1)
    assert other.status == 0 and inside(privd, other, f"cat {PLACE}0/mark; echo two >{PLACE}0/mark") == "one"
    assert create_with(c, "ipaused", 1, kept=9).status == -errno.EBUSY
    assert c.kill(other).status == 0
    s = create_with(c, "ipaused", 1, kept=9)
    assert s.status == 0 and inside(privd, s, f"cat {PLACE}0/mark /root/mark").split() == ["two", "own"]


def test_who_has_which_outlives_privd(privd):  # noqa: F811
    c = privd.channel()
    assert make(c, 1) == 0 and make(c, 2) == 0
    s = create_with(c, "ilasting", 1, -2)
    inside(privd, s, f"echo three >{PLACE}0/mark")
    privd.crash()
    privd.start()
    c = privd.channel()
    assert volumes(c) == {1: 64 * MIB, 2: 64 * MIB} and "ilasting" in c.list()
    assert remove(c, 1) == remove(c, 2) == -errno.EBUSY
    assert create_with(c, "iwriter", 1).status == create_with(c, "ireader", -1).status == -errno.EBUSY
    assert create_with(c, "ireader", -2).status == 0
    assert inside(privd, s, f"cat {PLACE}0/mark") == "three"
    assert c.kill(s).status == 0
    assert create_with(c, "inext", 1).status == 0


@pytest.mark.parametrize("delay_ms", (0, 4, 15))
def test_killed_while_it_makes_and_removes(privd, delay_ms):  # noqa: F811
    """Whole and told of, or not there at all."""
    c = privd.channel()
    assert make(c, 1) == 0
    c.send(MAKE, struct.pack("<IIQ16s", 2, 0, MIB, OWNER))
    c.send(REMOVE, struct.pack("<IIQ16s", 1, 0, 0, OWNER))
    time.sleep(delay_ms / 1000)
    privd.crash()
    privd.start()
    c = privd.channel()
    there = volumes(c)
    assert sorted(on_disk(privd)) == sorted(str(n) for n in there) and set(there) <= {1, 2}
    for n in (1, 2):
        assert (make(c, n) == 0) == (n not in there)
    s = create_with(c, "iboth", 1, 2)
    assert s.status == 0 and inside(privd, s, f"touch {PLACE}0/x {PLACE}1/x && echo fine") == "fine"


def test_what_is_of_another_owner_is_neither_mounted_nor_removed(privd):  # noqa: F811
    """By a cayd that is mistaken: as numbers are used again. Over a crash, too."""
    c, other = privd.channel(), b"vanother".ljust(16, b"\0")
    assert make(c, 3) == 0
    for n in range(2):
        assert create_with(c, f"iwrong{n}", -3, owner=other).status == -errno.EPERM
        assert remove(c, 3, owner=other) == remove(c, 3, owner=bytes(16)) == -errno.EPERM
        privd.crash()
        privd.start()
        c = privd.channel()
    assert make(c, 4, owner=bytes(16)) == -errno.EINVAL  # one without an owner is not made
    s = create_with(c, "iright", -3)
    assert s.status == 0 and c.kill(s).status == 0
    assert remove(c, 3) == 0
    assert make(c, 3, owner=other) == 0 and create_with(c, "ilate", 3).status == -errno.EPERM


def test_a_lost_record_loses_no_files(privd):  # noqa: F811
    c = privd.channel()
    assert make(c, 5) == 0
    s = create_with(c, "iwriter", 5)
    inside(privd, s, f"echo four >{PLACE}0/mark")
    assert c.kill(s).status == 0
    privd.crash()
    os.truncate(f"{privd.state}/volumes", 0)
    privd.start()
    c = privd.channel()
    assert set(volumes(c)) == {5}
    s = create_with(c, "ireader", -5, owner=b"vanother".ljust(16, b"\0"))  # whose it was is lost, too
    assert inside(privd, s, f"cat {PLACE}0/mark") == "four"


def test_what_full_capabilities_inside_cannot_do(privd):  # noqa: F811
    """With all capabilities over the sandbox's user namespace and without its filter, which no program of a tenant has."""
    c = privd.channel()
    assert make(c, 1) == make(c, 2) == 0
    s = create_with(c, "iwriter", 1, -2)
    assert s.status == 0
    # There is nothing to write to below what is read only. The control: the other way round works.
    assert inside(privd, s, f"mount -o remount,bind,rw {PLACE}1; touch {PLACE}1/x 2>&1 | grep -c 'Read-only file system'") == "1"
    assert inside(privd, s, f"mount -o remount,rw {PLACE}1 2>/dev/null; touch {PLACE}1/x 2>/dev/null || echo refused") == "refused"
    assert inside(privd, s, f"touch {PLACE}0/x && mount -o remount,bind,ro {PLACE}0 && touch {PLACE}0/y 2>/dev/null || echo refused") == "refused"
    # The calls of the disk's own file system do not get through (BTRFS_IOC_SUBVOL_CREATE, SYNC, FS_INFO): ENOTTY.
    script = """
import fcntl, os, sys
d = os.open(sys.argv[1], os.O_RDONLY)
for request, size in ((0x5000940e, 4096), (0x9408, 0), (0x8400941f, 1024)):
    try:
        fcntl.ioctl(d, request, bytearray((bytes(8) + b"nested").ljust(size or 8, bytes(1))))
        print(0)
    except OSError as e:
        print(e.errno)
"""
    program = f"/usr/bin/python3 -c '{script}'"
    assert inside(privd, s, f"{program} {PLACE}0").split() == [str(errno.ENOTTY)] * 3
    assert c.kill(s).status == 0
    # The control: on the subvolume itself all of them work.
    volume = f"/proc/{privd.process.pid}/root/{privd.state}/disk/volumes/1"
    done = subprocess.run(["sh", "-c", f"{program} {volume}"], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == ["0"] * 3
    assert remove(c, 1) == -errno.ENOTEMPTY  # what it would have been good for: a volume that cannot be removed
    os.rmdir(f"{volume}/nested")
    assert remove(c, 1) == 0


def test_set_id_programs_and_devices_of_another_do_not_work(privd):  # noqa: F811
    c = privd.channel()
    assert make(c, 1) == 0
    s = create_with(c, "imaker", 1)
    made = f"for d in {PLACE}0 /usr/local; do cp /usr/bin/id $d/id && chmod 6755 $d/id; done; mknod {PLACE}0/null c 1 3"
    run = f"setpriv --reuid 1000 --regid 1000 --clear-groups %s/id -u"
    inside(privd, s, made)
    assert inside(privd, s, run % "/usr/local") == "0"  # the control: in its own files they work
    assert inside(privd, s, run % f"{PLACE}0") == "1000"
    assert c.kill(s).status == 0
    s = create_with(c, "iuser", 1)
    assert inside(privd, s, f"stat -c %a {PLACE}0/id; {run % (PLACE + '0')}").split() == ["6755", "1000"]
    assert inside(privd, s, f"test -c {PLACE}0/null && cat {PLACE}0/null 2>/dev/null || echo refused") == "refused"


def test_a_volume_that_a_sandbox_left_open_is_another_s_only_when_it_has_ended(privd):  # noqa: F811
    """A program that holds a file of it open, and locks it, ends with its sandbox; frozen, it has it still."""
    c = privd.channel()
    assert make(c, 1) == 0
    s = create_with(c, "iholder", 1)
    with counter(privd, s, f"{PLACE}0/ticks"):
        assert c.freeze(s).status == 0
        assert create_with(c, "ireader", -1).status == -errno.EBUSY
        assert c.kill(s).status == 0
    t = create_with(c, "inext", 1)
    assert t.status == 0 and inside(privd, t, f"flock -n {PLACE}0/ticks echo locked") == "locked"
    before = inside(privd, t, f"wc -l <{PLACE}0/ticks")
    assert inside(privd, t, f"wc -l <{PLACE}0/ticks") == before
