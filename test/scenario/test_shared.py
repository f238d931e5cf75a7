"""Objects in which two sandboxes, and one and the host, have no part together: locks, leases, watches and times of
device nodes, of the masks in /proc and of the template's files. Each with a control in the same sandbox, where there
is one thing."""

import contextlib
import fcntl
import os

import pytest

# A mask in /proc is the sandbox's own /dev/null.
NODES = ("/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/proc/kmsg")
FILES = ("/usr/bin/env", "/etc/debian_version", "/sys/devices/system/cpu/online", "/bin/sh")

# Both kinds of lock that a program can hold on a file, on one byte that nothing else locks.
LOCK = """
import fcntl, os, struct, sys, time
held = []
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDWR if path.startswith(("/dev", "/proc")) else os.O_RDONLY)
    whole = path.startswith(("/dev", "/proc"))
    fcntl.lockf(fd, (fcntl.LOCK_EX if whole else fcntl.LOCK_SH) | fcntl.LOCK_NB, 1, 4711)
    flock = os.open(path, os.O_RDONLY)
    fcntl.flock(flock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    held += [fd, flock]
open("/tmp/held", "w").close()
time.sleep(120)
"""
LOOK = """
import fcntl, os, struct, sys
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 4711, 1, 0)
    record = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        whole = False
    except BlockingIOError:
        whole = True
    print(path, record, whole)
"""


def python(program, paths):
    quoted = program.strip().replace("'", "'\\''")
    return f"python3 -c '{quoted}' {' '.join(paths)}"


def present(box, paths):
    """Some kernels lack some of them; /dev/tty opens only with a terminal."""
    return [path for path in paths if path != "/dev/tty" and box.run(f"test -e {path}", user="root").exit_code == 0]


@contextlib.contextmanager
def locked(box, paths):
    box.run(f"rm -f /tmp/held; ({python(LOCK, paths)}) >/tmp/lock.log 2>&1 & "
            "for i in $(seq 200); do test -e /tmp/held && break; sleep 0.05; done; cat /tmp/lock.log", user="root")
    assert box.run("test -e /tmp/held", user="root").exit_code == 0, box.run("cat /tmp/lock.log", user="root").out
    yield
    box.run("pkill -f 'import fcntl, os, struct, sys, time'", user="root")


def locks_seen(box, paths):
    done = box.run(python(LOOK, paths), user="root")
    assert done.exit_code == 0, done.stderr
    return {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}


@pytest.fixture(scope="module")
def two(cay):
    with cay.create() as first, cay.create() as second:
        yield first, second


def test_locks(two):
    first, second = two
    paths = present(first, NODES + FILES)
    assert len(paths) > 6
    with locked(first, paths):
        assert set(map(tuple, locks_seen(first, paths).values())) == {("True", "True")}  # the control
        assert set(map(tuple, locks_seen(second, paths).values())) == {("False", "False")}
        for path in paths:  # nor does the host see any
            if path.startswith(("/dev", "/usr")):
                with open(path, "rb") as f:
                    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_locks_of_the_host(two):
    paths = present(two[0], [path for path in NODES + FILES if path.startswith(("/dev", "/usr"))])
    held = [os.open(path, os.O_RDWR if path.startswith("/dev") else os.O_RDONLY) for path in paths]
    try:
        for fd, path in zip(held, paths):
            fcntl.lockf(fd, fcntl.LOCK_EX if path.startswith("/dev") else fcntl.LOCK_SH, 1, 4711)
        assert set(map(tuple, locks_seen(two[0], paths).values())) == {("False", "False")}
    finally:
        for fd in held:
            os.close(fd)


TIMES = "stat -c '%n %X %Y %Z' /dev/full /dev/null /dev/zero"


def test_times(two):
    first, second = two
    before_host = [os.stat(path).st_mtime_ns for path in ("/dev/full", "/dev/null", "/dev/zero")]
    before, own = second.run(TIMES).out, first.run(TIMES).out
    assert first.run("touch -d 2001-01-01 /dev/full /dev/null /dev/zero", user="root").exit_code == 0
    assert first.run(TIMES).out != own  # the control
    assert second.run(TIMES).out == before
    assert [os.stat(path).st_mtime_ns for path in ("/dev/full", "/dev/null", "/dev/zero")] == before_host


