"""Kills of the programs that a task of cay-privd becomes for a memory image: cay-checkpoint, and CRIU, which that starts. A shim in its
place (stop_shim.c) stops itself before it becomes the program, so that strace is there from its first call on. Processes that
these have started in turn (the sandbox's, an action script) have no tracer, as CRIU could not trace them."""

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

KEEP_ARGS = (f"--egress={BUILD}/src/egress/cay-egress", "--egress-processes=1", f"--egress-user={EGRESS_USER}")  # without a network
SEAL = f"--seal={BUILD}/src/seal/cay-seal"
PRIVD_ARGS = (f"--checkpoint={BUILD}/src/checkpoint/cay-checkpoint", SEAL)
HERE = pathlib.Path(__file__).resolve().parent
# Calls by which they change something, or tell it, or are told it.
CALLS = {
    "cay-checkpoint": ("unshare", "mount", "move_mount", "setns", "setresuid", "prctl", "mkdir", "clone", "clone3", "poll", "wait4", "unlinkat",
                       "write", "sendto", "sendmsg", "exit_group"),
    "criu": ("ptrace", "clone", "kill", "futex", "setns", "mount", "umount2", "mkdir", "rmdir", "ftruncate", "splice", "tee", "write", "writev",
             "unlinkat", "sendto", "sendmsg", "exit_group"),
}
PATHS = {"cay-checkpoint": BUILD / "src/checkpoint/cay-checkpoint", "criu": pathlib.Path(CRIU)}


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]


class Shims:
    """In a directory of their own, which the programs find as the users that they are."""

    def __init__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-", dir="/var/tmp"))
        self.home.chmod(0o755)
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if not compiler:
            pytest.skip("no compiler for the shim")
        for name, path in PATHS.items():
            shutil.copy(path, self.home / name)
            names = (f'-DSTOP="{self.stop_file(name)}"', f'-DREAL="{self.home / name}"')
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

    def remove(self):
        shutil.rmtree(self.home)


class ProgramKiller(Killer):
    """Kills the program when it begins its n-th call of a kind."""

    def __init__(self, shims, name, call, n, log):
        self.pid, self.log, self.over = None, log, False
        self.find, self.stop = functools.partial(shims.stopped, name), shims.stop_file(name)
        self.options = ["-o", str(log), "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={n}"]
        self.entry, self.n = re.compile(rf"^{call}\(", re.M), n
        log.write_text("")
        self.stop.touch()
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def watch(self):
        while not self.over:
            if pid := self.find():
                self.pid = pid
                self.trace(self.options)
                os.kill(pid, signal.SIGCONT)
                return
            time.sleep(0.005)

    def hit(self):
        """Its end alone does not tell that."""
        self.over = True
        self.watcher.join()
        self.stop.unlink()
        if self.pid is None:
            return False
        super().hit()
        return len(self.entry.findall(self.log.read_text())) >= self.n
