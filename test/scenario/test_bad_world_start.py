"""A start in a world that lacks something: refused with what, why and what to do, and nothing stays behind;
or it works all the same."""

import contextlib
import errno
import os
import shutil
import signal
import socket
import sqlite3
import subprocess

import pytest

import badworld
import conftest
from client import Client
from waitlib import until

WHOLE = os.environ.get("CAY_BAD_WORLDS")  # `make bad-worlds`: all of it
SOME_CALLS = ("clone3", "mount_setattr", "openat2", "pidfd_open")
CGROUPS_READ_ONLY = """for place in $(awk '$5 ~ "^/sys/fs/cgroup" {print $5}' /proc/self/mountinfo); do
    mount -o remount,bind,ro "$place"; done"""


@pytest.fixture
def world():
    if os.geteuid() != 0:
        pytest.skip("cay-keep needs root")
    with badworld.World(conftest.BUILD, conftest.USER, conftest.UID_BASE) as w:
        yield w


def refused(world, *says, status=1, **how):
    done = world.start(**how)
    assert done.returncode == status, done.stderr + world.log_tail()
    for text in says:
        assert text in done.stderr, done.stderr
    assert not world.alive()


def starts(world, **how):
    done = world.start(**how)
    assert done.returncode == 0, done.stderr + world.log_tail()
    return Client(world.url, world.key())


def works(client):
    with client.create() as box:
        assert box.run("echo alive").out == "alive\n"


# -- the kernel ------------------------------------------------------------------------------------

@pytest.mark.parametrize("call", sorted(badworld.CALLS) if WHOLE else SOME_CALLS)
def test_an_old_kernel(world, call):
    refused(world, f"lacks {call}(2)", "Linux 5.19 or newer", prefix=badworld.refusing(**{call: errno.ENOSYS}))


def test_a_filter_around_it(world):
    refused(world, "not allowed here: clone3(2), open_tree(2)", "system call filter",
            prefix=badworld.refusing(clone3=errno.EPERM, open_tree=errno.EPERM))


def test_no_user_namespaces(world):
    refused(world, "no user and network namespace", "max_user_namespaces", prefix=badworld.without_userns())


def test_control_groups_that_cannot_be_written(world):
    refused(world, "control groups below /sys/fs/cgroup", "Read-only file system", "let cay write there",
            prefix=badworld.in_mount_namespace(CGROUPS_READ_ONLY))


def test_processes_of_others_hidden(world):
    works(starts(world, prefix=badworld.in_mount_namespace("mount -t proc -o hidepid=invisible proc /proc")))


def test_few_descriptors_for_privd(world):
    refused(world, "only 128 open files", "RLIMIT_NOFILE", privd="ulimit -n 128")


def test_few_descriptors_for_cayd(world):
    refused(world, "only 128 open files", "RLIMIT_NOFILE", cayd="ulimit -n 128")


# -- directories and files ---------------------------------------------------------------------------

def test_a_read_only_state_directory(world):
    world.tmpfs(world.state, "size=64m,mode=711")
    world.tmpfs(world.state, "ro")
    refused(world, str(world.state), "Read-only file system")


def test_a_state_directory_that_is_a_link(world):
    (world.base / "real").mkdir()
    world.state.symlink_to(world.base / "real")
    refused(world, f"{world.state} is not a directory of root's", "move it away")
    assert list((world.base / "real").iterdir()) == []


@pytest.mark.parametrize("name", ["state", "state/privd", "run"])
def test_a_directory_of_somebody_else(world, name):
    (world.base / name).mkdir(parents=True)
    os.chown(world.base / name, 12345, 12345)
    refused(world, f"{world.base / name} is not a directory of root's")


@pytest.mark.parametrize("mode, owner", [(0o777, 0), (0o755, 12345)])
def test_a_directory_above_that_others_can_change(world, mode, owner):
    world.base.chmod(mode)
    os.chown(world.base, owner, owner)
    refused(world, f"{world.base} can be changed by others than root", "chown and chmod")
    assert not world.state.exists()


def test_a_log_that_cannot_be_written(world):
    world.log.mkdir()
    refused(world, f"cannot open {world.log}: Is a directory")


def test_a_disk_without_room_for_the_store(world):
    world.tmpfs(world.state / "cayd", "size=16k,mode=700")
    refused(world, "No space left on device", "free some space")


def test_a_disk_without_inodes(world):
    world.tmpfs(world.state, "size=600m,nr_inodes=4,mode=711")
    refused(world, "No space left on device")


def first_run(world):
    starts(world)
    world.stop()


