"""Files of paused sandboxes that are archived, through all of cay: by a call, by age, by Daytona's call; precedence, events,
restarts in between, ends."""

import os
import pathlib
import subprocess

import pytest
from client import Client
from conftest import BUILD, OwnServer
from test_archive import SEAL
from test_pause import listed, state
from test_pause_memory import kept  # noqa: F401 (fixture)
from test_recovery import daemons, kill_daemons, wait_ready
from waitlib import until

CAY = BUILD / "src/cli/cay"


@pytest.fixture(scope="module")
def own():
    server = OwnServer(privd_args=(f"--seal={SEAL}",))
    yield server
    server.stop()


@pytest.fixture
def cay(kept):  # noqa: F811
    return kept
    until(lambda: kept_names(own) == [], what="the end of what was kept")


def disk(own):
    return pathlib.Path(f"/proc/{daemons(own, 'cay-privd')[0]}/root/{own.state}/privd/disk")


def kept_names(own):
    return os.listdir(disk(own) / "kept") + os.listdir(disk(own) / "archiving")


def stopped(cay, size=0):
    box = cay.create()
    assert box.run(f"echo one > here; head -c {size} /dev/urandom > random; chmod 4755 here").exit_code == 0
    assert cay.call("POST", f"/sandboxes/{box.id}/pause", {"memory": False}).status == 204
    return box


def archive(cay, box):
    return cay.call("POST", f"/cay/v1/sandboxes/{box.id}/archive", {})


def tier(cay, box):
    return cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json["tier"]


def resume(cay, box):
    return cay.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 300})


def has_files(box, size=0):
    return box.run("cat here; stat -c %a here; wc -c < random").out.split() == ["one", "4755", str(size)]


def test_archived_by_a_call_and_started_again(cay, own):
    box = stopped(cay)
    r = archive(cay, box)
    assert r.status == 200 and r.json["tier"] == tier(cay, box) == "archive" and r.json["state"] == "paused"
    assert archive(cay, box).status == 200  # it is so already
    assert box.request("GET", "/health").status == 502 and box.id in listed(cay, "paused")
    kill_daemons(own, "cayd", "cay-privd")
    wait_ready(cay)
    assert tier(cay, box) == "archive"
    assert resume(cay, box).status == 201 and has_files(box)
    assert box.run("echo two > here2; rm random").exit_code == 0
    r = archive(cay, box)
    assert r.status == 409 and "files alone" in r.json["message"]
    assert cay.call("POST", f"/sandboxes/{box.id}/pause", {"memory": False}).status == 204
    assert tier(cay, box) == "files"
    r = archive(cay, box)
    assert r.status == 409 and "archived before" in r.json["message"] and tier(cay, box) == "files"
    assert resume(cay, box).status == 201 and box.run("cat here here2; ls random 2>&1 | grep -c cannot").out.split() == ["one", "two", "1"]
    fork = cay.call("POST", f"/sandboxes/{box.id}/fork", {})
    assert fork.status in (200, 201), fork.text


def test_of_another_tenant_and_of_none(cay, own):
    box = stopped(cay)
    other = Client(own.url, cay.call("POST", "/cay/v1/keys", {"label": "other", "tenant": "other"}).json["key"])
    mine, none = archive(other, box), other.call("POST", "/cay/v1/sandboxes/i0000000000000000/archive", {})
    assert mine.status == none.status == 404 and tier(cay, box) == "files"


def test_files_that_are_longer_than_what_is_read_are_refused(cay, own):
    """A hole takes none of the sandbox's disk, but mksquashfs reads all of it, while others wait for their turn."""
    box = stopped(cay)
    assert resume(cay, box).status == 201 and box.run("truncate -s 1T longer").exit_code == 0
    assert cay.call("POST", f"/sandboxes/{box.id}/pause", {"memory": False}).status == 204
    r = archive(cay, box)
    assert r.status == 409 and "32 GiB" in r.json["message"] and tier(cay, box) == "files"
    assert resume(cay, box).status == 201 and has_files(box)


def test_a_start_comes_first(cay, own):
    """It is asked for while the file is being written: at whatever moment that is, it starts, with all of its files."""
    size = 40 << 20
    box = stopped(cay, size)
    done = subprocess.Popen([CAY, "archive", box.id], env={**os.environ, "CAY_URL": own.url, "E2B_API_KEY": own.key()},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: kept_names(own) != [] and (len(kept_names(own)) > 1 or done.poll() is not None), what="the archiving")
    assert resume(cay, box).status == 201 and has_files(box, size)
    assert done.wait(60) in (0, 1) and state(cay, box) == "running"


def test_killed_while_it_is_archived_leaves_nothing(cay, own):
    box = stopped(cay, 40 << 20)
    client = subprocess.Popen([CAY, "archive", box.id], env={**os.environ, "CAY_URL": own.url, "E2B_API_KEY": own.key()},
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: len(kept_names(own)) > 1 or client.poll() is not None, what="the archiving")
    assert cay.call("DELETE", f"/sandboxes/{box.id}").status == 204
    client.wait(60)
    until(lambda: kept_names(own) == [], what="the end of its files")
    archived = stopped(cay)
    assert archive(cay, archived).status == 200 and cay.call("DELETE", f"/sandboxes/{archived.id}").status == 204
    until(lambda: kept_names(own) == [], what="the end of its archive")


@pytest.mark.parametrize("name", ["cayd", "cay-privd"])
def test_a_daemon_killed_while_it_archives(cay, own, name):
    size = 40 << 20
    box = stopped(cay, size)
    client = subprocess.Popen([CAY, "archive", box.id], env={**os.environ, "CAY_URL": own.url, "E2B_API_KEY": own.key()},
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: len(kept_names(own)) > 1 or client.poll() is not None, what="the archiving")
    kill_daemons(own, name)
    client.wait(60)
    wait_ready(cay)
    until(lambda: resume(cay, box).status == 201, what="the start")
    assert has_files(box, size)


def test_by_age_oldest_first():
    """The one that is stopped first is archived first, and a used one is not."""
    server = OwnServer(privd_args=(f"--seal={SEAL}",), cayd_args=("--pause-archive-after=1s",))
    try:
        cay = Client(server.url, server.key())
        if cay.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
            pytest.skip("files are in memory here")
        running, first, second = cay.create(), stopped(cay), stopped(cay)
        until(lambda: tier(cay, first) == "archive", what="the first")
        until(lambda: tier(cay, second) == "archive", what="the second")
        assert state(cay, running) == "running" and resume(cay, first).status == 201 and has_files(first)
        kill_daemons(server, "cayd", "cay-privd")
        wait_ready(cay)
        assert tier(cay, second) == "archive" and state(cay, running) == "running"
    finally:
        server.stop()
