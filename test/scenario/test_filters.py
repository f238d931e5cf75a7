"""System call filters of a tenant's own: refused as on a kernel without them; where the owner asked for them, at
most two for each of 64 processes. Each test attaches few: filling what filters share would stop the machine."""

import json
import platform
import re
import subprocess

import pytest

from client import Client, Sandbox

# Attaches filters that allow everything, and prints what the kernel said: 0, or the errno.
PRELUDE = r'''
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
class Code(ctypes.Structure): _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]
class Program(ctypes.Structure): _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.POINTER(Code))]
program = Program(1, (Code * 1)(Code(6, 0, 0, 0x7fff0000)))
libc.prctl(38, 1, 0, 0, 0)
def said(result): return ctypes.get_errno() if result < 0 else 0
def attach(flags=0): return said(libc.syscall(317, 1, flags, ctypes.byref(program)))
def by_prctl(): return said(libc.prctl(22, 2, ctypes.byref(program), 0, 0))
'''
EPERM, EFAULT, EBUSY, EINVAL = 1, 14, 16, 22


def python(box, code):
    box.write("/tmp/try.py", (PRELUDE + code).encode())
    result = box.run("python3 /tmp/try.py")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.out)


@pytest.fixture(scope="module")
def with_filters(cay):
    reply = cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "seccompFilters": True})
    assert reply.status == 201, reply.body
    with Sandbox(cay, reply.json) as box:
        yield box


def test_none_by_default(cay):
    with cay.create() as box:
        assert python(box, "print([attach(), by_prctl(), said(libc.syscall(317, 1, 0, None))])") == [EINVAL] * 3
        assert cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json["seccompFilters"] is False


def test_two_for_a_process(cay, with_filters):
    assert cay.call("GET", f"/cay/v1/sandboxes/{with_filters.id}").json["seccompFilters"] is True
    said = python(with_filters, "print([said(libc.syscall(317, 1, 0, None)), attach(), by_prctl(), attach(), by_prctl()])")
    assert said == [EFAULT, 0, 0, EPERM, EPERM]


def test_a_child_has_its_parents(with_filters):
    code = """
a = attach()
pid = os.fork()
b, c = attach(), attach()
if pid == 0:
    os._exit(0 if [b, c] == [0, 1] else 1)
print([a, b, c, os.waitpid(pid, 0)[1]])
"""
    assert python(with_filters, code) == [0, 0, EPERM, 0]


def test_threads_have_the_same(with_filters):
    """Else each of a thousand threads would have two: with threads, only for all of them (TSYNC)."""
    code = """
go = threading.Event()
got = []
def other():
    got.append(attach())
    got.append(attach(1))
    go.wait()
t = threading.Thread(target=other); t.start()
while len(got) < 2: time.sleep(0.01)
mine = int([l for l in open("/proc/self/status") if "filters" in l][0].split()[1])
his = int([l for l in open(f"/proc/self/task/{t.native_id}/status") if "filters" in l][0].split()[1])
go.set(); t.join()
print([*got, mine - his])
"""
    assert python(with_filters, code) == [EPERM, 0, 0]


def test_no_second_listener(with_filters):
    assert python(with_filters, "print([attach(8)])") == [EBUSY]


def test_64_processes(cay, with_filters):
    """Then it is refused, and allowed again when they have gone. The log has a line a second at most, with the
    number of those that it stands for."""
    code = """
kids, good, bad = [], 0, 0
for i in range(68):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(w, b"%d" % attach()); time.sleep(60); os._exit(0)
    os.close(w); kids.append(pid)
    answer = os.read(r, 9); os.close(r)
    good += answer == b'0'; bad += answer == b'1'
for pid in kids: os.kill(pid, 9)
for pid in kids: os.waitpid(pid, 0)
time.sleep(1.2)
print([good, bad, attach(), attach(), attach()])
"""
    assert python(with_filters, code) == [64, 4, 0, 0, EPERM]
    lines = cay.call("GET", f"/v2/sandboxes/{with_filters.id}/logs").body.decode()
    told = [int(n) for n in re.findall(r"no system call filter: [^\"]* \((\d+) refused\)", lines)]
    assert sum(told) >= 5, lines


def test_all_else_is_refused(with_filters, probe_path):
    """The probe, in a sandbox with filters: only they are open, and the listener is out of every program's reach."""
    with open(probe_path, "rb") as f:
        assert with_filters.write("/tmp/probe", f.read(), user="root").status == 200
    with_filters.run("chmod 755 /tmp/probe", user="root")
    for user in ("user", "root"):
        out = with_filters.run("/tmp/probe all", user=user, timeout=300).out
        found = [line.split("\t") for line in out.splitlines()]
        assert len(found) == len(subprocess.run([probe_path, "list"], capture_output=True).stdout.splitlines())
        opened = [name for name, verdict, _ in found if verdict == "OPEN"]
        assert all(name.startswith("kernel.seccomp") and name != "kernel.seccomp_listener" for name in opened), opened


def test_what_is_no_answer(cay):
    assert cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "seccompFilters": "yes"}).status == 400


def test_places_are_shared_out_by_tenant(server, with_filters, new_key):
    """About half for a tenant alone, and always one for a tenant that has none."""
    version = tuple(int(n) for n in platform.release().split(".")[:2])
    places = 16 if version < (6, 9) else 1 if version < (6, 15) else 6
    names = ("filters-a", "filters-b", "filters-c")
    clients = {name: Client(server.url, new_key(name)) for name in names}
    made = []

    def take_all(name):
        while len(made) <= places:
            reply = clients[name].call("POST", "/cay/v1/sandboxes", {"templateID": "host", "seccompFilters": True})
            if reply.status != 201:
                assert reply.status == 429 and "share" in reply.json["message"], reply.body
                break
            made.append(Sandbox(clients[name], reply.json))
        return sum(box.client is clients[name] for box in made)

    try:
        # And one of with_filters.
        assert [take_all(name) for name in names] == {16: [8, 4, 2], 6: [3, 1, 1], 1: [0, 0, 0]}[places]
        reply = clients["filters-a"].call("POST", "/cay/v1/sandboxes", {"templateID": "host"})
        made.append(Sandbox(clients["filters-a"], reply.json))
        assert reply.status == 201  # without filters there are places
    finally:
        for box in made:
            box.kill()
