"""Allocations of cay-privd and cay-egress fail, the n-th of each call and then all after it, for every n (test/preload):
each call is answered, the program goes on, and the next call works. Of cayd's core: test/unit/test_core_memory.c; of jansson and
of DNS messages in cay-egress: test_egress_memory.c there."""

import contextlib
import errno
import hashlib
import http.client
import itertools
import json
import mmap
import os
import pathlib
import shutil
import signal
import socket
import struct
import tempfile

import pytest

import privdlib
from privdlib import CAPACITY, CONNECT, FREEZE, HOST, JOB, LIST, STAT, TEMPLATES, THAW
from test_kept import copy, create_copy, create_on, drop, keep, kepts
from test_privd import BUILD, left_behind
from waitlib import until
from worldlib import API, OTHER_HOST, ZONE, inject, make_world, sandbox, seal  # isort: skip
from internet import RESOLVER, dns_wire  # isort: skip

PRELOAD = BUILD / "test/preload/cay_failing_malloc.so"
CALLS_MAX = 2000
LAYOUT = "<IIIII"  # of test/preload/failing_malloc.c: which fails, all after it too, calls, failed, held

pytestmark = pytest.mark.skipif(not PRELOAD.exists(), reason="not built: sanitizers have a malloc of their own")


class Failing:
    """The orders to the preloaded library, through a file that it has mapped."""

    def __init__(self, base):
        self.path = pathlib.Path(base) / "fail"
        self.path.write_bytes(bytes(struct.calcsize(LAYOUT)))
        self.path.chmod(0o666)
        with open(self.path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), struct.calcsize(LAYOUT))
        self.environment = {"LD_PRELOAD": str(PRELOAD), "CAY_TEST_FAIL": str(self.path)}

    def begin(self, n, for_good):
        self.map[:16] = struct.pack("<IIII", n, for_good, 0, 0)

    def end(self):
        """How many failed."""
        failed = struct.unpack(LAYOUT, self.map)[3]
        self.map[:16] = bytes(16)
        return failed

    def held(self):
        """Blocks of the program's own code, where it counts them (CAY_TEST_HELD)."""
        return struct.unpack(LAYOUT, self.map)[4]


def sweep(failing, call, for_good, prepare=None):
    """call(n) is one call, and answers what undoes it; of what prepare(n) answers, where there is one. For each n until no n-th
    allocation was made: how many there were. (What the program does beside, refilling its slots, counts too.)"""
    for n in range(1, CALLS_MAX):
        there = [prepare(n)] if prepare else []
        failing.begin(n, for_good)
        try:
            undo = call(n, *there)
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

        def command_sandbox(n):
            made = close(c.command_sandbox(s))
            return nothing if made.status else lambda: check(c.command_sandbox_end(s, made.number))

        def check(answer):
            assert answer.status == 0

        def asked(op, body=b"", **of):
            def ask(n):
                close(c.ask(op, body, **of))
                return nothing
            return ask

        calls = {"CREATE": create, "COMMAND_SANDBOX": command_sandbox, "CONNECT": asked(CONNECT, struct.pack("<I", 2), **here), "LIST": asked(LIST),
                 "STAT": asked(STAT, **here), "TEMPLATES": asked(TEMPLATES), "CAPACITY": asked(CAPACITY),
                 "FREEZE": asked(FREEZE, **here), "THAW": asked(THAW, **here)}
        counts = {op: sweep(privd.failing, call, for_good) for op, call in calls.items()}
        assert counts["CREATE"] > 0, counts
        # Whatever failed, the sandbox that was there is, and new ones are made.
        assert close(c.thaw(s)).status in (0, -114) and close(c.connect(s)).status == 0 and set(c.list()) >= {name}
        again = close(c.create(f"iagain{int(for_good)}"))
        assert again.status == 0 and c.kill(again).status == 0 and c.kill(s).status == 0



# -- cay-egress ------------------------------------------------------------------------------------

SECRET = "sk-live-0123456789abcdef0123456789"


@pytest.fixture(scope="module")
def world():
    """A cay-egress whose allocations fail when the test says so."""
    with tempfile.TemporaryDirectory(prefix="cay-test-fail-", dir="/var/tmp") as base:
        pathlib.Path(base).chmod(0o755)
        failing = Failing(base)
        w = make_world(ZONE)
        try:
            w.kill_egress()
            with pytest.MonkeyPatch.context() as patch:
                for name, value in {**failing.environment, "CAY_TEST_HELD": "1"}.items():
                    patch.setenv(name, value)
                w.start_egress()
            w.failing = failing
            yield w
            check_alive(w)
        finally:
            w.close()


