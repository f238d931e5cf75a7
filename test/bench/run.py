#!/usr/bin/env python3
"""Speed, memory and peers, all measured in one run on one machine: `make bench`. As root.

Starts a server of its own. Every figure stands beside a floor or a peer from the same run: test/bench/floor.c is
the same namespaces and mounts with nothing around them, test/bench/stream.c a relay that only copies. Prints a
table as it goes; --json writes it with the schema of docs/reports/benchmarks.md; --write DIR writes bench.json, bench.svg
and the table in benchmarks.md there. Nothing is asserted.

BENCH_COUNT (100), BENCH_SECONDS (10), BENCH_SANDBOXES (1000) and BENCH_MIB (100) scale it."""

import argparse
import contextlib
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import builds
import imports
import kernels
import mcp_calls
import memory
import peers
import report
import server
import state
import privdlib  # noqa: I001: server says where it is

COUNT = int(os.environ.get("BENCH_COUNT", "100"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "10"))
SANDBOXES = int(os.environ.get("BENCH_SANDBOXES", "1000"))
MIB = int(os.environ.get("BENCH_MIB", "100"))
MANY = 5  # times SANDBOXES, for the cost of a create
ROUNDS = 3  # of what is compared, in turns, so that both meet the same noise
TRANSFERS = 3  # of a file, in each round
CONNECTIONS = 8
BURST = 100
POOL_SLOTS = 64
TOOLS = server.BUILD / "test/bench"


def lines(command, **more):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True, **more)
    return [float(line) for line in done.stdout.split()]


def median(values):
    return statistics.median(values) if values else float("nan")


def p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


