#!/usr/bin/env python3
"""The checker: counts what a sandbox could leave behind on the host, before and after. Used by every
scenario that claims to leave nothing, and by the soak; test_leftovers.py leaves one of each kind on
purpose and sees it found.

In Python: a server is whatever has keep_pid, state, run, cgroup, uid_base and slots_max
(conftest.OwnServer, or Target below, which reads them from a server that runs).

    before = leftovers.settled(server)              # what belongs to sandboxes and slots, exact
    ...
    assert leftovers.returned(server, before) == before

    before = leftovers.measure(server)              # that, and the daemons' descriptors and memory, and slabs
    ...
    assert leftovers.differences(before, leftovers.measure(server), memory_kib=2048) == []

As a command, about a server that runs (root):

    test/scenario/leftovers.py --run-dir=/run/cay --state-dir=/var/lib/cay --save=before.json
    test/scenario/leftovers.py --run-dir=/run/cay --state-dir=/var/lib/cay --compare=before.json

Each count is of one server's own: processes by uid range, namespaces by who holds them and by whose user namespace
owns them, the rest by its directories. Slots that are kept ready count too, so that both moments must have the same
number of them: settled() waits for that. Only slabs are the whole machine's; other work on it shows there, so they
get a tolerance that the caller states, or are left out.

A kind that the kernel does not show: a namespace that only a socket in flight holds. The slab
net_namespace tells of it.
"""

import argparse
import fcntl
import glob
import json
import os
import pathlib
import sqlite3
import struct
import subprocess
import sys
import time

RANGE = 65536
SPARES_MAX, SPARE_CGROUPS_MAX = 64, 64
SLOTS_MAX = 1024  # as cay-privd has it when it is told nothing else
UID_BASE = 1006632960
NS_KINDS = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
LOOP_GET_STATUS64 = 0x4C05  # linux/loop.h
NS_GET_USERNS, NS_GET_OWNER_UID = 0xB701, 0xB704  # ioctl_nsfs(2)
SLABS = ("net_namespace", "user_namespace", "pid_namespace", "uts_namespace", "nsproxy", "task_struct", "mnt_cache",
         "mem_cgroup", "key_jar", "sock_inode_cache", "nf_conntrack", "ovl_inode")
DAEMONS = ("cay-keep", "cayd", "cay-privd")


def cgroup_name(privd_state):
    """As privd makes it from its place (src/privd/main.c)."""
    h = 0x811C9DC5
    for byte in str(privd_state).encode():
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"cay-{h:08x}"


class Target:
    """A running server, by its directories; the uid ranges are read from cay-privd's command line."""

    def __init__(self, run_dir, state_dir):
        self.run, self.state = pathlib.Path(run_dir), pathlib.Path(state_dir)
        self.keep_pid = int((self.run / "keep.pid").read_text())
        self.cgroup = cgroup_name(self.state / "privd")
        options = {}
        for pid in children(self.keep_pid, "cay-privd"):
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            options = dict(w[2:].split("=", 1) for w in words if w.startswith("--") and "=" in w)
        self.uid_base = int(options.get("uid-base", UID_BASE))
        self.slots_max = int(options.get("slots-max", SLOTS_MAX))


# -- processes -------------------------------------------------------------------------------------

class Process:
    """Uid from its status: /proc/PID itself belongs to root when the process is not dumpable, as cay-init is. A tenant's program
    may have given itself a name that is no text."""

    def __init__(self, pid):
        with open(f"/proc/{pid}/status", errors="replace") as f:
            rows = dict(line.split(":", 1) for line in f)
        self.pid, self.name, self.state = pid, rows["Name"].strip(), rows["State"].split()[0]
        self.parent, self.uid, self.threads = int(rows["PPid"]), int(rows["Uid"].split()[0]), int(rows.get("Threads", 0))
        self.inner_pids = rows.get("NSpid", "").split()[1:]  # in the pid namespaces below this one, outermost first


