"""SIGKILL of each program while the image of a build is unpacked, and while an image that nothing stands on any more is given
back: the build ends with an error, all that there is of the image goes, and the same build is made again. Debian's
docker-registry, in the stand-in internet."""

import contextlib
import fcntl
import os
import signal
import types

import pytest
from egresslib import internet
from imagelib import layout, tar
from importerlib import folder, shell
from test_pause_files import crash
from test_recovery import wait_ready
from test_template_builder import ended, request, start
from test_template_images import ALLOWED, built, cay, images, name, stack_with  # noqa: F401 (some are fixtures)
from test_template_import_kills import kill, of_import, unfinished
from waitlib import stop_one, until

IMAGE = f"{ALLOWED}/team/many:v1"
FILES = 30_000  # a step long enough to be found under way


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    base = tmp_path_factory.mktemp("registries")
    with stack_with(base, ((ALLOWED, False, internet.OTHER),), f"--images-registries={ALLOWED}/team") as stack:
        many = tar(("etc", "dir"), ("etc/first", "file", {"data": b"low\n"}), ("many", "dir"),
                   *((f"many/{n}", "file") for n in range(FILES)), ("etc/last", "file", {"data": b"whole\n"}))
        layout(base / "many", [shell(), many])
        stack.registries.push(base / "many", "5000/team/many:v1")
        stack.own = types.SimpleNamespace(own=stack.server)  # as the tests of imports have theirs
        yield stack


def end(world, victim, held):
    """Ends the victim while these, which do the work, stand still; who asked for the work is not who does it."""
    if victim == "all":
        crash(world.server)
        world.server.start()
        return
    kill(world.own, victim, None)
    if victim == "cayd":
        for pid in held:
            os.kill(pid, signal.SIGCONT)


def check_nothing_is_left(world, cay):  # noqa: F811
    wait_ready(cay)
    until(lambda: not of_import(world.own, "cay-unpack") and not of_import(world.own, "cay-job"), 60, "no job runs")
    until(lambda: images(cay) == [], 60, lambda: f"the images are gone: {images(cay)}")
    until(lambda: unfinished(world.own) == [], 60, lambda: f"the disk has none of it: {unfinished(world.own)}")


def check_it_is_made_again(cay, name):  # noqa: F811
    assert "CACHED" not in " ".join(built(cay, name, IMAGE))
    with cay.create(template=name) as box:
        assert box.run("read x < /etc/last; echo $x; cd /many; set -- *; echo $#").out == f"whole\n{FILES}\n"


@pytest.mark.parametrize("victim", ["cayd", "cay-privd", "cay-job", "cay-unpack", "all"])
def test_killed_while_it_is_unpacked(world, cay, name, victim):  # noqa: F811
    made = request(cay, name)
    assert start(cay, made, fromTemplate=None, fromImage=IMAGE).status == 202
    held = stop_one(lambda: of_import(world.own, "cay-unpack"), what="it is being unpacked")
    end(world, victim, [held])
    wait_ready(cay)
    said = ended(cay, made)
    assert said["status"] == "error" and said["reason"]["step"] == "base", said
    check_nothing_is_left(world, cay)
    check_it_is_made_again(cay, name)


@contextlib.contextmanager
def in_the_middle(world):
    """A removal that has begun: the tree has another name, and stays, as the job waits for the lock of layers."""
    lock = os.open(folder(world.own) / ".layers", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lambda: until(lambda: [one for one in unfinished(world.own) if one.startswith(".old-")], 60, "its removal has begun")
    finally:
        os.close(lock)


@pytest.mark.parametrize("victim", ["cayd", "cay-privd", "cay-job", "all"])
def test_killed_while_it_is_given_back(world, cay, name, victim):  # noqa: F811
    built(cay, name, IMAGE)
    with in_the_middle(world) as wait:
        assert cay.call("DELETE", f"/templates/{name}").status == 204
        wait()
        end(world, victim, [])
    check_nothing_is_left(world, cay)
    check_it_is_made_again(cay, name)
