"""Sandboxes kept with their memory, by the API: pause and resume beside plain copying of as many bytes, creates from one image that
many sandboxes begin with, and forks. As state.py has them for files. Restores stand beside those of CRIU alone (criu_alone.py) too: time
beyond those is cay's own."""

import contextlib
import json
import os
import statistics
import subprocess
import time

import server
from criu_alone import CRIU, Alone
from state import Api

DIRTY = (7, 64, 256)  # MiB of a program's memory
FORKS = (1, 10, 100)
FORK_MIB = 7
ALONE = (7, 64)  # MiB with which CRIU is asked alone
READY = "/tmp/ready"
# Bytes that no file system and no kernel makes smaller.
PROGRAM = "import os, time\nheld = [os.urandom(1 << 20) for _ in range({mib})]\nopen('{ready}', 'w').close()\nwhile True:\n time.sleep(60)"
NAMES = {**{f"memory_{what}_{mib}": (f"{text} with {mib} MiB of memory", "ms") for mib in DIRTY
            for what, text in (("pause", "pause of a sandbox"), ("resume", "resume of a sandbox"), ("fork", "fork of a sandbox that stays paused,"))},
         **{f"memory_resume_{mib}_alone": (f"resume of a sandbox with {mib} MiB, by CRIU's floor", "ms") for mib in ALONE},
         **{f"memory_forks_{n}": (f"fork of {n} with memory, all together", "ms") for n in FORKS},
         **{f"memory_forks_{n}_alone": (f"fork of {n} with memory, by CRIU's floor", "ms") for n in FORKS}}


def why_not():
    done = subprocess.run([server.ROOT / "scripts/criu", "--check", CRIU], capture_output=True)
    return "the machine has no CRIU (make criu)" if done.returncode else None


def copying(mib):
    """ms: so many bytes from one file in memory to another."""
    files = [os.memfd_create(f"copy{i}") for i in range(2)]
    for _ in range(mib):
        os.write(files[0], os.urandom(1 << 20))
    begun = time.perf_counter()
    os.lseek(files[0], 0, os.SEEK_SET)
    while os.sendfile(files[1], files[0], None, 1 << 20):
        pass
    ms = 1000 * (time.perf_counter() - begun)
    for fd in files:
        os.close(fd)
    return ms


START = {"cmd": f"exec python3 -c \"{PROGRAM.format(mib=FORK_MIB, ready=READY)}\""}
CLAIM = ("memory_claim", "create of a template with memory that was started ahead", "ms")