def _processes():
    """All of the machine, once: the machine may have thousands."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Process(int(name)))
        except (OSError, KeyError):
            continue
    return found


def children(parent, name):
    """Processes of that name that parent has started itself, without those it forked for a task. The file
    `children` misses some while others of them end (proc(5)): one that is not in it is looked for everywhere."""
    found = []
    for path in glob.glob(f"/proc/{parent}/task/*/children"):
        try:
            for pid in map(int, pathlib.Path(path).read_text().split()):
                if pathlib.Path(f"/proc/{pid}/comm").read_text(errors="replace").strip() == name:
                    found.append(pid)
        except OSError:
            continue
    return found or [p.pid for p in _processes() if p.parent == parent and p.name == name]


def daemons(server):
    """Name and pid of each daemon."""
    found = [("cay-keep", server.keep_pid)]
    return found + [(name, pid) for name in DAEMONS[1:] for pid in children(server.keep_pid, name)]


def _is_ours(server, uid):
    return server.uid_base <= uid < server.uid_base + server.slots_max * RANGE


def _ours(server, processes):
    """The processes in sandboxes, and in slots that are kept ready."""
    return [p for p in processes if _is_ours(server, p.uid)]


def in_sandboxes(server):
    """The processes in them now, and in slots that are kept ready."""
    return _ours(server, _processes())


def _zombies(server, processes):
    """Ended processes that a daemon does not wait for."""
    parents = {pid for _, pid in daemons(server)}
    return sum(1 for p in processes if p.state == "Z" and p.parent in parents)


# -- namespaces ------------------------------------------------------------------------------------

def _links(folder):
    try:
        for name in os.listdir(folder):
            try:
                yield f"{folder}/{name}", os.readlink(f"{folder}/{name}")
            except OSError:
                continue
    except OSError:
        return


def _owner(path, kind):
    """The uid that made the user namespace that owns it (or is it); -1 when the kernel does not tell."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return -1
    try:
        if kind != "user":
            above = fcntl.ioctl(fd, NS_GET_USERNS)
            os.close(fd)
            fd = above
        uid = bytearray(4)
        fcntl.ioctl(fd, NS_GET_OWNER_UID, uid)
        return int.from_bytes(uid, sys.byteorder)
    except OSError:
        return -1
    finally:
        os.close(fd)


def _nsfs_mounts():
    """Bind mounts of namespaces: (path, link)."""
    with open("/proc/self/mountinfo", errors="replace") as f:
        for line in f:
            fields = line.split()
            if fields[fields.index("-") + 1] == "nsfs":
                yield fields[4], fields[3].removeprefix("/")


def _may_hold(server, p, keepers):
    """Not those in other servers' sandboxes, nor their daemons: there may be thousands of both."""
    if p.uid >= UID_BASE:
        return _is_ours(server, p.uid)
    return p.name not in DAEMONS or p.pid in keepers


def _namespaces(server, processes):
    """Of each kind how many there are: held by a process of the ranges, or by any process, descriptor or
    mount while the user namespace that owns them is one of the ranges'."""
    ours, keepers = {kind: set() for kind in NS_KINDS}, {pid for _, pid in daemons(server)}
    other, own = {}, {os.readlink(f"/proc/self/ns/{kind}") for kind in NS_KINDS}
    for p in processes:
        if not _may_hold(server, p, keepers):
            continue
        for path, link in _links(f"/proc/{p.pid}/ns"):
            if _is_ours(server, p.uid) and link not in own:
                ours[link.split(":")[0]].add(link)
            else:
                other.setdefault(link, path)
        for path, link in _links(f"/proc/{p.pid}/fd"):
            if link.endswith("]") and link.split(":")[0] in ours:
                other.setdefault(link, path)
    for path, link in _nsfs_mounts():
        other.setdefault(link, path)
    for link, path in other.items():
        kind = link.split(":")[0]
        if link not in own and link not in ours[kind] and _is_ours(server, _owner(path, kind)):
            ours[kind].add(link)
    return {f"{kind}_namespaces": len(seen) for kind, seen in ours.items()}


