"""cay-keep: what it starts, starts again, replaces and stops. cay-privd is real, cayd a stand-in that only
says that it serves."""

import fcntl
import os
import pathlib
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

import pytest

import conftest
import privdlib
from waitlib import until

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CAY_BUILD", REPOSITORY / "build"))
NOBODY = pwd.getpwnam("nobody").pw_uid

STAND_IN = """#!/bin/bash
grep -E '^(Uid|Gid|Groups|CapPrm|CapBnd|NoNewPrivs)' /proc/$$/status > {base}/cayd-status
ls -l /proc/$$/fd > {base}/cayd-fds
env > {base}/cayd-env
echo "$@" >> {base}/cayd-arguments
echo "cayd speaks" >&2
[ -e {base}/refuse ] && {{ printf 'Fthe store is broken' >&4; exit 1; }}
trap 'exit 0' TERM
printf R >&4; exec 4>&-
while :; do sleep 0.05; done
"""


class Keep:
    def __init__(self, base):
        self.base = base
        self.run, self.state, self.log = base / "run", base / "state", base / "log"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        cayd = base / "cayd"
        cayd.write_text(STAND_IN.format(base=base))
        cayd.chmod(0o755)
        self.command = [str(part) for part in (
            BUILD / "src/keep/cay-keep", f"--state-dir={self.state}", f"--run-dir={self.run}", "--user=nobody",
            f"--listen-port={self.port}", f"--log-file={self.log}", f"--cayd={cayd}", f"--privd={BUILD}/src/privd/cay-privd",
            f"--job={BUILD}/src/job/cay-job", f"--agent={BUILD}/src/agent/cay-init", "--privd-arg=--slots-ready=2",
            "--privd-arg=--disk-size=1073741824",
            "--privd-arg=--template-inodes=4096", "--daemon", "--cayd-arg=--first", "--", "--second=2")]

    def start(self):
        return subprocess.run(self.command, capture_output=True, text=True, timeout=60)

    def pid(self):
        return int((self.run / "keep.pid").read_text())

    def child(self, name):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().split(") ")[1].split()
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == self.pid() and fields[0] != "Z" and f"/{name}\0".encode() in command:
                return int(pid)
        return None

    def channel(self):
        os.seteuid(NOBODY)
        try:
            return privdlib.Channel(self.run / "privd.sock")
        finally:
            os.seteuid(0)

    def stop(self):
        pid = self.pid()
        os.kill(pid, signal.SIGTERM)
        until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), 60, patient=True)


@pytest.fixture
def keep():
    if os.geteuid() != 0:
        pytest.skip("cay-keep needs root")
    base = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-keep-", dir="/var/tmp"))
    base.chmod(0o1777)
    k = Keep(base)
    yield k
    if (k.run / "keep.pid").exists():
        k.stop()
    assert sorted(p.name for p in k.run.iterdir()) == []
    assert str(base) not in pathlib.Path("/proc/self/mountinfo").read_text()
    assert str(base) not in subprocess.run(["losetup", "-a"], capture_output=True, text=True).stdout
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def running(keep):
    done = keep.start()
    assert done.returncode == 0, done.stderr + keep.log.read_text()
    return keep


def test_cayd_has_no_privileges(running):
    status = dict(line.split(":\t") for line in (running.base / "cayd-status").read_text().splitlines())
    assert status["Uid"].split() == [str(NOBODY)] * 4 and status["Groups"].strip() == ""
    assert status["CapPrm"] == status["CapBnd"] == "0" * 16 and status["NoNewPrivs"] == "1"
    arguments = (running.base / "cayd-arguments").read_text().split()
    assert arguments == ["--listen-fd=3", "--ready-fd=4", f"--privd={running.run}/privd.sock",
                         f"--state-dir={running.state}/cayd", "--first", "--second=2"]
    names = {line.split("=")[0] for line in (running.base / "cayd-env").read_text().splitlines()}
    assert names <= {"PATH", "LANG", "PWD", "SHLVL", "_"}
    fds = {line.split(" -> ")[0].split()[-1]: line.split(" -> ")[1]
           for line in (running.base / "cayd-fds").read_text().splitlines() if " -> " in line}
    assert fds.pop("255", "").endswith("/cayd")  # bash's own
    assert sorted(fds) == ["0", "1", "2", "3", "4"]
    assert fds["3"].startswith("socket:") and fds["0"] == "/dev/null" and fds["2"] == str(running.log)
    assert "cayd speaks" in running.log.read_text()
    assert (running.state / "cayd").stat().st_uid == NOBODY
    assert (running.state / "cayd").stat().st_mode & 0o777 == 0o700
    assert (running.state / "privd").stat().st_mode & 0o777 == 0o700 and (running.state / "privd").stat().st_uid == 0


