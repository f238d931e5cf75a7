"""No two files of a sandbox have one inode number: those of its template begin beyond those of its layer. Programs take such
files for one: the dynamic loader two libraries, `find` and `rm` a folder and one in it."""

import collections
import os
import pathlib
import re
import subprocess

import pytest
from client import Client
from conftest import TEMPLATE_INODES, OwnServer
from imagelib import layout, tar
from importerlib import cli, shell  # noqa: F401 - cli is a fixture

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="images are imported by root")

FILES = 3000  # more than the templates host and made have; with cay's own fewer than TEMPLATE_INODES


def find_program():
    """find with the libraries that it loads."""
    said = subprocess.run(["ldd", "/usr/bin/find"], stdout=subprocess.PIPE, text=True, check=True).stdout
    paths = {"usr/bin/find": "/usr/bin/find", **{p[1:]: p for p in re.findall(r"(/lib\S+) \(0x", said)}}
    return tar(*((name, "file", {"mode": 0o755, "data": pathlib.Path(p).read_bytes()}) for name, p in paths.items()))


def numbers(box, kind):
    """[device, inode, links, path] of all files or folders of the root; those that this makes are among them. Without those of
    /sys, a layer that is made before any template: texts and folders that stand alone and that nothing changes."""
    one = {"f": ": > made.$i", "d": "mkdir made.$i"}[kind]
    box.run(f"cd /home/user; i=0; while [ $i -lt {FILES} ]; do {one}; i=$((i+1)); done", timeout=60)
    found = box.run(f"find / -xdev -path /sys -prune -o -type {kind} -printf '%D %i %n %p\\n'", timeout=60).out.splitlines()
    assert sum("/made." in line for line in found) == FILES
    return [line.split(" ", 3) for line in found]


def twice(found):
    """Those that more than one name has, without the names of one file."""
    count = collections.Counter((device, inode) for device, inode, links, path in found if links == "1")
    return [place for place, n in count.items() if n > 1]


def of_the_template(found):
    own = ("/etc/hosts", "/etc/hostname", "/etc/machine-id")  # each sandbox's, in its layer
    return [int(inode) for device, inode, links, path in found if path.startswith("/etc/") and path not in own]


@pytest.mark.parametrize("kind", ["f", "d"])
def test_files_of_the_host_and_of_a_sandbox_have_numbers_of_their_own(server, cay, kind):
    if not server.own:
        pytest.skip("it needs a server of its own")
    with cay.create() as box:
        found = numbers(box, kind)
    assert twice(found) == []
    assert min(of_the_template(found)) >= TEMPLATE_INODES


def test_files_of_an_image_and_of_a_sandbox_have_numbers_of_their_own(cli, cay, tmp_path):
    many = tar(("etc", "dir"), *((f"etc/{i}", "file") for i in range(1000)))
    layout(tmp_path, [shell(), find_program(), many])
    made = cli.imported(f"oci:{tmp_path}")
    assert made.returncode == 0, made.stderr
    with cay.create(template="made") as box:
        found = numbers(box, "f")
    own = of_the_template(found)
    assert len(own) >= 1000 and min(own) >= TEMPLATE_INODES
    assert twice(found) == []


def test_without_the_setting_they_meet():
    """The control. The image's files would meet as well: those of the host are the lowest."""
    own = OwnServer(privd_args=("--template-inodes=0",))
    try:
        with Client(own.url, own.key()).create() as box:
            found = numbers(box, "f")
        assert min(of_the_template(found)) < TEMPLATE_INODES
        assert twice(found) != []
    finally:
        own.stop()
