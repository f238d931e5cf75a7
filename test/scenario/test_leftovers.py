"""The checker finds what is left: one leftover of each kind, made on purpose, and taken away again."""

import ctypes
import fcntl
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

import leftovers
from waitlib import until

pytestmark = pytest.mark.alone

STRANGER = 7  # an id of the last range, which no sandbox has while these run
SYS_ADD_KEY, SYS_KEYCTL, JOIN_SESSION_KEYRING = 248, 250, 1
SUBVOL_CREATE, SNAP_DESTROY = 0x5000940E, 0x5000940F  # linux/btrfs.h
SPARE = 64 << 20
PYTHON = os.path.realpath(sys.executable)  # the environment may be where only root may go


@pytest.fixture
def uid(own_server):
    if not own_server:
        pytest.skip("leftovers are made only beside a server of the tests' own")
    return own_server.uid_base + (own_server.slots_max - 1) * leftovers.RANGE + STRANGER


def as_user(uid, *command, **more):
    """Started and waited for until it says something."""
    process = subprocess.Popen(command, user=uid, group=uid, extra_groups=[], stdout=subprocess.PIPE, **more)
    assert process.stdout.readline(), "it did not start"
    return process


class Leftover:
    """made(server, uid) gives what undoes it."""

    def __init__(self, *kinds):
        self.kinds = kinds

    def __call__(self, make):
        self.make = make
        found.append(self)
        return make

    def __repr__(self):
        return self.make.__name__


found = []


def end(process):
    process.kill()
    process.wait()


@Leftover("processes", "uid_ranges", "threads")
def process(server, uid):
    p = as_user(uid, "sh", "-c", "echo; exec sleep 1000")
    return lambda: end(p)


@Leftover("zombies")
def zombie(server, uid):
    """A child of cay-keep's that stays a zombie cannot be made: keep waits for all. A stopped keep can."""
    os.kill(server.keep_pid, signal.SIGSTOP)
    for pid in leftovers.children(server.keep_pid, "cayd"):
        os.kill(pid, signal.SIGKILL)

    def undo():
        os.kill(server.keep_pid, signal.SIGCONT)
    return undo


def unshared(uid, *flags):
    return as_user(uid, "unshare", "--user", "--map-root-user", *flags, "sh", "-c", "echo; exec sleep 1000")


@Leftover(*(f"{kind}_namespaces" for kind in leftovers.NS_KINDS))
def namespaces(server, uid):
    p = unshared(uid, "--net", "--ipc", "--uts", "--mount", "--cgroup", "--time", "--pid", "--fork", "--kill-child")
    return lambda: end(p)


@Leftover("net_namespaces", "user_namespaces")
def namespace_held_by_a_descriptor(server, uid):
    p = unshared(uid, "--net")
    fd = os.open(f"/proc/{p.pid}/ns/net", os.O_RDONLY)
    user = os.open(f"/proc/{p.pid}/ns/user", os.O_RDONLY)
    end(p)

    def undo():
        os.close(fd)
        os.close(user)
    return undo


@Leftover("net_namespaces", "mounts")
def namespace_held_by_a_mount(server, uid):
    p = unshared(uid, "--net")
    place = server.state / "net"
    place.touch()
    subprocess.run(["mount", "--bind", f"/proc/{p.pid}/ns/net", place], check=True)
    end(p)

    def undo():
        subprocess.run(["umount", place], check=True)
        place.unlink()
    return undo


@Leftover("mounts")
def mount(server, uid):
    subprocess.run(["mount", "-t", "tmpfs", "leftover", server.state / "privd" / "stage"], check=True)
    return lambda: subprocess.run(["umount", server.state / "privd" / "stage"], check=True)


@Leftover("cgroups")
def cgroup(server, uid):
    place = next(pathlib.Path(root) for root, _, _ in os.walk("/sys/fs/cgroup") if root.endswith("/" + server.cgroup))
    (place / "leftover").mkdir()
    return lambda: (place / "leftover").rmdir()


@Leftover("layers")
def layer(server, uid):
    place = pathlib.Path(leftovers._disk(server)) / "layers" / "9999.1"
    place.mkdir()
    return place.rmdir


@Leftover("templates")
def template(server, uid):
    place = pathlib.Path(leftovers._disk(server)) / "templates" / "9999"
    place.mkdir()
    return place.rmdir