# A watch of every kind of event on a node and a file of the template; the events within two seconds.
WATCH = """
import ctypes, os, select, sys
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(os.O_NONBLOCK)
for path in sys.argv[1:]:
    assert libc.inotify_add_watch(fd, path.encode(), 0xfff) > 0
open("/tmp/watching", "w").close()
print("event" if select.select([fd], [], [], 2)[0] else "quiet")
"""


@pytest.mark.parametrize("same", [True, False], ids=["control", "other"])
def test_watches(two, same):
    first, second = two
    toucher = first if same else second
    paths = "/dev/zero /usr/bin/env /etc/debian_version"
    first.run("rm -f /tmp/watching /tmp/seen")
    first.run(f"({python(WATCH, paths.split())}) >/tmp/seen 2>&1 & "
              "for i in $(seq 100); do test -e /tmp/watching && break; sleep 0.02; done", user="root")
    assert first.run("test -e /tmp/watching").exit_code == 0
    toucher.run("head -c 1 /dev/zero >/dev/null; /usr/bin/env >/dev/null; cat /etc/debian_version; "
                "touch /etc/debian_version", user="root")
    seen = first.run("for i in $(seq 100); do test -s /tmp/seen && break; sleep 0.03; done; cat /tmp/seen").out.strip()
    assert seen == ("event" if same else "quiet")


LEASE = """
import fcntl, os, signal, sys, time
broken = []
signal.signal(signal.SIGIO, lambda *_: broken.append(1))
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
open("/tmp/leased", "w").close()
end = time.monotonic() + 2
while time.monotonic() < end and not broken:
    time.sleep(0.02)
print("broken" if broken else "kept")
"""


@pytest.mark.parametrize("same", [True, False], ids=["control", "other"])
def test_leases(two, same):
    """Of a file of the template, which root inside owns; opened for writing by the other, it is copied there."""
    first, second = two
    writer = first if same else second
    first.run("rm -f /tmp/leased /tmp/lease")
    first.run(f"({python(LEASE, ['/etc/issue'])}) >/tmp/lease 2>&1 & "
              "for i in $(seq 100); do test -e /tmp/leased && break; sleep 0.02; done", user="root")
    assert first.run("test -e /tmp/leased").exit_code == 0, first.run("cat /tmp/lease").out
    writer.run("timeout 5 sh -c 'echo >> /etc/issue'", user="root")
    state = first.run("for i in $(seq 100); do test -s /tmp/lease && break; sleep 0.03; done; cat /tmp/lease").out
    assert state.strip() == ("broken" if same else "kept")


def test_nodes_are_whole(sandbox):
    """They are the sandbox's own, they work, and none can be taken away or put in another's place."""
    done = sandbox.run("set -e; test \"$(stat -c %u:%g:%a /dev/null)\" = 0:0:666; echo x > /dev/null; "
                       "test $(head -c 5 /dev/zero | wc -c) = 5; test $(head -c 5 /dev/urandom | wc -c) = 5; "
                       "! echo x 2>/dev/null > /dev/full; "
                       "! rm -f /dev/null; ! mv /dev/zero /dev/other; ! mknod /dev/mine c 1 3; ! ln /dev/zero /dev/l; "
                       "! mknod /dev/shm/mine c 1 3; ! mknod /run/mine b 7 0; test -c /dev/null", user="root")
    assert done.exit_code == 0, done.stderr


def test_mounts_tell_nothing_of_the_host(sandbox):
    """Neither whose ids it has nor how much memory the machine has, which default sizes tell."""
    for line in sandbox.run("cat /proc/self/mountinfo", user="root").out.splitlines():
        for option in line.split(" - ")[1].split()[2].split(","):
            key, _, value = option.partition("=")
            assert key not in ("uid", "gid") or int(value) < 65536, line
    inodes = int(sandbox.run("stat -f -c %c /dev/shm").out)
    assert inodes == int(sandbox.run("stat -f -c %b /dev/shm").out)  # by its own size
