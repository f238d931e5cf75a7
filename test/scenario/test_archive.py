"""Kept files as one compressed file, by cay-privd alone: their return, refusals, and the remainders where a program is killed at
each step."""

import errno
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile

import pytest

import privdlib
from conftest import BUILD, SERVERS_MAX, SLOTS_MAX, UID_BASE
from privdlib import CAPACITY, JOB, MIB
from test_kept import OTHER, OWNER, copy, create_body, create_copy, create_on, drop, inside, keep, kept_body, kepts, owners
from test_privd import left_behind
from waitlib import until

ARCHIVE, ARCHIVE_STOP, STAGE_ARCHIVE = 23, 24, 15
SEAL = BUILD / "src/seal/cay-seal"

FILL = """
import os, pathlib
t = pathlib.Path("/root/t"); t.mkdir()
(t / "text").write_text("one\\n" * 1000)
(t / "closed").write_bytes(os.urandom(300000)); os.chmod(t / "closed", 0)
(t / "set").write_text("x"); os.chown(t / "set", 1000, 1000); os.chmod(t / "set", 0o6755)
(t / "sticky").mkdir(); os.chmod(t / "sticky", 0o1777); os.chown(t / "sticky", 65535, 7)
os.link(t / "text", t / "hard"); os.symlink("/nowhere/\\xff", t / "link"); os.mkfifo(t / "pipe", 0o640)
with open(t / "holes", "wb") as f:
    f.seek(64 << 20); f.write(b"end"); f.truncate(200 << 20)
os.setxattr(t / "text", "user.mine", b"\\0\\1\\2" * 50); os.utime(t / "text", (1, 1000000000))
(t / "bind").write_text("x"); os.setxattr(t / "bind", "security.capability", bytes.fromhex("0100000200040000" + "00" * 12))
deep = t
for n in range(60):
    deep = deep / ("d" * 60)
    deep.mkdir()
(deep / ("n" * 255)).write_text("deep")
for n in range(300):
    (t / f"many{n}").write_text(str(n))
local = pathlib.Path("/usr/local/t"); local.mkdir(parents=True); (local / "there").write_text("two")
"""
HIDE = """
set -e
chmod 0751 /etc; chown 5:6 /etc; chmod 0775 /
cp /etc/passwd /etc/mine; rm -f /etc/motd /etc/group
d=/usr/share/$(ls /usr/share | head -n1); rm -rf $d; mkdir $d; echo new > $d/only; echo $d > /root/t/hidden
e=/etc/$(ls -p /etc | grep / | head -n1); rm -rf $e; echo $e > /root/t/gone
"""
SHOW = """
import hashlib, json, os
found = []
def one(p):
    st = os.lstat(p)
    text = os.readlink(p) if os.path.islink(p) else ""
    if os.path.isfile(p) and not text:
        text = hashlib.sha256(open(p, "rb").read()).hexdigest()
    names = {} if os.path.islink(p) else {n: os.getxattr(p, n).hex() for n in os.listxattr(p) if n in ("user.mine", "security.capability")}
    found.append([p, st.st_mode, st.st_uid, st.st_gid, 0 if os.path.isdir(p) else st.st_size, 0 if os.path.isdir(p) else st.st_nlink,
                  int(st.st_mtime) if text else 0, text, names])
for top in ("/root/t", "/usr/local/t", open("/root/t/hidden").read().strip()):
    for d, dirs, files in os.walk(top):
        dirs.sort()
        for p in [d] + sorted(os.path.join(d, f) for f in files):
            one(p)
for p in ("/etc", "/", "/etc/mine"):
    one(p)
for p in ("/etc/motd", "/etc/group", open("/root/t/gone").read().strip()):
    assert not os.path.lexists(p), p
assert os.lstat("/root/t/holes").st_blocks * 512 < 1 << 20
print(json.dumps(found))
"""


def start_privd(place, **options):
    base = UID_BASE + (SERVERS_MAX - 1 - place) * SLOTS_MAX * 65536
    return privdlib.Privd(BUILD, tempfile.mkdtemp(prefix="cay-test-archive-", dir="/var/tmp"), seal=SEAL, uid_base=base,
                          slots_max=SLOTS_MAX, **options).start()


def archive(c, number, owner=OWNER):
    return c.ask(ARCHIVE, kept_body(number, owner))


def why(r):
    return r.text(0, 192)


