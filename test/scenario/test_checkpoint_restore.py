"""cay-checkpoint restores what it dumped: in another slot, on a copy of the sandbox's layer, by test/restore/restore_task.c, which does
what a task of cay-privd will do. The server that the sandbox came from has no part in it."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest

import test_seal
from conftest import BUILD
from leftovers import SLOTS_MAX
from test_checkpoint import CHECKPOINT, COUNTER, Dump, box, counts, goes_on, needs, prepare  # noqa: F401 (fixtures)
from waitlib import until

RANGE = 65536


def first_id(pid):
    return int(pathlib.Path(f"/proc/{pid}/uid_map").read_text().split()[1])


def owned_by(uid):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == uid:
                found.append(pid)
    return found


def privd_of(server):
    children = pathlib.Path(f"/proc/{server.keep_pid}/task/{server.keep_pid}/children").read_text().split()
    return next(int(pid) for pid in children if pathlib.Path(f"/proc/{pid}/comm").read_text() == "cay-privd\n")


def disk_of(server):
    """The state disk, which is mounted in cay-privd's mount namespace alone."""
    return pathlib.Path(f"/proc/{privd_of(server)}/root") / str(server.state / "privd/disk").lstrip("/")


def copy(source, to):
    subprocess.run(["cp", "-a", source, to], check=True)
    return to


@pytest.fixture(scope="module")
def template(own_server, tmp_path_factory):
    """A copy of the template host, and of what is shown at /sys."""
    place, disk = tmp_path_factory.mktemp("template"), disk_of(own_server)
    if not (disk / "layers").is_dir():
        pytest.skip("layers are in memory here: there is no btrfs")
    number = min(int(d.name) for d in (disk / "templates").iterdir() if (d / "usrmask").is_dir())
    copy(disk / "templates" / str(number), place / "template")
    copy(next(d for d in (disk / "sysview").iterdir() if len(d.name) == 16), place / "view")
    return place


def forget_overlay(layer):
    """As of a layer that is kept: without the kernel's marks of its last overlay, and cay's own two files."""
    for work in layer.glob("*.work"):
        shutil.rmtree(work / "work", ignore_errors=True)
    for name in ("hosts", "hostname", "machine-id"):
        (layer / "root/etc" / name).unlink(missing_ok=True)


def copy_layer(server, pid, to):
    slot = (first_id(pid) - server.uid_base) // RANGE
    copy(next((disk_of(server) / "layers").glob(f"{slot}.*")), to)
    forget_overlay(to)


class Image:
    """A sandbox's memory, layer and program, as of the moment in which it ended."""

    def __init__(self, server, pid, place):
        self.directory, self.layer, self.program = place / "image", place / "layer", place / "cay-init"
        self.directory.mkdir()
        prepare(pid)
        dump = Dump(pid, self.directory)
        assert dump.line() == "D\n", dump.end()
        copy_layer(server, pid, self.layer)
        self.program.write_bytes(pathlib.Path(f"/proc/{pid}/exe").read_bytes())
        self.counted = counts(pid)
        assert dump.end(b"e") == (0, "")


class Restored:
    def __init__(self, image, template, uid, **environment):
        for path in (image.directory, *image.directory.iterdir(), image.program):
            os.chown(path, uid, uid)
        image.program.chmod(0o111)
        words = [BUILD / "test/restore/restore_task", str(uid), template / "template", image.layer, template / "view", image.directory,
                 image.program, CHECKPOINT, "restored"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/",
                                        env={**os.environ, **environment})
        self.said = self.process.stdout.readline()
        found = re.fullmatch(r"P (\d+)\n", self.said)
        self.pid = int(found[1]) if found else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.said += self.process.communicate()[0]
        self.status = self.process.returncode


@pytest.fixture
def other_uid(own_server):
    """A range of the server's that its sandboxes have not come to."""
    return own_server.uid_base + (SLOTS_MAX - 1) * RANGE


def status_of(pid):
    return dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def processes(pid):
    """Of a sandbox, by name."""
    user = os.readlink(f"/proc/{pid}/ns/user")
    found = {}
    for p in pathlib.Path("/proc").iterdir():
        try:
            if p.name.isdigit() and os.readlink(p / "ns/user") == user and os.readlink(p / "ns/pid") == os.readlink(f"/proc/{pid}/ns/pid"):
                found[(p / "comm").read_text().strip()] = int(p.name)
        except OSError:
            continue
    return found


