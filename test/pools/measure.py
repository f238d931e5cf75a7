#!/usr/bin/env python3
"""Kernel memory that a sandbox takes, beside what its memory group was charged with.

    test/pools/measure.py --build=DIR [--mib=16] [--rounds=3] [--only=NAME,NAME] [--json=FILE]

For each kind of test/pools/*.c: a program in a sandbox with the usual limits takes a few MiB of it, and stops at the
first refusal. Before and while it holds them, /proc/meminfo of the machine and the counters of the memory group are
read. Believed: what the program reckons; for sockets, what the kernel says. Taken: what the machine has less of, without
page cache and memory of other programs, the median of the rounds: of use only on a machine that does nothing else.
Nothing is filled: 16 MiB is the most that is ever asked for. As root."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/scenario"))

MIB = 1 << 20
SETTLE_SECONDS = 0.4
PATIENCE_SECONDS = 60


def meminfo():
    return {line.split(":")[0]: int(line.split()[1]) * 1024
            for line in pathlib.Path("/proc/meminfo").read_text().splitlines()}


class Group:
    """The memory group of all sandboxes of the server: there is only one that does anything."""

    def __init__(self, name):
        v1 = pathlib.Path("/sys/fs/cgroup/memory") / name
        self.v1 = v1.exists()
        self.dir = v1 if self.v1 else next(pathlib.Path("/sys/fs/cgroup").rglob(name))

    def number(self, file):
        path = self.dir / file
        return int(path.read_text()) if path.exists() else 0

    def stat(self, key):
        for line in (self.dir / "memory.stat").read_text().splitlines():
            if line.split()[0] == key:
                return int(line.split()[1])
        return 0

    def read(self):
        if self.v1:
            return {"charged": self.number("memory.usage_in_bytes"), "sockets": self.number("memory.kmem.tcp.usage_in_bytes"),
                    "anonymous": self.stat("total_rss")}
        return {"charged": self.number("memory.current"), "sockets": 0, "anonymous": self.stat("anon")}


def machine():
    m = meminfo()
    cache = m["Buffers"] + m["Cached"] - m["Shmem"]
    return {"fixed": m["MemTotal"] - m["MemFree"] - cache - m["AnonPages"] - m["SReclaimable"],
            "reclaimable": m["SReclaimable"]}


class Holder:
    """The program in the sandbox, from its start to its end."""

    def __init__(self, box, name, mib, user):
        box.run("rm -f /tmp/go; mkfifo /tmp/go; chmod 666 /tmp/go", user="root")
        self.box, self.lines, self.changed = box, [], threading.Condition()
        self.thread = threading.Thread(target=self.run, args=(f"exec 9<>/tmp/go; /tmp/pools {name} {mib} <&9", user))
        self.thread.start()
        self.wait(1)

    def run(self, command, user):
        import base64
        process = {"cmd": "/bin/sh", "args": ["-c", command]}
        try:
            for event in self.box.stream("process.Process/Start", {"process": process, "stdin": False}, user, 120):
                data = event.get("event", {}).get("data", {})
                text = base64.b64decode(data.get("stdout", "") + data.get("stderr", "")).decode()
                with self.changed:
                    self.lines += text.splitlines()
                    self.changed.notify_all()
        finally:
            with self.changed:
                self.lines += ["ended"] * 3
                self.changed.notify_all()

    def wait(self, count):
        with self.changed:
            self.changed.wait_for(lambda: len(self.lines) >= count, PATIENCE_SECONDS)
        return self.lines[count - 1] if len(self.lines) >= count else "nothing"

    def go(self):
        self.box.run("timeout 5 sh -c 'printf x > /tmp/go'", user="root")


def once(box, group, name, mib, user="user"):
    holder = Holder(box, name, mib, user)
    time.sleep(SETTLE_SECONDS)
    m0, g0 = machine(), group.read()
    holder.go()
    said = holder.wait(2)
    time.sleep(SETTLE_SECONDS)
    m1, g1 = machine(), group.read()
    holder.go()
    holder.thread.join(PATIENCE_SECONDS)
    box.run("rm -rf /dev/shm/*", user="root")
    anonymous = g1["anonymous"] - g0["anonymous"]
    words = said.split(maxsplit=2)
    return {"believed": int(words[1]) if words[0] == "held" else 0, "end": words[2] if len(words) > 2 else said,
            "taken": m1["fixed"] - m0["fixed"] + anonymous, "reclaimable": m1["reclaimable"] - m0["reclaimable"],
            "charged": g1["charged"] - g0["charged"], "sockets": g1["sockets"] - g0["sockets"]}


def median(rounds):
    out = {key: int(statistics.median(r[key] for r in rounds)) for key in rounds[0] if key != "end"}
    return out | {"end": rounds[-1]["end"]}


def put(box, program):
    assert box.write("/tmp/pools", program.read_bytes(), user="root").status == 200
    assert box.run("chmod 755 /tmp/pools", user="root").exit_code == 0


def measure(options):
    import conftest
    program = options.build / "test/pools/pools"
    listed = [line.split("\t")[:2] for line in
              subprocess.run([program, "list"], capture_output=True, text=True, check=True).stdout.splitlines()]
    server = conftest.OwnServer(build=options.build)
    rows = []
    try:
        client = conftest.Client(server.url, server.key())
        group = Group(server.cgroup)
        with client.create() as box:
            put(box, program)
            time.sleep(2)  # what creates took is made anew
            for name, about in listed:
                if options.only and name not in options.only.split(","):
                    continue
                rows.append({"name": name, "about": about,
                             **median([once(box, group, name, options.mib) for _ in range(options.rounds)])})
                r = rows[-1]
                print(f"{name:18} believed {r['believed'] / MIB:6.1f}  taken {r['taken'] / MIB:6.1f}  reclaimable "
                      f"{r['reclaimable'] / MIB:6.1f}  charged {r['charged'] / MIB:6.1f}  sockets "
                      f"{r['sockets'] / MIB:6.1f}  {r['end']}", flush=True)
    finally:
        server.stop()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.build = options.build.resolve()
    os.environ["CAY_BUILD"] = str(options.build)
    rows = measure(options)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
