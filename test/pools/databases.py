#!/usr/bin/env python3
"""The cost of the watch over locks on ranges of files (src/privd/locks.h) for programs that use them honestly.

    test/pools/databases.py --build=DIR [--rounds=5] [--seconds=2]

DIR is a build with -Dtest_switches=true. The same work on the host, in a sandbox, and in a sandbox without the watch, in turn:
transactions of SQLite with a journal that is rolled back and with a write-ahead log, each by one process and by eight on one
file, and commits of git. Without synchronous writes everywhere, as a sandbox's reach no disk and the host's would: system calls
and locks are left. How many in a second (median of the rounds), and the ratios. A process that is killed fails
the run. As root."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/escapes"))

WORK = r'''
import json, os, shutil, sqlite3, subprocess, sys, tempfile, time
seconds, out = float(sys.argv[1]), {}
def transactions(path, end):
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    db.execute("pragma synchronous = off")
    n = 0
    while time.monotonic() < end:
        db.execute("begin immediate"); db.execute("insert into t values (?)", ("x" * 100,)); db.execute("commit")
        n += 1
    return n
def sqlite(mode, processes):
    path = os.path.join(where, f"{mode}{processes}.db")
    db = sqlite3.connect(path); db.execute(f"pragma journal_mode = {mode}"); db.execute("create table t (x)"); db.close()
    ends, pipes = time.monotonic() + seconds, []
    for _ in range(processes):
        r, w = os.pipe()
        if os.fork() == 0:
            os.write(w, str(transactions(path, ends)).encode()); os._exit(0)
        os.close(w); pipes.append(r)
    n = sum(int(os.read(r, 20) or -10**9) for r in pipes)
    assert all(os.wait()[1] == 0 for _ in pipes), "one was killed"
    return n / seconds
def git():
    run = lambda *a: subprocess.run(["git", "-C", where, "-c", "user.name=x", "-c", "user.email=x@x", *a], check=True, stdout=subprocess.DEVNULL)
    run("init", "-q", ".")
    ends, n = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        run("commit", "-q", "--allow-empty", "-m", str(n)); n += 1
    return n / seconds
where = tempfile.mkdtemp(dir="/var/tmp")
try:
    for mode in ("delete", "wal"):
        for processes in (1, 8):
            out[f"SQLite, {mode}, {processes} process" + "es" * (processes > 1)] = sqlite(mode, processes)
    out["git commit"] = git()
finally:
    shutil.rmtree(where)
print(json.dumps(out))
'''


def inside(box, seconds):
    done = box.run("/usr/bin/python3", args=["-c", WORK, str(seconds)], user="root", timeout=300)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.out)


def on_host(seconds):
    return json.loads(subprocess.run([sys.executable, "-c", WORK, str(seconds)], capture_output=True, check=True).stdout)


def main():
    import world
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    base, rounds = world.make_base(), {"host": [], "watched": [], "unwatched": []}
    try:
        for _ in range(options.rounds):
            rounds["host"].append(on_host(options.seconds))
            for name, without in (("watched", ()), ("unwatched", ("lock-watch",))):
                with world.Server(options.build.resolve(), base, without) as server, server.client.create() as box:
                    rounds[name].append(inside(box, options.seconds))
    finally:
        world.remove_base(base)
    print("| work | host | sandbox | without the watch | sandbox / host | with / without |\n|---|---|---|---|---|---|")
    for work in rounds["host"][0]:
        host, watched, unwatched = (statistics.median(r[work] for r in rounds[n]) for n in rounds)
        print(f"| {work} | {host:.0f} | {watched:.0f} | {unwatched:.0f} | {watched / host:.2f} | {watched / unwatched:.2f} |")


if __name__ == "__main__":
    main()