def test_localhost_is_both_loopback_addresses(keep):
    """The second listener is one descriptor more, and cayd is told of it; a replacement gets both again."""
    keep.command.insert(1, "--listen-address=localhost")
    done = keep.start()
    assert done.returncode == 0, done.stderr + keep.log.read_text()
    assert (keep.base / "cayd-arguments").read_text().split()[:2] == ["--listen-fd=3", "--listen-fd=7"]
    fds = [line.split(" -> ")[0].split()[-1] for line in (keep.base / "cayd-fds").read_text().splitlines()
           if "socket:" in line]
    assert sorted(fds) == ["3", "7"]
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as s:
            s.connect((address, keep.port))


def test_localhost_needs_both_of_its_addresses(keep):
    """A request that is meant for this server must not reach a program that listens on the other address."""
    with socket.socket(socket.AF_INET6) as s:
        s.bind(("::1", keep.port))
        s.listen()
        keep.command.insert(1, "--listen-address=localhost")
        done = keep.start()
    assert done.returncode == 1 and f"cannot listen on ::1 port {keep.port}" in done.stderr
    assert "another program listens there" in done.stderr and "[listen] port" in done.stderr


def uids_lock(fd, kind, first, count):
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, first // 65536, count, 0))


def test_ids_of_another_server_are_not_used(keep):
    """A byte of /run/cay-uids is one range: held here, as another server's cay-keep holds it, by its last range."""
    first = conftest.UID_BASE
    keep.command[1:1] = [f"--uid-first={first}", "--uid-ranges=4", f"--privd-arg=--uid-base={first}", "--privd-arg=--slots-max=4"]
    with open("/run/cay-uids", "a+b", opener=lambda path, flags: os.open(path, flags, 0o600)) as other:
        uids_lock(other, fcntl.F_WRLCK, first + 3 * 65536, 1)
        done = keep.start()
        assert done.returncode == 1 and "[sandbox] first_uid" in done.stderr and f"{first} to {first + 4 * 65536 - 1}" in done.stderr
        uids_lock(other, fcntl.F_UNLCK, first + 3 * 65536, 1)
        uids_lock(other, fcntl.F_WRLCK, first + 4 * 65536, 1)  # the next server's may begin where these end
        done = keep.start()
        assert done.returncode == 0, done.stderr
        with pytest.raises(BlockingIOError):
            uids_lock(other, fcntl.F_WRLCK, first, 1)
        keep.stop()
        uids_lock(other, fcntl.F_WRLCK, first, 1)


def test_a_second_start_says_that_it_runs(running):
    began = time.monotonic()
    second = running.start()
    assert second.returncode == 3 and f"process {running.pid()}" in second.stderr
    assert time.monotonic() - began < 2


def test_the_listener_outlives_cayd(running):
    old = running.child("cayd")
    with socket.create_connection(("127.0.0.1", running.port), timeout=5):
        os.kill(old, signal.SIGKILL)
        with socket.create_connection(("127.0.0.1", running.port), timeout=5):
            until(lambda: running.child("cayd") not in (None, old), patient=True)


def stat_of(pid):
    """Name, parent and nice value; None when it has ended."""
    try:
        name, rest = pathlib.Path(f"/proc/{pid}/stat").read_text().split("(", 1)[1].rsplit(") ", 1)
    except OSError:
        return None
    return name, int(rest.split()[1]), int(rest.split()[16])


def test_priority_is_the_daemons_alone(keep):
    """Sandboxes and jobs, which privd starts, do not have it."""
    job = keep.base / "job"
    job.write_text(f"#!/bin/sh\necho job at nice $(nice) >&2\nexec {keep.base}/cay-job \"$@\"\n")
    job.chmod(0o755)
    shutil.copy(BUILD / "src/job/cay-job", keep.base)
    keep.command = [f"--job={job}" if part.startswith("--job=") else part for part in keep.command]
    done = keep.start()
    assert done.returncode == 0, done.stderr + keep.log.read_text()
    allowed = subprocess.run(["nice", "-n", "-10", "nice"], capture_output=True, text=True)
    wanted = int(allowed.stdout)
    assert wanted == -10 or "the daemons cannot run at nice -10" in keep.log.read_text()
    daemons = [keep.pid(), keep.child("cay-privd"), keep.child("cayd")]
    assert [stat_of(pid)[2] for pid in daemons] == [wanted] * 3
    assert keep.channel().create("inice").status == 0
    found = [stat_of(pid) for pid in filter(str.isdigit, os.listdir("/proc"))]
    assert {one for one in found if one and one[:2] == ("cay-init", daemons[1])} == {("cay-init", daemons[1], 0)}
    jobs = [line for line in keep.log.read_text().splitlines() if line.startswith("job at nice ")]
    assert jobs and set(jobs) == {"job at nice 0"}


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGHUP])
def test_sandboxes_outlive_privd(running, signal_number):
    box = running.channel().create("ilives")
    assert box.status == 0
    privd, cayd = running.child("cay-privd"), running.child("cayd")
    if signal_number == signal.SIGHUP:  # replaced by the binaries that are there now
        os.kill(running.pid(), signal.SIGHUP)
        until(lambda: running.child("cayd") not in (None, cayd), patient=True)
    else:
        os.kill(privd, signal.SIGKILL)
    until(lambda: running.child("cay-privd") not in (None, privd), patient=True)
    until(lambda: "ilives" in running.channel().list(), patient=True)


