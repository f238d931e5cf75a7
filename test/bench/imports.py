"""The cost of making a template of an image beside `skopeo copy` and `umoci unpack`, and of a create from it beside one from
`base` (BENCH_BASE=yes, which builds it: a minute or more, with Debian's archive), else from `host`."""

import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import server

sys.path.insert(0, str(server.ROOT / "test/scenario"))
from client import Client  # noqa: E402
from imagelib import layout, tar  # noqa: E402

NAMES = {"import_image": ("import of an image", "s"),
         "create_imported": ("create from an imported image, through the API", "ms")}
ROUNDS = 3
LAYERS = 3
FILE_BYTES = 256 * 1024


def contents(seed, mib):
    """Files of which one half can be compressed and the other not."""
    chance = random.Random(seed)
    for number in range(max(1, mib * server.MIB // FILE_BYTES)):
        data = chance.randbytes(FILE_BYTES // 2)
        yield f"usr/lib/{seed}/{number % 40}/{number}", "file", {"data": data + b"of text, which repeats itself\n" * (len(data) // 30)}


def unpack(own, where):
    """Seconds of skopeo and umoci; umoci's owners and modes are the image's, as root. They resolve links, so they run where the disk
    is mounted."""
    inside = pathlib.Path(str(where).split("/root", 1)[1])
    enter = ["nsenter", f"--mount=/proc/{own.daemons()['cay-privd']}/ns/mnt", "--"]
    begun = time.monotonic()
    subprocess.run([*enter, "skopeo", "copy", "--quiet", f"oci:{inside}/image:latest", f"oci:{inside}/copy:latest"], check=True)
    subprocess.run([*enter, "umoci", "--log=error", "unpack", "--image", f"{inside}/copy:latest", f"{inside}/bundle"], check=True)
    os.sync()  # a template is on the disk when it is ready
    seconds = time.monotonic() - begun
    shutil.rmtree(where / "copy")
    shutil.rmtree(where / "bundle")
    return seconds


class Imports:
    def __init__(self, own, image, name="bench"):
        self.client, self.image, self.name = Client(own.url, own.key), image, name
        self.command = [server.BUILD / "src/cli/cay", "template"]
        self.import_options = [f"--state-dir={own.state}", "--quiet"]
        self.env = {**os.environ, "CAY_URL": own.url, "E2B_API_KEY": own.key}

    def run(self, *words):
        subprocess.run([*self.command, *words], env=self.env, stdout=subprocess.DEVNULL, check=True)

    def make(self):
        begun = time.monotonic()
        self.run("import", *self.import_options, self.name, f"oci:{self.image}")
        return time.monotonic() - begun

    def remove(self):
        self.run("rm", self.name)

    def create(self, template):
        begun = time.perf_counter()
        box = self.client.create(template=template)
        took = (time.perf_counter() - begun) * 1000
        box.kill()
        return took


def measure(own, out, mib, count):
    lacking = [name for name in ("skopeo", "umoci") if not shutil.which(name)]
    if not own.state_disk():
        lacking = ["a state disk of btrfs"]
    if lacking:
        for name, (text, unit) in NAMES.items():
            out.absent(name, text, unit, f"not there: {', '.join(lacking)} (scripts/deps bench)")
        return
    with tempfile.TemporaryDirectory(prefix="cay-bench-", dir=own.state_disk()) as folder:
        folder = pathlib.Path(folder)
        layout(folder / "image", [tar(*contents(n, mib // LAYERS)) for n in range(LAYERS)])
        imports, ours, theirs = Imports(own, folder / "image"), [], []
        for _ in range(ROUNDS):
            theirs.append(unpack(own, folder))
            ours.append(imports.make())
            imports.remove()
        text, unit = NAMES["import_image"]
        out.row("import_image", f"{text} of {mib} MiB in {LAYERS} layers", unit, statistics.median(ours),
                "skopeo copy, umoci unpack and sync", statistics.median(theirs))
        creates(own, folder / "image", out, count)


def creates(busy, image, out, count):
    """In turns, on a server of its own: the pool of one that made thousands of the other template keeps one member of a new one."""
    slots = 64
    with server.Server(slots, uid_base=busy.uid_base - 4 * slots * server.UIDS_EACH) as own:
        imports, other = Imports(own, image), "host"
        if os.environ.get("BENCH_BASE") == "yes":
            other = "base"
            imports.run("build", other)
        imports.make()
        times = {imports.name: [], other: []}
        for _ in range(10):
            imports.create(imports.name), imports.create(other)  # both are warm afterwards
        for _ in range(count):
            for template, found in times.items():
                found.append(imports.create(template))
    out.row("create_imported", *NAMES["create_imported"], statistics.median(times[imports.name]), f"the same from {other}",
            statistics.median(times[other]), most=1.1)
