"""An image with a layer of very many files, over another: all of them are there, in the sandbox too, cay-unpack's memory does not
grow with them, the next image shares the layer, one entry beyond the bound is refused with nothing left, and space of removed
ones is given back. `make million-files` is the full form (CAY_MANY_FILES=full: as many as an image may have), and writes
CAY_MANY_FILES_REPORT."""

import gzip
import hashlib
import json
import os
import pathlib
import subprocess
import tarfile
import threading
import time
import types

import pytest
from client import Client
from conftest import BUILD, REPOSITORY, OwnServer
from imagelib import configuration, digest, tar
from importerlib import folder, kept, shell
from test_template_import_kills import of_import
from test_template_layers import used
from waitlib import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="images are imported by root")
FULL = os.environ.get("CAY_MANY_FILES") == "full"
ENTRIES_MAX = 1_000_000  # UNPACK_ENTRIES_MAX
FOLDERS = 998 if FULL else 20
EACH = 1000  # files of a folder
CHECKED = 97  # a prime: each so many a file is read
MEMORY_KIB = 32 * 1024
IMPORT_SECONDS = 1800


def name_of(number):
    return f"many/{number // EACH}/{number}"


def pieces_of_layer():
    """A folder at a time; tar's own class for each file, as another program would write it."""
    for first in range(0, FOLDERS * EACH, EACH):
        piece = bytearray()
        for number in range(first, first + EACH):
            one = tarfile.TarInfo(name_of(number))
            data = b"%d\n" % number
            one.size = len(data)
            piece += one.tobuf() + data + bytes(512 - len(data))
        yield bytes(piece)
    yield bytes(1024)


