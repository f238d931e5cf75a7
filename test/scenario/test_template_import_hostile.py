"""Hostile images by the whole way: `cay template import`, the daemons, the job, cay-unpack, and a sandbox of what was taken. The
effect of each archive where these defences are not is in test_unpack.py, beside its control."""

import gzip
import os
import pathlib

import pytest
from imagelib import layout, tar
from importerlib import cli, entry, left, shell, templates  # noqa: F401 - cli is a fixture
from test_unpack import sparse

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="images are imported by root")


@pytest.fixture
def outside(server):
    """A part of the host that an archive could reach: it stays as it is."""
    if not server.own:
        pytest.skip("it needs a server of its own")
    state = server.own.state
    key = state / "cayd/api-key"

    def look():
        names = [str(p) for folder in ("/", "/etc", "/tmp", state) if (p := pathlib.Path(folder) / "new").exists()]
        return names, key.read_bytes(), key.stat().st_nlink, key.stat().st_mode, sorted(p.name for p in state.iterdir()), \
            [name for name in templates(server) if not name.startswith(".")]
    before = look()
    yield state
    assert look() == before


def test_archives_that_are_refused(cli, server, cay, outside, tmp_path):  # noqa: F811
    """The archives, one after another in one server: nothing stays of any, and each is told from the others."""
    key = outside / "cayd/api-key"
    cases = {
        "is absolute": [tar((str(outside / "new"), "file"))],
        "leads upwards": [tar(("../../../../../../../../etc/new", "file"))],
        "goes through what is no folder but a link": [tar(("way", "link", {"to": str(outside)})), tar(("way/new", "file"))],
        "goes through": [tar(("proc", "link", {"to": "/proc/1/root"}), ("proc/tmp/new", "file"))],
        "layer 2: mine is a hard link to way/api-key, which is no file here":
            [tar(("way", "link", {"to": str(key.parent)})), tar(("mine", "hard", {"to": "way/api-key"}))],
        "mine is a hard link to nowhere, which is no file here": [tar(("mine", "hard", {"to": "nowhere"}))],
        "is a white-out of no name": [tar(("a", "dir")), tar(("a/.wh...", "file"))],
        "the image has over 32 GiB": [sparse(1 << 40)],
        "is compressed more than once": [gzip.compress(tar(("zeros", "file", {"data": bytes(1 << 20)})))],
        "ids go up to 65535": [tar(("big", "file", {"uid": 1 << 24}))],
        "has a part of over 255 bytes": [tar(("n" * 256, "file"))],
        "folders deep": [tar(("/".join(["d"] * 150), "file"))],
        "allowed are 1 to 128": [tar((str(i), "file")) for i in range(129)],
        "no id from 1000 to 59999": [tar(("etc/passwd", "file", {"data": b"".join(b"::%d:::/:\n" % i for i in range(1000, 60000))}))],
    }
    for number, (said, layers) in enumerate(cases.items()):
        layout(tmp_path / str(number), layers)
        done = cli.imported(f"oci:{tmp_path}/{number}")
        assert done.returncode == 1 and said in done.stderr, done.stderr
        assert left(server, cay) == [], said


def test_what_a_name_says_does_no_harm_to_a_terminal_or_the_log(cli, server, tmp_path):  # noqa: F811
    layout(tmp_path / "layout", [tar(("\x1b]0;owned\x07\nE 0 done\ncaf\udce9" + "n" * 300, "file"))])
    done = cli.imported(f"oci:{tmp_path}/layout")
    assert done.returncode == 1 and "has a part of over 255 bytes" in done.stderr
    assert "\x1b" not in done.stderr and "\x07" not in done.stderr and "\nE 0 done" not in done.stderr
    if server.own:  # its log is text, for all who read it
        told = [line for line in server.own.log.read_bytes().splitlines() if b"owned" in line]
        assert told and all(b"E 0 done?caf?nnn" in line for line in told), told