def with_template(**options):
    """Yields a cay-privd of one template that keeps its files on a disk; for a fixture."""
    if os.geteuid() != 0:
        pytest.skip("privd needs root")
    p = start_privd(0, slots_ready=1, **options)
    c = p.channel()
    try:
        if c.ask(CAPACITY).text(32, 16) == "memory":
            pytest.skip("files are in memory here")
        assert c.ask(JOB, b"\1\0\0\0\1\0\0\0").status == 0
        c.close()
        yield p
    finally:
        if p.process.poll() is None:
            assert p.stop() == 0, p.log.read_text()
            assert left_behind(p) == []
        shutil.rmtree(p.base, ignore_errors=True)


def end_all(p):
    """Ends its sandboxes and drops what is kept, of which nothing is left."""
    c = p.channel()
    for s in c.list().values():
        assert c.kill(s).status == 0
    for number, owner in owners(c).items():
        until(lambda: drop(c, number, owner).status != -errno.EBUSY, what="the end of the work")
    assert kepts(c) == set() and disk_names(p, "archiving") == disk_names(p, "kept") == []
    c.close()


@pytest.fixture(scope="module")
def server():
    yield from with_template()


@pytest.fixture
def privd(server):
    yield server
    end_all(server)


def disk(p):
    return pathlib.Path(f"/proc/{p.process.pid}/root/{p.state}/disk")


def disk_names(p, folder):
    return os.listdir(disk(p) / folder)


def python(p, s, script):
    return inside(p, s, f"exec /usr/bin/python3 -c '{script}'")


def show(p, s):
    text = python(p, s, SHOW)
    assert text, "the files cannot be listed"
    return json.loads(text)


def keep_full(p, c, number, fill=FILL, name="ifull"):
    """A sandbox with these files, which are kept; returns their listing."""
    s = c.create(name, disk=1024 * MIB)
    assert s.status == 0
    assert python(p, s, fill + '\nprint("done")') == "done"
    if fill == FILL:
        inside(p, s, HIDE)
    before = show(p, s) if fill == FILL else None
    assert keep(c, s, number).status == 0
    return before


def test_what_was_archived_is_there_again(privd):
    c = privd.channel()
    before = keep_full(privd, c, 7)
    assert len(before) > 300
    r = archive(c, 7)
    assert r.status == 0, why(r)
    assert kepts(c) == {7} and disk_names(privd, "archiving") == []
    layer = disk(privd) / "kept/7"
    assert sorted(os.listdir(layer)) == ["archive", "root", "root.work", "usr", "usr.work"]
    assert os.listdir(layer / "root") == ["etc"] and os.listdir(layer / "usr") == []
    assert (layer / "archive").stat().st_size < 2 * MIB and (layer / "archive").stat().st_mode & 0o777 == 0o600
    s = create_on(c, "iwoken", 7)
    assert s.status == 0 and show(privd, s) == before
    assert inside(privd, s, "cat /etc/hostname") == "iwoken"
    # It lies below what is written from now on, also over another pause.
    inside(privd, s, "echo changed > /root/t/text; rm -r /root/t/many1 /usr/local/t; mv /root/t/hard /root/t/moved")
    for n in range(2):
        assert keep(c, s, 7).status == 0
        r = archive(c, 7)
        assert r.status == -errno.EALREADY and "archived before" in why(r)
        s = create_on(c, f"iagain{n}", 7)
        assert s.status == 0
        assert inside(privd, s, "cat /root/t/text; ls -d /root/t/many1 /usr/local/t 2>&1 | grep -c cannot; wc -c < /root/t/moved") == \
            "changed\n2\n4000"
    # A snapshot of it has the archive too, and goes on without its source.
    assert copy(c, s, 8).status == 0 and c.kill(s).status == 0
    t = create_copy(c, "icopy", 8)
    assert t.status == 0 and inside(privd, t, "cat /root/t/text /root/t/many2") == "changed\n2"