def test_a_damaged_store(world):
    first_run(world)
    path = world.state / "cayd/cay.db"
    good = path.read_bytes()
    for bad in (b"x" * 100 + good[100:], good[:4096] + os.urandom(len(good) - 4096), good[:len(good) // 2], good[:5000], good[:60]):
        path.write_bytes(bad)
        refused(world, "cay.db is damaged", "move it away")
    for old in path.parent.glob("cay.db*"):
        old.unlink()
    works(starts(world))  # what the message said to do


def test_a_store_that_was_cut_to_nothing(world):
    """The control: without the key it is what a first start leaves that was killed at its beginning."""
    client = starts(world)
    if client.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
        pytest.skip("files are in memory here")
    box = client.create()
    assert box.write("/home/user/mark", b"kept").status == 200
    assert client.call("POST", f"/sandboxes/{box.id}/pause", {"memory": False}).status == 204
    world.stop()
    path, key = world.state / "cayd/cay.db", world.state / "cayd/api-key"
    good, text = path.read_bytes(), key.read_bytes()
    path.write_bytes(b"")
    refused(world, "cay.db is empty", "move it away")
    path.write_bytes(good)
    client = starts(world)
    assert client.call("POST", f"/sandboxes/{box.id}/connect", {"timeout": 300}).status == 201
    assert box.read("/home/user/mark").body == b"kept"
    assert box.kill().status == 204
    world.stop()
    key.unlink()
    path.write_bytes(b"")
    works(starts(world))
    assert key.read_bytes() != text


def test_a_store_that_another_program_has_locked(world):
    """A create, which has to be written, is refused with the reason, and no more is; once the lock is gone it works."""
    client = starts(world)
    with client.create() as box:
        db = sqlite3.connect(world.state / "cayd/cay.db", isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        try:
            reply = client.call("POST", "/v2/sandboxes", {"templateID": "host"})
            assert reply.status == 503 and "locked" in reply.json["message"], reply.body
            assert box.run("echo alive").out == "alive\n"
        finally:
            db.execute("COMMIT")
            db.close()
        works(client)
        assert box.run("echo alive").out == "alive\n"


def test_a_store_of_a_newer_cay(world):
    first_run(world)
    db = sqlite3.connect(world.state / "cayd/cay.db")
    db.execute("PRAGMA user_version = 99")
    db.commit()
    db.close()
    for path in (world.state / "cayd").iterdir():
        shutil.chown(path, world.user)
    refused(world, "newer cay (schema 99", "start the newer cay")


def test_a_disk_image_that_was_cut_off_or_wiped(world):
    first_run(world)
    image = world.state / "privd/disk.img"
    size = image.stat().st_size
    os.truncate(image, 100 << 20)
    refused(world, "disk.img was cut off: 100 of its 1024 MiB", "to start afresh")
    os.truncate(image, size)
    with open(image, "r+b") as f:
        f.write(bytes(1 << 20))
    refused(world, "disk.img is damaged", "to start afresh")
    image.unlink()
    works(starts(world))


def test_a_damaged_configuration(world):
    config = world.base / "cay.conf"
    for text, says in (("[listen]\nport = many\n", ":2: [listen] port"), ("\0\xff\xfe garbage", ":1: "),
                       ("[listen]\nprot = 1\n", "prot")):
        config.write_bytes(text.encode("latin-1"))
        done = subprocess.run([world.build / "src/cli/cay", "up", f"--config={config}", "--check"],
                              capture_output=True, text=True, timeout=30)
        assert done.returncode != 0 and str(config) in done.stderr and says in done.stderr, done.stderr


# -- others on the same machine ------------------------------------------------------------------------

def test_two_servers_on_one_state_directory(world):
    client = starts(world)
    with client.create() as box:
        first_run_dir, world.run = world.run, world.base / "run2"
        first_port = world.port
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            world.port = s.getsockname()[1]
        done = world.start()
        assert done.returncode == 1 and "another cay" in done.stderr, done.stderr
        world.run, world.port = first_run_dir, first_port
        assert box.run("echo untouched").out == "untouched\n"


def test_what_a_crash_left_is_taken_up(world):
    client = starts(world)
    box = client.create()
    keep = world.pid()
    for pid in (keep, *daemons(keep)):
        with contextlib.suppress(ProcessLookupError):  # they end with keep
            os.kill(pid, signal.SIGKILL)
    until(lambda: not daemons(keep) and not os.path.exists(f"/proc/{keep}"), patient=True)
    assert (world.run / "privd.sock").exists() and (world.run / "keep.pid").exists()
    for path in (world.run / "slots").iterdir():  # one record is rubbish, one is short
        path.write_bytes(os.urandom(64))
        break
    (world.run / "slots" / "rubbish").write_bytes(b"x")
    client = starts(world)
    works(client)
    assert client.call("GET", f"/sandboxes/{box.id}").status in (200, 404)


def daemons(keep):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if name in ("cayd", "cay-privd") and int(rest.split()[1]) == keep:
            found.append(int(pid))
    return found


@pytest.mark.parametrize("text, why", [(None, "No such file or directory"), ("no certificate\n", "has no certificate")])
def test_authorities_that_cannot_be_read(tmp_path, text, why):
    """[egress] ca_file: cay-egress says what is wrong with the file, not OpenSSL's "system lib"."""
    authorities = tmp_path / "ca.pem"
    if text:
        authorities.write_text(text)
    told, ready = os.pipe()
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(tmp_path / "control"))
        control.listen(1)
        done = subprocess.run([conftest.BUILD / "src/egress/cay-egress", f"--listen-fd={control.fileno()}", f"--ready-fd={ready}",
                               f"--privd={tmp_path}/none", f"--state-dir={tmp_path}", "--peer-uid=0", "--shard=0/1",
                               f"--egress-ca-file={authorities}"], pass_fds=(control.fileno(), ready), timeout=60,
                              capture_output=True, text=True)
    os.close(ready)
    with os.fdopen(told, "rb") as f:
        said = f.read().decode()
    assert done.returncode == 1 and said.startswith("F[egress] ") and str(authorities) in said and why in said, said
