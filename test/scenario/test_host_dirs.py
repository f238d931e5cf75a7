"""Directories of the host that the operator named, in sandboxes: reads that are allowed, acts that are not
(each with a control outside of the overlay or the sandbox), who may have them, and what is kept over pause, fork, rollback
and the daemons' ends. A case in test/escapes has the probe inside."""

import ctypes
import errno
import fcntl
import os
import pathlib
import shutil
import socket
import stat
import struct
import subprocess
import tempfile

import pytest

import privdlib
from client import Client, Sandbox
from conftest import BUILD, OwnServer
from test_kept import create_body, inside
from test_pause_files import pause_files, resume
from test_recovery import kill_daemons, wait_ready
from waitlib import until

MS_NOSUID, MS_NODEV, MNT_DETACH = 2, 4, 2


def mount(place):
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"none", str(place).encode(), b"tmpfs", MS_NOSUID | MS_NODEV, None) == 0, os.strerror(ctypes.get_errno())
    return lambda: libc.umount2(str(place).encode(), MNT_DETACH)


class World:
    """The operator's directories, and a server that has them."""

    def __init__(self, base):
        self.base, self.models, self.gone = base, base / "models", base / "gone"
        for name in ("models/sub", "models/private", "models/held", "outside", "team", "gone", "closed"):
            (base / name).mkdir(parents=True)
            (base / name).chmod(0o755)
        (base / "models/private").chmod(0o700)
        (base / "closed").chmod(0o700)
        (base / "link").symlink_to("models")
        for name, text, mode in (("models/weights", "weights", 0o644), ("models/secret", "of root", 0o640),
                                 ("models/private/file", "of root", 0o644), ("models/open", "for all", 0o666),
                                 ("models/sub/below", "below", 0o644), ("outside/secret", "outside", 0o644), ("team/file", "team", 0o644)):
            (base / name).write_text(text)
            (base / name).chmod(mode)
        shutil.copy("/usr/bin/id", base / "models/setid")
        (base / "models/setid").chmod(0o6755)
        os.mknod(base / "models/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (base / "models/null").chmod(0o666)
        os.mkfifo(base / "models/queue")
        (base / "models/queue").chmod(0o666)
        (base / "models/out").symlink_to(base / "outside/secret")
        (base / "models/up").symlink_to("../outside/secret")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(base / "models/socket"))
        (base / "models/socket").chmod(0o666)
        self.socket.listen()
        self.unmount = mount(base / "models/sub")
        (base / "models/sub/mounted").write_text("mounted")
        dirs = {1: f"models:{self.models}", 2: f"team:{base}/team:others,more", 3: f"gone:{self.gone}", 4: f"linked:{base}/link",
                5: f"closed:{base}/closed", 6: "kernel:/proc/sys", 7: "all:/var", 8: "never:/nowhere"}
        privd = {n: ":".join(text.split(":")[:2]) for n, text in dirs.items()}
        self.server = OwnServer(privd_args=[f"--host-dir-{n}={t}" for n, t in privd.items()],
                                cayd_args=[f"--host-dir-{n}={t}" for n, t in dirs.items()])
        self.cay = Client(self.server.url, self.server.key())

    def stop(self):
        self.server.stop()
        self.socket.close()
        self.unmount()


@pytest.fixture(scope="module")
def world():
    if os.geteuid() != 0:
        pytest.skip("a server needs root")
    base = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-host-", dir="/var/tmp"))
    base.chmod(0o755)
    w = World(base)
    yield w
    w.stop()
    shutil.rmtree(base)


def ask(cay, *mounts, **more):
    body = {"templateID": "host", "timeout": 300, "hostMounts": [{"name": n, "path": p} for n, p in mounts], **more}
    return cay.call("POST", "/cay/v1/sandboxes", body)


def create(cay, *mounts, **more):
    reply = ask(cay, *mounts, **more)
    assert reply.status == 201, reply.body
    return Sandbox(cay, reply.json)


