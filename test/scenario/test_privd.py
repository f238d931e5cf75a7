"""privd alone: many at once, crashes at every moment, nothing left after a stop."""

import contextlib
import errno
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import time

import pytest

import privdlib
from leftovers import cgroup_name
from privdlib import CAPACITY, CONNECT, CREATE, ENDED, HOST, JOB, KILL, LIST, MIB, PROGRESS, STAT, TEMPLATES
from waitlib import until

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CAY_BUILD", REPOSITORY / "build"))
STAGE_PERMIT, STAGE_TEMPLATE, STAGE_LEVEL = 1, 2, 12


def is_claimed(privd, slot):
    """Not one that only waits to become a sandbox's: its record (src/privd/records.h) has an id."""
    try:
        with open(f"{privd.run}/slots/table", "rb") as table:
            table.seek(slot * 256 + 80)
            return table.read(1) not in (b"", b"\0")
    except FileNotFoundError:
        return True


def slot_processes(privd, claimed=True):
    """Host pids in the sandboxes' control groups, or in those of slots that wait."""
    found = set()
    for root, _, files in os.walk("/sys/fs/cgroup"):
        slot = re.search(f"/{cgroup_name(privd.state)}/([0-9]+)(?:/|$)", root)
        if slot and "cgroup.procs" in files and is_claimed(privd, int(slot[1])) == claimed:
            try:
                found |= {int(line) for line in open(f"{root}/cgroup.procs")}
            except OSError:
                pass
    return found


def left_behind(privd):
    """The objects that a stopped privd must not leave: control groups, mounts, loop devices, run files, processes."""
    left = []
    for root, dirs, _ in os.walk("/sys/fs/cgroup"):
        left += [f"{root}/{d}" for d in dirs if d.startswith(cgroup_name(privd.state))]
    mine = re.escape(str(privd.base))
    left += [line for line in open("/proc/self/mountinfo") if re.search(mine, line)]
    loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True).stdout
    left += [line for line in loops.splitlines() if str(privd.base) in line]
    left += [str(p) for p in privd.run.iterdir()]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if str(privd.base).encode() in command and b"pytest" not in command:
            left.append(command)
    return left


