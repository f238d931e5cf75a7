"""Counts what a sandbox could leave behind on the host. Used before and after by every scenario that
claims to leave nothing, and by the soak."""

import os


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


def _cgroups(name):
    return sum(len(dirs) for root, dirs, _ in os.walk("/sys/fs/cgroup") if os.path.basename(root) == name)


def _mounts(state):
    with open("/proc/self/mountinfo") as f:
        return sum(1 for line in f if str(state) in line)


def count(own_server, uids=65536 * 16384):
    """Of one server that the tests started (conftest.OwnServer); namespaces and open files are the
    machine's, as nothing tells whose they are."""
    return {
        "range_processes": _range_processes(own_server.uid_base, uids),
        "pid_namespaces": _namespaces("pid"),
        "net_namespaces": _namespaces("net"),
        "mount_namespaces": _namespaces("mnt"),
        "cgroups": _cgroups(own_server.cgroup),
        "mounts": _mounts(own_server.state),
        "files": int(open("/proc/sys/fs/file-nr").read().split()[0]),
    }


def daemon_descriptors(keep_pid):
    """Open descriptors of each daemon of one server, by name."""
    found = {"cay-keep": len(os.listdir(f"/proc/{keep_pid}/fd"))}
    for name in ("cayd", "cay-privd"):
        found[name] = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in children(keep_pid, name))
    return found
