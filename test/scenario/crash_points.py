"""Points at which a program of cay is killed: the n-th call of a kind, when it begins. By strace, which injects the signal.
For test_crash_matrix.py, which counts the points of each change."""

import os
import re
import signal
import subprocess
import threading
import time

from waitlib import until

# Journal and records are pwrite64; the freezer's file is openat and write; what is asked and answered is sendmsg; clients
# get write or sendto.
CALLS = ("pwrite64", "openat", "write", "sendmsg", "sendto")
# Calls of tasks of cay-privd on layers and records. (Namespaces and mounts are made as for any create.)
TASK_CALLS = ("ioctl", "renameat2", "syncfs", "fdatasync", "unlinkat")
TASK_CALL_MS = 40  # each of them waits so long, so that a kill finds it at its beginning
POINTS_MAX = 200  # of one kind of call; more would be a loop


def is_gone(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class Killer:
    """Kills a process when it begins its n-th call of a kind."""

    def __init__(self, pid, call, n):
        self.pid = pid
        # Without -f, cay-privd's tasks live on: with it each that privd begins anew would be killed as well, without end.
        threads = ["-f"] if len(os.listdir(f"/proc/{pid}/task")) > 1 else []
        self.trace([*threads, "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={n}"])

    def trace(self, options):
        self.tracer = subprocess.Popen(["strace", "-p", str(self.pid), *options], stderr=subprocess.PIPE, text=True)
        line = self.tracer.stderr.readline()
        assert "attached" in line, line
        time.sleep(0.02)  # its other threads

    def hit(self):
        """Whether that came. Then it is gone; else it is let go of."""
        for _ in range(10):
            if is_gone(self.pid):
                break
            time.sleep(0.01)
        was = is_gone(self.pid)
        self.tracer.send_signal(signal.SIGTERM)
        try:
            self.tracer.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            self.tracer.kill()
            self.tracer.communicate()
        return was


class TaskKiller(Killer):
    """Kills cay-privd when its tasks, one after the other, begin their n-th call; the task dies with it, before that call."""

    ENTRY = re.compile(rf"^\d+ +({'|'.join(TASK_CALLS)})\(", re.M)

    def __init__(self, pid, n, log):
        self.pid, self.n, self.log, self.over = pid, n, log, False
        log.write_text("")
        calls = ",".join(TASK_CALLS)
        self.trace(["-f", "-qq", "-e", "signal=none", "-o", str(log), "-e", f"trace={calls}", "-e",
                    f"inject={calls}:delay_enter={TASK_CALL_MS}ms"])
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def trace(self, options):
        self.tracer = subprocess.Popen(["strace", "-p", str(self.pid), *options], stderr=subprocess.PIPE, text=True)
        until(lambda: f"TracerPid:\t{self.tracer.pid}\n" in open(f"/proc/{self.pid}/status").read(), every=0.005)

    def watch(self):
        while not self.over:
            if len(self.ENTRY.findall(self.log.read_text())) >= self.n:
                os.kill(self.pid, signal.SIGKILL)
                return
            time.sleep(0.004)

    def hit(self):
        self.over = True
        self.watcher.join()
        return super().hit()