def request_health(fd):
    with socket.socket(fileno=fd) as s:
        s.settimeout(10)
        s.connect(("127.0.0.1", 49983))
        s.send(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Cay-Agent-Key: " + (b"k" * 32).hex().encode() + b"\r\n\r\n")
        return s.recv(200).split(b"\r\n")[0]


@pytest.fixture
def privd():
    if os.geteuid() != 0:
        pytest.skip("privd needs root")
    base = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-privd-", dir="/var/tmp"))
    p = privdlib.Privd(BUILD, base).start()
    yield p
    if p.process.poll() is None:
        assert p.stop() == 0, p.log.read_text()
        assert left_behind(p) == []
    shutil.rmtree(base, ignore_errors=True)


def test_command_sandboxes_are_bounded_numbered_once_and_end_with_who_asked(privd):
    with contextlib.closing(privd.channel()) as c:
        assert c.ask(JOB, struct.pack("<II", 1, HOST)).status == 0
        s = c.create("icommands")
        alone = slot_processes(privd)
        inner = [c.command_sandbox(s) for _ in range(8)]
        assert [r.status for r in inner] == [0] * 8 and [r.number for r in inner] == list(range(1, 9))
        assert len(slot_processes(privd)) == len(alone) + 8
        refused = c.command_sandbox(s)
        assert refused.status == -errno.EMFILE and not refused.fds
        for r in inner:
            assert len(r.fds) == 6
            for fd in r.fds[1:]:
                os.close(fd)
            assert b" 401 " in request_health(r.fds[0]) or b" 403 " in request_health(r.fds[0])
        assert c.command_sandbox_end(s, 3).status == 0 and c.command_sandbox_end(s, 3).status == -errno.ENOENT
        again = c.command_sandbox(s)
        assert again.status == 0 and again.number == 9  # 3 is free again
        for fd in again.fds:
            os.close(fd)
    until(lambda: slot_processes(privd) == alone)  # the channel's end is theirs; the sandbox's not
    with contextlib.closing(privd.channel()) as c:
        assert c.command_sandbox_end(s, 9).status == -errno.ENOENT
        assert c.kill(s).status == 0 and c.command_sandbox(s).status == -errno.ESTALE


def descriptors_of(pid):
    """The descriptors that the process has open, by kind."""
    return sorted(re.sub(r"[0-9]+", "N", os.readlink(f"/proc/{pid}/fd/{fd}")) for fd in os.listdir(f"/proc/{pid}/fd"))


def test_many_held_ones_change_nothing(privd):
    """From some number on, privd's tasks get no copies of the descriptors that it holds (task_hold): a task that needs one has its
    own, before and after privd is another, and a sandbox begins with the same as the first."""
    with contextlib.closing(privd.channel()) as c:
        assert c.ask(JOB, struct.pack("<II", 1, HOST)).status == 0
        none = slot_processes(privd)
        all_of_them = [c.create("ifirst", disk=16 * MIB)]
        first, = slot_processes(privd) - none
        all_of_them += [c.create(f"iheld{n}", disk=16 * MIB) for n in range(80)]
        assert all(s.status == 0 for s in all_of_them)
        known = slot_processes(privd)
        all_of_them.append(c.create("ilast", disk=16 * MIB))
        last, = slot_processes(privd) - known
        # a PID 1 closes the socket that it says it is ready on a moment after that
        until(lambda: descriptors_of(last) == descriptors_of(first), what=lambda: (descriptors_of(last), descriptors_of(first)))
    for _ in range(2):
        with contextlib.closing(privd.channel()) as c:
            r = c.command_sandbox(all_of_them[-1])
            assert r.status == 0
            for fd in r.fds[1:]:
                os.close(fd)
            assert b" 401 " in request_health(r.fds[0]) or b" 403 " in request_health(r.fds[0])
            assert c.command_sandbox_end(all_of_them[-1], r.number).status == 0
            assert c.kill(all_of_them.pop(0)).status == 0
            assert len(c.list()) == len(all_of_them)
        privd.crash()
        privd.start()


def test_a_privd_that_begins_ends_the_command_sandboxes_of_another(privd):
    with contextlib.closing(privd.channel()) as c:
        assert c.ask(JOB, struct.pack("<II", 1, HOST)).status == 0
        s = c.create("icommands")
        alone = slot_processes(privd)
        for fd in c.command_sandbox(s).fds:
            os.close(fd)
        assert len(slot_processes(privd)) == len(alone) + 1
        privd.crash()
    privd.start()
    until(lambda: slot_processes(privd) == alone)
    with contextlib.closing(privd.channel()) as c:
        assert "icommands" in c.list()
        r = c.command_sandbox(s)
        assert r.status == 0 and r.number > 1  # no number of before comes again
        for fd in r.fds:
            os.close(fd)


def test_twenty_at_once(privd):
    c = privd.channel()
    seqs = [c.send_create(f"i{n}") for n in range(20)]
    boxes = [c.wait(seq) for seq in seqs]
    assert [(b.status, b.stage) for b in boxes] == [(0, 0)] * 20
    assert len({b.slot for b in boxes}) == 20
    assert set(c.list()) == {f"i{n}" for n in range(20)}
    for b in boxes:
        stat = c.ask(STAT, slot=b.slot, gen=b.gen)
        assert stat.status == 0
        used, limit, _, cpu, _, disk_limit, cpu_milli, pids = stat.unpack("QQQQQQII")
        assert 0 < used < limit == 256 * MIB and cpu > 0 and disk_limit == 256 * MIB
        assert cpu_milli == 1000 and pids >= 1
        r = c.connect(b, 2)
        assert r.status == 0 and len(r.fds) == 2
        assert request_health(r.fds[0]).startswith(b"HTTP/1.1 204")
        os.close(r.fds[1])
    seqs = [c.send(KILL, slot=b.slot, gen=b.gen) for b in boxes]
    assert [c.wait(seq).status for seq in seqs] == [0] * 20
    assert c.list() == {} and slot_processes(privd) == set()
    for b in boxes:  # until it is taken apart, one more kill is one of what ends already
        until(lambda: c.kill(b).status == -errno.ESTALE)


def test_slots_are_made_again(privd):
    """A moment after a create, when there are enough; at once when there are not. None is forgotten."""
    c = privd.channel()
    assert c.kill(c.create("ifirst")).status == 0  # says what to keep warm
    for n in (1, 3, 6, 12):
        until(lambda: c.ask(CAPACITY).unpack("III")[1] == 8 + 2)
        boxes = [c.create(f"i{n}x{i}") for i in range(n)]
        assert [b.status for b in boxes] == [0] * n
        assert [c.kill(b).status for b in boxes] == [0] * n
    until(lambda: c.ask(CAPACITY).unpack("III")[1] == 8 + 2)


def test_speed(privd, capsys):
    """Prints; asserts nothing of time."""
    c = privd.channel()
    times, ends = [], []
    for n in range(60):
        began = time.monotonic()
        b = c.create(f"i{n}")
        times.append((time.monotonic() - began) * 1000)
        assert b.status == 0
        began = time.monotonic()
        assert c.kill(b).status == 0
        ends.append((time.monotonic() - began) * 1000)
        time.sleep(0.03)
    with capsys.disabled():
        print(f"\n  create to ready: p50 {statistics.median(times):.1f} ms, p90 {sorted(times)[53]:.1f}; "
              f"kill to gone: p50 {statistics.median(ends):.1f} ms")


def test_it_has_given_up_what_it_does_not_need(privd):
    status = dict(line.split(":\t") for line in open(f"/proc/{privd.process.pid}/status") if ":\t" in line)
    bounding, permitted = int(status["CapBnd"], 16), int(status["CapPrm"], 16)
    for name, bit in (("net_raw", 13), ("sys_module", 16), ("sys_rawio", 17), ("sys_boot", 22), ("sys_time", 25),
                      ("syslog", 34), ("mac_admin", 33), ("bpf", 39)):
        assert not (bounding | permitted) >> bit & 1, name
    root = f"/proc/{privd.process.pid}/root"
    assert not os.path.exists(f"{root}/home") and not os.path.exists(f"{root}/var/log")
    # Of root's home nothing, but for the programs where it is they that are there.
    programs = [BUILD / "src/agent", BUILD / "src/job"]
    for directory, _, files in os.walk(f"{root}/root"):
        there = pathlib.Path("/", directory.removeprefix(root))
        assert there == pathlib.Path("/root") and not files or any(
            p.is_relative_to(there) and not files or there.is_relative_to(p) for p in programs), there
    assert os.statvfs(f"{root}/usr").f_flag & os.ST_RDONLY and os.statvfs(f"{root}/etc").f_flag & os.ST_RDONLY


def test_an_end_nobody_asked_for_is_told(privd):
    c = privd.channel()
    b = c.create("iends")
    assert b.status == 0
    victims = slot_processes(privd)
    assert victims
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    ended = c.wait_event(ENDED)
    assert (ended.slot, ended.gen, ended.text(0, 32)) == (b.slot, b.gen, "iends")
    cause, status = struct.unpack_from("<Ii", ended.body, 32)
    assert (cause, status) == (2, signal.SIGKILL)
    until(lambda: c.kill(b).status == -errno.ESTALE)


@pytest.mark.parametrize("change, status", [
    ({"template": 0}, errno.EINVAL), ({"template": 1025}, errno.EINVAL), ({"template": 1024}, errno.ENOENT), ({"template": 3}, errno.ENOENT),
    ({"template": 2}, errno.ENOENT), ({"level": 7}, errno.EINVAL),
    ({"flags": 1}, errno.EINVAL), ({"memory": 0}, errno.EINVAL), ({"memory": 1 << 60}, errno.EINVAL),
    ({"cpu": 0}, errno.EINVAL), ({"pids": 0}, errno.EINVAL), ({"files": 1 << 30}, errno.EINVAL),
    ({"disk": 0}, errno.EINVAL)])
def test_a_create_out_of_range_is_refused(privd, change, status):
    c = privd.channel()
    m = c.create("irefused", **change)
    assert m.status == -status and m.stage in (STAGE_PERMIT, STAGE_TEMPLATE)
    assert c.list() == {} and c.ask(CAPACITY).status == 0


@pytest.mark.parametrize("level, name", [(1, "gvisor"), (2, "vm")])
def test_a_level_that_is_not_there_is_refused_with_the_reason(privd, level, name):
    c = privd.channel()
    m = c.create("irefused", level=level)
    assert (m.status, m.stage) == (-errno.EOPNOTSUPP, STAGE_LEVEL)
    why = m.text(0, 192)
    assert why == f"this build has no driver for the isolation level {name}"
    assert c.list() == {}


def test_names_are_checked(privd):
    c = privd.channel()
    for name in ("", "i/../..", "i x", "I", "i" * 32, "i\n"):
        assert c.create(name).status == -errno.EINVAL
    assert c.create("itwice").status == 0
    assert c.create("itwice").status == -errno.EEXIST


def test_nobody_elses_generation(privd):
    c = privd.channel()
    b = c.create("igen")
    for gen in (b.gen - 1, b.gen + 1):
        for op in (KILL, STAT, CONNECT):
            assert c.ask(op, struct.pack("<I", 1), slot=b.slot, gen=gen).status == -errno.ESTALE
    assert c.ask(STAT, slot=1 << 31, gen=1).status == -errno.EINVAL
    assert c.ask(CONNECT, struct.pack("<I", 17), slot=b.slot, gen=b.gen).status == -errno.EINVAL
    assert c.ask(STAT, slot=b.slot, gen=b.gen).status == 0


def test_sandboxes_survive_a_crash(privd):
    c = privd.channel()
    boxes = [c.create(f"i{n}") for n in range(5)]
    before = slot_processes(privd)
    privd.crash()
    privd.start()
    c = privd.channel()
    items = c.list()
    assert {name: (m.slot, m.gen) for name, m in items.items()} == \
        {f"i{n}": (b.slot, b.gen) for n, b in enumerate(boxes)}
    assert before <= slot_processes(privd)
    for b in boxes[1:]:
        r = c.connect(b)
        assert r.status == 0 and request_health(r.fds[0]).startswith(b"HTTP/1.1 204")
        assert c.ask(STAT, slot=b.slot, gen=b.gen).status == 0
    assert c.kill(boxes[0]).status == 0
    new = c.create("inew")
    assert new.status == 0 and (new.slot, new.gen) not in {(b.slot, b.gen) for b in boxes}
    # one that ends while there is no peer is found gone
    privd.crash()
    for pid in slot_processes(privd):
        os.kill(pid, signal.SIGKILL)
    privd.start()
    assert privd.channel().list() == {}


def test_leaving_is_like_a_crash(privd):
    c = privd.channel()
    b = c.create("istays")
    assert privd.leave() == 0
    privd.start()
    assert {name: (m.slot, m.gen) for name, m in privd.channel().list().items()} == {"istays": (b.slot, b.gen)}


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 4, 6, 8, 11, 15, 20, 30, 45])
def test_killed_in_the_middle_of_creates(privd, after_ms):
    """Each is then found again as a whole, or gone without a trace."""
    c = privd.channel()
    kept = c.create("ikept")
    seqs = [c.send_create(f"i{n}") for n in range(12)]
    kills = [c.send(KILL, slot=kept.slot, gen=kept.gen)] if after_ms % 2 else []
    time.sleep(after_ms / 1000)
    privd.crash()
    privd.start()
    c = privd.channel()
    items = c.list()
    assert set(items) <= {f"i{n}" for n in range(12)} | {"ikept"}
    assert kills or "ikept" in items
    for m in items.values():
        r = c.connect(m)
        assert r.status == 0 and request_health(r.fds[0]).startswith(b"HTTP/1.1 204")
    after = c.create("iafter")
    assert seqs and after.status == 0, f"{after.status} at stage {after.stage}"
    for m in items.values():
        assert c.kill(m).status == 0
    assert set(c.list()) == {"iafter"}


