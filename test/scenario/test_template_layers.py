"""Layers of images are on the disk once for all templates that have them, and go with the last: layers kept, those not shared, the
remainders of a removal and of a killed job. Sharing is read from the file system: subvolumes, and bytes that are used."""

import concurrent.futures
import fcntl
import os
import signal
import subprocess
import time
import types

import pytest
from client import Client
from conftest import BUILD, OwnServer
from imagelib import layout, tar
from importerlib import cli, entry, folder, kept, shell  # noqa: F401 - cli is a fixture
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from test_template_import_kills import of_import
from waitlib import until

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="images are imported by root"), pytest.mark.usefixtures("needs_a_disk")]
MIB = 1 << 20
BIG = 24 * MIB
SLOW_INODES = 200_000  # takes seconds


def random_layer(*names, size=BIG):
    return tar(*((name, "file", {"data": os.urandom(size)}) for name in names))


def used(server):
    """Bytes of the state disk that are in use once all has come there and removed ones are given back."""
    where = folder(server)
    last = None
    for _ in range(100):
        os.sync()
        st = os.statvfs(where)
        now = (st.f_blocks - st.f_bfree) * st.f_frsize
        if now == last:
            return now
        last = now
        time.sleep(0.3)
    return last


def remove(cli, *names):
    for name in names:
        until(lambda: cli("template", "rm", name).returncode == 0, what=f"{name} is removed")


@pytest.fixture
def names(cli):
    """Names of templates that the test may make; they are gone afterwards, and so is every layer."""
    made = [f"layered-{i}" for i in range(4)]
    yield made
    for name in made:
        cli("template", "rm", name)


@pytest.fixture(autouse=True)
def nothing_is_kept(server, cay):
    yield
    if server.own:
        until(lambda: kept(server) == [], what=lambda: f"no layer is left: {kept(server)}")


def imported(cli, where, name):
    done = cli.imported(f"oci:{where}", name=name)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def reads(cay, template, path):
    with cay.create(template=template) as box:
        return box.run(f"[ -e {path} ] && echo there").out


def test_they_are_there_once(cli, cay, server, names, tmp_path):
    """Two images with two layers in common: the second takes no more than its own layer does, and each goes with its last user."""
    common = [shell(), random_layer("common/big")]
    layout(tmp_path / "a", [*common, random_layer("own/a")])
    layout(tmp_path / "b", [*common, random_layer("own/b")])
    empty = used(server)
    imported(cli, tmp_path / "a", names[0])
    first = used(server)
    assert first - empty > 2 * BIG and len(kept(server)) == 3
    imported(cli, tmp_path / "b", names[1])
    second = used(server)
    assert BIG < second - first < 1.5 * BIG and len(kept(server)) == 4
    # each is charged whole
    assert all(entry(cay, name)["sizeBytes"] > 2 * BIG for name in names[:2])
    assert reads(cay, names[0], "/own/a") == reads(cay, names[1], "/own/b") == "there\n"
    assert reads(cay, names[0], "/own/b") == reads(cay, names[1], "/own/a") == ""
    remove(cli, names[0])
    until(lambda: len(kept(server)) == 3, what="the layer that it alone had is gone")
    assert reads(cay, names[1], "/common/big") == "there\n"
    until(lambda: used(server) < first + BIG / 2, what="its bytes are given back")
    remove(cli, names[1])
    until(lambda: kept(server) == [], what="all are gone")
    until(lambda: used(server) < empty + BIG / 2, what="all bytes are given back")


def test_the_same_image_under_two_names(cli, cay, server, names, tmp_path):
    layout(tmp_path / "a", [shell(), random_layer("big"), tar(("etc", "dir"), ("etc/last", "file", {"data": b"x\n"}))])
    imported(cli, tmp_path / "a", names[0])
    before, layers = used(server), kept(server)
    imported(cli, tmp_path / "a", names[1])
    assert used(server) - before < BIG / 2 and kept(server) == layers
    remove(cli, names[0])
    assert kept(server) == layers and reads(cay, names[1], "/etc/last") == "there\n"