def walls(pid, outer=0):
    """Of PID 1 and the counter; outer: how many filters of its are cay-privd's own, which it inherited."""
    found, there = {}, processes(pid)
    for name in ("cay-init", "sh"):
        status = status_of(there[name])
        found[name] = {key: status[key] for key in ("Seccomp", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")}
        found[name]["filters"] = int(status["Seccomp_filters"]) - outer
        found[name]["ids"] = [int(n) - first_id(pid) for key in ("Uid", "Gid", "Groups") for n in status[key].split()]
    return found


def asks_for_its_key(pid):
    """cay-init answers, in the sandbox's network: without the key that cayd has, it says so."""
    asked = ["nsenter", f"--net=/proc/{pid}/ns/net", "curl", "-s", "-m", "30", "-o", "/dev/null", "-w", "%{http_code}",
             "http://127.0.0.1:49983/health"]
    return subprocess.run(asked, capture_output=True, text=True).stdout == "401"


def test_a_restored_sandbox_lives(own_server, box, template, other_uid, tmp_path):
    """Its counter counts on, in another range of ids, behind the same walls, with the files that it had in memory; cay-init answers."""
    assert box.run(COUNTER + "sleep 0.3; echo kept > /run/kept; echo kept > /dev/shm/kept", user="root").exit_code == 0
    assert asks_for_its_key(box.pid)
    before = walls(box.pid, outer=int(status_of(privd_of(own_server))["Seccomp_filters"]))
    image = Image(own_server, box.pid, tmp_path)
    with Restored(image, template, other_uid) as restored:
        assert restored.pid, restored.said
        assert counts(restored.pid) >= image.counted > 0
        goes_on(restored.pid)
        assert first_id(restored.pid) == other_uid
        after = walls(restored.pid)
        assert after == before and after["sh"]["filters"] == 2
        for place in ("run/kept", "dev/shm/kept"):
            assert (pathlib.Path(f"/proc/{restored.pid}/root") / place).read_text() == "kept\n"
        assert asks_for_its_key(restored.pid)
    assert restored.status == 0
    until(lambda: not pathlib.Path(f"/proc/{restored.pid}").exists())


def test_clocks_go_on_from_where_they_stood(own_server, box, template, other_uid, tmp_path):
    # Renamed, so that no reader and no dump meets it half written.
    clock = ("import os, time\nwhile True:\n"
             "  with open('/tmp/clock.new', 'w') as f: f.write(f'{time.monotonic()} {time.clock_gettime(time.CLOCK_BOOTTIME)}')\n"
             "  os.replace('/tmp/clock.new', '/tmp/clock')\n  time.sleep(0.05)")
    assert box.run(COUNTER + f"setsid python3 -c \"{clock}\" > /dev/null 2>&1 < /dev/null & sleep 1", user="root").exit_code == 0
    image = Image(own_server, box.pid, tmp_path)

    def read(path):
        return [float(n) for n in path.read_text().split()]

    stood, by_host = read(image.layer / "root/tmp/clock"), time.monotonic()
    time.sleep(3)
    with Restored(image, template, other_uid) as restored:
        assert restored.pid, restored.said
        path = pathlib.Path(f"/proc/{restored.pid}/root/tmp/clock")
        until(lambda: read(path)[0] > stood[0])
        went = [b - a for a, b in zip(stood, read(path), strict=True)]
        passed = time.monotonic() - by_host
    assert all(0 < w < passed - 2.5 for w in went), (went, passed)


def test_an_image_comes_back_through_a_sealed_file(own_server, box, template, other_uid, tmp_path):
    """Sealed by the range that it was dumped in, opened by the one that it is restored in."""
    assert box.run(COUNTER + "sleep 0.3", user="root").exit_code == 0
    uid = first_id(box.pid)
    image, sealed = Image(own_server, box.pid, tmp_path), tmp_path / "sealed"
    assert test_seal.start("seal", image.directory, sealed, uid=uid) == (0, "")
    shutil.rmtree(image.directory)
    image.directory.mkdir()
    os.chown(image.directory, other_uid, other_uid)
    assert test_seal.start("open", image.directory, sealed, uid=other_uid) == (0, "")
    with Restored(image, template, other_uid) as restored:
        assert restored.pid, restored.said
        goes_on(restored.pid)


@pytest.mark.parametrize("name", ["mm-1.img", "core-1.img", "pagemap-1.img"])
def test_an_image_in_which_a_file_is_missing_is_refused(own_server, box, template, other_uid, tmp_path, name):
    """CRIU takes a process without a file of its memory for one without memory. Control: with that file it is restored."""
    assert box.run(COUNTER + "sleep 0.3", user="root").exit_code == 0
    image = Image(own_server, box.pid, tmp_path)
    (image.directory / name).rename(tmp_path / name)
    with Restored(image, template, other_uid) as restored:
        assert restored.pid is None
    assert restored.status == 1 and f"E 74 the image has no {name} that is whole\n" in restored.said
    (tmp_path / name).rename(image.directory / name)
    forget_overlay(image.layer)
    with Restored(image, template, other_uid) as restored:
        assert restored.pid, restored.said
        goes_on(restored.pid)


def test_a_process_that_is_gone_ends_the_restore_at_once(own_server, box, template, other_uid, tmp_path):
    """CRIU writes that it cannot attach to it, or do more with it, and then waits for it: it is ended long before its deadline. Control: with it, it is restored."""
    assert box.run(COUNTER + "sleep 0.3", user="root").exit_code == 0
    image = Image(own_server, box.pid, tmp_path)
    with Restored(image, template, other_uid, CAY_TEST_KILL_CHILD="1") as restored:
        assert restored.pid is None
    assert restored.status == 1 and re.search(r"E 5 CRIU: Error \(.*(attach|No such process)", restored.said), restored.said
    forget_overlay(image.layer)
    with Restored(image, template, other_uid) as restored:
        assert restored.pid, restored.said
        goes_on(restored.pid)


def test_one_that_its_starter_does_not_want_ends_at_once(own_server, box, template, other_uid, tmp_path):
    """CRIU waits for its last action script, which gets no answer: it is ended long before its deadline (E 110), and all that it has made."""
    assert box.run(COUNTER + "sleep 0.3", user="root").exit_code == 0
    image = Image(own_server, box.pid, tmp_path)
    with Restored(image, template, other_uid, CAY_TEST_UNWANTED="1") as restored:
        assert restored.pid is None
    assert restored.status == 1 and restored.said.startswith("E 5 "), restored.said
    until(lambda: owned_by(other_uid) == [], what="the end of all that it has made")


def test_what_runs_is_root_of_its_own_alone(own_server, box, template, other_uid, tmp_path):
    """Nothing that was restored, and nothing that restored it, is in a user namespace or mount namespace of the host's."""
    assert box.run(COUNTER + "sleep 0.3", user="root").exit_code == 0
    image = Image(own_server, box.pid, tmp_path)
    with Restored(image, template, other_uid) as restored:
        assert restored.pid, restored.said
        for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
            assert os.readlink(f"/proc/{restored.pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"), kind
        mounts = pathlib.Path(f"/proc/{restored.pid}/mountinfo").read_text()
        assert "/tmp/" not in mounts and str(tmp_path) not in mounts
        held = {os.readlink(f"/proc/{restored.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{restored.pid}/fd")}
        assert not any(str(tmp_path) in to or "filters" in to for to in held), held


def test_one_that_was_restored_is_dumped_and_restored_again(own_server, box, template, other_uid, tmp_path):
    assert box.run(COUNTER + "sleep 0.3", user="root").exit_code == 0
    image, again = Image(own_server, box.pid, tmp_path), tmp_path / "again"
    again.mkdir()
    with Restored(image, template, other_uid) as restored:
        assert restored.pid, restored.said
        goes_on(restored.pid)
        prepare(restored.pid)
        dump = Dump(restored.pid, again)
        assert dump.line() == "D\n", dump.end()
        counted = counts(restored.pid)
        assert dump.end(b"e") == (0, "")
    forget_overlay(image.layer)
    image.directory = again
    with Restored(image, template, other_uid) as restored:
        assert restored.pid, restored.said
        assert counts(restored.pid) >= counted
        goes_on(restored.pid)
