"""Counts what a sandbox could leave behind on the host. Used before and after by every scenario that
claims to leave nothing, and by the soak."""

import os
import time


def _comm_and_parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            text = f.read()
    except OSError:
        return None, None
    name, rest = text[text.index("(") + 1:].rsplit(")", 1)
    return name, int(rest.split()[1])


def children(parent, name):
    """Processes of that name that parent has started itself, without those it forked for a task."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if _comm_and_parent(pid) == (name, parent):
            found.append(int(pid))
    return found


def _uid(pid):
    """From its status: /proc/PID itself belongs to root when the process is not dumpable, as cay-init is."""
    try:
        with open(f"/proc/{pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("Uid:"))
    except (OSError, StopIteration):
        return -1


def _range(first_uid, count):
    """Processes whose uid lies in cay's ranges: what runs in sandboxes, and in slots that are kept ready."""
    return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if first_uid <= _uid(pid) < first_uid + count]


def _namespaces(kind, pids):
    seen = set()
    for pid in pids:
        try:
            seen.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
        except OSError:
            continue
    return len(seen)


def _cgroups(name):
    return sum(len(dirs) for root, dirs, _ in os.walk("/sys/fs/cgroup") if os.path.basename(root) == name)


def _mounts(state):
    with open("/proc/self/mountinfo") as f:
        return sum(1 for line in f if str(state) in line)


def count(own_server, uids=65536 * 16384):
    """Of one server that the tests started (conftest.OwnServer). Slots that are kept ready count too:
    compare with a count from a moment when their number was the same (settled)."""
    pids = _range(own_server.uid_base, uids)
    return {
        "processes": len(pids),
        "pid_namespaces": _namespaces("pid", pids),
        "net_namespaces": _namespaces("net", pids),
        "mount_namespaces": _namespaces("mnt", pids),
        "cgroups": _cgroups(own_server.cgroup),
        "mounts": _mounts(own_server.state),
    }


def settled(own_server, seconds=20):
    """The count once it has stayed the same for a second: the slots are filled up again."""
    end, last, since = time.monotonic() + seconds, None, 0
    while time.monotonic() < end:
        now = count(own_server)
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > 1:
            break
        time.sleep(0.1)
    return last


def daemon_descriptors(keep_pid):
    """Open descriptors of each daemon of one server, by name."""
    found = {"cay-keep": len(os.listdir(f"/proc/{keep_pid}/fd"))}
    for name in ("cayd", "cay-privd"):
        found[name] = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in children(keep_pid, name))
    return found
