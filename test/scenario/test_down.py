"""`cay down` tells what is left of its own server, and of no other one."""

import contextlib
import os
import pathlib
import shutil
import subprocess

import pytest

from client import Client
from conftest import BUILD, OwnServer

CAY = BUILD / "src/cli/cay"


@pytest.fixture
def server():
    own = OwnServer(wait=False)
    yield own
    if pathlib.Path(f"/proc/{own.keep_pid}").exists():
        own.stop()
    OwnServer.places.discard(own.place)
    shutil.rmtree(own.base, ignore_errors=True)


def down(server, *options):
    return subprocess.run([CAY, "down", f"--state-dir={server.state}", f"--state-run={server.run}", *options],
                          capture_output=True, text=True, timeout=120)


@contextlib.contextmanager
def daemon(server, *before, of="{state}"):
    """A process that is named and started as a daemon of the server is, or as one of a server with the state directory of."""
    program = server.base / "cay-keep"
    program.write_text("#!/bin/sh\necho\nread -r line\n")
    program.chmod(0o755)
    process = subprocess.Popen([*before, program, f"--state-dir={of.format(state=server.state)}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    try:
        yield
    finally:
        process.stdin.close()
        process.wait()


@contextlib.contextmanager
def group(*parts):
    """A control group by that path below one of the hierarchies."""
    root = next(p for p in (pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/pids")) if (p / "cgroup.procs").exists())
    made = [root.joinpath(*parts[:n + 1]) for n in range(len(parts))]
    for path in made:
        path.mkdir()
    try:
        yield
    finally:
        for path in reversed(made):
            path.rmdir()


def test_a_server_in_a_container_is_none_of_ours(server):
    name = f"cay-test-container-{os.getpid()}"
    with daemon(server, "unshare", "--pid", "--fork", "--kill-child"), group(name, server.cgroup):
        done = down(server, "--purge")
    assert done.returncode == 0, done.stderr
    assert not server.state.exists() and "is removed" in done.stdout


@pytest.mark.parametrize("of", ["{state}-second", "/second{state}", "{state}2/cayd"])
def test_a_server_whose_directory_only_begins_or_ends_so_is_none_of_ours(server, of):
    with daemon(server, of=of):
        done = down(server)
    assert done.returncode == 0, done.stderr


def test_a_directory_below_is_ours(server):
    """The control of the one above."""
    with daemon(server, of="{state}/cayd"):
        done = down(server)
    assert done.returncode != 0 and "left behind: process" in done.stderr


def test_what_is_ours_is_told_and_nothing_purged(server):
    """The control: the same process and group, not in a container."""
    with daemon(server):
        done = down(server, "--purge")
        assert done.returncode != 0 and "left behind: process" in done.stderr and "(cay-keep)" in done.stderr, done.stderr
        assert f"{server.state} is not removed" in done.stderr and server.state.exists()


def test_frozen_sandboxes_that_end_are_told_and_kept_ones_are_there_again(server):
    server.wait_for_template()
    client = Client(server.url, server.key())
    boxes = [client.create() for _ in range(3)]
    for box, body in zip(boxes, ({}, {}, {"memory": False})):
        assert client.call("POST", f"/sandboxes/{box.id}/pause", body).status in (204, 501)
    paused = client.call("GET", "/cay/v1/status").json["paused"]
    assert paused["frozen"] == 2 and paused["kept"] <= 1  # 0 where the state disk is memory
    (server.run / "connect").write_text(f"{server.url}\n{server.state}/cayd/api-key\n{server.url}\n")  # as `cay up` does
    done = down(server)
    assert done.returncode == 0 and "2 frozen sandboxes" in done.stderr, done.stderr
    assert ("1 sandbox paused" in done.stderr) == (paused["kept"] == 1), done.stderr