@Leftover("subvolumes")
def subvolume(server, uid):
    """By its ioctl: the program wants a path that is mounted in its own mount namespace."""
    if not leftovers._subvolumes(leftovers._disk(server)):
        pytest.skip("the state disk is not btrfs here")
    fd, arguments = os.open(leftovers._disk(server), os.O_RDONLY), bytearray(8) + b"left".ljust(4088, b"\0")
    fcntl.ioctl(fd, SUBVOL_CREATE, arguments)

    def undo():
        fcntl.ioctl(fd, SNAP_DESTROY, arguments)
        os.close(fd)
    return undo


@Leftover("loop_devices", "state_files")
def loop_device(server, uid):
    image = server.state / "image"
    image.write_bytes(bytes(1 << 20))
    device = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True, text=True)

    def undo():
        subprocess.run(["losetup", "--detach", device.stdout.strip()], check=True)
        image.unlink()
    return undo


@Leftover("run_files")
def run_file(server, uid):
    place = server.run / "slots" / "left"
    place.touch()
    return place.unlink


@Leftover("foreign_files")
def foreign_file(server, uid):
    place = pathlib.Path(f"/dev/shm/leftover-{os.getpid()}")
    place.touch()
    os.chown(place, uid, uid)
    return place.unlink


@Leftover("unix_sockets", "run_files")
def unix_socket(server, uid):
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(server.run / "left.sock"))

    def undo():
        s.close()
        (server.run / "left.sock").unlink()
    return undo


@Leftover("sysv_objects")
def segment(server, uid):
    made = subprocess.run(["ipcmk", "-M", "4096"], check=True, capture_output=True, text=True, user=uid, group=uid,
                          extra_groups=[])
    return lambda: subprocess.run(["ipcrm", "-m", made.stdout.split()[-1]], check=True)


@Leftover("keys")
def key(server, uid):
    """In the session keyring of a process, which ends with it; counted by its user. A process without one is given its
    user's, which the kernel keeps."""
    code = ("import ctypes, time\nlibc = ctypes.CDLL(None)\n"
            f"assert libc.syscall({SYS_KEYCTL}, {JOIN_SESSION_KEYRING}, None) > 0\n"
            f"assert libc.syscall({SYS_ADD_KEY}, b'user', b'left', b'x', 1, -3) > 0\nprint(flush=True)\ntime.sleep(1000)")
    p = as_user(uid, PYTHON, "-c", code)
    return lambda: end(p)


@Leftover("rows", "processes", "net_namespaces", "cgroups", "layers")
def sandbox(server, uid):
    from client import Client
    box = Client(server.url, server.key()).create()
    leftovers.settled(server)  # the slot that was taken is made again
    return box.kill


@pytest.fixture(scope="module")
def calm(own_server, cay):
    """Slots are ready for what is asked for."""
    if own_server:
        cay.create().kill()
        leftovers.settled(own_server)


@pytest.mark.parametrize("left", found, ids=repr)
def test_it_is_found(own_server, cay, uid, calm, left):
    before = leftovers.count(own_server)
    undo = left.make(own_server, uid)
    try:
        end_at = time.monotonic() + 10  # a killed process ends in a moment
        while not all((after := leftovers.count(own_server))[kind] > before[kind] for kind in left.kinds):
            if time.monotonic() > end_at:
                break
            time.sleep(0.1)
    finally:
        undo()
    for kind in left.kinds:
        assert after[kind] > before[kind], f"{kind} was not found: {before[kind]} before, {after[kind]} after"
    said = leftovers.differences({"exact": before, "descriptors": {}, "memory": {}, "slabs": {}},
                                 {"exact": after, "descriptors": {}})
    assert all(any(text.startswith(f"{kind}:") for text in said) for kind in left.kinds), said
    end_at = time.monotonic() + 60
    while (now := leftovers.count(own_server)) != before and time.monotonic() < end_at:
        if left.make is zombie:
            cay_answers(cay)
        time.sleep(0.2)
    assert now == before


def cay_answers(cay):
    """A cayd that was started again has warm slots made for what is asked of it."""
    try:
        cay.create().kill()
    except (OSError, AssertionError):
        time.sleep(0.2)


def test_every_kind_has_its_control(own_server, uid):
    assert set(leftovers.count(own_server)) == {kind for left in found for kind in left.kinds}