def test_a_start_that_fails_is_undone(privd, tmp_path):
    """A program that is no cay-init: it ends without its ready byte."""
    assert privd.stop() == 0
    agent = tmp_path / "agent"
    shutil.copy(shutil.which("true"), agent)
    privd.command = [arg for arg in privd.command if not arg.startswith("--agent=")] + [f"--agent={agent}"]
    privd.start()
    c = privd.channel()
    for n in range(3):
        m = c.create(f"i{n}")
        assert m.status < 0 and m.stage > STAGE_TEMPLATE
    assert c.list() == {} and slot_processes(privd) == set()


def test_two_at_a_time_are_refused(privd):
    second = subprocess.run(privd.command, capture_output=True, text=True, timeout=10)
    assert second.returncode == 1 and "another cay-privd" in second.stderr
    assert privd.channel().create("istill").status == 0


def test_the_limit_of_slots(privd):
    assert privd.stop() == 0
    privd.command += ["--slots-max=3", "--slots-ready=8"]
    privd.start()
    c = privd.channel()
    boxes = [c.create(f"i{n}") for n in range(3)]
    assert [b.status for b in boxes] == [0, 0, 0]
    assert c.create("imore").status == -errno.EAGAIN
    assert c.kill(boxes[0]).status == 0
    assert c.create("imore").status == 0