# -- the file system -------------------------------------------------------------------------------

def _cgroups(name):
    """Without the few that are kept to be used again (src/sys/cgroup_internal.h)."""
    bases = [path for pattern in ("/sys/fs/cgroup/", "/sys/fs/cgroup/*/") for tail in ("", "-jobs")
             for path in glob.glob(f"{pattern}{name}{tail}")]
    found = [path for base in bases for path, _, _ in os.walk(base) if path != base]
    for base in bases:
        spares = len(glob.glob(f"{base}/spare.*"))
        assert spares <= SPARE_CGROUPS_MAX, f"{spares} spare groups in {base}"
    return sum("/spare." not in path for path in found)


def _mounts(server):
    found = set()
    for pid in ("self", *(pid for _, pid in daemons(server))):
        try:
            with open(f"/proc/{pid}/mountinfo", errors="replace") as f:
                space = os.readlink(f"/proc/{pid}/ns/mnt")
                found |= {(space, line.split()[0]) for line in f if str(server.state) in line}
        except OSError:  # it has just ended
            continue
    return len(found)


def _disk(server):
    """The state disk as privd has it mounted; None while there is no privd."""
    for pid in children(server.keep_pid, "cay-privd"):
        return f"/proc/{pid}/root{server.state}/privd/disk"
    return None


def _entries(path):
    try:
        return len(os.listdir(path))
    except OSError:
        return 0


def _subvolumes(disk):
    """0 when the disk is memory. Without the removed ones whose blocks btrfs frees within half a minute, and
    without the empty ones, at most SPARES_MAX, that are kept to be used again (src/runtime/recycled_layer.h)."""
    done = subprocess.run(["btrfs", "subvolume", "list", disk], capture_output=True, text=True)
    spares = _entries(f"{disk}/spare")
    assert spares <= SPARES_MAX, f"{spares} spare layers"
    return len(done.stdout.splitlines()) - spares if done.returncode == 0 else 0


def _strangers(server):
    """Files of the ranges' users where programs leave theirs."""
    count = 0
    for folder in ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run", "/run/lock"):
        for entry in (os.scandir(folder) if os.path.isdir(folder) else ()):
            try:
                count += _is_ours(server, entry.stat(follow_symlinks=False).st_uid)
            except OSError:
                continue
    return count


def _loop_devices(server):
    """By device and inode of the file behind: its name is lost with the mount namespace that it was opened in."""
    files = {(st.st_dev, st.st_ino) for root, _, names in os.walk(server.state) for name in names
             if (st := os.lstat(f"{root}/{name}"))}
    count = 0
    for path in glob.glob("/sys/block/loop*/loop"):
        try:
            fd = os.open("/dev/" + path.split("/")[3], os.O_RDONLY)
        except OSError:
            continue
        try:
            status = fcntl.ioctl(fd, LOOP_GET_STATUS64, bytes(232))
            count += struct.unpack_from("=QQ", status) in files
        except OSError:
            pass
        finally:
            os.close(fd)
    return count


def _sysv(server):
    """Segments, queues and semaphores of the ranges' users outside of sandboxes' ipc namespaces."""
    count = 0
    for name, column in (("shm", "uid"), ("msg", "uid"), ("sem", "uid")):
        with open(f"/proc/sysvipc/{name}") as f:
            at = f.readline().split().index(column)
            count += sum(1 for line in f if _is_ours(server, int(line.split()[at])))
    return count


def _unix_sockets(server):
    with open("/proc/net/unix", errors="replace") as f:
        return sum(1 for line in f if str(server.run) in line or str(server.state) in line)