def test_descriptors_of_a_daemon_are_found(own_server, cay, uid):
    before = leftovers.measure(own_server)
    with socket.create_connection((cay.host, cay.port)) as s:
        s.sendall(b"GET /")
        time.sleep(0.5)
        now = leftovers.descriptors(own_server)
    assert now["cayd socket"] == before["descriptors"]["cayd socket"] + 1
    assert any(text.startswith("cayd socket:") for text in leftovers.differences(before, {**before, "descriptors": now}))


def test_memory_is_found():
    """Of a process that takes some."""
    before = leftovers.memory_kib(os.getpid())
    taken = ctypes.create_string_buffer(os.urandom(SPARE), SPARE)
    after = leftovers.memory_kib(os.getpid())
    assert len(taken) == SPARE and after["private"] - before["private"] >= SPARE // 1024
    one = {"exact": {}, "descriptors": {}, "memory": {"cayd private": before["private"]}, "slabs": {}}
    two = {**one, "memory": {"cayd private": after["private"]}}
    assert leftovers.differences(one, two, memory_kib=SPARE // 2048) and not leftovers.differences(one, two)


def test_slabs_are_found(uid):
    """A hundred network namespaces that only descriptors hold are a hundred in the kernel's table."""
    before = leftovers.slabs()
    p = as_user(uid, PYTHON, "-c", HUNDRED)
    try:
        after = leftovers.slabs()
    finally:
        end(p)
    assert after["slab net_namespace"] - before["slab net_namespace"] >= 60, (before, after)


HUNDRED = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x10000000) == 0
held = []
for _ in range(100):
    assert libc.unshare(0x40000000) == 0
    held.append(os.open("/proc/self/ns/net", os.O_RDONLY))
print(flush=True)
time.sleep(1000)
"""


def test_as_a_command(own_server, cay, uid, tmp_path):
    command = [sys.executable, leftovers.__file__, f"--run-dir={own_server.run}", f"--state-dir={own_server.state}"]
    saved = tmp_path / "before.json"
    cay.create().kill()
    leftovers.settled(own_server)
    assert subprocess.run([*command, f"--save={saved}"], capture_output=True).returncode == 0
    assert json.loads(saved.read_text())["exact"] == leftovers.settled(own_server)
    same = subprocess.run([*command, f"--compare={saved}"], capture_output=True, text=True)
    assert (same.returncode, same.stdout) == (0, "nothing was left behind\n")
    with cay.create():
        more = subprocess.run([*command, f"--compare={saved}"], capture_output=True, text=True)
    assert more.returncode == 1 and "rows: 0 before, 1 after" in more.stdout


def memory_groups(server):
    """Control groups of slots and spare ones, by inode, which a renamed one keeps."""
    with os.scandir(f"/sys/fs/cgroup/memory/{server.cgroup}") as entries:
        return {entry.inode(): entry.name for entry in entries if entry.is_dir()}


def group_of(server, sandbox):
    """Inode and name of its control group: PID 1 of the slot has the sandbox's name."""
    for inode, slot in memory_groups(server).items():
        try:
            pids = pathlib.Path(f"/sys/fs/cgroup/memory/{server.cgroup}/{slot}/cgroup.procs").read_text().split()
            if pids and pathlib.Path(f"/proc/{pids[0]}/root/etc/hostname").read_text().strip() == sandbox.id:
                return inode, slot
        except OSError:
            continue
    raise AssertionError(f"no control group of {sandbox.id}")


def was_kept(server, inode, slot):
    """Of a sandbox that is ended: its group is removed, or kept, be it that another slot has it by now."""
    until(lambda: memory_groups(server).get(inode) != slot, what="the end of the slot")
    return any(inode in memory_groups(server) for _ in range(20))  # a listing may miss what is renamed meanwhile


def test_a_control_group_is_kept_though_the_layer_had_pages(own_server, cay):
    """Its layer goes first, and its pages with it: charged to the group, they are more than one is kept with. The control:
    with the group first, none of a sandbox that wrote so much is ever kept."""
    if not own_server or not pathlib.Path(f"/sys/fs/cgroup/memory/{own_server.cgroup}").is_dir():
        pytest.skip("needs a server of its own, and control groups of version 1")

    def one_is_kept():
        with cay.create() as s:
            assert s.run("head -c 4000000 /dev/urandom > /var/tmp/x").exit_code == 0
            group = group_of(own_server, s)
        return was_kept(own_server, *group)

    until(one_is_kept, 120)