def test_what_all_may_read(world):
    """As root of the sandbox, too, whose ids are none of the host's; mounts below are not there."""
    with create(world.cay, ("models", "/models")) as box:
        for user in ("user", "root"):
            said = box.run("cd /models; cat weights open sub/below; cat secret private/file || echo refused; ls sub; stat -c '%U %a' weights", user=user)
            assert said.out == "weightsfor allbelowrefused\nbelow\nnobody 644\n", (user, said.stderr)
        assert box.read("/models/weights").body == b"weights"
        detail = world.cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json
        assert detail["hostMounts"] == [{"name": "models", "path": "/models"}]
        assert world.cay.call("GET", f"/sandboxes/{box.id}").json["volumeMounts"] == []
    # The control: the same files, of the same machine, read by root of it.
    assert (world.models / "secret").read_text() == "of root" and (world.models / "sub/mounted").read_text() == "mounted"


def test_nothing_of_it_is_changed(world):
    tries = ("echo x > open", "echo x > new", "rm open", "mv open other", "mkdir dir", "ln open hard", "ln -s x soft", "chmod 777 open",
             "chown 0 open", "touch open", "truncate -s0 open", "mknod pipe p", "mknod node c 1 3",
             "mount -o remount,rw /run/volumes/0", "mount --bind /run/volumes/0 /mnt", "umount /run/volumes/0")
    with create(world.cay, ("models", "/models")) as box:
        before = {p.name: (p.lstat().st_mode, p.lstat().st_mtime_ns, p.lstat().st_size) for p in world.models.iterdir()}
        for user in ("user", "root"):
            for one in tries:
                assert box.run(f"cd /models && if {one}; then echo done; fi", user=user).out == "", (user, one)
        assert {p.name: (p.lstat().st_mode, p.lstat().st_mtime_ns, p.lstat().st_size) for p in world.models.iterdir()} == before
        assert box.write("/models/open", b"x").status >= 400 and box.write("/models/new", b"x").status >= 400
        # The control: the same commands do something in a directory of the sandbox's own.
        box.run("mkdir /own; echo y > /own/open", user="root")
        for one in tries[:tries.index("mknod node c 1 3")]:  # device nodes and mounts nothing inside may make
            assert box.run(f"cd /own && echo y > open && if {one}; then echo done; fi; rm -rf /own/*; echo y > open", user="root").out == "done\n", one


SET_ID = "stat -c %a setid; ./setid -u"


def test_set_id_programs_and_devices_do_not_work(world):
    with create(world.cay, ("models", "/models")) as box:
        assert box.run(f"cd /models; {SET_ID}").out == "6755\n1000\n"
        for user in ("user", "root"):
            assert box.run("cat /models/null && echo opened", user=user).out == ""
    # The control: outside of the sandbox both do.
    as_user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-c"]
    outside = subprocess.run([*as_user, f"cd {world.models}; {SET_ID}; cat null && echo opened"], capture_output=True, text=True)
    assert outside.stdout == "6755\n0\nopened\n", outside.stderr


CONNECT = """
import errno, fcntl, os, socket
s = socket.socket(socket.AF_UNIX)
print(errno.errorcode.get(s.connect_ex('socket')))
try:
    os.open('queue', os.O_WRONLY | os.O_NONBLOCK)
    print('None')
except OSError as e:
    print(errno.errorcode[e.errno])
try:
    fcntl.flock(os.open('weights', os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    print('None')
except OSError as e:
    print(errno.errorcode[e.errno])
"""


def test_no_program_of_the_host_is_reached(world):
    """A socket, a queue and a lock in it are this sandbox's own. The control: the same, through a read-only mount alone."""
    reader = os.open(world.models / "queue", os.O_RDONLY | os.O_NONBLOCK)
    with open(world.models / "weights") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        with create(world.cay, ("models", "/models")) as box:
            for user in ("user", "root"):
                said = box.run("/usr/bin/python3", user=user, cwd="/models", args=["-c", CONNECT])
                assert said.out.split() == ["ECONNREFUSED", "ENXIO", "None"], said.stderr
        script = f"mount --bind {world.models} /mnt && mount -o remount,bind,ro /mnt && cd /mnt && exec setpriv --reuid=1000 --clear-groups /usr/bin/python3 -c \"$0\""
        bare = subprocess.run(["unshare", "--mount", "sh", "-c", script, CONNECT], capture_output=True, text=True)
        assert bare.stdout.split() == ["None", "None", "EAGAIN"], bare.stderr
    os.close(reader)


