#!/usr/bin/env python3
"""Many idle sandboxes at once, and what they cost: `make many SANDBOXES=10000`. As root.

Starts a server of its own, creates SANDBOXES one after the other, looks at memory by kind, at processor time
and at every table that could run out, runs a program in some of them, and ends them all; then nothing may be
left. A limit that stops it before is reported with the number it came to. --write writes the page docs/reports/many.md,
--json the figures."""

import argparse
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import time

import report
import server
from server import MIB

LOAD = server.BUILD / "test/bench/load"
STEPS = 10
USED = 20
IDLE_SECONDS = 10
SLABS_SHOWN = 14
CHUNK = 100
MEMORY_FLOOR = int(os.environ.get("MANY_MEMORY_FLOOR_MIB", "3072")) * MIB


def read_number(path):
    try:
        return int(pathlib.Path(path).read_text())
    except (OSError, ValueError):
        return None


def quantiles(values):
    ordered = sorted(values)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


class Many:
    def __init__(self, own, wanted):
        self.own, self.wanted = own, wanted
        self.ids = own.base / "ids"
        self.env = {**os.environ, "CAY_API_KEY": own.key}
        self.figures = {"schema": "cay-many/1", **report.origin(), "wanted": wanted, "steps": []}

    def load(self, *args):
        done = subprocess.run([LOAD, self.own.url, *map(str, args)], env=self.env, capture_output=True, text=True)
        if done.returncode != 0:
            why = " ".join(done.stderr.split())[:300] or f"the client ended ({done.returncode})"
            self.figures["stopped_by"] = f"{why}, with {server.meminfo()['MemAvailable'] / MIB:,.0f} MiB of memory left"
        return [int(line) for line in done.stdout.split()]

    def alive(self):
        return len(self.ids.read_text().split()) if self.ids.exists() else 0

    # -- growing ---------------------------------------------------------------------------------

    def settle(self):
        """Slots and the page cache of what every sandbox shares are there before anything is counted."""
        self.load("whole", 20)
        time.sleep(3)
        self.before, self.slabs_before = server.meminfo(self.own), server.slabs()
        self.inside_before = len(self.own.inside())
        self.netns_before = namespaces("net", self.own.inside())

    def grow(self):
        for step in range(STEPS):
            goal, times, begun = self.wanted * (step + 1) // STEPS, [], time.monotonic()
            while self.alive() < goal and "stopped_by" not in self.figures:
                times += self.load("hold", min(CHUNK, goal - self.alive()), self.ids)
                self.look_at_memory()
            if times:
                self.note_step(times, time.monotonic() - begun)
            if "stopped_by" in self.figures:
                print(f"stopped by: {self.figures['stopped_by']}\n{self.own.log_tail()}", flush=True)
                break

    def look_at_memory(self):
        """Kernel memory cannot be swapped or taken back: before the machine has none left, it is enough."""
        available = server.meminfo()["MemAvailable"]
        if available < MEMORY_FLOOR:
            self.figures["stopped_by"] = (f"memory: {available / MIB:,.0f} MiB were left of "
                                          f"{server.meminfo()['MemTotal'] / MIB:,.0f}, and the rest is kept for others")

    def note_step(self, times, seconds):
        median, p99 = quantiles(times)
        row = {"alive": self.alive(), "create_p50_ms": median / 1000, "create_p99_ms": p99 / 1000,
               "seconds": seconds,
               "counted_mib": (server.counted(server.meminfo(self.own)) - server.counted(self.before)) / MIB}
        self.figures["steps"].append(row)
        print("{alive:6} alive: create p50 {create_p50_ms:.2f} ms, p99 {create_p99_ms:.2f} ms, "
              "{seconds:.1f} s, {counted_mib:.0f} MiB".format(**row), flush=True)

    # -- at the top ------------------------------------------------------------------------------

    def look(self):
        n, after = self.alive(), server.meminfo(self.own)
        self.figures["alive"] = n
        self.figures["memory_each_mib"] = server.memory_each(self.before, after, n)
        slabs = {name: (size - self.slabs_before.get(name, 0)) / n / 1024 for name, size in server.slabs().items()}
        self.figures["slab_each_kib"] = dict(sorted(slabs.items(), key=lambda item: -item[1])[:SLABS_SHOWN])
        inside = self.own.inside()
        self.figures["agents_each_mib"] = {k: v / len(inside) / MIB
                                           for k, v in server.processes_memory(inside).items()}
        self.figures["daemons"] = {name: {"descriptors": server.descriptors(pid),
                                          "pss_mib": server.processes_memory([pid])["Pss"] / MIB}
                                   for name, pid in self.own.daemons().items()}
        self.figures["idle_cpu"] = self.idle(inside)
        self.figures["tables"] = self.tables(inside)

    def idle(self, inside):
        everything = inside + list(self.own.daemons().values())
        before = server.cpu_seconds(everything)
        time.sleep(IDLE_SECONDS)
        return (server.cpu_seconds(everything) - before) / IDLE_SECONDS

    def tables(self, inside):
        """Each table that could run out: its entries, and its end."""
        privd = self.own.daemons()["cay-privd"]
        return {
            "processes (kernel.pid_max)": [len(server.pids()), read_number("/proc/sys/kernel/pid_max")],
            "uid ranges (sandbox.slots_max)": [len(inside), server.SLOTS_MAX],
            "network namespaces (user.max_net_namespaces)": [
                namespaces("net", inside), read_number("/proc/sys/user/max_net_namespaces")],
            "user namespaces (user.max_user_namespaces)": [
                namespaces("user", inside), read_number("/proc/sys/user/max_user_namespaces")],
            "memory control groups (ids of the kernel)": [cgroups("memory"), 65535],
            "descriptors of cay-privd (hard limit)": [
                server.descriptors(privd), resource.getrlimit(resource.RLIMIT_NOFILE)[1]],
            "bytes of the state disk (disk_size)": self.disk(),
        }

    def disk(self):
        path = self.own.state_disk()
        if not path:
            return [0, None]
        st = os.statvfs(path)
        return [(st.f_blocks - st.f_bfree) * st.f_frsize, st.f_blocks * st.f_frsize]

    def use(self):
        """Programs run in some of them, creates at the top, and the list of all."""
        self.figures["create_at_top_ms"] = statistics.median(self.load("create", 50)) / 1000
        self.figures["list_all_ms"] = statistics.median(self.load("pages", 3)) / 1000
        ids = random.sample(self.ids.read_text().split(), min(USED, self.alive()))
        times = self.load("use", ",".join(ids))
        self.figures["use_ms"] = statistics.median(times) / 1000 if times else None
        self.figures["used"] = len(times)

    # -- the end ---------------------------------------------------------------------------------

    def end(self):
        """A tenth by the API, the rest with the server."""
        ids = self.ids.read_text().split()
        some = self.own.base / "some"
        some.write_text("".join(f"{name}\n" for name in ids[::10]))
        times = self.load("kill", some, 4)
        self.figures["kill_each_ms"] = times[0] / 1000 / max(1, len(times) - 1)
        begun = time.monotonic()
        stopped = self.own.stop()
        self.figures["end_all_seconds"], self.figures["stop_seconds"] = time.monotonic() - begun, stopped