def check_alive(world):
    assert world.egress.poll() is None, world.log.read_text()[-4000:]


NUMBER = 9  # of kept files


def drop_kept(c):
    """The files that are kept go, also where they are still being kept."""
    until(lambda: drop(c, NUMBER).status in (0, -errno.ENOENT), what="what is kept is dropped")
    assert kepts(c) == set()


@pytest.mark.parametrize("for_good", [False, True], ids=["one", "all after it"])
def test_privd_ends_and_keeps(privd, for_good):
    """KILL, and things that outlive a sandbox: each is done or not done, and the rest of either can be ended and dropped."""
    with contextlib.closing(privd.channel(timeout=60)) as c:
        if c.ask(CAPACITY).text(32, 16) == "memory":
            pytest.skip("files are in memory here")
        names = itertools.count()  # a process that ends has its name for a moment longer

        def one(n):
            made = close(c.create(f"iends{int(for_good)}{next(names)}"))
            assert made.status == 0
            return made

        def gone(s):
            """Killed, or it is gone already."""
            until(lambda: c.kill(s).status in (0, -errno.ESTALE, -errno.ENOENT), what="it is gone")

        def kept(n):
            assert keep(c, one(n), NUMBER).status == 0

        def copied(n):
            s = one(n)
            assert copy(c, s, NUMBER).status == 0
            assert c.kill(s).status == 0

        def ends(n, s):
            status = c.kill(s).status
            return nothing if status == 0 else lambda: gone(s)

        def keeps(n, s):
            status = keep(c, s, NUMBER).status

            def undo():
                assert (kepts(c) == {NUMBER}) or status != 0
                gone(s)
                drop_kept(c)
            return undo

        def copies(n, s):
            status = copy(c, s, NUMBER).status

            def undo():
                assert kepts(c) == ({NUMBER} if status == 0 else set())
                assert c.kill(s).status == 0  # it goes on in either case
                drop_kept(c)
            return undo

        def drops(n, _):
            status = drop(c, NUMBER).status

            def undo():
                assert status != 0 or kepts(c) == set()
                drop_kept(c)
            return undo

        def create_of(how):
            def create(n, _):
                made = close(how(c, f"iofkept{int(for_good)}{next(names)}", NUMBER))

                def undo():
                    assert made.status == 0 or kepts(c) == {NUMBER}  # the kept files are there still
                    if made.status == 0:
                        assert c.kill(made).status == 0
                    drop_kept(c)
                return undo
            return create

        calls = {"KILL": (ends, one), "KEEP": (keeps, one), "COPY": (copies, one), "DROP": (drops, kept),
                 "CREATE on kept files": (create_of(create_on), kept), "CREATE of a copy": (create_of(create_copy), copied)}
        counts = {op: sweep(privd.failing, call, for_good, prepare) for op, (call, prepare) in calls.items()}
        assert counts["CREATE of a copy"] > 0, counts


def test_privd_whose_watcher_of_locks_ends(privd):
    """It ends too, by itself and in order, so that both are started again."""
    children = pathlib.Path(f"/proc/{privd.process.pid}/task/{privd.process.pid}/children").read_text().split()
    watcher = [pid for pid in children if pathlib.Path(f"/proc/{pid}/comm").read_text() == "cay-locks\n"]
    if not watcher:
        pytest.skip("this kernel does not tell who makes locks")
    os.kill(int(watcher[0]), signal.SIGKILL)
    assert privd.process.wait(30) == 1, privd.log.read_text()
    privd.start()
    with contextlib.closing(privd.channel()) as c:
        s = close(c.create("iafterwards"))
        assert s.status == 0 and c.kill(s).status == 0