def _keys(server):
    with open("/proc/key-users") as f:
        rows = [line.split() for line in f]
    return sum(int(row[2].split("/")[0]) for row in rows if _is_ours(server, int(row[0].rstrip(":"))))


def _rows(server):
    """Sandboxes in cayd's database."""
    try:
        db = sqlite3.connect(f"file:{server.state}/cayd/cay.db?mode=ro", uri=True, timeout=5)
    except sqlite3.Error:
        return 0
    try:
        return db.execute("SELECT count(*) FROM sandboxes").fetchone()[0]
    except sqlite3.Error:
        return 0
    finally:
        db.close()


# Of the state directory: made when they are first needed, and kept for as long as the server's state.
MADE_ONCE = ("privd/seal.key", "egress/ca", "egress/ca/default.key")


def _files(folder):
    every = sum(len(dirs) + len(files) for _, dirs, files in os.walk(folder))
    return every - sum(os.path.lexists(os.path.join(folder, name)) for name in MADE_ONCE)


def count(server):
    """The objects of sandboxes and slots, exactly, by kind. Slots that are kept ready count too: compare with a
    count from a moment when their number was the same (settled)."""
    processes, disk = _processes(), _disk(server)
    ours = _ours(server, processes)
    return {
        "processes": len(ours),
        "threads": sum(p.threads for p in ours),
        "uid_ranges": len({(p.uid - server.uid_base) // RANGE for p in ours}),
        "zombies": _zombies(server, processes),
        **_namespaces(server, processes),
        "cgroups": _cgroups(server.cgroup),
        "mounts": _mounts(server),
        "layers": _entries(f"{disk}/layers") if disk else 0,
        "templates": _entries(f"{disk}/templates") if disk else 0,
        "subvolumes": _subvolumes(disk) if disk else 0,
        "loop_devices": _loop_devices(server),
        "run_files": _files(server.run),
        "state_files": _files(server.state),
        "foreign_files": _strangers(server),
        "unix_sockets": _unix_sockets(server),
        "sysv_objects": _sysv(server),
        "keys": _keys(server),
        "rows": _rows(server),
    }


def settled(server, seconds=30):
    """The count once it has stayed the same for two seconds: the slots are filled up again."""
    end, last, since = time.monotonic() + seconds, None, 0
    while time.monotonic() < end:
        now = count(server)
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > 2:
            break
        time.sleep(0.1)
    return last


def returned(server, before, seconds=60):
    """The count as soon as it is what it was before, else the last after that time: on a busy machine slots
    are filled up again in no time that could be known."""
    end = time.monotonic() + seconds
    while (now := count(server)) != before and time.monotonic() < end:
        time.sleep(0.2)
    return now


# -- daemons ---------------------------------------------------------------------------------------

def daemon_descriptors(keep_pid):
    """Open descriptors of each daemon of one server, by name."""
    found = {"cay-keep": len(os.listdir(f"/proc/{keep_pid}/fd"))}
    for name in DAEMONS[1:]:
        found[name] = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in children(keep_pid, name))
    return found


def descriptors(server):
    """Of each daemon and each sort: {"cayd socket": 5, ...}."""
    found = {}
    for name, pid in daemons(server):
        for _, link in _links(f"/proc/{pid}/fd"):
            kind = "file" if link.startswith("/") else link.split(":[")[0].replace("anon_inode:", "").strip("[]")
            found[f"{name} {kind}"] = found.get(f"{name} {kind}", 0) + 1
    return found


def memory_kib(pid):
    """The memory of the process: its own, and all of it. Not Private_Dirty: that drops to nothing whenever
    a child that was forked for a task shares the pages."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        rows = {line.split(":")[0]: int(line.split()[1]) for line in f if line.endswith("kB\n")}
    return {"private": rows["Anonymous"], "rss": rows["Rss"]}


def memory(server):
    """KiB of each daemon: {"cayd private": 1234, "cayd rss": ...}."""
    found = {}
    for name, pid in daemons(server):
        for what, kib in memory_kib(pid).items():
            found[f"{name} {what}"] = found.get(f"{name} {what}", 0) + kib
    return found


# -- the whole machine -----------------------------------------------------------------------------

def slabs():
    """Live objects of the kernel's tables that sandboxes fill. Not exact: a table counts what it keeps for a
    processor as live. dying_memory_cgroups: removed, and still held by page cache or kernel memory."""
    with open("/proc/slabinfo") as f:
        found = {f"slab {line.split()[0]}": int(line.split()[1]) for line in f if line.split()[0] in SLABS}
    dying = _dying_memory_cgroups()
    return found if dying is None else {**found, "dying_memory_cgroups": dying}


def _dying_memory_cgroups():
    root = pathlib.Path("/sys/fs/cgroup")
    if (root / "cgroup.stat").exists():
        rows = dict(line.split() for line in (root / "cgroup.stat").read_text().splitlines())
        return int(rows["nr_dying_descendants"])
    with open("/proc/cgroups") as f:
        known = next((int(line.split()[2]) for line in f if line.startswith("memory\t")), 0)
    there = sum(1 for _ in os.walk(root / "memory")) if (root / "memory").is_dir() else 0
    return max(0, known - there) if there else None


def measure(server, seconds=30):
    """Everything, once it has settled: {"exact": ..., "descriptors": ..., "memory": ..., "slabs": ...}."""
    exact, end = settled(server, seconds), time.monotonic() + seconds
    last = None
    while (now := descriptors(server)) != last and time.monotonic() < end:
        last = now
        time.sleep(2.5)  # connections that are kept for the next call go after two seconds
    return {"exact": exact, "descriptors": now, "memory": memory(server), "slabs": slabs()}


def differences(before, after, memory_kib=None, slab_objects=None):
    """Sentences about what there is more (or less) of. Counts and descriptors must be equal. A daemon's
    private memory may grow by memory_kib, a slab by slab_objects; None: not compared."""
    found = []
    for part in ("exact", "descriptors"):
        for kind in sorted(before[part].keys() | after[part].keys()):
            was, now = before[part].get(kind, 0), after[part].get(kind, 0)
            if was != now:
                found.append(f"{kind}: {was} before, {now} after")
    for part, allowed, unit in (("memory", memory_kib, "KiB"), ("slabs", slab_objects, "objects")):
        for kind, was in before[part].items() if allowed is not None else ():
            now = after[part].get(kind, 0)
            if now - was > allowed and not kind.endswith(" rss"):
                found.append(f"{kind}: {was} {unit} before, {now} after, allowed are {allowed} more")
    return found


# -- as a command ----------------------------------------------------------------------------------

def main():
    parser = argparse.ArgumentParser(description="Counts what sandboxes of a running server leave behind.")
    parser.add_argument("--run-dir", default="/run/cay")
    parser.add_argument("--state-dir", default="/var/lib/cay")
    parser.add_argument("--save", metavar="FILE", help="write what is there now")
    parser.add_argument("--compare", metavar="FILE", help="with what was there; status 1 when there is a difference")
    parser.add_argument("--memory-kib", type=int, default=4096, help="what a daemon may have grown by (4096)")
    parser.add_argument("--slab-objects", type=int, help="what a kernel table may have grown by (not compared)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("it needs root, to look into all processes")
    try:
        now = measure(Target(options.run_dir, options.state_dir))
    except OSError as error:
        parser.error(f"no server runs there: {error}")
    if options.save:
        pathlib.Path(options.save).write_text(json.dumps(now, indent=1) + "\n")
    if not options.compare:
        print(json.dumps(now, indent=1))
        return 0
    found = differences(json.loads(pathlib.Path(options.compare).read_text()), now, options.memory_kib,
                        options.slab_objects)
    print("\n".join(found) or "nothing was left behind")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