def write_image(where, layers):
    """An OCI layout whose layers come in pieces; a layer is never whole in memory."""
    blobs = pathlib.Path(where) / "blobs/sha256"
    blobs.mkdir(parents=True)
    descriptions, diff_ids = [], []
    for layer in layers:
        plain, packed, size = hashlib.sha256(), hashlib.sha256(), 0
        with open(blobs / "new", "wb") as out:
            for piece in layer:
                member = gzip.compress(piece, 1, mtime=0)
                plain.update(piece)
                packed.update(member)
                size += out.write(member)
        (blobs / "new").rename(blobs / packed.hexdigest())
        descriptions.append({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": f"sha256:{packed.hexdigest()}", "size": size})
        diff_ids.append(f"sha256:{plain.hexdigest()}")
    text = json.loads(configuration([]))
    text["rootfs"]["diff_ids"], text["history"] = diff_ids, [{"created_by": "a test"} for _ in diff_ids]
    put = {"config": json.dumps(text).encode()}
    manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": descriptions,
                           "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(put["config"]),
                                      "size": len(put["config"])}}).encode()
    for data in (put["config"], manifest):
        (blobs / digest(data)[7:]).write_bytes(data)
    (blobs.parents[1] / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [
        {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(manifest), "size": len(manifest),
         "annotations": {"org.opencontainers.image.ref.name": "latest"}}]}))
    (blobs.parents[1] / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return where


class Peak(threading.Thread):
    """The most memory that cay-unpack had, by what the kernel says of it, while this runs."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world, self.over, self.kib = world, threading.Event(), 0

    def run(self):
        while not self.over.wait(0.05):
            for pid in of_import(self.world, "cay-unpack"):
                try:
                    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                except OSError:
                    continue
                self.kib = max([self.kib, *(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))])

    def stop(self):
        self.over.set()
        self.join()
        return self.kib


@pytest.fixture(scope="module")
def world():
    own = OwnServer()
    try:
        yield types.SimpleNamespace(own=own, url=own.url, key=own.key(), client=Client(own.url, own.key()))
    finally:
        own.stop()


def cay(world, *words):
    return subprocess.run([BUILD / "src/cli/cay", *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=IMPORT_SECONDS, env={**os.environ, "CAY_URL": world.url, "E2B_API_KEY": world.key})


def load(world, name, image):
    """Imports it: its output, seconds, the most memory of cay-unpack."""
    peak, begun = Peak(world), time.monotonic()
    peak.start()
    done = cay(world, "template", "import", f"--state-dir={world.own.state}", name, f"oci:{image}")
    return done, time.monotonic() - begun, peak.stop()


def check_files(tree):
    """On the disk: each folder has its files, and every so many is read."""
    for first in range(FOLDERS):
        assert len(os.listdir(tree / f"many/{first}")) == EACH, first
    for number in range(0, FOLDERS * EACH, CHECKED):
        assert (tree / name_of(number)).read_text() == f"{number}\n"


def check_in_a_sandbox(world, template):
    begun = time.monotonic()
    with world.client.create(template=template) as box:
        seconds = time.monotonic() - begun
        assert box.run("n=0; for f in /many/*; do set -- $f/*; n=$((n + $#)); done; echo $n").out == f"{FOLDERS * EACH}\n"
        last = FOLDERS * EACH - 1
        assert box.run(f"read x < /{name_of(last)}; echo $x; echo new > /{name_of(last)}; read x < /{name_of(last)}; echo $x", user="root").out == f"{last}\nnew\n"
    return seconds


def write_report(rows):
    path = os.environ.get("CAY_MANY_FILES_REPORT")
    if not path:
        return
    commit = subprocess.run(["git", "-C", REPOSITORY, "describe", "--always", "--dirty=+", "--abbrev=12"], stdout=subprocess.PIPE, text=True)
    lines = ["# A layer of a million files", "",
             f"Written by `make million-files` (test/scenario/test_template_many_files.py). Commit {commit.stdout.strip()}, "
             f"{os.cpu_count()} processors. An image of two layers, a shell and {FOLDERS * EACH:,} files of a few bytes in {FOLDERS} folders "
             f"({ENTRIES_MAX:,} entries are the bound), is imported from an OCI layout.", "", "| | |", "|---|---|",
             *(f"| {name} | {value} |" for name, value in rows), ""]
    pathlib.Path(path).write_text("\n".join(lines))


def test_all_of_them_are_there(world, tmp_path):
    before = used(world)
    many = write_image(tmp_path / "many", [[shell()], pieces_of_layer()])
    packed = sum(one.stat().st_size for one in (many / "blobs/sha256").iterdir())
    made, seconds, peak = load(world, "many", many)
    assert made.returncode == 0, made.stderr
    assert 0 < peak <= MEMORY_KIB, peak
    (tree,) = [one.parents[1] for one in folder(world).glob("[0-9]*/rootfs/many")]
    check_files(tree / "rootfs")
    full = used(world)
    create = check_in_a_sandbox(world, "many")
    # the files above go over the layer, which is not unpacked again; with too much above it nothing is kept of that
    more = ENTRIES_MAX - FOLDERS * EACH
    header = tarfile.TarInfo("more/.wh.x").tobuf()
    above = write_image(tmp_path / "above", [[shell()], pieces_of_layer(), [header * 1000] * (more // 1000) + [header * 1000 + bytes(1024)]])
    layers = kept(world)
    refused, seconds_refused, _ = load(world, "above", above)
    assert refused.returncode == 1 and f"over {ENTRIES_MAX} entries" in refused.stderr, refused.stderr
    until(lambda: kept(world) == layers, 60, "the layers are those of before")
    second = write_image(tmp_path / "second", [[shell()], pieces_of_layer(), [tar(("last", "file", {"data": b"x\n"}))]])
    shared, seconds_shared, _ = load(world, "second", second)
    assert shared.returncode == 0, shared.stderr
    check_in_a_sandbox(world, "second")
    begun = time.monotonic()
    for name in ("second", "many"):
        until(lambda: cay(world, "template", "rm", name).returncode == 0, 600, f"{name} is removed")  # noqa: B023
    until(lambda: kept(world) == [], 600, "no layer is kept")
    removed = time.monotonic() - begun
    # btrfs gives blocks back as its cleaner comes to them
    until(lambda: used(world) - before <= (full - before) / 10, 1800, lambda: f"the disk is given back: {before} {full} {used(world)}", every=1)
    write_report([("bytes of the image, packed", f"{packed / 2**20:.0f} MiB"), ("import", f"{seconds:.1f} s"),
                  ("most memory of cay-unpack", f"{peak / 1024:.1f} MiB"), ("bytes on the disk", f"{(full - before) / 2**20:.0f} MiB"),
                  ("a create from it (the first), with a client's connection", f"{create * 1000:.1f} ms"),
                  ("import of an image that has both layers and one above", f"{seconds_shared:.1f} s"),
                  (f"the same with over {ENTRIES_MAX:,} entries: refused, nothing left", f"{seconds_refused:.1f} s"),
                  ("removal of both, until no layer is kept", f"{removed:.1f} s")])