def sweep_counted(failing, call, for_good):
    """A sweep after which nothing is held that was not before: memory that stays from the first use on is there by then."""
    for _ in range(2):
        call(0)()
    before = failing.held()
    assert before > 0
    failures = sweep(failing, call, for_good)
    for _ in range(2):
        call(0)()
    until(lambda: failing.held() <= before + failures // 8, what=f"{before} blocks are held again")
    return failures


@contextlib.contextmanager
def egress_sandbox(world):
    """A sandbox with a key, and what its calls have in common."""
    key = seal(world, "KEY", SECRET, kind="placeholder", headers=["x-key"])
    rules = [{"action": "allow", "domains": [API]}]
    with sandbox(world, [key], inject("KEY"), rules) as s:

        def fetch(*arguments):
            done = s.curl("--max-time", "15", "--cacert", s.ca, *arguments)
            assert done.returncode != 28, f"hangs: {arguments}"
            assert SECRET not in done.stdout + done.stderr
            return done

        def put(*credentials):
            """Status, or None where there was no answer."""
            with contextlib.suppress(OSError, http.client.HTTPException):
                return world.put(s, {"rules": rules, "inject": inject("KEY")}, credentials=list(credentials or [key]))[0]
            return None

        def in_force():
            check_alive(world)
            assert put() == 204

        s.key, s.fetch, s.put, s.in_force = key, fetch, put, in_force
        yield s


WITH_KEY = ("-H", "x-key: cay-secret:KEY", f"https://{API}/")


def is_denied(s):
    assert '"path"' not in s.fetch(f"http://{OTHER_HOST}/").stdout  # what the origin answers


@pytest.mark.parametrize("for_good", [False, True], ids=["one", "all after it"])
def test_egress(world, for_good):
    """No answer shows the secret, nothing that is denied is reached, no client hangs, cay-egress lives, and nothing leaks."""
    with egress_sandbox(world) as s:

        def allowed(*arguments):
            def call(n):
                s.fetch(*arguments)
                return s.in_force
            return call

        def denied(n):
            is_denied(s)
            return s.in_force

        calls = {"plain": allowed(f"http://{API}/"), "intercepted": allowed(*WITH_KEY), "denied": denied}
        counts = {what: sweep_counted(world.failing, call, for_good) for what, call in calls.items()}
        assert all(counts.values()), counts
        # Whatever failed, allowed connections go on, and denied ones stay so.
        assert '"path"' in s.fetch(*WITH_KEY).stdout
        is_denied(s)


@pytest.mark.parametrize("for_good", [False, True], ids=["one", "all after it"])
def test_policies_and_credentials_of_egress(world, for_good):
    """A policy, and a credential that is sealed and put in force for another: refused, or in force as a whole."""
    with egress_sandbox(world) as s:
        names = itertools.count()

        def put(n):
            s.put()
            return s.in_force

        def key_seen():
            """Digest of what the origin had for a key."""
            answer = json.loads(s.fetch(*WITH_KEY).stdout)
            return {name.lower(): digest for name, digest in answer["digests"].items()}["x-key"]

        def digest(text):
            return hashlib.sha256(text.encode()).hexdigest()

        def replaced(n):
            value = f"{SECRET}-{next(names)}"
            status = None
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
                status = s.put(seal(world, "KEY", value, kind="placeholder", headers=["x-key"]))

            def undo():
                check_alive(world)
                seen = key_seen()
                assert seen == digest(value) if status == 204 else seen in (digest(value), digest(SECRET))
                s.in_force()
            return undo

        calls = {"policy": put, "credential": replaced}
        counts = {what: sweep_counted(world.failing, call, for_good) for what, call in calls.items()}
        assert all(counts.values()), counts
        assert key_seen() == digest(SECRET)
        is_denied(s)


@pytest.mark.parametrize("for_good", [False, True], ids=["one", "all after it"])
def test_names_of_egress(world, for_good):
    """A question about a name that is new is answered with its address or an error, never with "it has none"; over TCP too."""
    with egress_sandbox(world) as s:
        names = (f"new{n}-{int(for_good)}.example.com" for n in itertools.count())

        def check(name, code, addresses):
            """The answer against that of a question once memory is there."""
            assert addresses or code != 0
            if addresses:
                assert s.resolve(name) == (0, addresses)

        def udp(n):
            name = next(names)
            answer = s.resolve(name)
            return lambda: check(name, *answer)

        def tcp(n):
            name, answer = next(names), None
            question = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + dns_wire(name) + struct.pack(">HH", 1, 1)
            with contextlib.suppress(ConnectionError), s.connect(RESOLVER, 53) as c:
                c.sendall(struct.pack(">H", len(question)) + question)
                if size := c.recv(2, socket.MSG_WAITALL):
                    answer = s.parse(c.recv(struct.unpack(">H", size)[0], socket.MSG_WAITALL))
            return lambda: check(name, *answer) if answer else check_alive(world)

        counts = {what: sweep(world.failing, call, for_good) for what, call in {"UDP": udp, "TCP": tcp}.items()}
        assert all(counts.values()), counts
        assert s.resolve(next(names))[1]