def test_a_changed_byte_is_refused_with_its_place(privd):
    """The control: with the byte as it was it starts."""
    c = privd.channel()
    keep_full(privd, c, 7, 'import os; open("/root/random", "wb").write(os.urandom(3 << 20))')
    assert archive(c, 7).status == 0
    path = disk(privd) / "kept/7/archive"
    whole = path.read_bytes()
    for at, place in ((0, "piece 0, from byte 0"), (2500000, "piece 2, from byte 2097152"), (len(whole) - 40, "piece 3"),
                      (len(whole) - 3, "its end")):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
        r = create_on(c, "inever", 7)
        assert (r.status, r.stage) == (-errno.EBADMSG, STAGE_ARCHIVE), at
        assert place in privd.log.read_text().splitlines()[-1] or place in privd.log.read_text(), at
        assert kepts(c) == {7} and c.list() == {}
    for cut in (whole[:-1], whole[:4096] + whole[8192:], b"", whole + b"x"):
        path.write_bytes(cut)
        r = create_on(c, "inever", 7)
        assert (r.status, r.stage) == (-errno.EBADMSG, STAGE_ARCHIVE), len(cut)
    path.write_bytes(whole)
    s = create_on(c, "iwhole", 7)
    assert s.status == 0 and inside(privd, s, "wc -c < /root/random") == str(3 << 20)


def test_what_is_refused(privd):
    c = privd.channel()
    for number in (0, 1025, 2**32 - 1):
        assert archive(c, number).status == -errno.EINVAL
    assert archive(c, 9).status == -errno.ENOENT
    assert c.ask(ARCHIVE, kept_body(9, b"\0" * 16)).status == -errno.EINVAL
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in
                                         [(1, 6, 2**32 - 1), (2, 4, 1), (4, 4, 2**32 - 1), (16, 4, 2**32 - 1), (32, 4, 2**32 - 1)])
    for number, fill, reason in (
            (1, f'import os; open("/root/acl", "w"); os.setxattr("/root/acl", "system.posix_acl_access", bytes.fromhex("{acl.hex()}"))',
             "posix_acl_access"),
            (2, 'import os, subprocess; subprocess.run(["mv", "/etc", "/etc.old"], check=True); os.symlink("/etc.old", "/etc")',
             "/etc is no directory")):
        keep_full(privd, c, number, fill, name=f"iodd{number}")
        r = archive(c, number, OTHER)
        assert r.status == -errno.EPERM
        r = archive(c, number)
        assert r.status == -errno.EOPNOTSUPP and reason in why(r), why(r)
        assert disk_names(privd, "archiving") == []
        assert create_on(c, f"istill{number}", number).status == 0


def test_without_room_the_layer_stays(privd):
    p = start_privd(1, disk_size=400 * MIB)
    try:
        c = p.channel()
        assert c.ask(JOB, b"\1\0\0\0\1\0\0\0").status == 0
        keep_full(p, c, 1, 'import os; open("/root/random", "wb").write(os.urandom(180 << 20))')
        r = archive(c, 1)
        assert r.status == -errno.ENOSPC and "less room" in why(r), why(r)
        s = create_on(c, "istill", 1)
        assert s.status == 0 and inside(p, s, "wc -c < /root/random") == str(180 << 20)
    finally:
        p.stop()
        shutil.rmtree(p.base, ignore_errors=True)


LONG = 'import os; open("/root/random", "wb").write(os.urandom(60 << 20)); open("/root/last", "w").write("there")'
HAS = "wc -c < /root/random; cat /root/last"


def has_all(p, c, name):
    s = create_on(c, name, 7)
    assert s.status == 0
    assert inside(p, s, HAS).split() == [str(60 << 20), "there"]
    return s