def test_a_folder_with_lines_in_its_name_says_nothing_for_the_unpacker(cli, tmp_path):  # noqa: F811
    """It would say that the import has failed, and why."""
    layout(tmp_path / "layout", [shell()], {"WorkingDir": "/srv/a\nE 28 the disk is full"})
    made = cli.imported(f"oci:{tmp_path}/layout")
    assert made.returncode == 0 and "added the folder /srv/a?E 28 the disk is full" in made.stderr, made.stderr
    assert cli("template", "rm", "made").returncode == 0


LINKS = [(name, "link", {"to": to}) for name, to in (
    ("dev", "/proc/1/root/dev"), ("proc", "/"), ("sys", "/etc"), ("run", "/etc"), ("etc/cay", "/etc"), ("etc/resolv.conf", "/etc/shadow"),
    ("etc/group", "/etc/shadow"), ("home/user", "/etc"), ("bin/bash", "/etc/shadow"), ("tmp", "/etc"), ("out", "/proc/1/root/etc"))]


def test_what_is_taken_is_the_sandboxs_alone(cli, cay, outside, tmp_path):  # noqa: F811
    """Links in the place of all that cay adds or mounts, devices, set-id programs, an account of the image's with root's id."""
    host = os.uname().nodename
    layers = [shell(), tar(("etc", "dir"), ("etc/shadow", "file", {"data": b"the image's own\n", "mode": 0o600}), *LINKS),
              tar(("null", "char", {"device": (1, 3)}), ("disk", "char", {"device": (8, 0)}), ("pipe", "fifo"),
                  ("bin/su", "file", {"mode": 0o6755, "data": b"#!/bin/sh\n"}),
                  ("etc/passwd", "file", {"data": b"toor::0:0::/:/bin/sh\nuser:x:0:0::/:/bin/sh\n"}),
                  ("etc/hostname", "file", {"data": b"of the image\n"}))]
    layout(tmp_path / "layout", layers, {"WorkingDir": "/made/by/cay"})
    made = cli.imported(f"oci:{tmp_path}/layout")
    assert made.returncode == 0, made.stderr
    assert "left out 3 devices, FIFOs and sockets" in made.stderr and "added the folder /made/by/cay" in made.stderr
    with cay.create(template="made") as box:
        def sh(text):
            return box.run(text, user="root").out
        assert sh("test -e /null || test -e /disk || test -e /pipe || echo none") == "none\n"
        assert sh("read x < /etc/shadow; echo $x") == "the image's own\n"  # by no link was anything put there
        assert sh("test -d /dev && test ! -L /dev && test -c /dev/null && echo its own") == "its own\n"
        assert sh("test -L /proc || test -L /etc/cay || echo folders") == "folders\n"
        assert sh("test -d /made/by/cay && echo there") == "there\n"
        # the link out ends in the sandbox's own tree
        assert host not in sh("read x < /out/hostname; echo $x")
    assert entry(cay)["ready"]
    assert cli("template", "rm", "made").returncode == 0


def test_many_layers_and_names_of_all_kinds(cli, cay, tmp_path):  # noqa: F811
    names = ["n" * 255, "/".join(["m" * 250] * 4), "caf\udce9", "na\u00efve", "new\nline", "-rf"]
    layers = [shell(), tar(*((name, "file", {"data": b"x"}) for name in names)),
              *(tar((f"of/{i}", "file"), ("last", "file", {"data": b"%d\n" % i}), *([(f"of/.wh.{i - 1}", "file")] if i else []))
                for i in range(126))]
    layout(tmp_path / "layout", layers)
    made = cli.imported(f"oci:{tmp_path}/layout")
    assert made.returncode == 0, made.stderr
    with cay.create(template="made") as box:
        assert box.run("read x < /last; echo $x; cd /of; echo *").out == "125\n125\n"
        assert box.run("cd /; for f in caf* na* new* -rf; do test -f \"./$f\" && echo there; done").out == "there\n" * 4
