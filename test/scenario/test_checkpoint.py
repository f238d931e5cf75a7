"""cay-checkpoint on real sandboxes: dumps, refusals by name, and that CRIU has no right on the host meanwhile.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import shlex
import shutil
import struct
import subprocess
import time

import pytest

import test_seal
from agentlib import TAKE, go_on
from conftest import BUILD, REPOSITORY
from waitlib import until

CHECKPOINT = BUILD / "src/checkpoint/cay-checkpoint"
CRIU = "/usr/local/sbin/criu"
PT_LOAD, PF_X = 1, 1


@pytest.fixture(scope="module", autouse=True)
def needs(own_server):
    if not own_server:
        pytest.skip("needs a server of its own")
    found = subprocess.run([REPOSITORY / "scripts/criu", "--check", CRIU], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip(found.stderr.strip())


def pid_of(box):
    for p in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if p.name.isdigit() and (p / "comm").read_text() == "cay-init\n":
                name = subprocess.run(["nsenter", f"--uts={p}/ns/uts", "hostname"], capture_output=True, text=True).stdout
                if name.strip() == box.id and re.search(r"^NSpid:\s+\d+\s+1$", (p / "status").read_text(), re.M):
                    return int(p.name)
    raise AssertionError(f"no PID 1 of {box.id}")


def prepare(pid):
    """As a task of cay-privd does, just before."""
    assert go_on(pid, TAKE) == b"R"


class Dump:
    """cay-checkpoint, as what keeps images will start it."""

    def __init__(self, pid, directory, seconds=60, most=1 << 30):
        uid = int(pathlib.Path(f"/proc/{pid}/uid_map").read_text().split()[1])
        os.chown(directory, uid, uid)
        directory.chmod(0o700)
        self.ask, ask_end = os.pipe()
        answer_end, self.answer = os.pipe()
        given = [os.pidfd_open(pid), os.open(directory, os.O_RDONLY), ask_end, answer_end]
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 50) for fd in given]  # free ones, beyond those that they get
        moves = " ".join([*(f"{3 + i}<&{fd}" for i, fd in enumerate(high)), *(f"{fd}<&-" for fd in high)])
        words = ["bash", "-c", f'exec "$0" "$@" {moves}', CHECKPOINT, "dump", str(seconds), str(most)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, pass_fds=high, cwd="/")
        for fd in given + high:
            os.close(fd)

    def line(self):
        """The line that is told while all stand still; "" when it ended before."""
        return os.read(self.ask, 512).decode()

    def end(self, answer=None):
        if answer:
            os.write(self.answer, answer)
        os.close(self.answer)
        out = self.process.communicate()[0]
        os.close(self.ask)
        return self.process.returncode, out


@pytest.fixture
def box(cay):
    with cay.create(timeout_s=1800) as b:
        b.pid = pid_of(b)
        yield b


COUNTER = "setsid sh -c 'i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done' > /dev/null 2>&1 < /dev/null &"


def counts(pid):
    return int(pathlib.Path(f"/proc/{pid}/root/tmp/count").read_text() or 0)


def goes_on(pid):
    before = counts(pid)
    return until(lambda: counts(pid) > before, patient=True)


def test_a_sandbox_is_dumped_and_ends(box, tmp_path):
    assert box.run(COUNTER + "sleep 0.3; echo kept > /run/kept; echo kept > /dev/shm/kept", user="root").exit_code == 0
    prepare(box.pid)
    dump = Dump(box.pid, tmp_path)
    assert dump.line() == "D\n", dump.end()
    assert dump.end(b"e") == (0, "")
    names = {p.name for p in tmp_path.iterdir()}
    assert {"inventory.img", "pstree.img", "core-1.img", "mm-1.img", "tmpfs.tar", "notes"} <= names
    assert not names & {"dump.log", "stats-dump", "criu.kdat"}
    listed = subprocess.run(["tar", "-tf", tmp_path / "tmpfs.tar"], capture_output=True, text=True).stdout.split()
    assert {"run/kept", "dev/shm/kept"} <= {*listed}
    assert not pathlib.Path(f"/proc/{box.pid}/root/tmp").exists()


def pages_to_execute(path):
    """Those of a program's segments that the kernel maps to be executed, whole."""
    program = path.read_bytes()
    at, size, n = struct.unpack_from("<Q", program, 32)[0], *struct.unpack_from("<HH", program, 54)
    for i in range(n):
        kind, flags, offset, _, _, length = struct.unpack_from("<IIQQQQ", program, at + i * size)
        if kind == PT_LOAD and flags & PF_X:
            for page in range(offset & ~4095, (offset + length) & ~4095, 4096):
                yield program[page:page + 4096]


