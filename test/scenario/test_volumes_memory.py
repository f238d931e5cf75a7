"""Volumes of a sandbox whose memory is on the disk: they are others' meanwhile, who may have changed each name in them. Names are opened
through no link; what would be made anew by its name there, or has no name, is refused when it is paused."""

import pytest

from test_dump import needs  # noqa: F401 (fixture)
from test_pause import state
from test_pause_memory import kept, own, pause, resume, start  # noqa: F401 (fixtures)
from test_volumes import with_volume
from waitlib import until

HOLDS = """
import os, time
held = os.open("/w/dir", os.O_RDONLY | os.O_DIRECTORY)
open("/tmp/ready", "w").close()
while not os.path.exists("/tmp/go"):
    time.sleep(0.02)
open("/tmp/new", "w").write(" ".join(sorted(os.listdir(held))) or "nothing")
os.rename("/tmp/new", "/tmp/found")
time.sleep(600)
"""
REMOVED = """
import os, time
held = open("/w/file", "w")
os.remove("/w/file")
open("/tmp/ready", "w").close()
time.sleep(600)
"""
IN_FLIGHT = """
import os, socket, time
a, b = socket.socketpair()
held = os.open("/w/file", os.O_RDWR | os.O_CREAT)
socket.send_fds(a, [b"x"], [held])
os.close(held)
os.remove("/w/file")
open("/tmp/ready", "w").close()
time.sleep(600)
"""
MAPPED = """
import mmap, os, time
with open("/w/file", "w+b") as held:
    held.write(bytes(4096))
    held.flush()
    area = mmap.mmap(held.fileno(), 4096)
os.remove("/w/file")
open("/tmp/ready", "w").close()
time.sleep(600)
"""
SOCKET = """
import socket, time
s = socket.socket(socket.AF_UNIX)
s.bind("/w/socket")
s.listen()
open("/tmp/ready", "w").close()
time.sleep(600)
"""
NETLINK = """
import socket, time
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
open("/tmp/ready", "w").close()
time.sleep(600)
"""


@pytest.fixture
def volume(kept):  # noqa: F811
    assert kept.call("POST", "/cay/v1/volumes", {"name": "w", "sizeBytes": 64 << 20}).status == 201
    yield "w"
    for one in kept.call("GET", "/v2/sandboxes?state=running,paused").json:
        kept.call("DELETE", f"/sandboxes/{one['sandboxID']}")
    until(lambda: kept.call("DELETE", "/volumes/w").status in (204, 404), 20, "it is removed")


def holder(client, code, name="w", before="true"):
    """A sandbox with the volume, and a program of its user that has begun."""
    box = with_volume(client, (name, "/w"))
    assert box.run(before).exit_code == 0
    start(box, "holds", code)
    until(lambda: box.run("test -e /tmp/ready").exit_code == 0, 20, "it holds it")
    return box


def changed_by_another(client, script):
    with with_volume(client, ("w", "/w")) as other:
        assert other.run(script).exit_code == 0
    until(lambda: not client.call("GET", "/cay/v1/volumes").json[0]["sandboxes"][1:], 20, "it has ended")


def resumed(client, box):
    return until(lambda: (r := resume(client, box)).status != 409 and r, 20, "the volume is free")


@pytest.mark.parametrize("target", ["/etc", "/proc/self/fd/121/..", "other"])
def test_a_directory_that_became_a_link_is_not_followed(kept, volume, target):  # noqa: F811
    box = holder(kept, HOLDS, before="mkdir /w/dir /w/other")
    assert pause(kept, box).status == 200
    changed_by_another(kept, f"rmdir /w/dir && ln -s {target} /w/dir")
    reply = resumed(kept, box)
    assert reply.status == 500 and "does not come back" in reply.json["message"], reply.body
    assert state(kept, box) == "paused"


def test_a_directory_of_the_same_name_is_opened(kept, volume):  # noqa: F811
    """The control: it is the name that is opened."""
    box = holder(kept, HOLDS, before="mkdir /w/dir")
    assert pause(kept, box).status == 200
    changed_by_another(kept, "rmdir /w/dir && mkdir /w/dir && touch /w/dir/new")
    assert resumed(kept, box).status == 201
    box.run("touch /tmp/go")
    assert until(lambda: box.run("cat /tmp/found").out, 20, "it goes on") == "new"


@pytest.mark.parametrize("script", ["mkfifo {0}", "ln {1} {0}"], ids=["FIFO", "link to a FIFO"])
def test_a_file_that_became_a_fifo_holds_nothing_up(kept, own, volume, script):  # noqa: F811
    """CRIU would wait in its opening, with a place of those that all tenants' restores have. Control: the file again."""
    box = holder(kept, HOLDS.replace("os.O_RDONLY | os.O_DIRECTORY", "os.O_RDONLY").replace("os.listdir(held)", "os.read(held, 9).decode()"),
                 before="echo -n abc > /w/dir; ls > /w/other; mkfifo /w/queue")
    assert pause(kept, box).status == 200
    changed_by_another(kept, "mv /w/dir /w/file && " + script.format("/w/dir", "/w/queue"))
    log = len(own.log.read_text())
    reply = resumed(kept, box)
    assert reply.status == 500 and "does not come back" in reply.json["message"], reply.body
    assert "/dir, which a program has open, is no file any more" in own.log.read_text()[log:]
    changed_by_another(kept, "rm /w/dir && mv /w/file /w/dir")
    assert resumed(kept, box).status == 201
    box.run("touch /tmp/go")
    assert until(lambda: box.run("cat /tmp/found").out, 20, "it goes on") == "a b c"


@pytest.mark.parametrize("code, said", [(REMOVED, "removed there"), (IN_FLIGHT, "removed there"), (MAPPED, "mapfil"),
                                        (SOCKET, "socket whose name is in a volume"), (NETLINK, "netlink socket")],
                         ids=["removed", "in flight", "mapped", "socket", "netlink"])
def test_refused_by_name(kept, volume, code, said):  # noqa: F811
    box = holder(kept, code)
    reply = pause(kept, box)
    assert reply.status == 501 and said in reply.json["message"], reply.body
    assert state(kept, box) == "running" and box.run("pkill -x python3; rm -f /w/socket; echo ended").out == "ended\n"
    assert until(lambda: (r := pause(kept, box)).status != 501 and r, 20, "nothing is in the way").status == 200  # control


def test_owner_and_mode_of_a_volume_are_what_another_made_them(kept, volume):  # noqa: F811
    box = holder(kept, HOLDS, before="mkdir /w/dir && chmod 700 /w/.")
    assert pause(kept, box).status == 200
    changed_by_another(kept, "chmod 711 /w/.")
    assert resumed(kept, box).status == 201
    assert box.run("stat -Lc %a /w").out == "711\n"


def test_a_volume_that_is_only_read(kept, volume):  # noqa: F811
    changed_by_another(kept, "mkdir /w/dir && touch /w/dir/one")
    box = holder(kept, HOLDS, name="w:ro")
    assert pause(kept, box).status == 200
    assert resumed(kept, box).status == 201
    box.run("touch /tmp/go")
    assert until(lambda: box.run("cat /tmp/found").out, 20, "it goes on") == "one"
    assert box.run("touch /w/x").exit_code != 0