def test_sandboxes_outlive_keep(running):
    box = running.channel().create("ilives")
    assert box.status == 0
    pid, privd, cayd = running.pid(), running.child("cay-privd"), running.child("cayd")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not any(pathlib.Path(f"/proc/{p}/exe").exists() for p in (pid, privd, cayd)), patient=True)
    done = running.start()
    assert done.returncode == 0, done.stderr
    items = running.channel().list()
    assert (items["ilives"].slot, items["ilives"].gen) == (box.slot, box.gen)


def test_a_checkout_that_only_root_may_enter(keep):
    """As below /root: cayd's user may execute its program, but not go where it is."""
    closed, programs = keep.base / "closed", keep.base / "closed/src"
    programs.mkdir(parents=True)
    shutil.copy("/bin/sleep", programs / "cayd")
    closed.chmod(0o700)
    command = [f"--cayd={programs}/cayd" if part.startswith("--cayd=") else part for part in keep.command[:-3]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # It was executed: sleep(1) does not know the options, and says so in its own words.
    assert done.returncode == 1 and "Permission denied" not in done.stderr + keep.log.read_text()
    assert "unrecognized option '--listen-fd=3'" in keep.log.read_text()
    (programs / "cayd").chmod(0o700)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "Permission denied" in done.stderr


def test_what_fails_at_start_is_said(keep):
    (keep.base / "refuse").touch()
    done = keep.start()
    assert done.returncode == 1 and "the store is broken" in done.stderr
    assert not (keep.run / "keep.pid").exists()  # all is down again
    (keep.base / "refuse").unlink()
    assert keep.start().returncode == 0


def test_a_taken_port_is_said(keep):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", keep.port))
        other.listen()
        done = keep.start()
        assert done.returncode == 1 and f"port {keep.port}: Address already in use" in done.stderr


@pytest.mark.parametrize("option, words", [
    ("--listen-port=70000", "a number from 0 to 65535"), ("--state-dir=here", "an absolute path"),
    ("--nonsense", "unknown option"), ("--ready-timeout-ms=x", "a number"), ("--listen-address=example.org", "numeric address")])
def test_wrong_options(keep, option, words):
    keep.run.mkdir()
    done = subprocess.run(keep.command[:1] + [option] + keep.command[1:-4] if "address" not in option
                          else keep.command[:1] + keep.command[1:-4] + [option], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and words in done.stderr


def test_an_unknown_user(keep):
    done = subprocess.run(keep.command[:-3] + ["--user=no-such-user"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "useradd" in done.stderr
    keep.run.mkdir(exist_ok=True)


def test_egress_is_started_replaced_and_stopped(keep):
    """Two processes of cay-egress, by a stand-in: what they are given, and by whom they can be reached."""
    stand_in = keep.base / "cay-egress"
    stand_in.write_text(STAND_IN.replace("cayd-", "egress-").format(base=keep.base))
    stand_in.chmod(0o755)
    keep.command[1:1] = [f"--egress={stand_in}", "--egress-processes=2", "--egress-user=daemon", "--egress-arg=--third=3"]
    done = keep.start()
    assert done.returncode == 0, done.stderr
    for number in (0, 1):
        control = keep.run / f"egress-{number}.ctl"
        assert (control.stat().st_uid, control.stat().st_mode & 0o777) == (NOBODY, 0o600)
    arguments = sorted((keep.base / "egress-arguments").read_text().splitlines())
    assert [f"--shard={n}/2 --third=3" in arguments[n] and f"--privd={keep.run}/egress-{n}.sock" in arguments[n] and
            f"--peer-uid={NOBODY}" in arguments[n] for n in (0, 1)] == [True, True]
    assert f"--egress-dir={keep.run} --egress-processes=2" in (keep.base / "cayd-arguments").read_text()
    status = (keep.base / "egress-status").read_text()
    assert f"Uid:\t{pwd.getpwnam('daemon').pw_uid}\t" in status and "CapBnd:\t0000000000000000" in status
    state = (keep.state / "egress").stat()
    assert (state.st_uid, state.st_mode & 0o777) == (pwd.getpwnam("daemon").pw_uid, 0o700)

    os.kill(keep.child("cay-egress"), signal.SIGKILL)
    until(lambda: len((keep.base / "egress-arguments").read_text().splitlines()) == 3, patient=True)
    os.kill(keep.pid(), signal.SIGHUP)
    until(lambda: len((keep.base / "egress-arguments").read_text().splitlines()) == 5, patient=True)
    until(lambda: len((keep.base / "cayd-arguments").read_text().splitlines()) == 2, patient=True)


def test_egress_must_not_be_cayd_s_user(keep):
    done = subprocess.run(keep.command[:1] + ["--egress-processes=1", "--egress-user=nobody"] + keep.command[1:],
                          capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "must not run as the same user" in done.stderr
    keep.run.mkdir(exist_ok=True)