class Memory:
    def __init__(self, own, out, count):
        self.api, self.out, self.count = Api(own), out, count
        self.times = {}

    def note(self, name, ms):
        self.times.setdefault(name, []).append(ms)

    def source(self, mib):
        _, made = self.api.create()
        one = made["sandboxID"]
        self.api.run(one, "sh", "-c", f"setsid python3 -c \"$0\" >/dev/null 2>&1 </dev/null & until [ -e {READY} ]; do sleep 0.05; done", PROGRAM.format(mib=mib, ready=READY))
        return one

    def pause(self, one):
        ms, paused = self.api.call("POST", f"/cay/v1/sandboxes/{one}/pause", {"tier": "memory"})
        if paused["tier"] != "memory":
            raise SystemExit(f"bench: {paused}")
        return ms

    def fork(self, one, count):
        ms, made = self.api.call("POST", f"/sandboxes/{one}/fork", {"count": count, "timeout": 600, "memory": True})
        good = [fork["sandbox"]["sandboxID"] for fork in made if fork.get("sandbox")]
        for fork in good:
            self.api.kill(fork)
        if len(good) != count:
            raise SystemExit(f"bench: {len(good)} of {count} forks: {made[-1]}")
        return ms

    def alone(self, mib):
        return contextlib.closing(Alone(PROGRAM.format(mib=mib, ready="{ready}")))

    def kept(self, mib):
        one = self.source(mib)
        with self.alone(mib) if mib in ALONE else contextlib.nullcontext() as alone:
            self.rounds(one, mib, alone)
        self.api.kill(one)
        self.rows([f"memory_{what}_{mib}" for what in ("pause", "resume", "fork")], f"copying {mib} MiB in memory", f"copy_{mib}",
                  {f"memory_resume_{mib}": {"most_value": 100.0} if mib == 64 else {}})
        if mib in ALONE:
            self.beside_alone(f"memory_resume_{mib}", f"criu_{mib}", "one restore by CRIU alone, without a sandbox")

    def beside_alone(self, name, other, against):
        """That row again, beside another floor."""
        self.out.row(f"{name}_alone", *NAMES[f"{name}_alone"], statistics.median(self.times[name]), against, statistics.median(self.times[other]))

    def rounds(self, one, mib, alone):
        for _ in range(self.count):
            self.note(f"copy_{mib}", copying(mib))
            if alone:
                self.note(f"criu_{mib}", alone.restores(1))
            self.note(f"memory_pause_{mib}", self.pause(one))
            self.note(f"memory_fork_{mib}", self.fork(one, 1))
            self.note(f"memory_resume_{mib}", self.api.call("POST", f"/sandboxes/{one}/connect", {"timeout": 3600})[0])

    def forks(self):
        one = self.source(FORK_MIB)
        self.pause(one)
        with self.alone(FORK_MIB) as alone:
            self.forks_beside(one, alone)
        self.api.kill(one)

    def forks_beside(self, one, alone):
        for n in FORKS:
            for _ in range(max(1, self.count // max(n, 5))):
                self.note(f"copy_{n}x", n * copying(FORK_MIB))
                self.note(f"criu_{n}x", alone.restores(n))
                self.note(f"memory_forks_{n}", self.fork(one, n))
            self.rows([f"memory_forks_{n}"], f"copying {FORK_MIB} MiB in memory, {n} times", f"copy_{n}x",
                      {f"memory_forks_{n}": {"most_value": 541.0} if n == 100 else {}})
            self.beside_alone(f"memory_forks_{n}", f"criu_{n}x", f"{n} restores by CRIU alone, {min(n, os.cpu_count())} at a time")

    def started_ahead(self):
        """Until as many stand as shall."""
        for _ in range(600):
            _, now = self.api.call("GET", "/cay/v1/status")
            if all(row["ready"] >= row["target"] for row in now["pool"]):
                return sum(row["claims"] for row in now["pool"])
            time.sleep(0.05)
        raise SystemExit(f"bench: the pool is not filled: {now['pool']}")

    def template(self):
        _, made = self.api.create()
        one = made["sandboxID"]
        write = "mkdir -p /etc/cay && printf %s \"$0\" > /etc/cay/start.json"
        self.api.call("POST", f"/cay/v1/sandboxes/{one}/exec", {"command": ["sh", "-c", write, json.dumps(START)], "user": "root"})
        _, snapshot = self.api.call("POST", f"/sandboxes/{one}/snapshots", {"name": "bench-memory"})
        self.api.kill(one)
        self.api.call("POST", f"/cay/v1/snapshots/{snapshot['snapshotID']}/memory", {"ready": f"test -e {READY}"})
        return snapshot["snapshotID"]

    def claims(self):
        """In turns with one that has no memory: both were started ahead."""
        name, claims = self.template(), 0
        for _ in range(8):  # its share of the pool
            self.api.kill(self.api.create(name)[1]["sandboxID"])
        for _ in range(self.count):
            for what, template in (("claim", name), ("plain", "host")):
                before = self.started_ahead()
                ms, made = self.api.create(template)
                self.note(what, ms)
                claims += self.api.call("GET", "/cay/v1/status")[1]["pool"][0]["claims"] > before
                self.api.kill(made["sandboxID"])
        self.out.row(*CLAIM, statistics.median(self.times["claim"]), "one without memory", statistics.median(self.times["plain"]),
                     note=f"{FORK_MIB} MiB; longest {max(self.times['claim']):.1f} ms; {claims} of {2 * self.count} were claims")
        self.api.call("DELETE", f"/templates/{name}")

    def rows(self, names, against, other, goals):
        for name in names:
            ours = self.times[name]
            self.out.row(name, *NAMES[name], statistics.median(ours), against, statistics.median(self.times[other]),
                         note=f"{len(ours)} times, longest {max(ours):.1f} ms", **goals.get(name, {}))


def measure(own, out, count):
    why = why_not() or (None if own.state_disk() else "a state disk of btrfs is not there")
    if why:
        for name, (text, unit) in NAMES.items():
            out.absent(name, text, unit, why)
        out.absent(*CLAIM, why)
        return
    memory = Memory(own, out, count)
    for mib in DIRTY:
        memory.kept(mib)
    memory.forks()
    memory.claims()
