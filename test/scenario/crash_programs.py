"""Kills of the programs that a task of cay-privd becomes for a memory image: cay-checkpoint, CRIU, which that starts, and the action
script, which CRIU starts at each step of a dump. A shim in its place (stop_shim.c) stops itself before it becomes the program, so that strace
is there from its first call on. Processes of the sandbox, and the tar of the script, have no tracer."""

import contextlib
import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import pytest
from conftest import BUILD, EGRESS_USER, OwnServer
from crash_points import Killer
from test_checkpoint import CRIU
from test_recovery import daemons
from waitlib import until

KEEP_ARGS = (f"--egress={BUILD}/src/egress/cay-egress", "--egress-processes=1", f"--egress-user={EGRESS_USER}")  # without a network
SEAL = f"--seal={BUILD}/src/seal/cay-seal"
PRIVD_ARGS = (f"--checkpoint={BUILD}/src/checkpoint/cay-checkpoint", SEAL)
HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = 2  # steps of a dump at which CRIU starts its action script
# Calls by which they change something, or tell it, or are told it.
CALLS = {
    "cay-checkpoint": ("unshare", "mount", "move_mount", "setns", "setresuid", "prctl", "mkdir", "clone", "clone3", "poll", "wait4", "unlinkat",
                       "write", "sendto", "sendmsg", "recvmsg", "exit_group"),
    "criu": ("ptrace", "clone", "kill", "futex", "setns", "mount", "umount2", "mkdir", "rmdir", "ftruncate", "splice", "tee", "write", "writev",
             "unlinkat", "sendto", "sendmsg", "exit_group"),
    "script": ("execve", "openat", "dup2", "pidfd_open", "pidfd_getfd", "clone", "wait4", "write", "read", "exit_group"),
}
PATHS = {"cay-checkpoint": BUILD / "src/checkpoint/cay-checkpoint", "criu": pathlib.Path(CRIU)}
# How often each is started in a change; a point is a call of one of these.
STARTS = {"memory-pause": {"cay-checkpoint": 1, "criu": 1, "script": SCRIPTS}, "memory-resume": {"cay-checkpoint": 1, "criu": 1},
          "memory-fork": {"cay-checkpoint": 3, "criu": 3, "script": SCRIPTS}, "memory-create": {"cay-checkpoint": 1, "criu": 1}}


def points(program, what):
    """Its calls in that change: CALL, of the first time that it is started, or CALL/TIME."""
    times = STARTS[what][program]
    return tuple(call if time == 1 else f"{call}/{time}" for time in range(1, times + 1) for call in CALLS[program])


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]


class Outfit:
    """A kind of server, with a directory that its programs find as the users that they are."""

    def __init__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-", dir="/var/tmp"))
        self.home.chmod(0o755)

    def settled(self):
        """Waits until nothing is left of a sandbox that has ended."""

    def remove(self):
        shutil.rmtree(self.home)


class Shims(Outfit):
    def __init__(self):
        super().__init__()
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if not compiler:
            pytest.skip("no compiler for the shim")
        for name in CALLS:
            names = [f'-DSTOP="{self.stop_file(name)}"']
            if name in PATHS:
                shutil.copy(PATHS[name], self.home / name)
                names.append(f'-DREAL="{self.home / name}"')
            if name == "criu":
                names.append(f'-DSCRIPT="{self.shim("script")}"')
            subprocess.run([compiler, "-O1", *names, "-o", self.shim(name), HERE / "stop_shim.c"], check=True)

    def shim(self, name):
        return self.home / f"{name}-shim"

    def stop_file(self, name):
        return self.home / f"stop-{name}"

    def stopped(self, name):
        """Its process, which has stopped itself."""
        shim = self.shim(name).stat()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/{pid}/exe"), shim) and state_of(pid) == "T":
                    return int(pid)
        return None

    def server(self):
        """cay-privd is told of the one by an option. The other's path is fixed: it is mounted there, for this cay-privd alone."""
        server = OwnServer(privd_args=(f"--checkpoint={self.shim('cay-checkpoint')}", SEAL), keep_args=KEEP_ARGS)
        (privd,) = daemons(server, "cay-privd")
        subprocess.run(["nsenter", f"--mount=/proc/{privd}/ns/mnt", "mount", "--bind", self.shim("criu"), CRIU], check=True)
        return server


class ProgramKiller(Killer):
    """Kills the program when it begins its n-th call of a kind, the TIMEth time that it is started (points())."""

    def __init__(self, shims, name, point, n, log):
        call, _, time_ = point.partition("/")
        self.pid, self.log, self.over = None, log, False
        self.find, self.stop = functools.partial(shims.stopped, name), shims.stop_file(name)
        self.options = ["-o", str(log), "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={n}"]
        self.entry, self.n = re.compile(rf"^{call}\(", re.M), n
        self.time, self.started = int(time_ or 1), 0
        log.write_text("")
        self.stop.touch()
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def watch(self):
        while not self.over:
            self.let_go_on()
            time.sleep(0.005)

    def let_go_on(self):
        """A process that has stopped itself goes on, with a tracer where its turn is the TIMEth."""
        if not (pid := self.find()):
            return
        self.started += 1
        if self.started == self.time:
            self.pid = pid
            self.trace(self.options)
        os.kill(pid, signal.SIGCONT)
        until(lambda: self.find() != pid, every=0.002, what="it goes on")

    def hit(self):
        """Its end alone does not tell that."""
        self.stop.unlink()
        self.over = True
        self.watcher.join()
        self.let_go_on()
        if self.pid is None:
            return False
        super().hit()
        return len(self.entry.findall(self.log.read_text())) >= self.n