def namespaces(kind, pid_list):
    seen = set()
    for pid in pid_list:
        try:
            seen.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
        except OSError:
            continue
    return len(seen)


def cgroups(controller):
    with open("/proc/cgroups") as f:
        for line in f:
            if line.startswith(controller + "\t"):
                return int(line.split()[2])
    return 0


def run(wanted):
    with server.Server(wanted) as own:
        many = Many(own, wanted)
        many.settle()
        many.grow()
        many.look()
        many.use()
        many.end()
    many.figures["left_behind"] = {"processes": len(own.inside()), "control groups": server.cgroup_dirs(own)}
    return many.figures


# -- the page ------------------------------------------------------------------------------------

def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1),
            *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows), ""]


def page(f):
    each, idle = f["memory_each_mib"], f["idle_cpu"] * 100
    stopped = f" Then it was stopped: {f['stopped_by']}." if "stopped_by" in f else ""
    out = ["# Many idle sandboxes at once", "",
           "Written by `make many SANDBOXES=N WRITE=docs` (`test/bench/many.py`); not edited by hand. The",
           "figures are explained in [benchmarks.md](benchmarks.md).", "", report.headline(f), "",
           f"**{f['alive']:,} of {f['wanted']:,} were alive at once.**{stopped} {f['used']} of them, chosen by chance, "
           f"then ran a program ({f['use_ms'] or 0:.1f} ms each). All together, with the daemons, used {idle:.1f} % of "
           f"one processor while idle.", "", "## While they become more", ""]
    out += table(["alive", "create p50, ms", "p99, ms", "seconds for this step", "memory in all, MiB", "MiB each"],
                 [[f"{s['alive']:,}", f"{s['create_p50_ms']:.2f}", f"{s['create_p99_ms']:.1f}", f"{s['seconds']:.0f}",
                   f"{s['counted_mib']:,.0f}", f"{s['counted_mib'] / s['alive']:.2f}"] for s in f["steps"]])
    out += ["## Memory of each, by kind", ""]
    out += table(["kind", "MiB each"], [
        ["all that is in use but pages of files", f"{each['counted']:.3f}"],
        ["what MemAvailable went down by", f"{each['available']:.3f}"],
        *([f"of it: {kind}", f"{each[kind]:.3f}"] for kind in server.KINDS if kind in each),
        ["cay-init, private pages", f"{f['agents_each_mib']['Private']:.3f}"]])
    out += ["Kernel objects:", ""]
    out += table(["slab", "KiB each"], [[f"`{name}`", f"{size:.1f}"] for name, size in f["slab_each_kib"].items()])
    out += ["## Tables that could run out", ""]
    out += table(["table", "used", "ends at"], [[name, f"{used:,}", f"{end:,}" if end else "no end"]
                                                for name, (used, end) in f["tables"].items()])
    out += table(["daemon", "descriptors", "memory, MiB"], [[name, d["descriptors"], f"{d['pss_mib']:.1f}"]
                                                            for name, d in f["daemons"].items()])
    out += ["## At the top, and the end", ""]
    left = ", ".join(f"{count} {kind}" for kind, count in f["left_behind"].items())
    out += table(["what", "figure"], [
        ["create, all of them alive (each killed again)", f"{f['create_at_top_ms']:.2f} ms"],
        ["list of all, in pages of 100", f"{f['list_all_ms']:.1f} ms"],
        ["end of a tenth by the API, four at a time: each", f"{f['kill_each_ms']:.2f} ms"],
        ["end of the rest with the server", f"{f['stop_seconds']:.1f} s"],
        ["left behind", left]])
    return "\n".join(out)


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--sandboxes", type=int, default=10000)
    options.add_argument("--json", type=pathlib.Path)
    options.add_argument("--write", type=pathlib.Path, metavar="DIR", help="write many.md there")
    args = options.parse_args()
    figures = run(args.sandboxes)
    text = page(figures)
    print(text)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    if args.write:
        (args.write / "many.md").write_text(text)


if __name__ == "__main__":
    main()
