"""`cay template export`: a template becomes an image in a file, which skopeo, umoci and `cay template import` read."""

import functools
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tarfile
import uuid

import pytest
from client import Client
from imagelib import layout, tar
from importerlib import cli, shell  # noqa: F401 - cli is a fixture
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from waitlib import until

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="images are imported by root"), pytest.mark.usefixtures("needs_a_disk")]

CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0)  # cap_net_bind_service, effective
LONG = "deep/" * 40 + "n" * 120
CONFIG = {"Env": ["GREETING=hello you", "EMPTY="], "User": "nobody", "WorkingDir": "/srv", "Entrypoint": ["/bin/sh"],
          "Cmd": ["-c", "echo > /tmp/started; exec sleep 1000"], "ExposedPorts": {"80/tcp": {}}}
START = {"cmd": "echo ran > /srv/started; exec sleep 1000", "user": "root", "cwd": "/srv", "env": {"GREETING": "hello you"}}


@functools.cache
def programs():
    """GNU tar and what the test asks with, beside sh."""
    tools = ["/bin/tar", "/bin/cat", "/bin/stat", "/bin/chmod", "/bin/mkdir", "/bin/sleep", "/bin/dd"]
    said = subprocess.run(["ldd", *tools], stdout=subprocess.PIPE, text=True, check=True).stdout
    libraries = sorted(set(re.findall(r"(/lib\S+) \(0x", said)))
    files = [*((path[1:], path) for path in tools), *((path[1:], path) for path in libraries)]
    return tar(*((name, "file", {"mode": 0o755, "data": pathlib.Path(os.path.realpath(path)).read_bytes()}) for name, path in files))


def things():
    """Properties that a copy may lose."""
    capable = tarfile.TarInfo("srv/capable")
    capable.mode, capable.mtime = 0o755, 1_000_000_000
    capable.pax_headers = {"SCHILY.xattr.security.capability": CAPABILITY.decode("latin-1"), "SCHILY.xattr.user.note": "kept"}
    return [("srv/owned", "file", {"uid": 1234, "gid": 4321, "mode": 0o640, "data": b"owned\n"}),
            ("srv/set-id", "file", {"mode": 0o4755, "data": b"x"}), ("srv/sticky", "dir", {"mode": 0o1777}),
            ("srv/one", "file", {"data": b"linked\n"}), ("srv/two", "hard", {"to": "srv/one"}),
            ("srv/link", "link", {"to": "./one"}), ("srv/" + LONG, "file", {"data": b"long\n"}),
            ("srv/name with 'a quote' \u00fc", "file"), ("srv/empty", "dir")], capable


@pytest.fixture
def made(cli, cay, tmp_path):
    """The image `made`, and of it a template of the tenant's own with START as its start file."""
    done = cli.imported(f"oci:{source_image(tmp_path)}")
    assert done.returncode == 0, done.stderr
    name = "x-" + uuid.uuid4().hex[:12]
    with cay.create(template="made") as box:
        fill(box, tmp_path)
        assert cay.call("POST", f"/sandboxes/{box.id}/snapshots", {"name": name}).status == 201
    yield name
    assert cay.call("DELETE", f"/templates/{name}").status == 204
    until(lambda: cli("template", "rm", "made").returncode == 0, what="the image can go")


def source_image(tmp_path):
    layout(tmp_path / "source", [shell(), programs(), tar(("tmp", "dir", {"mode": 0o1777}), ("srv", "dir"))], CONFIG)
    return tmp_path / "source"


def fill(box, tmp_path):
    """By an archive that tar unpacks in the sandbox: images lose extended attributes when they are imported."""
    members, capable = things()
    path = tmp_path / "things.tar"
    path.write_bytes(tar(*members, form=tarfile.PAX_FORMAT))
    with tarfile.open(path, "a", format=tarfile.PAX_FORMAT) as more:
        more.addfile(capable)
    assert box.write("/tmp/things.tar", path.read_bytes(), "root").status == 200
    assert box.write("/etc/cay/start.json", json.dumps(START).encode(), "root").status == 200
    words = ["-C", "/", "--xattrs", "--xattrs-include=*", "-xpf", "/tmp/things.tar"]
    done = box.run("/bin/tar", user="root", args=words)
    assert done.exit_code == 0, done.stderr


def none_is_left(client):
    until(lambda: client.call("GET", "/v2/sandboxes").json == [], what="the sandbox is ended")


