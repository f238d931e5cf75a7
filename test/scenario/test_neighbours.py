"""A sandbox uses up what it can of one thing; while it holds all of it, its neighbour and the host take some of the
same. The program is exhaust.py. The control is that the first one was really stopped: by an errno, or by the
kernel's OOM killer within its group; where the defence can be switched off, test/escapes shows what happens without
it. A use that has no end inside is stopped by a bound and measured on the host."""

import base64
import pathlib
import subprocess
import sys

import pytest

import leftovers

pytestmark = pytest.mark.alone

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = (HERE / "exhaust.py").read_text()
HOLD_SECONDS = 60
KILLED = "killed"

# Name, most that it may take, how it is stopped, what a neighbour and the host take. Of a case with several
# ends the kernel's version, or what the machine itself allows, decides which comes first.
CASES = [
    ("inotify", 3000, {"EMFILE"}, 40),
    ("files", 100000, {"EMFILE"}, 100),
    ("processes", 5000, {"EAGAIN"}, 2),
    ("threads", 5000, {"EAGAIN"}, 2),
    ("user_namespaces", 5, {"ENOSPC", "EPERM"}, 0),
    ("pipes", 5000, {"EPERM", "EMFILE"}, 10),
    ("signals", 200000, {"EAGAIN"}, 1000),
    ("keys", 5, {"EPERM"}, 0),
    ("aio", 5, {"ENOSYS", "EPERM"}, 0),
    ("queues", 2000, {"EMFILE", "ENOSPC"}, 5),
    ("sysv_queues", 40000, {"ENOSPC"}, 20),
    ("sysv_segments", 5000, {"ENOSPC"}, 20),
    ("sysv_semaphores", 40000, {"ENOSPC"}, 20),
    ("terminals", 3000, {"ENOSPC", "EMFILE"}, 20),
    ("passed_descriptors", 1000, {"ETOOMANYREFS", "EMFILE"}, 3),
    ("sockets", 100000, {"EMFILE"}, 100),
    ("tcp_memory", 400, {"ENOBUFS"}, 2),
    ("disk", 100, {"ENOSPC", "EDQUOT"}, 1),
    ("memory", 200, {KILLED, "ENOMEM"}, 4),
    ("shared_memory", 200, {KILLED, "ENOSPC", "ENOMEM"}, 4),
    ("memfd", 200, {KILLED, "ENOMEM", "ENOSPC"}, 4),
    ("locked_memory", 500, {"ENOMEM", "EAGAIN", "EPERM"}, 1),
]
# These nothing refuses: the first one gets all, within its own limits, and the host is looked at.
UNBOUNDED = [("page_cache", 60), ("processor", 1), ("datagrams", 30000)]


class Taker:
    """exhaust.py in a sandbox, running until it is told to go on."""

    def __init__(self, box, name, most, user="user"):
        self.box, self.name = box, name
        process = {"cmd": "/usr/bin/python3", "args": ["-c", SCRIPT, name, str(most), str(HOLD_SECONDS)]}
        self.events = box.stream("process.Process/Start", {"process": process, "stdin": False}, user)
        self.said, self.end, self.errors = "", None, ""
        for message in self.events:
            event = message.get("event", {})
            self.said += base64.b64decode(event.get("data", {}).get("stdout", "")).decode()
            self.errors += base64.b64decode(event.get("data", {}).get("stderr", "")).decode()
            self.end = event.get("end", self.end)
            if "\n" in self.said or self.end:
                break

    @property
    def result(self):
        """How many, and what stopped it."""
        if self.end and self.end.get("status") == "signal: killed":
            return None, KILLED
        assert self.said, (self.name, self.end, self.errors)
        count, code = self.said.split()
        return int(count), code

    def stop(self):
        self.box.run("touch /tmp/go-on", user="root")
        for _ in self.events:
            pass


def a_little(box, name, count, user="user"):
    """The neighbour's share of it."""
    box.run("touch /tmp/go-on", user="root")
    out = box.run("/usr/bin/python3", user, args=["-c", SCRIPT, name, str(count), "0"])
    assert out.exit_code == 0 and out.out, (name, out.exit_code, out.status, out.stderr)
    return tuple(out.out.split())


