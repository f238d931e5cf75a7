"""Allocations of cay-privd fail, the n-th of each call and then all after it, for every n (test/preload): each call is
answered, privd goes on, and what comes next works. Of cayd's core: test/unit/test_core_memory.c."""

import contextlib
import mmap
import os
import pathlib
import shutil
import struct
import tempfile

import pytest

import privdlib
from privdlib import CAPACITY, CONNECT, FREEZE, HOST, JOB, LIST, STAT, TEMPLATES, THAW
from test_privd import BUILD, left_behind

PRELOAD = BUILD / "test/preload/cay_failing_malloc.so"
CALLS_MAX = 2000

pytestmark = pytest.mark.skipif(not PRELOAD.exists(), reason="not built: sanitizers have a malloc of their own")


class Failing:
    """What the preloaded library is told, through a file that it has mapped."""

    def __init__(self, base):
        self.path = pathlib.Path(base) / "fail"
        self.path.write_bytes(bytes(16))
        self.path.chmod(0o666)
        with open(self.path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 16)
        self.environment = {"LD_PRELOAD": str(PRELOAD), "CAY_TEST_FAIL": str(self.path)}

    def begin(self, n, for_good):
        self.map[:] = struct.pack("<IIII", n, for_good, 0, 0)

    def end(self):
        """How many failed."""
        failed = struct.unpack("<IIII", self.map)[3]
        self.map[:] = bytes(16)
        return failed


def sweep(failing, call, for_good):
    """call(n) is one call, and answers what undoes it. For each n until no n-th allocation was made: how many there were. (What
    the program does beside, refilling its slots, counts too.)"""
    for n in range(1, CALLS_MAX):
        failing.begin(n, for_good)
        try:
            undo = call(n)
        finally:
            failed = failing.end()
        undo()
        if not failed:
            return n - 1
    raise AssertionError("the call makes allocations without end")


def nothing():
    pass


@pytest.fixture(scope="module")
def privd():
    if os.geteuid() != 0:
        pytest.skip("privd needs root")
    base = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-privd-", dir="/var/tmp"))
    p = privdlib.Privd(BUILD, base)
    p.failing = Failing(base)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in p.failing.environment.items():
            patch.setenv(name, value)
        p.start()
    with contextlib.closing(p.channel()) as c:
        assert c.ask(JOB, struct.pack("<II", 1, HOST)).status == 0
    yield p
    assert p.process.poll() is None, p.log.read_text()
    assert p.stop() == 0, p.log.read_text()
    assert left_behind(p) == []
    shutil.rmtree(base, ignore_errors=True)


def close(message):
    for fd in message.fds:
        os.close(fd)
    return message


@pytest.mark.parametrize("for_good", [False, True], ids=["one", "all after it"])
def test_privd(privd, for_good):
    with contextlib.closing(privd.channel(timeout=60)) as c:
        name = f"ikept{int(for_good)}"
        s = c.create(name)
        assert s.status == 0
        close(s)

        here = {"slot": s.slot, "gen": s.gen}

        def create(n):
            made = close(c.create(f"imade{int(for_good)}{n}"))
            return nothing if made.status else lambda: check(c.kill(made))

        def room(n):
            made = close(c.room(s))
            return nothing if made.status else lambda: check(c.room_end(s, made.number))

        def check(answer):
            assert answer.status == 0

        def asked(op, body=b"", **of):
            def ask(n):
                close(c.ask(op, body, **of))
                return nothing
            return ask

        calls = {"CREATE": create, "ROOM": room, "CONNECT": asked(CONNECT, struct.pack("<I", 2), **here), "LIST": asked(LIST),
                 "STAT": asked(STAT, **here), "TEMPLATES": asked(TEMPLATES), "CAPACITY": asked(CAPACITY),
                 "FREEZE": asked(FREEZE, **here), "THAW": asked(THAW, **here)}
        counts = {op: sweep(privd.failing, call, for_good) for op, call in calls.items()}
        assert counts["CREATE"] > 0, counts
        # Whatever failed, the sandbox that was there is, and new ones are made.
        assert close(c.thaw(s)).status in (0, -114) and close(c.connect(s)).status == 0 and set(c.list()) >= {name}
        again = close(c.create(f"iagain{int(for_good)}"))
        assert again.status == 0 and c.kill(again).status == 0 and c.kill(s).status == 0