def test_the_program_of_pid_1_is_not_in_the_image(box, tmp_path):
    """It is mapped from a memory file, which is there when it is restored: no page of it is kept but that into which CRIU has put a system call, and taken it out again."""
    wanted = {*pages_to_execute(pathlib.Path(f"/proc/{box.pid}/exe"))}
    prepare(box.pid)
    dump = Dump(box.pid, tmp_path)
    assert dump.line() == "D\n", dump.end()
    assert dump.end(b"e") == (0, "")
    kept = set()
    for image in tmp_path.glob("pages-*.img"):
        pages = image.read_bytes()
        kept |= {pages[i:i + 4096] for i in range(0, len(pages), 4096)}
    assert len(wanted) > 100 and len(wanted & kept) <= 1


@pytest.mark.parametrize("answer", [b"x", None])
def test_it_goes_on_where_it_is_not_told_to_end(box, tmp_path, answer):
    """So does one whose image could not be kept, and what asked for it may be gone. Then it can be dumped again."""
    assert box.run(COUNTER + "sleep 0.3", user="root").exit_code == 0
    prepare(box.pid)
    dump = Dump(box.pid, tmp_path)
    assert dump.line() == "D\n", dump.end()
    stands = counts(box.pid)
    time.sleep(0.3)
    assert counts(box.pid) == stands
    assert dump.end(answer)[0] == 1
    goes_on(box.pid)
    (tmp_path / "again").mkdir()
    again = Dump(box.pid, tmp_path / "again")
    assert again.line() == "D\n", again.end()
    assert again.end(b"e") == (0, "")


def test_an_image_is_sealed_while_its_sandbox_stands_still(box, tmp_path):
    """The image that CRIU writes is what cay-seal takes: it goes into one file and comes back, before a process is given up."""
    dumped, opened = tmp_path / "dumped", tmp_path / "opened"
    uid = int(pathlib.Path(f"/proc/{box.pid}/uid_map").read_text().split()[1])
    for d in (dumped, opened):
        d.mkdir()
        os.chown(d, uid, uid)
    assert box.run(COUNTER + "sleep 0.3", user="root").exit_code == 0
    prepare(box.pid)
    dump = Dump(box.pid, dumped)
    assert dump.line() == "D\n", dump.end()
    assert test_seal.start("seal", dumped, tmp_path / "sealed", uid=uid) == (0, "")
    assert test_seal.start("open", opened, tmp_path / "sealed", uid=uid) == (0, "")
    of_image = {p.name: p.read_bytes() for p in opened.iterdir()}
    assert dump.end(b"e") == (0, "")
    assert {"core-1.img", "tmpfs.tar"} <= {*of_image}
    # what CRIU writes beside the image is removed at its end, or comes after it
    assert {p.name: p.read_bytes() for p in dumped.iterdir()} == {n: c for n, c in of_image.items() if n not in ("dump.log", "criu.kdat.tmp")}


def is_below(ancestor, pid):
    """Whether a process is that one or below it: other sandboxes may be dumped at the same time."""
    while int(pid) not in (0, ancestor):
        pid = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return int(pid) == ancestor


def test_criu_has_no_right_on_the_host(box, tmp_path):
    prepare(box.pid)
    dump = Dump(box.pid, tmp_path)
    assert dump.line() == "D\n", dump.end()
    users, seen = {}, {}
    for p in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if p.name.isdigit() and (p / "comm").read_text().strip() in ("criu", "cay-checkpoint", "exe") and is_below(dump.process.pid, p.name):
                users[(p / "comm").read_text().strip()] = os.readlink(p / "ns/user"), os.readlink(p / "ns/mnt"), os.readlink(p / "ns/net")
                # what its own /proc shows a process with its rights
                shown = subprocess.run(["nsenter", "-t", p.name, "-m", "-U", "-S", "0", "-G", "0", "sh", "-c", "echo /proc/[0-9]*"],
                                       capture_output=True, text=True).stdout
                seen[(p / "comm").read_text().strip()] = {int(n.removeprefix("/proc/")) for n in shown.split()}
    of_box = {kind: os.readlink(f"/proc/{box.pid}/ns/{kind}") for kind in ("user", "net")}
    of_host = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("user", "net", "mnt")}
    assert dump.end(b"e") == (0, "")
    assert {"criu", "cay-checkpoint"} <= {*users}
    for name, (user, mnt, net) in users.items():
        assert (user, net) == (of_box["user"], of_box["net"]) and mnt != of_host["mnt"], name
        assert box.pid in seen[name] and not seen[name] & {1, os.getpid()}, name
    assert of_box["user"] != of_host["user"]