def on_the_host(name, count):
    done = subprocess.run([sys.executable, "-c", SCRIPT, name, str(count), "0"], capture_output=True, text=True,
                          timeout=60, cwd="/")
    assert done.returncode == 0, done.stderr
    return tuple(done.stdout.split())


@pytest.mark.parametrize("name,most,ends,little", CASES, ids=[case[0] for case in CASES])
def test_neighbour_and_host_keep_theirs(cay, own_server, name, most, ends, little):
    with cay.create() as one, cay.create() as two:
        taker = Taker(one, name, most)
        try:
            count, code = taker.result
            assert code in ends, f"nothing stopped it: {count} taken, {code}"
            if little:
                assert a_little(two, name, little) == (str(little), "-")
            else:  # refused altogether, and so to its neighbour
                assert count == 0 and a_little(two, name, 1)[1] in ends
            if name not in ("user_namespaces", "keys", "aio"):
                assert on_the_host(name, little) == (str(little), "-")
            assert two.run("echo fine").out == "fine\n"
        finally:
            taker.stop()
        assert one.run("echo again").out == "again\n"  # its own agent was not taken with it


@pytest.mark.parametrize("name,most", UNBOUNDED, ids=[case[0] for case in UNBOUNDED])
def test_neighbour_and_host_go_on(cay, own_server, name, most):
    if not own_server:
        pytest.skip("the host is looked at beside a server of the tests' own")
    before = host_state()
    with cay.create() as one, cay.create() as two:
        taker = Taker(one, name, most)
        try:
            assert taker.result == (most, "-")
            assert a_little(two, name, max(1, most // 20)) == (str(max(1, most // 20)), "-")
            assert two.write("/home/user/x", bytes(1 << 20)).status == 200
            assert two.run("sync -d /home/user/x && sha256sum /home/user/x | wc -c").out.strip() != ""
            after = host_state()
            assert after["conntrack"] - before["conntrack"] < 1000
            if name == "datagrams":  # not even its own table fills: traffic that stays inside is not tracked
                inside = one.run("cat /proc/sys/net/netfilter/nf_conntrack_count 2>/dev/null || echo 0").out
                assert int(inside) < 1000
            if name == "page_cache":
                assert memory_of(one) <= 512 << 20
        finally:
            taker.stop()


def test_inodes(cay, own_server):
    """Small files, once the disk is nearly full: the quota counts what describes them, too."""
    with cay.create() as one, cay.create() as two:
        first = Taker(one, "disk", 100)
        assert first.result[1] in ("ENOSPC", "EDQUOT")
        first.stop()
        one.run("rm -f /tmp/go-on", user="root")
        second = Taker(one, "inodes", 40000)
        try:
            count, code = second.result
            assert code in ("ENOSPC", "EDQUOT"), (count, code)
            assert a_little(two, "inodes", 500) == ("500", "-") and on_the_host("inodes", 100) == ("100", "-")
        finally:
            second.stop()
        # A full disk is no end: its owner may still delete, and the agent says why a file does not go there.
        assert one.write("/var/tmp/more", bytes(64 << 20), user="root").status == 507
        assert one.run("rm -rf /var/tmp/*", user="root").exit_code == 0
        assert one.write("/var/tmp/more", bytes(1 << 20), user="root").status == 200


def host_state():
    path = pathlib.Path("/proc/sys/net/netfilter/nf_conntrack_count")
    return {"conntrack": int(path.read_text()) if path.exists() else 0}


def memory_of(box):
    """Bytes with page cache, as the sandbox's own numbers say."""
    reply = box.client.call("GET", f"/sandboxes/{box.id}/metrics")
    return max((row["memUsed"] for row in reply.json), default=0)


def test_terminals_have_a_maximum_for_each(cay):
    """The kernel's pool of terminals is one for all sandboxes (kernel.pty.max): no sandbox gets much of it."""
    pool = int(pathlib.Path("/proc/sys/kernel/pty/max").read_text())
    with cay.create() as box:
        taker = Taker(box, "terminals", 3000)
        assert taker.result[1] == "ENOSPC" and taker.result[0] <= pool // 8
        taker.stop()


def test_nothing_is_held_any_more(cay, own_server):
    """After all of the above."""
    if not own_server:
        pytest.skip("leftovers are counted only beside a server of the tests' own")
    cay.create().kill()
    now = leftovers.settled(own_server)
    assert now["sysv_objects"] == now["foreign_files"] == now["rows"] == 0