def children(p, name):
    """The processes by that name below this cay-privd."""
    found = []
    for d in pathlib.Path("/proc").iterdir():
        try:
            if d.name.isdigit() and (d / "comm").read_text().strip() == name:
                parent = d.name
                while parent not in ("0", "1", str(p.process.pid)):
                    parent = pathlib.Path(f"/proc/{parent}/stat").read_text().rsplit(")", 1)[1].split()[1]
                if parent == str(p.process.pid):
                    found.append(int(d.name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def test_a_start_and_a_drop_come_first(privd):
    c = privd.channel()
    keep_full(privd, c, 7, LONG)
    seq = c.send(ARCHIVE, kept_body(7))
    assert create_on(c, "ibusy", 7).status == -errno.EBUSY and archive(c, 7).status == -errno.EAGAIN
    assert c.ask(ARCHIVE_STOP, kept_body(7, OTHER)).status == -errno.EPERM
    assert c.ask(ARCHIVE_STOP, kept_body(7)).status == 0
    assert c.wait(seq).status in (0, -errno.ECANCELED)  # its last moment is not given up
    s = has_all(privd, c, "ifirst")
    assert c.ask(ARCHIVE_STOP, kept_body(7)).status == 0  # nothing is under way
    assert keep(c, s, 7).status == 0
    seq = c.send(ARCHIVE, kept_body(7))
    until(lambda: drop(c, 7).status == 0, what="the removal")
    assert c.wait(seq).status in (0, -errno.ECANCELED, -errno.EALREADY) and kepts(c) == set()


def at_work(p, step):
    """Whether the archiving of number 7 has come to that step."""
    if step == "job":
        return children(p, "cay-job")
    if step == "mksquashfs":
        return children(p, "mksquashfs")
    if step == "file":
        path = disk(p) / "archiving/7/archive"
        try:
            return path.stat().st_size > 1 * MIB
        except FileNotFoundError:
            return False
    if step == "sign":
        return children(p, "cay-seal")
    return (disk(p) / "kept/7/archive").exists()


@pytest.mark.parametrize("step", ["job", "mksquashfs", "file", "sign", "swapped"])
def test_cay_privd_killed_at_each_step(privd, step):
    """The number has the layer or the archive, whole, and nothing else is left. (A step that was missed is a kill at a later one.)"""
    c = privd.channel()
    keep_full(privd, c, 7, LONG)
    seq = c.send(ARCHIVE, kept_body(7))
    c.socket.settimeout(0.002)
    while not at_work(privd, step) and seq not in c.replies:
        try:
            c.receive()
        except TimeoutError:
            pass
    privd.crash()
    privd.start()
    c = privd.channel()
    assert kepts(c) == {7} and disk_names(privd, "archiving") == []
    has_all(privd, c, "iafter")


@pytest.mark.parametrize("name", ["cay-job", "mksquashfs", "cay-seal"])
def test_another_program_killed(privd, name):
    c = privd.channel()
    keep_full(privd, c, 7, LONG)
    seq = c.send(ARCHIVE, kept_body(7))
    c.socket.settimeout(0.002)
    killed = False
    while seq not in c.replies:
        for pid in [] if killed else children(privd, name):
            try:
                os.kill(pid, signal.SIGKILL)
                killed = True
            except ProcessLookupError:
                pass
        try:
            c.receive()
        except TimeoutError:
            pass
    status = c.replies.pop(seq).status
    assert status < 0 or not killed or name == "cay-seal", status
    c.socket.settimeout(30)
    assert kepts(c) == {7} and disk_names(privd, "archiving") == []
    has_all(privd, c, "iafter")


def started(c, name, number, account):
    return c.ask(privdlib.CREATE, create_body(name, number) + bytes(4 * 16) + struct.pack("<I", account))


def test_loop_devices_are_shared_out_by_account():
    """A tenant has half of four at most, and another finds one; also after cay-privd began anew. Control: with one ended there is another."""
    p = start_privd(0, slots_ready=1, archive_devices=4)
    try:
        c = p.channel()
        if c.ask(CAPACITY).text(32, 16) == "memory":
            pytest.skip("files are in memory here")
        assert c.ask(JOB, b"\1\0\0\0\1\0\0\0").status == 0
        for number in range(1, 6):
            s = c.create(f"isource{number}")
            assert s.status == 0 and keep(c, s, number).status == 0 and archive(c, number).status == 0
        assert keep(c, c.create("iplain"), 6).status == 0  # of no archive
        boxes = [started(c, f"ibox{number}", number, 7) for number in (1, 2)]
        assert [b.status for b in boxes] == [0, 0]
        r = started(c, "ibox3", 3, 7)
        assert (r.status, r.stage) == (-errno.EAGAIN, STAGE_ARCHIVE) and 3 in kepts(c)
        assert started(c, "iplain", 6, 7).status == 0  # the control: it needs none
        c.close()
        p.crash()
        p.start()
        c = p.channel()
        r = started(c, "ibox3", 3, 7)
        assert (r.status, r.stage) == (-errno.EAGAIN, STAGE_ARCHIVE)
        assert started(c, "iother", 4, 8).status == 0  # another's
        assert c.kill(boxes[0]).status == 0
        until(lambda: started(c, "ibox3", 3, 7).status == 0, what="a device is free again")
        for s in c.list().values():
            assert c.kill(s).status == 0
        for number, owner in owners(c).items():
            until(lambda number=number, owner=owner: drop(c, number, owner).status != -errno.EBUSY)
        c.close()
    finally:
        if p.process.poll() is None:
            assert p.stop() == 0, p.log.read_text()
            assert left_behind(p) == []
        shutil.rmtree(p.base, ignore_errors=True)