def kill_inside(pid, word):
    """Those programs of the sandbox that have the word in their arguments, as if they had ended by themselves."""
    user = os.readlink(f"/proc/{pid}/ns/user")
    for p in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if p.name.isdigit() and word in (p / "cmdline").read_bytes() and os.readlink(p / "ns/user") == user:
                os.kill(int(p.name), 9)
                until(lambda path=p: not path.exists() or not (path / "cmdline").read_bytes())


REFUSED = {
    "no_new_privs": ("exec python3 -c 'import ctypes, time; print(ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)); time.sleep(1000)'",
                     r"process \d+ has set no_new_privs: a Landlock domain would be lost"),
    "traced": ("exec python3 -c 'import ctypes, os, time; c = ctypes.CDLL(None); p = os.fork() or c.ptrace(0, 0, 0, 0) or time.sleep(1000); "
               "time.sleep(1000)'", r"process \d+ is traced by a debugger"),
    "half closed": ("exec python3 -c 'import socket, time; l = socket.create_server((\"127.0.0.1\", 0)); "
                    "c = socket.create_connection(l.getsockname()); a, _ = l.accept(); a.shutdown(socket.SHUT_WR); time.sleep(1000)'",
                    "a program has a TCP connection that is closed in one direction alone"),
    "unread": ("exec python3 -c 'import socket, time; l = socket.create_server((\"127.0.0.1\", 0)); "
               "c = socket.create_connection(l.getsockname()); a, _ = l.accept(); a.send(b\"last\"); a.close(); time.sleep(1000)'",
               "a program has a TCP connection that is closed in one direction alone"),
    "begun": ("exec python3 -c 'import socket, time; l = socket.create_server((\"127.0.0.1\", 0), backlog=0); "
              "h = [socket.socket() for _ in range(4)]; [(c.setblocking(False), c.connect_ex(l.getsockname())) for c in h]; time.sleep(1000)'",
              "a program has a TCP connection that is just being made"),
    "unsent": ("exec python3 -c 'import socket, time; l = socket.create_server((\"127.0.0.1\", 0)); "
               "c = socket.create_connection(l.getsockname()); a, _ = l.accept(); a.setblocking(False); a.send(bytes(1 << 20)); time.sleep(1000)'",
               "a program has sent more by a TCP connection than the other end has room for"),
    "memory file": ("exec python3 -c 'import mmap, os, time; fd = os.memfd_create(\"pool\"); os.truncate(fd, 4096); m = mmap.mmap(fd, 4096); "
                    "time.sleep(1000)'", r"process \d+ shares a mapping of a memory file \(memfd_create\), which would no longer be that file's"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_be_lost_is_refused_by_name(box, tmp_path, what):
    script, told = REFUSED[what]
    assert box.run(f"{COUNTER} setsid sh -c {shlex.quote(script)} > /tmp/out 2>&1 < /dev/null & echo $! > /tmp/pid; sleep 2",
                   user="root").exit_code == 0
    prepare(box.pid)
    dump = Dump(box.pid, tmp_path)
    assert dump.line() == ""
    status, out = dump.end()
    assert status == 1 and re.fullmatch(f"E 95 {told}\n", out), out
    assert list(tmp_path.iterdir()) == []
    goes_on(box.pid)
    kill_inside(box.pid, b"time.sleep(1000)")
    dump = Dump(box.pid, tmp_path)  # control: it was that process
    assert dump.line() == "D\n", dump.end()
    assert dump.end(b"e") == (0, "")


def test_one_that_takes_too_long_is_given_up(box, tmp_path):
    """Here what is asked never answers. Whether it goes on is not known then: it has to be ended, and can be."""
    prepare(box.pid)
    dump = Dump(box.pid, tmp_path, seconds=3)
    assert dump.line() == "D\n", dump.end()
    assert dump.process.wait(60) == 1
    assert dump.end() == (1, "E 110 the dump took longer than 3 s\n")
    assert box.kill().status == 204
    until(lambda: not pathlib.Path(f"/proc/{box.pid}").exists())


@pytest.mark.parametrize("words", [[], ["dump"], ["dump", "0", "5"], ["dump", "601", "5"], ["dump", "5", "0"], ["dump", "5", "-1"],
                                   ["restore", "5", "5"], ["restore"], ["restore", "0"], ["restore", "601"], ["dump", "5", "5", "5"]])
def test_other_words_are_refused(words):
    done = subprocess.run([CHECKPOINT, *words], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: cay-checkpoint")
