"""A server of the bench's own, and what the kernel says about it: processes, processor time, memory by kind."""

import contextlib
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/scenario"))
from leftovers import cgroup_name  # noqa: E402

BUILD = pathlib.Path(os.environ.get("CAY_BUILD", ROOT / "build")).resolve()
# Beyond the ranges of a server with the usual settings and of those that the tests start.
UID_BASE = int(os.environ.get("BENCH_UID_BASE", 2818572288))
UIDS_EACH = 65536
SLOTS_MAX = 16384
USER = os.environ.get("BENCH_USER", "cay-bench")
START_SECONDS = 120
MIB = 1 << 20
INODES = os.environ.get("BENCH_INODES")  # of a template; with few a start and an import are quick


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_run():
    """test/run knows which Node and which SDK are pinned, and installs them."""
    loader = SourceFileLoader("test_run", str(ROOT / "test/run"))
    module = module_from_spec(spec_from_loader("test_run", loader))
    loader.exec_module(module)
    return module


class User:
    """Whom cayd runs as: one that is there, or one that is made and removed again."""

    def __init__(self, name):
        self.name, self.made = name, False
        try:
            pwd.getpwnam(name)
        except KeyError:
            subprocess.run(["useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent",
                            "--shell", "/usr/sbin/nologin", "--user-group", name], check=True)
            self.made = True

    def remove(self):
        if self.made:
            subprocess.run(["userdel", self.name], check=True)
        self.made = False


