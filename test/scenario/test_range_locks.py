"""Locks on ranges of files are memory of the kernel that no limit counts: a sandbox may hold 8,192 of them (src/privd/locks.h).
Each test takes a few MiB at most, and stops at the first refusal."""

import pathlib
import re

from waitlib import until

SECONDS = 30
MAX = int(re.search(r"LOCKS_MAX +(\d+)u", (pathlib.Path(__file__).parents[2] / "src/privd/locks.h").read_text()).group(1))

# Locks so many ranges, some on each of several files (the kernel goes through all of one file's), and says how many it has.
TAKE = r"""
import fcntl, os, struct, sys, time
many, each, kind = int(sys.argv[1]), 200, int(sys.argv[2])
files = [open(f"/tmp/locks-{os.getpid()}-{i}", "w") for i in range(-(-many // each))]
for i in range(many):
    fcntl.fcntl(files[i // each], kind, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * (i % each), 1, 0))
print(many, flush=True)
"""
POSIX, OFD = 6, 37  # F_SETLK, F_OFD_SETLK


def take(box, many, kind, then="time.sleep(1)", processes=1):
    box.write("/tmp/take.py", (TAKE + then).encode())
    return box.run(f"for i in $(seq {processes}); do python3 /tmp/take.py {many} {kind} & done; "
                   "for p in $(jobs -p); do wait $p; echo ended $?; done", timeout=120).out.split("\n")


def told(cay, box):
    logs = cay.call("GET", f"/v2/sandboxes/{box.id}/logs").json["logs"]
    return [line for line in logs if "locks on ranges" in line["message"]]


def test_few_are_nobodys_matter(cay, sandbox):
    for kind in (POSIX, OFD):
        assert take(sandbox, MAX // 2, kind) == [str(MAX // 2), "ended 0", ""]
    assert not told(cay, sandbox)


def test_too_many_end_their_process(cay, sandbox, server):
    for kind in (POSIX, OFD):
        # Twice what is counted, and what is made until it is looked at: the process waits to be ended.
        said = take(sandbox, 3 * MAX, kind, "time.sleep(20)")
        assert said[-2] == "ended 137", said
    until(lambda: told(cay, sandbox), SECONDS)
    assert sandbox.run("echo there").out == "there\n"


def test_those_of_several_processes_are_added(sandbox):
    said = take(sandbox, MAX // 2, POSIX, "time.sleep(5)", processes=8)
    assert "ended 137" in said, said


# Each file's locks go with its descriptor, into a socket: it is in no process then.
def test_those_in_sockets_are_found(sandbox):
    code = TAKE.replace("files = [", "import socket\npairs = [socket.socketpair() for _ in range(8)]\nfiles = [").replace(
        "for i in range(many):", "for i in range(many):\n    if i % each == 0 and i: socket.send_fds(pairs[i // each % 8][0], "
        "[b'x'], [files[i // each - 1].fileno()]); files[i // each - 1].close()")
    sandbox.write("/tmp/hide.py", (code + "time.sleep(60)").encode())
    said = sandbox.run(f"python3 /tmp/hide.py {5 * MAX} {OFD}; echo ended $?", timeout=120).out
    assert said.endswith("ended 137\n"), said


def test_many_calls_are_no_locks(sandbox):
    """A program that locks and unlocks as databases do is not looked at."""
    code = r"""
import fcntl, struct
f = open("/tmp/calls", "w")
for i in range(300000):
    fcntl.fcntl(f, 6, struct.pack("hhqqi4x", fcntl.F_WRLCK if i % 2 == 0 else fcntl.F_UNLCK, 0, i % 7, 1, 0))
print("done")
"""
    sandbox.write("/tmp/calls.py", code.encode())
    assert sandbox.run("python3 /tmp/calls.py", timeout=120).out == "done\n"


def test_databases_are_not_killed(cay):
    """SQLite by many processes on one file, with either kind of journal. Its cost: test/pools/databases.py."""
    code = r"""
import os, sqlite3, sys
for mode in ("delete", "wal"):
    path = f"/tmp/{mode}.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"pragma journal_mode = {mode}")
    db.execute("create table t (x)")
    db.close()
    for _ in range(16):
        if os.fork() == 0:
            db = sqlite3.connect(path, timeout=60, isolation_level=None)
            for i in range(200):
                db.execute("begin immediate"); db.execute("insert into t values (1)"); db.execute("commit")
            os._exit(0)
    print(sorted({os.wait()[1] for _ in range(16)}), sqlite3.connect(path).execute("select count(*) from t").fetchone()[0])
"""
    with cay.create() as box:  # of its own: others' logs have lines of who was killed
        box.write("/tmp/databases.py", code.encode())
        assert box.run("python3 /tmp/databases.py", timeout=120).out == "[0] 3200\n" * 2
        assert not told(cay, box)
