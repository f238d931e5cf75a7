"""DUMP: cay-privd has what runs in a sandbox kept beside its files, sealed; CREATE with that memory has it go on."""

import contextlib
import errno
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile

import pytest

import privdlib
from agentlib import Agent
from conftest import BUILD, REPOSITORY
from leftovers import cgroup_name
from privdlib import CAPACITY, HOST, JOB, MIB
from test_checkpoint import CHECKPOINT, COUNTER, CRIU, counts, goes_on, kill_inside
from test_checkpoint_restore import processes, walls
from test_kept import KEEP, NONE, OTHER, OWNER, create_body, create_on, drop, inside, kept_body, kepts, marks, owners, pid_of
from test_privd import left_behind
from test_seal import SEAL
from waitlib import stop_one, until

DUMP, STAGE_MEMORY = 22, 14


@pytest.fixture(scope="module", autouse=True)
def needs():
    if os.geteuid() != 0:
        pytest.skip("privd needs root")
    found = subprocess.run([REPOSITORY / "scripts/criu", "--check", CRIU], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip(found.stderr.strip())


def start_privd(**options):
    base = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-dump-", dir="/var/tmp"))
    return privdlib.Privd(BUILD, base, slots_ready=1, **options).start()


def stop_privd(p):
    if p.process.poll() is None:
        assert p.stop() == 0, p.log.read_text()
        assert left_behind(p) == []
    shutil.rmtree(p.base, ignore_errors=True)


@pytest.fixture(scope="module")
def server():
    p = start_privd(checkpoint=CHECKPOINT, seal=SEAL)
    c = p.channel()
    if c.ask(CAPACITY).text(32, 16) == "memory":
        stop_privd(p)
        pytest.skip("files are in memory here")
    assert c.ask(JOB, b"\1\0\0\0\1\0\0\0").status == 0
    c.close()
    yield p
    stop_privd(p)


@pytest.fixture
def privd(server):
    yield server
    c = server.channel()
    for s in c.list().values():
        assert c.kill(s).status == 0
    for number, owner in owners(c).items():
        assert drop(c, number, owner).status == 0
    c.close()


class Box:
    """A sandbox of cay-privd's alone, with a counter in it."""

    def __init__(self, privd, c, name, **options):
        self.reply = c.create(name, **options)
        assert self.reply.status == 0
        self.slot, self.gen = self.reply.slot, self.reply.gen
        self.pid = pid_of(privd, self)
        self.agent = Agent(49983, self.pid, None, (b"k" * 32).hex())
        assert self.agent.sh(COUNTER + "sleep 0.3", user="root").end["exited"]


def send_dump(c, s, number, account=0):
    return c.send(DUMP, struct.pack("<IIII", number, 0, 0, account) + OWNER, slot=s.slot, gen=s.gen)


def dump(c, s, number, account=0):
    return c.wait(send_dump(c, s, number, account))


def kept_dir(p, number):
    return pathlib.Path(f"/proc/{p.process.pid}/root/{p.state}/disk/kept/{number}")


def in_group(pid, group):
    return any(group in line for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines())


def programs_at_work(p, group="-jobs/", names=("cay-checkpoint", "criu", "cay-seal")):
    """The programs of this cay-privd that work on a dump."""
    found = []
    for d in pathlib.Path("/proc").iterdir():
        try:
            if d.name.isdigit() and (d / "comm").read_text().strip() in names:
                if in_group(d.name, f"/{cgroup_name(p.state)}{group}"):
                    found.append(d.name)
        except OSError:
            continue
    return found


def image_groups(p):
    """The control groups of what works on images, by number."""
    found = set()
    for root, dirs, _ in os.walk("/sys/fs/cgroup"):
        if root.endswith(f"/{cgroup_name(p.state)}-jobs"):
            found |= {int(d) for d in dirs if d.isdigit() and int(d) >= 16}
    return sorted(found)


def test_memory_is_kept_sealed_beside_the_files(privd):
    c = privd.channel()
    box = Box(privd, c, "ifirsta")
    assert box.agent.sh("cp /proc/sys/kernel/random/uuid /run/word; cat /run/word > /root/mark", user="root").end
    word = box.agent.sh("cat /run/word", user="root").text().strip()
    box.agent.prepare()
    r = dump(c, box, 7)
    assert (r.status, r.unpack("I")[0]) == (0, 7)
    assert c.list() == {} and kepts(c) == {7} and not pathlib.Path(f"/proc/{box.pid}").exists()
    image = kept_dir(privd, 7) / "image"
    assert image.stat().st_mode == 0o100600 and image.stat().st_uid == 0
    # the sandbox's memory is not to be read in it; control: it was, and is sealed in it whole
    assert word.encode() not in image.read_bytes() and image.stat().st_size > MIB
    key = privd.state / "seal.key"
    assert key.stat().st_mode == 0o100600 and key.stat().st_size == 32
    # its files go on without its memory, which then is of another moment
    t = create_on(c, "inextb", 7)
    assert t.status == 0 and word in marks(privd, t)
    layer, = (kept_dir(privd, 7).parents[1] / "layers").glob(f"{t.slot}.*")
    assert not (layer / "image").exists()
    assert c.kill(t).status == 0


def test_while_it_is_dumped(privd):
    """It is not used, and can be looked at."""
    c = privd.channel()
    box, other = Box(privd, c, "iboxb"), Box(privd, c, "iotherc")
    box.agent.prepare()
    seq = send_dump(c, box, 7)
    assert c.connect(box).status == -errno.EBUSY and c.freeze(box).status == -errno.EBUSY
    assert c.ask(privdlib.STAT, slot=box.slot, gen=box.gen).status == 0
    assert c.wait(seq).status == 0
    goes_on(other.pid)
    assert dump(c, other, 7).status == -errno.EEXIST
    assert c.kill(other).status == 0 and drop(c, 7).status == 0


def stand_still(privd, but=()):
    """CRIU of a dump stands still, as it does where the sandbox makes it slow: the one that cay-checkpoint started, and no child of it."""
    def is_started(pid):
        with contextlib.suppress(OSError):
            parent = re.search(r"^PPid:\t(\d+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1]
            return pathlib.Path(f"/proc/{parent}/comm").read_text() == "cay-checkpoint\n"
        return False

    def criu():
        return [pid for pid in programs_at_work(privd, names=("criu",)) if pid not in but and is_started(pid)]

    pids = until(criu, every=0.005)
    for pid in pids:
        os.kill(int(pid), signal.SIGSTOP)
    return pids


def test_dumps_that_take_long_hold_back_those_of_their_account_alone(privd):
    c = privd.channel()
    boxes = [Box(privd, c, f"ibox{n}") for n in range(4)]
    stopped, seqs = [], []
    for number in (0, 1):
        boxes[number].agent.prepare()
        seqs.append(send_dump(c, boxes[number], 7 + number, account=1))
        stopped += stand_still(privd, stopped)
    assert dump(c, boxes[2], 9, account=1).status == -errno.EAGAIN  # its share is two of four
    boxes[3].agent.prepare()
    assert dump(c, boxes[3], 10, account=2).status == 0
    goes_on(boxes[2].pid)
    assert kepts(c) == {10} and set(c.list()) == {"ibox0", "ibox1", "ibox2"}
    for pid in stopped:
        os.kill(int(pid), signal.SIGCONT)
    assert [c.wait(seq).status for seq in seqs] == [0, 0]
    boxes[2].agent.prepare()
    assert dump(c, boxes[2], 9, account=1).status == 0  # the control: there is a place again
    assert kepts(c) == {7, 8, 9, 10}
    until(lambda: image_groups(privd) == [])


def test_restores_are_shared_out_too(privd):
    c = privd.channel()
    boxes = [Box(privd, c, f"ibox{n}") for n in range(5)]
    for number, box in enumerate(boxes):
        box.agent.prepare()
        assert dump(c, box, 7 + number).status == 0
    seqs = [send_restore(c, f"inext{n}", 7 + n, account=n // 4) for n in range(5)]
    assert c.wait(seqs[3]).status == -errno.EAGAIN
    assert [c.wait(seqs[n]).status for n in (0, 1, 2, 4)] == [0, 0, 0, 0]
    assert kepts(c) == {10}
    restored(privd, c, "inext3", 10)  # the control
    until(lambda: image_groups(privd) == [], what="what opened the images leaves nothing")


def test_what_cannot_be_kept_goes_on_and_is_named(privd):
    c = privd.channel()
    box = Box(privd, c, "iboxd")
    assert box.agent.sh("setsid python3 -c 'import ctypes, time; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); time.sleep(1000)' "
                        "> /dev/null 2>&1 < /dev/null & sleep 2", user="root").end
    box.agent.prepare()
    r = dump(c, box, 7)
    assert r.status == -errno.EOPNOTSUPP
    assert re.fullmatch(r"process \d+ has set no_new_privs: a Landlock domain would be lost", r.text(0, 192)), r.text(0, 192)
    goes_on(box.pid)
    assert kepts(c) == set() and list(c.list()) == ["iboxd"]
    layer, = (kept_dir(privd, 7).parents[1] / "layers").glob(f"{box.slot}.*")
    assert not (layer / "image").exists() and programs_at_work(privd) == []
    kill_inside(box.pid, b"time.sleep(1000)")
    assert dump(c, box, 7).status == 0  # control: it was that process
    assert kepts(c) == {7}


def test_memory_for_which_its_disk_has_no_room_goes_on(privd):
    """Control: with room it is kept (above)."""
    c = privd.channel()
    box = Box(privd, c, "iboxe", disk=16 * MIB)
    hold = "setsid python3 -c 'import os, time; x = os.urandom(40_000_000); time.sleep(1000)' > /dev/null 2>&1 < /dev/null & sleep 2"
    assert box.agent.sh(hold, user="root").end
    box.agent.prepare()
    r = dump(c, box, 7)
    assert r.status in (-errno.EDQUOT, -errno.ENOSPC), r.text(0, 192)
    assert kepts(c) == set()
    goes_on(box.pid)


def test_a_dump_that_is_cut_leaves_nothing_of_its_image(privd):
    """Its task is killed, as at the deadline: the files alone are kept. Control: the file was there."""
    c = privd.channel()
    box = Box(privd, c, "iboxn")
    assert box.agent.sh("echo one > /root/mark", user="root").end
    box.agent.prepare()
    seq = send_dump(c, box, 7)
    criu = stand_still(privd)
    layer, = (kept_dir(privd, 7).parents[1] / "layers").glob(f"{box.slot}.*")
    assert (layer / "image").exists()
    task, = programs_at_work(privd, names=("cay-privd",))
    os.kill(int(task), signal.SIGKILL)
    assert c.wait(seq).status == -errno.ECHILD
    until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in criu))
    assert kepts(c) == {7} and not (kept_dir(privd, 7) / "image").exists()
    r = restore(c, "inextn", 7)
    assert (r.status, r.stage) == (-errno.ENOENT, STAGE_MEMORY)
    t = create_on(c, "inextn", 7)
    assert t.status == 0 and "one" in marks(privd, t)
    until(lambda: image_groups(privd) == [], what="nothing is left of the task's control group")


def hold_memory(box):
    """So that a dump takes a while, and calls come meanwhile on a busy machine too."""
    assert box.agent.sh("setsid python3 -c 'import os, time; held = os.urandom(64 << 20); open(\"/tmp/held\", \"w\"); time.sleep(1000)' "
                        "> /dev/null 2>&1 < /dev/null & until [ -e /tmp/held ]; do sleep 0.05; done", user="root").end


def test_one_that_is_killed_meanwhile_is_not_kept(privd):
    c = privd.channel()
    box = Box(privd, c, "iboxf")
    hold_memory(box)
    box.agent.prepare()
    seq = send_dump(c, box, 7)
    until(lambda: programs_at_work(privd), every=0.005)
    assert c.kill(box).status == 0
    assert c.wait(seq).status == -errno.ESTALE
    until(lambda: not programs_at_work(privd))
    assert c.list() == {} and kepts(c) == set()


def test_files_are_kept_where_privd_dies_meanwhile(privd):
    """CRIU dies with it, so that it is not known whether the processes are whole: they end."""
    c = privd.channel()
    box = Box(privd, c, "iboxg")
    assert box.agent.sh("echo one > /root/mark", user="root").end
    hold_memory(box)
    box.agent.prepare()
    send_dump(c, box, 7)
    until(lambda: programs_at_work(privd), every=0.005)
    privd.crash()
    privd.start()
    until(lambda: not programs_at_work(privd))
    c = privd.channel()
    assert c.list() == {} and kepts(c) == {7}
    until(lambda: not pathlib.Path(f"/proc/{box.pid}").exists())
    assert not (kept_dir(privd, 7) / "image").exists()  # of which there was a part
    t = create_on(c, "inextg", 7)
    assert t.status == 0 and "one" in marks(privd, t)


def test_without_its_programs_it_is_refused_with_the_reason():
    p = start_privd()
    c = p.channel()
    assert c.ask(JOB, b"\1\0\0\0\1\0\0\0").status == 0
    s = c.create("ibox", template=HOST)
    r = dump(c, s, 7)
    assert r.status == -errno.EOPNOTSUPP and "cay-checkpoint" in r.text(0, 192)
    assert list(c.list()) == ["ibox"]
    stop_privd(p)


def send_restore(c, name, number, owner=OWNER, account=0):
    volumes = bytes(4 * 16)
    return c.send(privdlib.CREATE, create_body(name, number, owner=owner, flags=2) + volumes + struct.pack("<I", account))


def restore(c, name, number, owner=OWNER):
    return c.wait(send_restore(c, name, number, owner))


def restored(p, c, name, number):
    s = restore(c, name, number)
    assert s.status == 0, p.log.read_text()[-1500:]
    for fd in s.fds:
        os.close(fd)
    return s


def steady(read):
    """The counter's own shell forks others of that name, which are gone in a moment."""
    found = []

    def once():
        with contextlib.suppress(FileNotFoundError):
            found.append(read())
        return bool(found)

    until(once)
    return found[0]


def leaf(p, s, pid):
    """In its slot's directory: "work" of programs of its tenant, another or none of PID 1."""
    own = f"/{cgroup_name(p.state)}/{s.slot}"
    lines = [line.split(":", 2)[2] for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    return {line.removeprefix(own) for line in lines if line.startswith(own)}


def memory_limit(pid):
    """Of the control group that it is in."""
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for file in (f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes", f"/sys/fs/cgroup{path}/memory.max"):
            if ("memory" in controllers.split(",") or not controllers) and os.path.exists(file):
                return int(pathlib.Path(file).read_text())
    return None


def test_the_image_of_a_restore_is_opened_within_a_limit(privd):
    """cay-seal is in a control group of its own, which is gone afterwards."""
    c = privd.channel()
    box = Box(privd, c, "ifirsto")
    hold = "setsid python3 -c 'import os, time; x = os.urandom(100_000_000); time.sleep(1000)' > /dev/null 2>&1 < /dev/null & sleep 3"
    assert box.agent.sh(hold, user="root").end
    box.agent.prepare()
    assert dump(c, box, 7).status == 0
    seq = send_restore(c, "inexto", 7)
    seal, = until(lambda: programs_at_work(privd, names=("cay-seal",)), every=0.002)
    os.kill(int(seal), signal.SIGSTOP)
    limit = memory_limit(seal)
    group, = image_groups(privd)
    os.kill(int(seal), signal.SIGCONT)
    assert limit == (256 + 1024) * MIB
    t = c.wait(seq)
    assert t.status == 0
    goes_on(pid_of(privd, t))
    until(lambda: image_groups(privd) == [], what="its control group is gone")


def test_what_ran_goes_on(privd):
    """In another slot, behind the same walls, under its new name; it can be ended like any."""
    c = privd.channel()
    box = Box(privd, c, "ifirsth")
    assert box.agent.sh("echo kept > /run/kept; echo kept > /root/kept", user="root").end
    before, of_pid_1 = steady(lambda: walls(box.pid)), leaf(privd, box, box.pid)
    box.agent.prepare()
    assert dump(c, box, 7).status == 0
    at = int((kept_dir(privd, 7) / "root/tmp/count").read_text())
    t = restored(privd, c, "iafter", 7)
    pid = pid_of(privd, t)
    assert counts(pid) >= at
    goes_on(pid)
    assert steady(lambda: walls(pid)) == before
    assert inside(privd, t, "cat /run/kept /root/kept").split() == ["kept", "kept"]
    assert subprocess.run(["nsenter", f"--uts=/proc/{pid}/ns/uts", "hostname"], capture_output=True, text=True).stdout == "iafter\n"
    assert leaf(privd, t, pid) == of_pid_1 and "/work" not in of_pid_1
    assert "/work" in steady(lambda: leaf(privd, t, processes(pid)["sh"]))
    layer, = (kept_dir(privd, 7).parents[1] / "layers").glob(f"{t.slot}.*")
    assert not (layer / "image").exists() and kepts(c) == set()
    assert c.freeze(t).status == 0 and c.thaw(t).status == 0
    assert list(c.list()) == ["iafter"]
    assert c.kill(t).status == 0
    until(lambda: not pathlib.Path(f"/proc/{pid}").exists())


def test_a_restored_one_outlives_privd_and_is_dumped_again(privd):
    c = privd.channel()
    box = Box(privd, c, "ifirsti")
    box.agent.prepare()
    assert dump(c, box, 7).status == 0
    t = restored(privd, c, "ilives", 7)
    pid = pid_of(privd, t)
    privd.crash()
    privd.start()
    c = privd.channel()
    assert list(c.list()) == ["ilives"] and pid_of(privd, t) == pid
    goes_on(pid)
    assert dump(c, t, 8).status == 0 and kepts(c) == {8}
    u = restored(privd, c, "ithird", 8)
    goes_on(pid_of(privd, u))


def flip(path, at):
    with open(path, "r+b") as image:
        image.seek(at)
        byte = image.read(1)
        image.seek(at)
        image.write(bytes([byte[0] ^ 1]))


def test_an_image_that_was_changed_is_not_read(privd):
    """Nor one of another's; it stays kept as it is. Control: with the byte as it was it is restored."""
    c = privd.channel()
    box = Box(privd, c, "ifirstj")
    box.agent.prepare()
    assert dump(c, box, 7).status == 0
    image = kept_dir(privd, 7) / "image"
    for at in (0, 100, 209, image.stat().st_size // 2, image.stat().st_size - 1):
        flip(image, at)
        r = restore(c, "inextk", 7)
        assert r.status < 0 and r.stage == STAGE_MEMORY, at
        assert kepts(c) == {7} and c.list() == {}
        flip(image, at)
    content = image.read_bytes()
    image.write_bytes(content[:-70000])
    assert restore(c, "inextk", 7).stage == STAGE_MEMORY
    image.write_bytes(content)
    # one of a sandbox of the same template, and of another owner
    other = Box(privd, c, "iotherk")
    other.agent.prepare()
    assert c.wait(c.send(DUMP, kept_body(8, OTHER), slot=other.slot, gen=other.gen)).status == 0
    foreign = kept_dir(privd, 8) / "image"
    own, theirs = image.read_bytes(), foreign.read_bytes()
    image.write_bytes(theirs)
    r = restore(c, "inextk", 7)
    assert r.status == -errno.ESTALE and r.stage == STAGE_MEMORY
    image.write_bytes(own)
    t = restored(privd, c, "iwhole", 7)
    goes_on(pid_of(privd, t))


def test_files_without_memory_are_not_restored(privd):
    c = privd.channel()
    box = Box(privd, c, "ifirstl")
    assert c.ask(KEEP, kept_body(7), slot=box.slot, gen=box.gen).status == 0
    r = restore(c, "inextl", 7)
    assert (r.status, r.stage) == (-errno.ENOENT, STAGE_MEMORY) and kepts(c) == {7}
    assert restore(c, "inextl", 0, NONE).status == -errno.EINVAL
    assert c.ask(privdlib.CREATE, create_body("inextl", 7, flags=4)).status == -errno.EINVAL
    r = c.ask(privdlib.CREATE, create_body("inextl", 7, flags=3))
    assert (r.status, r.stage) == (-errno.ENOENT, STAGE_MEMORY) and kepts(c) == {7}
    assert create_on(c, "inextl", 7).status == 0  # control: its files are there


def test_memory_stays_kept_where_privd_dies_before_it_goes_on(privd):
    c = privd.channel()
    box = Box(privd, c, "ifirstm")
    box.agent.prepare()
    assert dump(c, box, 7).status == 0
    c.send(privdlib.CREATE, create_body("inextm", 7, flags=2))
    stop_one(lambda: map(int, programs_at_work(privd, "")))  # in the control group of the image, or the slot
    privd.crash()
    privd.start()
    c = privd.channel()
    assert kepts(c) == {7} and c.list() == {}
    # all of it, or (where its processes were about to go on) the files alone
    t = restore(c, "inextm", 7)
    assert t.status == 0 or t.stage == STAGE_MEMORY
    assert t.status == 0 or create_on(c, "inextm", 7).status == 0


COPY_WITH_MEMORY = 3


class Program:
    """cay-seal, which can be made to fail at each start, or to stand still there."""

    def __init__(self, path):
        self.path = path
        shutil.copy(SEAL, path)
        self.content = path.read_bytes()

    @contextlib.contextmanager
    def broken(self):
        self.path.write_bytes(b"")
        yield
        self.path.write_bytes(self.content)

    @contextlib.contextmanager
    def held(self):
        whole = self.path.with_name("whole")  # beside it: cay-privd sees little else
        shutil.copy(SEAL, whole)
        self.path.write_text(f'#!/bin/sh\nkill -STOP $$\nexec {whole} "$@"\n')
        yield
        self.path.write_bytes(self.content)


@pytest.fixture
def breakable(tmp_path):
    """A cay-privd, a channel to it, and its cay-seal."""
    program = Program(tmp_path / "cay-seal")
    p = start_privd(checkpoint=CHECKPOINT, seal=program.path)
    c = p.channel()
    if c.ask(CAPACITY).text(32, 16) == "memory":
        stop_privd(p)
        pytest.skip("files are in memory here")
    assert c.ask(JOB, b"\1\0\0\0\1\0\0\0").status == 0
    yield p, c, program
    for s in c.list().values():
        assert c.kill(s).status == 0
    for number, owner in owners(c).items():
        assert drop(c, number, owner).status == 0
    c.close()
    stop_privd(p)


def opened(p):
    """The directories of images that it holds open: they have no name."""
    return [fd for fd in pathlib.Path(f"/proc/{p.process.pid}/fd").iterdir() if (fd / "pstree.img").exists()]


def dumped(p, c, number):
    box = Box(p, c, f"isource{number}")
    box.agent.prepare()
    assert dump(c, box, number).status == 0


def ask_copy(c, name, number, owner=OWNER):
    return c.ask(privdlib.CREATE, create_body(name, number, owner=owner, flags=COPY_WITH_MEMORY) + bytes(4 * 16 + 4))


def copied(p, c, name, number):
    """A sandbox that goes on with what is kept by that number, which stays."""
    r = ask_copy(c, name, number)
    assert r.status == 0, p.log.read_text()[-2000:]
    for fd in r.fds:
        os.close(fd)
    goes_on(pid_of(p, r))
    return r


def descriptors(pid):
    """Of its open files, by number."""
    found = {}
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        st = fd.stat()
        found[int(fd.name)] = (st.st_dev, st.st_ino)
    return found


def is_held(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def asks_for_the_image(p):
    """The cay-checkpoint of a restore that waits for descriptors (recvmsg)."""
    for pid in programs_at_work(p, "", names=("cay-checkpoint",)):
        if pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] == "47":
            return pid
    return None


@pytest.mark.parametrize("whole", [True, False])
def test_nothing_that_restores_has_an_image_of_which_a_piece_was_not_checked(breakable, whole):
    """While cay-seal stands still all is made but what is of the image. A bit of the last piece that changed ends it. Control: the same image as it was."""
    p, c, program = breakable
    dumped(p, c, 7)
    image = kept_dir(p, 7) / "image"
    if not whole:
        flip(image, image.stat().st_size - 1)
    with program.held():
        seq = send_restore(c, "inextz", 7)
        seal, = until(lambda: [pid for pid in programs_at_work(p, names=("cay-seal",)) if is_held(pid)], what="cay-seal stands still")
        waits = until(lambda: asks_for_the_image(p), what="cay-checkpoint asks for the image")
    directory = descriptors(seal)[4]  # control: cay-seal has it
    has = descriptors(waits)
    assert set(has) == {0, 1, 2, 3, 5, 7, 8} and directory not in has.values(), has
    assert programs_at_work(p, "", names=("criu",)) == []
    os.kill(int(seal), signal.SIGCONT)
    r = c.wait(seq)
    if whole:
        assert r.status == 0, p.log.read_text()[-1500:]
        goes_on(pid_of(p, r))
        return
    assert (r.status, r.stage) == (-errno.EBADMSG, STAGE_MEMORY)
    assert kepts(c) == {7} and c.list() == {} and programs_at_work(p, "") == []
    flip(image, image.stat().st_size - 1)
    goes_on(pid_of(p, restored(p, c, "iagainz", 7)))


def test_an_image_is_opened_once_for_all_that_begin_with_it(breakable):
    p, c, program = breakable
    dumped(p, c, 7)
    assert opened(p) == []
    with program.broken():
        assert ask_copy(c, "inone", 7).stage == STAGE_MEMORY  # the control: the first needs it
    copied(p, c, "ifirst", 7)
    with program.broken():
        copied(p, c, "isecond", 7)
        copied(p, c, "ithird", 7)
        assert len(opened(p)) == 1
        assert ask_copy(c, "iforeign", 7, OTHER).status == -errno.EPERM
    assert drop(c, 7).status == 0 and opened(p) == []  # it goes with what is kept


def test_what_is_opened_is_not_used_for_a_file_that_changed(breakable):
    p, c, program = breakable
    dumped(p, c, 7)
    image = kept_dir(p, 7) / "image"
    whole = image.read_bytes()
    copied(p, c, "ifirst", 7)
    flip(image, len(whole) // 2)
    r = ask_copy(c, "idamaged", 7)
    assert (r.status, r.stage) == (-errno.EBADMSG, STAGE_MEMORY)
    image.write_bytes(whole)
    copied(p, c, "imended", 7)
    with program.broken():
        copied(p, c, "iagain", 7)  # of the file as it is now
        assert len(opened(p)) == 1


def test_what_is_opened_can_be_changed_by_nobody(breakable):
    """Neither by the slot whose id has opened it, nor by root; a start with it only reads. Control: they do read."""
    p, c, _ = breakable
    dumped(p, c, 7)
    copied(p, c, "ifirst", 7)
    directory, = opened(p)
    assert (directory.stat().st_mode, directory.stat().st_uid) == (0o40555, 0)
    files = list(directory.iterdir())
    assert len(files) > 10 and {(one.stat().st_mode, one.stat().st_uid) for one in files} == {(0o100444, 0)}
    for one in files:
        for change in (lambda one=one: os.open(one, os.O_WRONLY), lambda one=one: os.chmod(one, 0o600), lambda one=one: os.unlink(one)):
            with pytest.raises(OSError) as e:
                change()
            assert e.value.errno == errno.EROFS
        assert one.read_bytes()[:1]


def test_what_a_resume_takes_does_not_stay_opened(breakable):
    p, c, _ = breakable
    dumped(p, c, 7)
    assert len(opened(p)) == 0 and copied(p, c, "ifork", 7) and len(opened(p)) == 1
    restored(p, c, "iagain", 7)
    assert opened(p) == []