def test_what_stands_on_one_goes_on(cli, cay, server, names, tmp_path):
    """A sandbox, a snapshot and a fork on one template while another with the same layers, from which they came, is removed."""
    layout(tmp_path / "a", [shell(), tar(("srv", "dir"), ("srv/low", "file", {"data": b"low\n"}))])
    imported(cli, tmp_path / "a", names[0])
    imported(cli, tmp_path / "a", names[1])
    with cay.create(template=names[1]) as box:
        assert box.run("echo own > /tmp/own").exit_code == 0
        snapshot = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"]
        remove(cli, names[0])
        assert cli("template", "rm", names[1]).returncode != 0 and len(kept(server)) == 2
        assert box.run("read x < /srv/low; echo $x").out == "low\n"
    assert cli("template", "rm", names[1]).returncode != 0  # the snapshot stands on it
    with cay.create(template=snapshot) as box:
        assert box.run("read x < /srv/low; read y < /tmp/own; echo $x $y").out == "low own\n"
    assert len(kept(server)) == 2
    assert cay.call("DELETE", f"/templates/{snapshot}").status == 204


def test_an_order_of_layers_is_another_image(cli, cay, server, names, tmp_path):
    """Layers are shared from the lowest on: the same two the other way round have nothing in common, and a white-out hides."""
    one, two = tar(("x", "file", {"data": b"1\n"})), tar(("x", "file", {"data": b"2\n"}))
    hides = tar((".wh.x", "file"))
    for i, layers in enumerate(([one, two], [two, one], [one, two, hides])):
        layout(tmp_path / str(i), [shell(), *layers])
        imported(cli, tmp_path / str(i), names[i])
    for name, said in zip(names, ("2\n", "1\n", "")):
        with cay.create(template=name) as box:
            assert box.run("[ -e /x ] && read x < /x && echo $x").out == said
    assert len(kept(server)) == 6


def test_what_was_replaced_is_charged(cli, cay, server, names, tmp_path):
    """A layer keeps what a higher one replaces, so that it counts: an image cannot have more than it says that it takes."""
    layout(tmp_path / "a", [shell(), *(random_layer("big") for _ in range(3)), tar((".wh.big", "file"))])
    imported(cli, tmp_path / "a", names[0])
    assert entry(cay, names[0])["sizeBytes"] >= 3 * BIG
    assert reads(cay, names[0], "/big") == ""


def test_a_layer_that_cannot_be_read_leaves_those_below(cli, cay, server, names, tmp_path):
    layout(tmp_path / "bad", [shell(), tar(("x", "file")), tar(("../x", "file"))])
    done = cli.imported(f"oci:{tmp_path}/bad", name=names[0])
    assert done.returncode == 1 and "layer 3" in done.stderr, done.stderr
    until(lambda: kept(server) == [], what="the layers that it made are gone: nothing stands on them")
    layout(tmp_path / "good", [shell(), tar(("x", "file"))])
    imported(cli, tmp_path / "good", names[0])
    assert reads(cay, names[0], "/x") == "there\n"


def set_writable(subvolume, writable):
    """BTRFS_IOC_SUBVOL_SETFLAGS with BTRFS_SUBVOL_RDONLY or nothing."""
    fd = os.open(subvolume, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, 0x4008941A, (0 if writable else 2).to_bytes(8, "little"))
    finally:
        os.close(fd)


def test_limits_hold_over_layers(cli, server, names, tmp_path):
    """Entries are counted for the image, also where its lower layers were there: what these have is handed on."""
    low = [shell(), tar(*((f"d/{i}", "file") for i in range(100)))]
    layout(tmp_path / "a", low)
    imported(cli, tmp_path / "a", names[0])
    counts = max((folder(server) / ".layers" / name / "counts" for name in kept(server)), key=lambda path: int(path.read_text().split(",", 1)[0]))
    entries, rest = counts.read_text().split(",", 1)
    assert int(entries) > 100
    set_writable(counts.parent, True)
    counts.write_text(f"999999,{rest}")
    set_writable(counts.parent, False)
    layout(tmp_path / "b", [*low, tar(("x", "file"))])
    imported(cli, tmp_path / "b", names[1])  # the control: a million
    layout(tmp_path / "c", [*low, tar(("x", "file"), ("y", "file"))])
    done = cli.imported(f"oci:{tmp_path}/c", name=names[2])
    assert done.returncode == 1 and "over 1000000 entries" in done.stderr, done.stderr


