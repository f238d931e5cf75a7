"""`cay template import`: an image that the test makes becomes a template, by the command line and the real daemons; a fault of one
is said, and leaves neither a name nor a file."""

import os
import subprocess

import pytest
from imagelib import docker_archive, layout, tar
from importerlib import cli, entry, left, shell  # noqa: F401 - cli is a fixture
from waitlib import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="images are imported by root")


LOW = tar(("etc", "dir"), ("etc/first", "file", {"data": b"low\n"}), ("etc/gone", "file"))
HIGH = tar(("etc/first", "file", {"data": b"high\n"}), ("etc/.wh.gone", "file"))
CONFIG = {"Env": ["GREETING=hello you"], "User": "nobody", "WorkingDir": "/srv", "Entrypoint": ["/bin/sh"],
          "Cmd": ["-c", "echo > /tmp/started"], "ExposedPorts": {"80/tcp": {}}}


def test_an_image_becomes_a_template(cli, cay, tmp_path):
    digest = layout(tmp_path / "layout", [shell(), LOW, HIGH], CONFIG)
    made = cli.imported(f"oci:{tmp_path}/layout:latest")
    assert made.returncode == 0, made.stderr
    assert f"made is ready: 3 layers of {digest}" in made.stdout
    assert "added the user user (1000)" in made.stderr and "added /bin/bash, a script" in made.stderr
    told = entry(cay)
    assert (told["ready"], told["source"], told["digest"]) == (True, f"oci:{tmp_path}/layout:latest", digest)
    assert f"oci:{tmp_path}/layout:latest, {digest[:19]}" in cli("template", "ls").stdout
    with cay.create(template="made") as box:
        assert box.run("read x < /etc/first; echo $x $GREETING; test -e /etc/gone || echo gone; cd; pwd").out == \
            "high hello you\ngone\n/home/user\n"
        assert "nobody" in box.run("while read x; do echo $x; done < /etc/cay/image.json").out
        assert box.run("test -e /tmp/started && echo started").out == ""  # recorded, not run
        again = cli.imported(f"oci:{tmp_path}/layout")
        assert again.returncode != 0 and "template made is there" in again.stderr
        refused = cli("template", "rm", "made")
        assert refused.returncode != 0 and "1 sandboxes use template made" in refused.stderr
    assert cli("template", "rm", "made").returncode == 0 and entry(cay) is None
    assert cay.call("POST", "/v2/sandboxes", {"templateID": "made"}).status == 404


def test_its_command_is_run_where_that_is_asked_for(cli, cay, tmp_path):
    docker_archive(tmp_path / "image.tar", [shell(), LOW], {**CONFIG, "User": "", "WorkingDir": "/etc", "ExposedPorts": {}})
    made = cli.imported(f"docker-archive:{tmp_path}/image.tar:made:1", "--start")
    assert made.returncode == 0, made.stderr
    with cay.create(template="made") as box:
        until(lambda: box.run("test -e /tmp/started && echo started").out == "started\n", what="its command has run")


def test_layers_leave_room_on_the_disk_that_they_are_left_on(cli, tmp_path):
    """A disk of 64 MiB in the place of the state directory's, so that the machine's own is not filled: a layer that leaves less than
    5 % of it is refused before it is written; a shorter one is written, and then not found by the server, which has another."""
    (tmp_path / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "tmpfs", tmp_path / "disk"], check=True)
    try:
        (tmp_path / "disk/privd").mkdir()
        for megabytes, said in (63, "the disk of"), (62, "the disk of"), (1, "no image was given to this template"):
            docker_archive(tmp_path / "image.tar", [bytes(megabytes << 20)])
            done = cli.imported(f"docker-archive:{tmp_path}/image.tar", f"--state-dir={tmp_path}/disk")
            assert done.returncode == 1 and said in done.stderr, done.stderr
            assert megabytes == 1 or "would be left with less than 5 % free" in done.stderr
    finally:
        subprocess.run(["umount", tmp_path / "disk"], check=True)


def halve(path):
    os.truncate(path, path.stat().st_size // 2)


def zero(path):
    path.write_bytes(bytes(path.stat().st_size))


WRONG = {"architecture": ([LOW], "the image is for linux/arm64", None, {"architecture": "arm64"}),
         "digest that does not match": ([shell()], "does not have this digest", zero, {}),
         "truncated layer": ([shell()], "bytes, the manifest says", halve, {}),
         "absolute name": ([LOW, tar(("/etc/passwd", "file"))], "layer 2: the name /etc/passwd is absolute", None, {}),
         "no archive": ([b"no archive" * 100], "the archive cannot be read", None, {})}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_and_leaves_nothing(cli, server, cay, tmp_path, what):
    layers, said, damage, more = WRONG[what]
    layout(tmp_path, layers, **more)
    if damage:
        damage(max((tmp_path / "blobs/sha256").iterdir(), key=lambda p: p.stat().st_size))
    done = cli.imported(f"oci:{tmp_path}")
    assert done.returncode != 0 and said in done.stderr, done.stderr
    assert left(server, cay) == []


@pytest.mark.parametrize("name", ["base", "..", ".", "a/b", "/a", "../a", "a/../b", "a\nb", "", "x" * 200])
def test_a_name_that_is_none(cli, tmp_path, name):
    assert cli("template", "import", name, f"oci:{tmp_path}").returncode == 2


def test_a_source_that_is_none(cli):
    assert "is not the source of an image" in cli("template", "import", "made", "tar:x").stderr


def test_one_that_did_not_end_is_begun_again(cli, server, cay, tmp_path):
    """As a command leaves it that was killed after the name was given, with a part of the image."""
    digest = layout(tmp_path / "layout", [shell(), LOW])
    begun = cay.call("POST", "/cay/v1/templates/made/import", {"source": "oci:elsewhere", "digest": digest})
    assert begun.status == 201 and begun.json["number"] > 2
    spool = server.own.state / "privd/import" / str(begun.json["number"])
    spool.mkdir(parents=True)
    (spool / "7").write_bytes(b"a part")
    assert not entry(cay)["ready"] and "did not end" in entry(cay)["note"]
    refused = cay.call("POST", "/v2/sandboxes", {"templateID": "made"})
    assert refused.status == 503 and "made is not ready" in refused.json["message"]
    assert cay.call("POST", "/cay/v1/templates/made/import", {"source": "", "digest": digest}).status == 400
    assert cay.call("POST", "/cay/v1/templates/base/import", {"source": "x", "digest": digest}).status == 409
    made = cli.imported(f"oci:{tmp_path}/layout")
    assert made.returncode == 0, made.stderr
    with cay.create(template="made") as box:
        assert box.run("read x < /etc/first; echo $x").out == "low\n"
    # one without a template is only a name
    assert cli("template", "rm", "made").returncode == 0
    assert cay.call("POST", "/cay/v1/templates/made/import", {"source": "x", "digest": digest}).status == 201
    assert cli("template", "rm", "made").returncode == 0 and entry(cay) is None