def exported(cli, name, path):
    done = cli("template", "export", name, path, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def shows(box, path):
    return box.run("/bin/stat", user="root", args=["-c", "%F %a %u:%g %h %s %Y", path]).out


PATHS = ("owned", "set-id", "sticky", "one", "two", "link", LONG, "name with 'a quote' \u00fc", "capable")


def test_an_export_is_an_image(cli, cay, made, tmp_path):
    out = tmp_path / "out.tar"
    told = exported(cli, made, out)
    none_is_left(cay)
    # skopeo reads both forms, and compares each digest
    for form in ("oci-archive", "docker-archive"):
        seen = subprocess.run(["skopeo", "inspect", "--config", f"{form}:{out}"], capture_output=True, text=True, check=True)
        config = json.loads(seen.stdout)
        assert (config["os"], config["architecture"], len(config["rootfs"]["diff_ids"])) == ("linux", "amd64", 1)
        assert config["config"] == {"Env": ["GREETING=hello you"], "Cmd": ["/bin/sh", "-c", START["cmd"]], "User": "root",
                                    "WorkingDir": "/srv"}
    seen = subprocess.run(["skopeo", "inspect", f"oci-archive:{out}"], capture_output=True, text=True, check=True)
    assert json.loads(seen.stdout)["Digest"] == told["digest"]
    copied = tmp_path / "copied"
    subprocess.run(["skopeo", "copy", "-q", "--insecure-policy", f"oci-archive:{out}", f"oci:{copied}:v1"], check=True)
    # umoci unpacks it, as root with everything that is in it
    bundle = tmp_path / "bundle"
    subprocess.run(["umoci", "unpack", "--image", f"{copied}:v1", bundle], check=True, capture_output=True)
    root = bundle / "rootfs/srv"
    st = (root / "owned").stat()
    assert (st.st_uid, st.st_gid, st.st_mode & 0o7777, st.st_mtime) == (1234, 4321, 0o640, 1_000_000_000)
    assert (root / "set-id").stat().st_mode & 0o7777 == 0o4755 and (root / "sticky").stat().st_mode & 0o7777 == 0o1777
    assert (root / "one").stat().st_ino == (root / "two").stat().st_ino and (root / "two").read_text() == "linked\n"
    assert os.readlink(root / "link") == "./one" and (root / LONG).read_text() == "long\n"
    assert (root / "name with 'a quote' \u00fc").exists() and (root / "empty").is_dir()
    assert os.getxattr(root / "capable", "security.capability") == CAPABILITY
    assert os.getxattr(root / "capable", "user.note") == b"kept"
    # neither what is each sandbox's own nor what the start command would have written
    for there in ("proc", "sys", "dev", "run"):
        assert list((bundle / "rootfs" / there).iterdir()) == [], there
    assert not (root / "started").exists() and not (bundle / "rootfs/etc/cay").exists()
    shutil.rmtree(bundle)


def test_it_is_imported_again(cli, cay, made, tmp_path):
    out = tmp_path / "out.tar"
    exported(cli, made, out)
    with cay.create(template=made) as box:
        until(lambda: box.read("/srv/started", "root").status == 200, what="its command has run")
        before = [shows(box, f"/srv/{path}") for path in PATHS]
    again = "again-" + uuid.uuid4().hex[:8]
    try:
        done = cli.imported(f"docker-archive:{out}", "--start", name=again)
        assert done.returncode == 0, done.stderr
        with cay.create(template=again) as box:
            until(lambda: box.read("/srv/started", "root").body == b"ran\n", what="its command has run")
            after = [shows(box, f"/srv/{path}") for path in PATHS]
            assert box.run("/bin/sh", args=["-c", "echo $GREETING"]).out == "hello you\n"
            assert box.read("/srv/two", "root").body == b"linked\n"
    finally:
        until(lambda: cli("template", "rm", again).returncode == 0, what="the image is removed")
    assert before == after


def test_an_image_says_what_it_said(cli, cay, made, tmp_path):
    """A template that was imported without --start: the command of the image is the image's, and was not run."""
    told = exported(cli, "made", tmp_path / "out.tar")
    seen = subprocess.run(["skopeo", "inspect", "--config", f"oci-archive:{tmp_path}/out.tar"], capture_output=True, text=True, check=True)
    config = json.loads(seen.stdout)["config"]
    assert sorted(config.pop("Env")) == sorted(CONFIG["Env"]) and config == {key: CONFIG[key] for key in config}
    assert set(config) == set(CONFIG) - {"Env"} and told["template"] == "made"


def test_whose_templates(cli, cay, server, made, new_key, tmp_path):
    other = {"E2B_API_KEY": new_key("t-" + uuid.uuid4().hex[:12])}
    out = tmp_path / "out.tar"

    def refused(name, said, **environment):
        done = cli("template", "export", name, out, **environment)
        assert done.returncode != 0 and said in done.stderr, done.stderr
        assert sorted(one.name for one in tmp_path.iterdir() if "out" in one.name or one.name.startswith(".cay")) == []

    refused(made, f"there is no template '{made}'", **other)
    refused("no-such", "there is no template 'no-such'")
    refused("host", "its programs are those of the server's machine")
    with cay.create() as box:  # and what lies on it
        on_host = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"]
    refused(on_host, "its programs are those of the server's machine")
    assert cay.call("DELETE", f"/templates/{on_host}").status == 204
    none_is_left(cay)
    # the control: what a key can begin with it can write
    assert cay.call("PATCH", f"/v2/templates/{made}", {"public": True}).status == 200
    assert cli("template", "export", made, out, **other).returncode == 0
    assert cli("template", "export", "made", out, **other).returncode == 0
    none_is_left(Client(server.url, other["E2B_API_KEY"]))


def test_a_key_that_only_reads(cli, cay, made, tmp_path):
    key = cay.call("POST", "/cay/v1/keys", {"role": "read-only"}).json
    done = cli("template", "export", made, tmp_path / "out.tar", E2B_API_KEY=key["key"])
    assert done.returncode != 0 and "read-only" in done.stderr, done.stderr
    assert cay.call("DELETE", f"/cay/v1/keys/{key['id']}").status == 204


def test_what_cannot_be_written(cli, cay, made, tmp_path):
    """A file that is no place to seek in, a folder that is not there, a template without GNU tar, a full disk."""
    for path, said in (("/dev/null", "is no file"), (tmp_path, "director"), (tmp_path / "none/out.tar", "No such file")):
        done = cli("template", "export", made, path)
        assert done.returncode != 0 and said in done.stderr, done.stderr
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", full], check=True)
    try:
        done = cli("template", "export", made, full / "out.tar")
        assert done.returncode != 0 and "could not be written whole" in done.stderr, done.stderr
        assert list(full.iterdir()) == []
    finally:
        subprocess.run(["umount", full], check=True)
    with cay.create(template=made) as box:
        assert box.run("/bin/chmod", user="root", args=["0", "/bin/tar"]).exit_code == 0
        without = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"]
    done = cli("template", "export", without, tmp_path / "out.tar")
    assert done.returncode != 0 and "has to have GNU tar" in done.stderr, done.stderr
    assert cay.call("DELETE", f"/templates/{without}").status == 204
    none_is_left(cay)
    assert not (tmp_path / "out.tar").exists()


def test_what_fills_the_disk(cli, cay, made, tmp_path):
    """A file of holes is no bigger in the archive than its data, and a program in tar's place that does not end is ended
    when the file cannot be written any more."""
    full = tmp_path / "full"
    full.mkdir()
    with cay.create(template=made) as box:
        assert box.run("/bin/sh", user="root", args=["-c", "echo end | dd of=/srv/holes bs=1 seek=1T"]).exit_code == 0
        holes = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"]
        endless = "#!/bin/sh\nwhile :; do cat /bin/sh; done\n".encode()
        assert box.write("/bin/tar", endless, "root").status == 200
        assert box.run("/bin/chmod", user="root", args=["755", "/bin/tar"]).exit_code == 0
        hostile = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", full], check=True)
    try:
        exported(cli, holes, full / "holes.tar")
        with tarfile.open(full / "holes.tar") as archive:
            layer = max(archive, key=lambda one: one.size)
            with tarfile.open(fileobj=archive.extractfile(layer)) as files:
                found = files.getmember("./srv/holes")
                assert (found.size, found.issparse()) == (2**40 + 4, True)
        (full / "holes.tar").unlink()
        done = cli("template", "export", hostile, full / "out.tar")
        assert done.returncode != 0 and "could not be written whole" in done.stderr, done.stderr
        assert list(full.iterdir()) == []
    finally:
        subprocess.run(["umount", full], check=True)
    for name in (holes, hostile):
        assert cay.call("DELETE", f"/templates/{name}").status == 204
    none_is_left(cay)


@pytest.mark.parametrize("value", [0, "no", None])
def test_the_field_of_a_create(cay, value):
    reply = cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "startCommand": value})
    if value is None:  # as if it were not there
        assert reply.status == 201 and cay.call("DELETE", f"/sandboxes/{reply.json['sandboxID']}").status == 204
    else:
        assert reply.status == 400 and "startCommand" in reply.json["message"]