def test_no_way_out_of_it(world):
    outside = world.base / "outside/secret"
    ways = ("out", "up", "../outside/secret", "../../outside/secret", "sub/../../outside/secret", str(outside),
            "/proc/self/cwd/../outside/secret", "/proc/self/fd/9/../outside/secret")
    with create(world.cay, ("models", "/models")) as box:
        for user in ("user", "root"):
            said = box.run(f"cd -P /models; exec 9<.; for at in {' '.join(ways)}; do cat $at && echo; done; cd -P ..; pwd; ls", user=user)
            assert said.out == "/run/volumes\n0\n", said.out
        for at in ways[:3]:
            assert box.read(f"/models/{at}").status >= 400
        # A directory that a program stands in is moved out of it by the operator: `..` of it leads nowhere else.
        held = box.run("cd -P /models/held; sleep 600 >/dev/null 2>&1 & echo $!").out.strip()
        os.rename(world.models / "held", world.base / "outside/held")
        said = box.run(f"cd -P /proc/{held}/cwd && pwd; cat ../secret ../../secret ../../outside/secret; ls ../weights ../..")
        assert said.out == "/run/volumes/0/held\n../weights\n\n../..:\n0\n", (said.out, said.stderr)
    for at in ways[:3]:  # the control: the machine's root, in the directory itself
        assert subprocess.run(["cat", at], cwd=world.models, capture_output=True, text=True).stdout == "outside", at


def test_who_may_have_which(world):
    others = Client(world.server.url, world.cay.call("POST", "/cay/v1/keys", {"tenant": "others", "label": "test"}).json["key"])
    with create(others, ("team", "/opt/team"), ("models", "/models")) as box:
        assert box.run("cat /opt/team/file; head -c 3 /models/weights").out == "teamwei"
    theirs, nothing = ask(world.cay, ("team", "/t")), ask(world.cay, ("none", "/t"))
    assert theirs.status == nothing.status == 404
    assert theirs.body.replace(b"team", b"none") == nothing.body


def test_what_cannot_be_given_is_left_out(world):
    log = world.server.log.read_text()
    for name, why in (("linked", "symbolic link"), ("closed", "chmod o+rx"), ("kernel", "is in /proc"), ("all", "has in it"),
                      ("never", "No such file")):
        reply = ask(world.cay, (name, "/m"))
        assert reply.status == 503 and "a directory of the host" in reply.json["message"], reply.body
        assert [line for line in log.splitlines() if f"directory {name} of the host" in line and why in line], name
    assert ask(world.cay, ("gone", "/proc/x")).status == 400
    for wrong in ([{"name": "models", "path": "m"}], [{"name": "models"}], [{"name": "models", "path": "/m", "readOnly": False}],
                  [{"name": "models", "path": "/m"}] * 2, [{"name": "models", "path": "/m"}, {"name": "gone", "path": "/m/x"}], {"models": "/m"},
                  [{"name": "models", "path": f"/m{n}"} for n in range(5)], [None], [{"name": 1, "path": "/m"}]):
        reply = world.cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "hostMounts": wrong})
        assert reply.status == 400, (wrong, reply.body)
    reply = world.cay.call("POST", "/v2/sandboxes", {"templateID": "host", "volumeMounts": [{"name": "models", "path": "/m", "host": "models"}]})
    assert reply.status == 404 and "volume" in reply.json["message"]


