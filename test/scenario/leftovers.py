"""Counts what a sandbox could leave behind on the host. Used before and after by every scenario that
claims to leave nothing, and by the soak."""

import os
import re


def _cay_processes():
    names = {"cay-init", "cay-privd", "cayd", "cay-keep", "cay-job"}
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as f:
                name = f.read().strip()
        except OSError:
            continue
        if name in names:
            found[name] = found.get(name, 0) + 1
    return found


def _range_processes(first_uid, count):
    """Processes whose uid lies in cay's ranges."""
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            uid = os.stat(f"/proc/{pid}").st_uid
        except OSError:
            continue
        total += first_uid <= uid < first_uid + count
    return total


def _namespaces(kind):
    seen = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            seen.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
        except OSError:
            continue
    return len(seen)


def _cgroups():
    total = 0
    for root, dirs, _ in os.walk("/sys/fs/cgroup"):
        depth = root.count("/")
        if os.path.basename(root) == "cay":
            total += len(dirs)
        if depth > 8:
            dirs.clear()
    return total


def _mounts():
    with open("/proc/self/mountinfo") as f:
        return sum(1 for line in f if re.search(r"cay", line))


def count(first_uid=1006632960 + 16384 * 65536, uids=65536 * 16384):
    """By default of the uid ranges of the tests' own server (conftest.py)."""
    return {
        "processes": _cay_processes(),
        "range_processes": _range_processes(first_uid, uids),
        "pid_namespaces": _namespaces("pid"),
        "net_namespaces": _namespaces("net"),
        "mount_namespaces": _namespaces("mnt"),
        "cgroups": _cgroups(),
        "mounts": _mounts(),
        "files": int(open("/proc/sys/fs/file-nr").read().split()[0]),
    }


def daemon_descriptors():
    """Open descriptors of each daemon, by name."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as f:
                name = f.read().strip()
            if name in ("cayd", "cay-privd", "cay-keep"):
                found[name] = found.get(name, 0) + len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return found