def test_templates_and_jobs(privd):
    c = privd.channel()
    assert c.ask(TEMPLATES).status == 0
    (template,) = [m.unpack("IIqQ") for m in c.events]
    assert template[:2] == (HOST, 1) and template[3] > 0
    box = c.create("iuses")
    assert c.ask(JOB, struct.pack("<II", 2, HOST)).status == -errno.EBUSY  # in use
    assert c.ask(JOB, struct.pack("<II", 2, 9)).status == -errno.ENOENT
    assert c.ask(JOB, struct.pack("<II", 7, HOST)).status == -errno.EOPNOTSUPP
    assert c.ask(JOB, struct.pack("<II", 1, HOST)).status == 0  # anew, below a sandbox that lives
    assert any(m.op == PROGRESS for m in c.events)
    r = c.connect(box)
    assert request_health(r.fds[0]).startswith(b"HTTP/1.1 204")
    assert c.kill(box).status == 0
    assert c.ask(JOB, struct.pack("<II", 2, HOST)).status == 0
    m = c.create("inone")
    assert (m.status, m.stage) == (-errno.ENOENT, STAGE_TEMPLATE)


def test_stop_with_sandboxes_and_a_job(privd):
    c = privd.channel()
    for n in range(10):
        c.send_create(f"i{n}")
    c.send(JOB, struct.pack("<II", 1, HOST))
    until(lambda: slot_processes(privd))
    # the fixture stops it and looks for what is left
