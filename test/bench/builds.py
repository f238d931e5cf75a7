"""The cost of a build of ten steps by the builder of E2B's SDKs, beside `buildah bud` of the same on the same disk: each step run,
and again with all of them cached. Both begin with one image and keep what each step leaves (`--layers`)."""

import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import imports
import server

sys.path.insert(0, str(server.ROOT / "test/scenario"))
from client import Client  # noqa: E402
from imagelib import layout, tar  # noqa: E402

NAMES = {"build_steps": ("build of a template of ten steps, none of them cached", "s"),
         "build_cached": ("the same build again, all steps cached", "s")}
ROUNDS = 3
STEPS = 10
POLL_SECONDS = 0.005
BUILD_SECONDS = 300
PROGRAMS = ("dash", "dd")


def programs():
    """Debian's sh and dd with the libraries that they load."""
    found = {f"bin/{'sh' if name == 'dash' else name}": shutil.which(name) for name in PROGRAMS}
    for path in list(found.values()):
        said = subprocess.run(["ldd", path], stdout=subprocess.PIPE, text=True, check=True).stdout
        found.update((one[1:], one) for one in re.findall(r"(/lib\S+) \(0x", said))
    return tar(("var", "dir"), *((name, "file", {"mode": 0o755, "data": pathlib.Path(path).read_bytes()}) for name, path in found.items()))


def commands(number):
    """Of one round: each writes a mebibyte."""
    return [f"dd if=/dev/zero of=/var/{step} bs=65536 count=16 2>/dev/null; : {number}" for step in range(STEPS)]


class Buildah:
    """With its storage on the state disk, where both write; that is mounted in cay-privd's mount namespace. Each call has a copy of
    that, with which goes what buildah mounts. It runs in its folder, as it makes an image's name of an image's path: the names of
    temporary folders may be none."""

    def __init__(self, own, folder):
        self.folder, self.inside = folder, pathlib.Path(str(folder).split("/root", 1)[1])
        self.enter = ["nsenter", f"--mount=/proc/{own.daemons()['cay-privd']}/ns/mnt", "--", "unshare", "--mount", "--",
                      "sh", "-c", 'cd "$0" && exec "$@"', str(self.inside)]
        self.run("pull", "--quiet", "oci:image:latest")
        self.image = self.run("images", "--quiet", "--no-trunc").split()[0]

    def run(self, *words):
        options = [f"--root={self.inside}/root", f"--runroot={self.inside}/run", "--storage-driver=overlay"]
        done = subprocess.run([*self.enter, "buildah", *options, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"buildah {words[0]}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def build(self, number):
        text = "".join(f"RUN {one}\n" for one in commands(number))
        (self.folder / "Containerfile").write_text(f"FROM {self.image}\n{text}")
        begun = time.perf_counter()
        runtime = shutil.which("runc") or shutil.which("crun")  # which refuses control groups of both versions at once
        self.run("bud", "--quiet", f"--runtime={runtime}", "--layers", "--pull-never", "--network=none", "--tag=bench",
                 f"--file={self.inside}/Containerfile", str(self.inside))
        return time.perf_counter() - begun


class Builds:
    """The calls of E2B's SDKs, which look every 0.2 s whether it has ended; here every 5 ms."""

    def __init__(self, own):
        self.client = Client(own.url, own.key)

    def call(self, method, path, body=None):
        reply = self.client.call(method, path, body)
        if reply.status >= 300:
            raise RuntimeError(f"{method} {path}: {reply.status} {reply.body[:300]!r}")
        return reply.json

    def build(self, number):
        begun = time.perf_counter()
        made = self.call("POST", "/v3/templates", {"name": "bench-build"})
        at = f"{made['templateID']}/builds/{made['buildID']}"
        steps = [{"type": "RUN", "args": [one, "root"]} for one in commands(number)]
        self.call("POST", f"/v2/templates/{at}", {"fromTemplate": "bench-steps", "steps": steps})
        while (said := self.call("GET", f"/templates/{at}/status"))["status"] not in ("ready", "error"):
            if time.perf_counter() - begun > BUILD_SECONDS:
                raise RuntimeError("the build does not end")
            time.sleep(POLL_SECONDS)
        took = time.perf_counter() - begun
        if said["status"] == "error":
            raise RuntimeError(f"the build failed: {said['reason']['message'][:300]}")
        return took


def measure(own, out):
    why = None if own.state_disk() else "a state disk of btrfs is not there"
    if not shutil.which("buildah"):
        why = "buildah is not there (scripts/deps bench)"
    if why:
        for name, (text, unit) in NAMES.items():
            out.absent(name, text, unit, why)
        return
    with tempfile.TemporaryDirectory(prefix="cay-bench-", dir=own.state_disk()) as folder:
        folder = pathlib.Path(folder)
        layout(folder / "image", [programs()])
        image, builds, theirs = imports.Imports(own, folder / "image", "bench-steps"), Builds(own), Buildah(own, folder)
        image.make()
        times = rounds(builds, theirs)
    for (name, most, most_value), ours, other in zip((("build_steps", 1.0, None), ("build_cached", None, 0.3)), times[::2], times[1::2]):
        out.row(name, *NAMES[name], statistics.median(ours), "buildah bud --layers", statistics.median(other), most=most, most_value=most_value)


def rounds(builds, theirs):
    """Seconds in turns: ours and buildah's of what is new, then of the same again."""
    times = [], [], [], []
    for number in range(ROUNDS + 1):  # the first is not counted
        found = [one.build(number) for _ in range(2) for one in (builds, theirs)]
        for values, took in zip(times, found if number else ()):
            values.append(took)
    return times