def test_it_is_kept(world):
    """Over pauses, a fork, a rollback, the end of each daemon; and it is the directory itself, not its name."""
    with create(world.cay, ("gone", "/gone"), ("models", "/models")) as box:
        has = "cat /models/weights; test -d /gone && cat /gone/file"
        (world.gone / "file").write_text("one")
        made = world.cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"]
        assert world.cay.call("POST", f"/sandboxes/{box.id}/pause", {}).status == 204
        assert resume(world.cay, box).status == 201 and box.run(has).out == "weightsone"
        assert pause_files(world.cay, box) == 204
        assert resume(world.cay, box).status == 201 and box.run(has).out == "weightsone"
        assert world.cay.call("POST", f"/cay/v1/sandboxes/{box.id}/rollback", {"snapshotID": made}).status == 200
        assert box.run(has).out == "weightsone"
        fork = world.cay.call("POST", f"/sandboxes/{box.id}/fork", {"count": 1, "timeout": 300}).json[0]["sandbox"]
        with Sandbox(world.cay, fork) as other:
            assert other.run(has).out == "weightsone"
        os.rename(world.gone, world.base / "elsewhere")
        world.gone.mkdir(mode=0o755)
        (world.gone / "file").write_text("two")
        with create(world.cay, ("gone", "/gone")) as other:
            assert other.run("cat /gone/file").out == "one"  # the one opened at the start
        for name in ("cayd", "cay-privd"):
            kill_daemons(world.server, name)
            wait_ready(world.cay)
            until(lambda: box.run(has).out == "weightsone", what=f"it is served after the end of {name}", patient=True)
        until(lambda: ask(world.cay, ("none", "/m")).status == 404, what="creates are answered", patient=True)
        reply = until(lambda: (r := ask(world.cay, ("gone", "/gone"))).status != 503 and r, what="the new one is opened", patient=True)
        with Sandbox(world.cay, reply.json) as other:
            assert other.run("cat /gone/file").out == "two"
        shutil.rmtree(world.gone)
        reply = ask(world.cay, ("gone", "/gone"))
        assert reply.status == 503 and "a directory of the host" in reply.json["message"], reply.body
        assert box.run(has).out == "weightsone"
        assert pause_files(world.cay, box) == 204
        assert resume(world.cay, box).status == 503
        assert world.cay.call("GET", f"/sandboxes/{box.id}").json["state"] == "paused"
    assert world.cay.call("DELETE", f"/templates/{made}").status == 204


def test_of_another_name():
    """cay-privd alone, and a cayd that is mistaken: a number gives only the directory of that name."""
    if os.geteuid() != 0:
        pytest.skip("cay-privd needs root")
    shared = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-host-", dir="/var/tmp"))
    shared.chmod(0o755)
    base = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-privd-", dir="/var/tmp"))
    privd = privdlib.Privd(BUILD, base, host_dir_2=f"models:{shared}", host_dir_3=f"own:{base}/state", host_dir_4=f"near:{base}/state/x").start()
    c = privd.channel()

    def status(name, number, owner, flags=3):
        mounts = [(number, flags)]
        body = create_body(name, 0).ljust(128, b"\0") + owner.ljust(96, b"\0") + struct.pack("<II", *mounts[0])
        return c.ask(2, body)

    for n, (number, owner) in enumerate(((2, b"other"), (2, b"modelsx"), (2, b"model"), (1, b"models"), (8, b"models"))):
        assert status(f"irefused{n}", number, owner).status == -errno.EPERM
    for n, (number, flags) in enumerate(((2, 2), (2, 7), (9, 3), (0, 3))):
        assert status(f"iinvalid{n}", number, b"models", flags).status == -errno.EINVAL
    assert status("iown", 3, b"own").status == -errno.ENODEV and status("inear", 4, b"near").status == -errno.ENODEV
    (shared / "file").write_text("shared")
    s = status("igood", 2, b"models")
    assert s.status == 0 and inside(privd, s, "cat /run/volumes/0/file") == "shared"
    assert c.kill(s).status == 0
    c.close()
    assert privd.stop() == 0
    shutil.rmtree(base)
    shutil.rmtree(shared)
