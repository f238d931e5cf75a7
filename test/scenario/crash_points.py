"""Points at which a program of cay is killed: the n-th call of a kind, when it begins. By strace, which injects the signal.
For test_crash_matrix.py, which counts the points of each change."""

import collections
import os
import re
import signal
import subprocess
import threading
import time

from waitlib import until

# Journal and records are pwrite64; the freezer's file is openat and write; requests and answers are sendmsg; clients
# get write or sendto.
CALLS = ("pwrite64", "openat", "write", "sendmsg", "sendto")
# Calls of tasks of cay-privd on layers and records; and those by which one enters a member of the pool and gives it another root.
TASK_CALLS = ("ioctl", "renameat2", "syncfs", "fdatasync", "unlinkat", "setns", "pivot_root", "umount2")
# Calls of cay-job by which a template comes to be, or goes, and by which it tells of that.
JOB_CALLS = ("renameat2", "unlinkat", "mkdirat", "ioctl", "syncfs", "fsync", "write")
# Calls of cay-egress, which is told of a sandbox's sockets and policy, and forgets them.
EGRESS_CALLS = ("recvmsg", "sendmsg", "openat", "write", "close")
# Calls of cay-keep as it starts again what has ended.
KEEP_CALLS = ("wait4", "read", "write", "poll", "pipe2", "clone")
TASK_CALL_MS = 40  # each of them waits so long, so that a kill finds it at its beginning
KEEP_CALL_MS = 12  # likewise; of these there are hundreds
POINTS_MAX = 1000  # of one kind of call, of cay-keep in a fork with memory more than 400; more would be a loop


def is_gone(pid):
    try:
        return open(f"/proc/{pid}/stat", errors="replace").read().rpartition(")")[2].split()[0] in "ZX"
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


class Watcher(Killer):
    """Kills a program when a process, or one that it has begun, begins its n-th of some calls, which waits there meanwhile."""

    def __init__(self, pid, calls, n, log, victim, *options, delay_ms=TASK_CALL_MS):
        self.pid, self.n, self.log, self.over = victim, n, log, False
        self.entry = re.compile(rf"^(\d+) +(?:{'|'.join(calls)})\(", re.M)
        log.write_text("")
        self.trace(pid, [*options, "-f", "-qq", "-e", "signal=none", "-o", str(log), "-e", f"trace={','.join((*calls, 'execve'))}",
                         "-e", f"inject={','.join(calls)}:delay_enter={delay_ms}ms"])
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def trace(self, pid, options):
        self.tracer = subprocess.Popen(["strace", "-p", str(pid), *options], stderr=subprocess.PIPE, text=True)
        until(lambda: f"TracerPid:\t{self.tracer.pid}\n" in open(f"/proc/{pid}/status").read(), every=0.005)

    def entries(self):
        """The process of each of the calls."""
        return self.entry.findall(self.log.read_text())

    def watch(self):
        while not self.over:
            if len(self.entries()) >= self.n:
                os.kill(self.pid, signal.SIGKILL)
                return
            time.sleep(0.002)

    def hit(self):
        self.over = True
        self.watcher.join()
        return super().hit()


class TaskKiller(Watcher):
    """Kills cay-privd when its tasks, one after the other, begin their n-th call; the task dies with it, before that call. The
    program that a task becomes by execve is let go of, as CRIU could not trace a process that has a tracer already."""

    def __init__(self, pid, n, log):
        super().__init__(pid, TASK_CALLS, n, log, pid, "-b", "execve")


class KeepKiller(Watcher):
    """Kills cay-keep when a program that it has started, or a task of cay-privd, begins its n-th call: all of them die at once. The
    program that a task becomes is let go of, as of TaskKiller: a restore under the tracer always failed."""

    def __init__(self, pid, n, log, keep_pid, calls=CALLS):
        super().__init__(pid, calls, n, log, keep_pid, "-b", "execve", delay_ms=KEEP_CALL_MS)


class JobKiller(Watcher):
    """Kills a cay-job, which cay-privd starts, when it begins its n-th call. Processes that it has started die with it."""

    BECOMES = re.compile(r'^(\d+) +execve\("[^"]*/cay-job"', re.M)

    def __init__(self, pid, n, log):
        super().__init__(pid, JOB_CALLS, n, log, 0)

    def entries(self):
        text = self.log.read_text()
        jobs = set(self.BECOMES.findall(text))
        return [pid for pid in self.entry.findall(text) if pid in jobs]

    def watch(self):
        while not self.over:
            if len(found := self.entries()) >= self.n:
                self.pid = int(found[self.n - 1])
                os.kill(self.pid, signal.SIGKILL)
                return
            time.sleep(0.004)

    def hit(self):
        return super().hit() and self.pid != 0


class Fault(Killer):
    """The n-th call of a kind fails, of a process or, tasks, of each that it begins as well, until one has failed: a task that failed is
    tried again, some of them without end. It is another call instead: no call at all, which strace makes by itself, is not in the
    filters, for which the process would be killed."""

    def __init__(self, pid, call, n, error, log, tasks):
        self.pid, self.log, self.over = pid, log, False
        log.write_text("")
        self.trace([*(["-f", "-b", "execve"] if tasks else []), "-o", str(log), "-e", "signal=none", "-e", f"trace={call}",
                    "-e", f"inject={call}:error={error}:syscall=getpid:when={n}"])
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()

    def failed(self):
        return "(INJECTED)" in self.log.read_text()

    def watch(self):
        while not self.over and not self.failed():
            time.sleep(0.004)
        self.tracer.send_signal(signal.SIGTERM)

    def hit(self):
        self.over = True
        self.watcher.join()
        self.tracer.communicate(timeout=5)
        return self.failed()


class Counted(Killer):
    """Of each of some calls how many a process makes, or, tasks, each that it begins as well. A program that a task becomes by execve counts no
    more, as with Fault."""

    LINE = re.compile(r"^(\d+ +)?(\w+)\(", re.M)

    def __init__(self, pid, calls, log, tasks):
        self.pid, self.log = pid, log
        log.write_text("")
        self.trace([*(["-f", "-b", "execve"] if tasks else []), "-o", str(log), "-e", "signal=none", "-e", f"trace={','.join(calls)}"])

    def most(self):
        """The most that one of the processes has made."""
        self.tracer.send_signal(signal.SIGTERM)
        self.tracer.communicate(timeout=5)
        each = collections.Counter((found[1], found[2]) for found in self.LINE.finditer(self.log.read_text()))
        most = collections.Counter()
        for (_, call), n in each.items():
            most[call] = max(most[call], n)
        return most