class Server:
    """cay-keep and what it starts, in directories and uid ranges of their own; use it with `with`."""

    def __init__(self, sandboxes, disk="64G", uid_base=UID_BASE, slots_ready=8):
        if os.geteuid() != 0:
            raise SystemExit("bench: starting a server needs root")
        self.user = User(USER)
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="cay-bench-", dir="/var/tmp"))
        self.base.chmod(0o755)
        self.state, self.run_dir, self.log = self.base / "state", self.base / "run", self.base / "log"
        self.uid_base, self.keep_pid, self.port = uid_base, 0, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.slots = min(SLOTS_MAX, sandboxes + 64)
        programs = {"cayd": "cayd/cayd", "privd": "privd/cay-privd", "job": "job/cay-job", "agent": "agent/cay-init"}
        self.command = [f"{BUILD}/src/keep/cay-keep", "--daemon", f"--listen-port={self.port}", f"--user={USER}",
                        f"--state-dir={self.state}", f"--run-dir={self.run_dir}", f"--log-file={self.log}",
                        *(f"--{name}={BUILD}/src/{path}" for name, path in programs.items()),
                        f"--privd-arg=--uid-base={uid_base}", f"--privd-arg=--slots-max={self.slots}",
                        f"--privd-arg=--slots-ready={slots_ready}",
                        f"--privd-arg=--checkpoint={BUILD}/src/checkpoint/cay-checkpoint",
                        f"--privd-arg=--seal={BUILD}/src/seal/cay-seal",
                        f"--privd-arg=--disk-size={int(disk[:-1]) << 30}",
                        f"--cayd-arg=--sandbox-max={self.slots}", "--cayd-arg=--server-log-level=warn"]
        if INODES:
            self.command.append(f"--privd-arg=--template-inodes={INODES}")

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: ended by a signal"))
        try:
            subprocess.run(self.command, check=True, timeout=START_SECONDS, stdin=subprocess.DEVNULL)
            self.keep_pid = int((self.run_dir / "keep.pid").read_text())
            self.key = (self.state / "cayd/api-key").read_text().strip()
            self.wait_for_template()
        except BaseException:
            print(self.log_tail(), flush=True)
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def log_tail(self):
        return self.log.read_text()[-3000:] if self.log.exists() else ""

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers={"X-API-Key": self.key})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def wait_for_template(self):
        end = time.monotonic() + START_SECONDS
        while not any(t["id"] == "host" and t["ready"] for t in self.get("/cay/v1/templates")):
            if time.monotonic() > end:
                raise SystemExit("bench: the template host is not ready")
            time.sleep(0.1)

    def stop(self):
        """Ends all of it; seconds that it took."""
        begun = time.monotonic()
        if self.keep_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.keep_pid, signal.SIGTERM)
            while pathlib.Path(f"/proc/{self.keep_pid}").exists() and time.monotonic() - begun < 300:
                time.sleep(0.02)
            self.keep_pid = 0
        seconds = time.monotonic() - begun
        with open("/proc/self/mountinfo") as mounts:
            if any(str(self.base) in line for line in mounts):
                raise SystemExit(f"bench: something is still mounted below {self.base}")
        shutil.rmtree(self.base, ignore_errors=True)
        self.user.remove()
        return seconds

    # -- its processes ---------------------------------------------------------------------------

    def daemons(self):
        """Process ids by name: cay-keep, and what it started."""
        found = {"cay-keep": self.keep_pid}
        for pid in pids():
            name, parent = stat_of(pid)
            if parent == self.keep_pid and name in ("cayd", "cay-privd"):
                found[name] = pid
        return found

    def inside(self):
        """Process ids in its sandboxes and slots, by their uids."""
        end = self.uid_base + self.slots * UIDS_EACH
        return [pid for pid in pids() if self.uid_base <= uid_of(pid) < end]

    def state_disk(self):
        """Where the files of its sandboxes are, as seen from here; None if they are in memory."""
        privd = self.daemons()["cay-privd"]
        with open(f"/proc/{privd}/mountinfo") as mounts:
            for line in mounts:
                fields = line.split()
                if "btrfs" in fields and fields[4].startswith(str(self.state)):
                    return f"/proc/{privd}/root{fields[4]}"
        return None


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat_of(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None, None
    name, rest = text[text.index("(") + 1:].rsplit(")", 1)
    return name, int(rest.split()[1])


def uid_of(pid):
    """From its status: /proc/PID itself belongs to root when the process is not dumpable."""
    try:
        with open(f"/proc/{pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("Uid:"))
    except (OSError, StopIteration):
        return -1


def cpu_seconds(pid_list):
    """Time on a processor, to the nanosecond, of all threads of these processes."""
    total = 0
    for pid in pid_list:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                total += int(pathlib.Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    return total / 1e9


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


# -- memory --------------------------------------------------------------------------------------

KINDS = ("OwnAnon", "Shmem", "Slab", "SReclaimable", "SUnreclaim", "KernelStack", "PageTables", "Percpu")


def meminfo(own=None):
    """Of the machine; with own, also the anonymous memory of that server and all in it (OwnAnon)."""
    with open("/proc/meminfo") as f:
        now = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in f}
    if own:
        now["OwnAnon"] = processes_memory([*own.inside(), *own.daemons().values()])["Anonymous"]
    return now


def counted(now):
    """Everything that is in use but pages of files that the kernel can drop: slab of both kinds, kernel
    stacks, page tables, per-processor data, tmpfs, what the kernel takes page by page, and processes.
    Of those only the server's own and what runs in its sandboxes: others come and go meanwhile."""
    used = now["MemTotal"] - now["MemFree"] - now["Active(file)"] - now["Inactive(file)"]
    return used - now["AnonPages"] + now["OwnAnon"]


def memory_each(before, after, n):
    """MiB per sandbox: counted, what MemAvailable says, and by kind."""
    each = {kind: (after[kind] - before[kind]) / n / MIB for kind in KINDS if kind in after}
    return {"counted": (counted(after) - counted(before)) / n / MIB,
            "available": (before["MemAvailable"] - after["MemAvailable"]) / n / MIB,
            "files": sum(after[k] - before[k] for k in ("Active(file)", "Inactive(file)")) / n / MIB, **each}


def cgroup_memory(own):
    """Bytes charged to all sandboxes and slots of a server: processes, their kernel objects, page cache."""
    name = cgroup_name(own.state / "privd")
    for path in (f"memory/{name}/memory.usage_in_bytes", f"{name}/memory.current", f"unified/{name}/memory.current"):
        with contextlib.suppress(OSError):
            return int(pathlib.Path("/sys/fs/cgroup", path).read_text())
    return 0


def cgroup_dirs(own):
    """Directories of its sandboxes, over all hierarchies."""
    name = cgroup_name(own.state / "privd")
    return sum(len(dirs) for root, dirs, _ in os.walk("/sys/fs/cgroup") if os.path.basename(root) == name)


def slabs():
    """Bytes of each kind of kernel object; needs root."""
    found = {}
    with contextlib.suppress(OSError), open("/proc/slabinfo") as f:
        for line in f.readlines()[2:]:
            fields = line.split()
            found[fields[0]] = int(fields[14]) * int(fields[5]) * os.sysconf("SC_PAGE_SIZE")
    return found


def shrinker_tables():
    """The memory that control groups keep for file systems, with what else has that size (docs/reports/benchmarks.md)."""
    return slabs().get("kmalloc-1k", 0)


def processes_memory(pid_list):
    """Private (dirty and clean), proportional and anonymous bytes of these processes."""
    sums = {"Private": 0, "Pss": 0, "Anonymous": 0}
    for pid in pid_list:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as f:
            for line in f:
                name = line.split(":")[0]
                if name in ("Private_Clean", "Private_Dirty"):
                    sums["Private"] += int(line.split()[1]) * 1024
                elif name in sums:
                    sums[name] += int(line.split()[1]) * 1024
    return sums
