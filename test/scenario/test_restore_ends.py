"""A restore that fails at its last steps: nothing of the sandbox has run, and its kept files are whole."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from privdlib import ITEM
from test_checkpoint import counts, goes_on
from test_dump import STAGE_MEMORY, Box, dump, kept_dir, needs, privd, programs_at_work, restored, send_restore, server  # noqa: F401
from test_kept import kepts, pid_of
from waitlib import until

STEPS_MAX = 40
BUSY = "setsid sh -c 'while :; do n=$((n+1)); echo $n > /tmp/busy; done' > /dev/null 2>&1 < /dev/null & sleep 0.2"
# The task that serves a restore, before it reads that CRIU is about to let go of the processes.
HOLD = ("-e", "trace=poll", "-e", "inject=poll:delay_enter=120s:when=7")


@pytest.fixture(scope="module", autouse=True)
def strace():
    assert shutil.which("strace"), "strace is not installed: scripts/deps test"


class Tracer:
    """strace on a process. With tasks=True on the tasks of cay-privd too, but not on the programs that they become."""

    def __init__(self, pid, *options, tasks=False, log="/dev/null"):
        follow = ["-f", "-b", "execve"] if tasks else []
        words = ["strace", "-p", str(pid), *follow, "-qq", "-e", "signal=none", "-o", str(log), *options]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        until(lambda: f"TracerPid:\t{self.process.pid}\n" in pathlib.Path(f"/proc/{pid}/status").read_text(), every=0.005)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


def waits_for_an_answer(pid):
    """How often it has waited until now, where it waits for bytes of a socket; else None."""
    with contextlib.suppress(OSError):
        if pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] == "45":
            return re.search(r"^voluntary_ctxt_switches:\t(\d+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1]
    return None


def lets_go(privd):  # noqa: F811
    """CRIU that is about to let go of the processes, and waits for the answer of cay-checkpoint: the other steps have theirs at once."""
    for pid in programs_at_work(privd, names=("criu",)):
        waited = waits_for_an_answer(pid)
        time.sleep(0.5)
        if waited and waits_for_an_answer(pid) == waited:
            return int(pid)
    return None


def restore_killed(privd, c, name, n):  # noqa: F811
    """CRIU is killed at its n-th step of that; the task's answer, for which it waits, comes when that is set up."""
    with Tracer(privd.process.pid, *HOLD, tasks=True):
        seq = send_restore(c, name, 7)
        criu = until(lambda: lets_go(privd), what="CRIU is about to let go")
        tracer = Tracer(criu, "-e", "trace=ptrace", "-e", f"inject=ptrace:signal=KILL:when={n}")
    with tracer:
        return c.wait(seq)


def test_criu_that_is_killed_as_it_lets_go_costs_nothing(privd):  # noqa: F811
    """At each of its steps: nothing has run, and the kept sandbox is restored afterwards."""
    c = privd.channel()
    box = Box(privd, c, "ifirstp")
    assert box.agent.sh(BUSY, user="root").end["exited"]
    box.agent.prepare()
    assert dump(c, box, 7).status == 0
    image, busy = kept_dir(privd, 7) / "image", kept_dir(privd, 7) / "root/tmp/busy"
    stood, sealed, at = busy.stat().st_mtime_ns, image.stat().st_ino, int((kept_dir(privd, 7) / "root/tmp/count").read_text())
    for n in range(1, STEPS_MAX):
        r = restore_killed(privd, c, f"inextp{n}", n)
        if r.status == 0:
            break
        assert r.stage == STAGE_MEMORY, (n, r.status, r.stage)
        assert kepts(c) == {7} and c.list() == {} and programs_at_work(privd) == []
        assert busy.stat().st_mtime_ns == stood and image.stat().st_ino == sealed
    assert 3 <= n < STEPS_MAX  # it let go of PID 1, the counter and the other
    pid = pid_of(privd, r)
    assert counts(pid) >= at
    goes_on(pid)
    assert kepts(c) == set()


def test_a_task_that_is_killed_before_it_lets_them_go_costs_nothing(privd):  # noqa: F811
    """They stand still, and cay-checkpoint gets no answer any more."""
    c = privd.channel()
    box = Box(privd, c, "ifirstq")
    box.agent.prepare()
    assert dump(c, box, 7).status == 0
    count = kept_dir(privd, 7) / "root/tmp/count"
    stood = count.read_text()
    with Tracer(privd.process.pid, *HOLD, tasks=True):
        seq = send_restore(c, "inextq", 7)
        until(lambda: lets_go(privd), what="CRIU is about to let go")
        task, = programs_at_work(privd, names=("cay-privd",))
        os.kill(int(task), signal.SIGKILL)
    assert c.wait(seq).status < 0
    assert kepts(c) == {7} and count.read_text() == stood
    goes_on(pid_of(privd, restored(privd, c, "iagainq", 7)))


@pytest.mark.parametrize("told", [False, True])
def test_one_that_was_restored_for_a_peer_that_is_gone_lives_on(privd, told):  # noqa: F811
    """Its memory is nowhere else. The next peer finds it in its list, or, where it has listed before, is told."""
    c = privd.channel()
    box = Box(privd, c, f"ifirst{told:d}")
    box.agent.prepare()
    assert dump(c, box, 7).status == 0
    with Tracer(privd.process.pid, *HOLD, tasks=True):
        send_restore(c, f"inext{told:d}", 7)
        until(lambda: lets_go(privd), what="CRIU is about to let go")
        c.close()
        if told:
            c = privd.channel()
            assert c.list() == {}
    if told:
        s = c.wait_event(ITEM, 60)
        assert s.text(0, 32) == "inext1"
    else:
        until(lambda: "restored, no peer" in privd.log.read_text(), what="it was restored")
        c = privd.channel()
        s = c.list()["inext0"]
    assert kepts(c) == set()
    goes_on(pid_of(privd, s))
    assert c.kill(s).status == 0