class Bench:
    def __init__(self, own, out):
        self.own, self.out = own, out
        self.env = {**os.environ, "CAY_API_KEY": own.key}
        self.ids = own.base / "ids"

    def load(self, *args):
        return lines([TOOLS / "load", self.own.url, *args], env=self.env)

    # -- times -----------------------------------------------------------------------------------

    def create(self):
        """In turns with the floor."""
        self.load("whole", 30)  # the slots are warm afterwards
        ours, floor, fork, runs = [], [], [], []
        for _ in range(ROUNDS):
            count = max(2, COUNT // ROUNDS + 1)
            floor += lines([TOOLS / "floor", count])
            ours += self.load("create", count)
            fork += lines([TOOLS / "floor", count, "true"])
            runs += self.load("exec", count)
        self.out.row("create_ready", "create to ready, through the API", "ms", median(ours) / 1000,
                     "clone, mounts and exec alone", median(floor) / 1000, most=2.0)
        self.out.row("exec_true", "run of true in a sandbox, through the API", "ms", median(runs) / 1000,
                     "fork, exec and end of it alone", median(fork) / 1000, most=3.0)

    def claim(self):
        """The time that cay-privd takes from CREATE to its answer: of one that starts some ahead, and of one that
        starts none, in turns. Each is ended before the next, and a moment is left for what is made again."""
        base = pathlib.Path(tempfile.mkdtemp(prefix="cay-bench-", dir="/var/tmp"))
        first = self.own.uid_base - 3 * POOL_SLOTS * server.UIDS_EACH
        took, claims = {8: [], 0: []}, 0
        with contextlib.ExitStack() as ends:
            ends.callback(shutil.rmtree, base, ignore_errors=True)
            channels = {ahead: ends.enter_context(a_privd(base / str(ahead), first + i * POOL_SLOTS * server.UIDS_EACH, ahead))
                        for i, ahead in enumerate(took)}
            for n in range(10 + max(2, COUNT)):
                for ahead, channel in channels.items():
                    begun = time.perf_counter()
                    made = channel.create(f"i{n}")
                    took[ahead].append((time.perf_counter() - begun) * 1e3)
                    for fd in made.fds:
                        os.close(fd)
                    if made.status or channel.kill(made).status:
                        raise SystemExit("bench: cay-privd made no sandbox")
                    time.sleep(0.02)
            claims = struct.unpack_from("<I", channels[8].ask(privdlib.CAPACITY).body, 48 + 8)[0]
        ours, plain = (values[10:] for values in took.values())
        self.out.row("claim", "claim of a sandbox that was started ahead", "ms", median(ours), "a create without a pool",
                     median(plain), most_value=0.5, note=f"from cay-privd's CREATE to its answer; p99 {p99(ours):.1f} ms; "
                                                         f"{claims} of {len(took[8])} were claims")
        self.member()

    def member(self):
        """Memory of one, of a server that has POOL_SLOTS of them."""
        uid_base = self.own.uid_base - (POOL_SLOTS + 64) * server.UIDS_EACH
        with server.Server(POOL_SLOTS, disk="8G", uid_base=uid_base, slots_ready=POOL_SLOTS) as own:
            before, groups = server.meminfo(own), server.cgroup_memory(own)
            Bench(own, self.out).load("alone", 2)
            for _ in range(100):
                if sum(p["ready"] for p in own.get("/cay/v1/status")["pool"]) >= POOL_SLOTS:
                    break
                time.sleep(0.1)
            time.sleep(1)
            each = server.memory_each(before, server.meminfo(own), POOL_SLOTS)
            charged = (server.cgroup_memory(own) - groups) / POOL_SLOTS / server.MIB
        self.out.row("member", f"memory of a sandbox that is started ahead, of {POOL_SLOTS}", "MiB", charged,
                     note=f"charged to its control group; all that is in use but pages of files grew by {each['counted']:.2f}")

    def sdk(self):
        if os.environ.get("BENCH_SDK") == "no":
            return self.out.absent("sdk_first_output", "JS SDK: create to first output", "ms", "BENCH_SDK=no")
        folder = server.ROOT / "test/sdk/js"
        try:
            node = server.test_run().node_of(folder)
            times = lines([node, server.ROOT / "test/bench/sdk.mjs", folder, max(2, COUNT // 2)],
                          env={**os.environ, "E2B_API_URL": self.own.url, "E2B_SANDBOX_URL": self.own.url,
                               "E2B_DOMAIN": f"localhost:{self.own.port}", "E2B_API_KEY": self.own.key})
        except (OSError, subprocess.CalledProcessError) as error:
            return self.out.absent("sdk_first_output", "JS SDK: create to first output", "ms", str(error)[:160])
        self.out.row("sdk_first_output", "JS SDK: create to first output", "ms", median(times), most_value=10.0,
                     note=f"p99 {p99(times):.1f} ms; the command is bash -l -c, as the SDK sends it")

    def mcp(self):
        """The same command by MCP's tool and by /cay/v1, in turns, over one connection each."""
        calls = mcp_calls.Calls(self.own)
        try:
            tool, plain, tools = mcp_calls.in_turns(calls, COUNT)
        finally:
            calls.close()
        self.out.row("mcp_run", "run of true by MCP's tool, beyond the same by /cay/v1", "ms", median(tool) - median(plain),
                     "the call by /cay/v1", median(plain), most_value=2.0,
                     note=f"the whole call: p50 {median(tool):.1f} ms, p99 {p99(tool):.1f} ms")
        self.out.row("mcp_tools", "list of MCP's tools", "ms", median(tools), note=f"p99 {p99(tools):.1f} ms")

    def burst(self):
        count = min(BURST, SANDBOXES)
        wall, *times = self.load("burst", count)
        for name, text, value in (("burst_wall", "wall", wall), ("burst_p50", "p50", median(times)),
                                  ("burst_p99", "p99", p99(times))):
            self.out.row(name, f"{count} creates at once: {text}", "ms", value / 1000)

    def sustain(self):
        wall, *times = self.load("sustain", SECONDS, CONNECTIONS)
        self.out.row("sustained", f"creates and kills a second, for {SECONDS} s", "/s", len(times) / (wall / 1e6),
                     least_value=300.0, note=f"{CONNECTIONS} connections; create p50 {median(times) / 1000:.1f} ms, "
                                             f"p99 {p99(times) / 1000:.1f} ms")

    # -- many ------------------------------------------------------------------------------------

    def many(self):
        """Memory, processor time and lists at SANDBOXES; creates at 0, SANDBOXES and MANY times as many."""
        base = self.creates()
        time.sleep(3)
        before, groups, tables = server.meminfo(self.own), server.cgroup_memory(self.own), server.shrinker_tables()
        self.load("hold", SANDBOXES, self.ids)
        time.sleep(3)
        self.memory(before, groups, tables)
        self.idle()
        for name, text, mode in (("list", "one answer", "list"), ("list_pages", "in pages of 100", "pages")):
            self.out.row(name, f"list of {SANDBOXES}: {text}", "ms", median(self.load(mode, 10)) / 1000)
        self.alive(0, base, base)
        self.alive(SANDBOXES, self.creates(), base)
        self.load("hold", SANDBOXES * (MANY - 1), self.ids)
        self.alive(SANDBOXES * MANY, self.creates(), base)
        wall, *ends = self.load("kill", self.ids, 4)
        self.out.row("end_each", f"end of {len(ends)}: each", "ms", wall / len(ends) / 1000)

    def creates(self):
        """Medians: of each alone, and of one right after the other."""
        return median(self.load("alone", max(2, COUNT // 2))), median(self.load("create", max(2, COUNT)))

    def alive(self, n, values, base):
        kinds = (("alone", ""), ("create", ", right after the end of another"))
        for (name, text), value, none in zip(kinds, values, base):
            self.out.row(f"{name}_at_{n}", f"create with {n} alive{text}", "ms", value / 1000,
                         "with none alive", none / 1000)

    def memory(self, before, groups, tables):
        each = server.memory_each(before, server.meminfo(self.own), SANDBOXES)
        charged = (server.cgroup_memory(self.own) - groups) / SANDBOXES / server.MIB
        tables = (server.shrinker_tables() - tables) / SANDBOXES / server.MIB
        kinds = ", ".join(f"{kind} {each[kind]:.2f}" for kind in ("OwnAnon", "Slab", "KernelStack", "PageTables",
                                                                   "Percpu", "Shmem") if kind in each)
        self.out.row("memory_each", f"memory of an idle sandbox, of {SANDBOXES}", "MiB", each["counted"],
                     most_value=0.7, note=f"all that is in use but pages of files; MemAvailable says "
                                          f"{each['available']:.2f}, its control group {charged:.2f}; {kinds}; of Slab, "
                                          f"tables sized by the machine's past (kmalloc-1k, below) {tables:.2f}")

    def idle(self):
        everything = self.own.inside() + list(self.own.daemons().values())
        begun, before = time.monotonic(), server.cpu_seconds(everything)
        time.sleep(SECONDS)
        used = (server.cpu_seconds(everything) - before) / (time.monotonic() - begun) * 100
        self.out.row("idle_cpu", f"processor time of {SANDBOXES} idle ones and the daemons", "% of a core", used,
                     below=1.0, note=f"over {SECONDS} s")

    # -- files -----------------------------------------------------------------------------------

    def files(self):
        """Ours, a bare relay into a new file on the same disk, and plain loopback, in turns."""
        disk = self.own.state_disk() or str(self.own.base)
        servers = subprocess.Popen([TOOLS / "stream", "serve", disk], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)
        try:
            plain, _, relay = (int(port) for port in servers.stdout.readline().split())
            times = {}
            for _ in range(ROUNDS):
                self.files_round({"bare": (relay, []), "loop": (plain, [])}, times)
            for mode, name, text in (("put", "upload", "upload"), ("get", "download", "download")):
                ours, bare, loop = (times[mode, who] for who in ("ours", "bare", "loop"))
                self.out.row(name, f"{text} of {MIB} MiB", "MiB/s", rate(ours), "a relay that only copies, same disk",
                             rate(bare), least=0.8)
                self.out.row(f"{name}_plain", f"{text} of {MIB} MiB", "MiB/s", rate(ours), "plain loopback, no file",
                             rate(loop))
        finally:
            servers.stdin.close()
            servers.wait()

    def files_round(self, others, times):
        """In a sandbox of its own, so that what was uploaded before does not fill its memory and disk."""
        made = subprocess.run([TOOLS / "load", self.own.url, "sandbox"], env=self.env, stdout=subprocess.PIPE,
                              text=True, check=True).stdout.split()
        headers = [f"E2b-Sandbox-Id: {made[0]}", "E2b-Sandbox-Port: 49983", f"X-Access-Token: {made[1]}",
                   "Content-Type: application/octet-stream"]
        for mode in ("put", "get"):
            for n in range(TRANSFERS):
                for who, (port, more) in {**others, "ours": (self.own.port, headers)}.items():
                    times.setdefault((mode, who), []).extend(
                        self.stream(mode, port, f"/files?path=/tmp/bench-{n}", more))
        self.kill(made[0])

    def kill(self, name):
        one = self.own.base / "one"
        one.write_text(f"{name}\n")
        self.load("kill", one, 1)

    def stream(self, mode, port, path, headers):
        return lines([TOOLS / "stream", mode, port, MIB, 1, path, *headers])

    # -- state -----------------------------------------------------------------------------------

    def state(self):
        state.measure(self.own, self.out, max(2, COUNT // 5))
        uid_base = self.own.uid_base - (2 * state.MEMBERS + 64) * server.UIDS_EACH
        with server.Server(2 * state.MEMBERS, disk="16G", uid_base=uid_base, slots_ready=state.MEMBERS) as own:
            state.measure_members(own, self.out, max(2, COUNT // 5))

    def memory_images(self):
        memory.measure(self.own, self.out, max(2, COUNT // 5))

    # -- the code interpreter --------------------------------------------------------------------

    def kernels(self):
        kernels.measure(self.own, self.out, max(2, COUNT))

    # -- images ----------------------------------------------------------------------------------

    def imports(self):
        imports.measure(self.own, self.out, 3 * MIB, max(2, COUNT))

    def builds(self):
        builds.measure(self.own, self.out)

    # -- peers -----------------------------------------------------------------------------------

    def peers(self):
        ours = median(self.load("whole", max(2, COUNT))) / 1000
        self.out.row("whole", "create, run of true, end: cay", "ms", ours)
        before = peers.groups()
        with tempfile.TemporaryDirectory(prefix="cay-peers-", dir="/var/tmp") as folder:
            folder = pathlib.Path(folder)
            peers.make_bundle(folder)
            for name in peers.NAMES:
                text = f"create, run of true, end: cay and {name}"
                times = peers.measure(name, folder, TOOLS / "spawn", COUNT)
                if isinstance(times, str):
                    self.out.absent(f"peer_{name}", text, "ms", f"{name} {times}")
                else:
                    self.out.row(f"peer_{name}", text, "ms", ours, name, median(times) / 1000)
        peers.remove_groups(before)


@contextlib.contextmanager
def a_privd(base, uid_base, slots_ready):
    """A channel to a cay-privd alone, which has the template host."""
    base.mkdir()
    privd = privdlib.Privd(server.BUILD, base, uid_base=uid_base, slots_max=POOL_SLOTS, slots_ready=slots_ready).start()
    try:
        with contextlib.closing(privd.channel()) as channel:
            yield channel
    finally:
        if privd.stop() != 0:
            raise SystemExit(f"bench: {privd.log.read_text()[-2000:]}")


def rate(times_us):
    return MIB / (median(times_us) / 1e6)


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    options.add_argument("--svg", type=pathlib.Path, help="write the picture to this file")
    options.add_argument("--write", type=pathlib.Path, metavar="DIR", help="write all of it below docs")
    options.add_argument("--only", help="steps, with commas: create claim sdk mcp burst sustain files state memory_images kernels imports builds peers many")
    args = options.parse_args()
    steps = ("create", "claim", "sdk", "mcp", "burst", "sustain", "files", "state", "memory_images", "kernels", "imports", "builds", "peers", "many")
    out = report.Report({"count": COUNT, "seconds": SECONDS, "sandboxes": SANDBOXES, "mib": MIB})
    with server.Server(SANDBOXES * MANY + BURST) as own:
        bench = Bench(own, out)
        for step in args.only.split(",") if args.only else steps:
            getattr(bench, step)()
    report.finish(out, args)


if __name__ == "__main__":
    sys.exit(main())