def test_blocks_of_names_that_layers_keep_are_charged(cli, cay, server, names, tmp_path):
    """Empty files have no bytes; a layer that makes a few of many anew keeps a copy of each block that has their names."""
    files = [f"many/{i:05}" for i in range(20_000)]
    again = [tar(*((one, "file", {"mode": 0o600 + i}) for one in files[::25])) for i in range(8)]
    layout(tmp_path / "a", [shell(), tar(*((one, "file") for one in files)), *again])
    imported(cli, tmp_path / "a", names[0])
    tree = max((one / "rootfs" for one in folder(server).glob("[2-9]*")), key=lambda one: int(one.parent.name))
    contents = sum(one.lstat().st_size for one in tree.rglob("*") if one.is_file() and not one.is_symlink())
    assert len(list((tree / "many").iterdir())) == 20_000 and contents < 4 * MIB  # the control: what its files have
    assert entry(cay, names[0])["sizeBytes"] > contents + 16 * MIB


def test_one_image_imported_twice_at_a_time(cli, cay, server, names, tmp_path):
    """Both jobs begin where no layer is kept, as neither gets on before the lock is free: each layer is kept once, both templates are whole."""
    where = folder(server) / ".layers"
    where.mkdir(mode=0o700, exist_ok=True)
    layout(tmp_path / "a", [random_layer("big"), shell(), tar(("last", "file", {"data": b"x\n"}))])
    lock = os.open(where, os.O_RDONLY | os.O_DIRECTORY)
    with concurrent.futures.ThreadPoolExecutor(2) as both:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            made = [both.submit(imported, cli, tmp_path / "a", name) for name in names[:2]]
            until(lambda: len(of_import(server, "cay-job")) == 2, 60, "both have a job")
        finally:
            os.close(lock)
        assert not any("are there already" in one.result() for one in made)
    assert len(kept(server)) == 3
    remove(cli, names[0])
    assert len(kept(server)) == 3 and reads(cay, names[1], "/last") == "there\n"


def test_layers_of_a_failed_image_go_while_sandboxes_run(cli, cay, server, names, tmp_path):
    """The sweep of all waits until no sandbox runs, which may be never: a failed image's layers do not wait for it."""
    layout(tmp_path / "bad", [shell(), random_layer("big"), tar(("../x", "file"))])
    with cay.create() as box:
        assert cli.imported(f"oci:{tmp_path}/bad", name=names[0]).returncode == 1
        assert kept(server) == []
        assert box.run("echo on").out == "on\n"


def test_killed_while_the_first_tree_is_made(tmp_path):
    """The seed, whose inode numbers are being raised: the next image goes on with it, and nothing is left of the broken-off one."""
    own = OwnServer(privd_args=(f"--template-inodes={SLOW_INODES}",))
    try:
        world, client = types.SimpleNamespace(own=own, url=own.url, key=own.key()), Client(own.url, own.key())
        layout(tmp_path / "a", [shell(), tar(("etc", "dir"), ("etc/last", "file", {"data": b"x\n"}))])
        words = [BUILD / "src/cli/cay", "template", "import", f"--state-dir={own.state}"]
        env = {**os.environ, "CAY_URL": own.url, "E2B_API_KEY": world.key}
        with subprocess.Popen([*words, "first", f"oci:{tmp_path}/a"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as first:
            seed = folder(world) / ".layers/.seed"
            until((seed / "inodes").exists, 60, "it is being made", every=0.002)
            for pid in of_import(world, "cay-job"):
                os.kill(pid, signal.SIGKILL)
            said = first.communicate(timeout=100)[1]
        assert first.returncode == 1 and seed.exists(), said
        again = subprocess.run([*words, "second", f"oci:{tmp_path}/a"], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, timeout=100)
        assert again.returncode == 0, again.stderr
        assert sorted(os.listdir(seed.parent)) == sorted([f"seed-{SLOW_INODES}", *kept(world)])
        with client.create(template="second") as box:
            assert box.run("read x < /etc/last; echo $x").out == "x\n"
        assert [last.stat().st_ino >= SLOW_INODES for last in folder(world).glob("[2-9]*/rootfs/etc/last")] == [True]
    finally:
        own.stop()
