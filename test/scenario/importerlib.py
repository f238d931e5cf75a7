"""`cay template import` of images that a test makes: the command line, and what an import that is over may not leave."""

import functools
import os
import pathlib
import re
import subprocess

import leftovers
import pytest
from conftest import BUILD
from imagelib import tar


@functools.cache
def shell():
    """Debian's sh with the libraries that it loads: an image without bash, sudo or a user."""
    libraries = re.findall(r"(/lib\S+) \(0x", subprocess.run(["ldd", "/bin/dash"], stdout=subprocess.PIPE, text=True).stdout)
    files = [("bin/sh", "/bin/dash"), *((path[1:], path) for path in libraries)]
    return tar(*((name, "file", {"mode": 0o755, "data": pathlib.Path(path).read_bytes()}) for name, path in files))


@pytest.fixture
def cli(server, cay):
    if not server.own:
        pytest.skip("it needs a server of its own")

    def run(*words, **more):
        env = {**os.environ, "CAY_URL": server.url, "E2B_API_KEY": server.key, **more}
        return subprocess.run([BUILD / "src/cli/cay", *map(str, words)], capture_output=True, text=True, env=env,
                              stdin=subprocess.DEVNULL, timeout=100)

    def imported(source, *more, name="made", **environment):
        return run("template", "import", f"--state-dir={server.own.state}", *more, name, source, **environment)

    run.imported = imported
    yield run
    cay.call("DELETE", "/cay/v1/templates/made")
    assert left(server, cay) == []


def entry(cay, name="made"):
    return next((t for t in cay.call("GET", "/cay/v1/templates").json if t["id"] == name), None)


def left(server, cay):
    """The files that an import that is over may not leave."""
    spool = server.own.state / "privd/import"
    return [*(sorted(p.name for p in spool.iterdir()) if spool.exists() else []), *([entry(cay)] if entry(cay) else [])]


def folder(server):
    """Of templates, which only cay-privd's mount namespace has."""
    privd = leftovers.children(server.own.keep_pid, "cay-privd")[0]
    return pathlib.Path(f"/proc/{privd}/root{server.own.state}/privd/disk/templates")


def templates(server):
    """Names in the folder of templates; of the layers that are kept, which stand in one of their own, as ".layers/NAME"."""
    there = sorted(os.listdir(folder(server)))
    return [*(name for name in there if name != ".layers"), *(f".layers/{name}" for name in kept(server))]


def kept(server):
    """Names of layers; a seed, which has no files, stays."""
    where = folder(server) / ".layers"
    return sorted(one.name for one in where.iterdir() if "seed" not in one.name) if where.exists() else []
