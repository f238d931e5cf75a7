"""Pause with the files alone: the files kept, those not kept, events, restarts in between, ends."""

import os
import pathlib
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from client import Client
from conftest import BUILD, EGRESS_USER, OwnServer
from test_kept import immutable
from test_lifecycle import when
from test_pause import connect, events_of, listed, state
from test_recovery import daemons, kill_daemons, wait_ready
from waitlib import until

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def pause_files(cay, box):
    return cay.call("POST", f"/sandboxes/{box.id}/pause", {"memory": False}).status


def resume(cay, box, **more):
    return cay.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 300, **more})


@pytest.fixture(autouse=True)
def needs_a_disk(cay):
    if cay.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
        pytest.skip("files are in memory here")


def test_its_files_are_there_and_it_boots_anew(cay):
    with cay.create(metadata={"a": "b"}, envVars={"KEPT": "yes it is"}, network={"denyOut": ["10.1.2.3"]}) as box:
        assert box.run("echo one > here; ln -s here link; (sleep 1000 >/dev/null 2>&1 &)").exit_code == 0
        assert box.run("mkdir -p /opt/x && echo two > /opt/x/there && touch /usr/local/mine && rm -f /etc/motd", user="root").exit_code == 0
        boot, before = box.run(BOOT_ID).out, cay.call("GET", f"/sandboxes/{box.id}").json
        for n in range(3):
            assert pause_files(cay, box) == 204
            assert state(cay, box) == "paused" and box.id in listed(cay, "paused")
            assert pause_files(cay, box) == 409
            now = cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json
            assert (now["reason"], now["tier"]) == ("api", "files")
            assert box.request("GET", "/health").status == 502
            reply = resume(cay, box)
            assert reply.status == 201 and reply.json["envdAccessToken"] == box.token
            assert state(cay, box) == "running"
            assert box.run("cat here link /opt/x/there; ls /usr/local/mine; hostname; echo $KEPT $E2B_SANDBOX_ID").out.split() == \
                ["one", "one", "two", "/usr/local/mine", box.id, "yes", "it", "is", box.id]
            assert box.run("pgrep -f 'sleep [1]000'").out == ""
            assert box.run(BOOT_ID).out != boot
            boot = box.run(BOOT_ID).out
        after = cay.call("GET", f"/sandboxes/{box.id}").json
        for name in ("metadata", "network", "templateID", "cpuCount", "memoryMB", "diskSizeMB", "lifecycle"):
            assert after[name] == before[name]
        assert abs(when(after["endAt"]) - when(after["startedAt"]) - 300) < 1
    assert events_of(cay, box) == [("sandbox.created", None), *[("sandbox.paused", "api"), ("sandbox.resumed", None)] * 3,
                                   ("sandbox.ended", "killed")]


# Bytes until there is no room, then files of none, whose names take the rest.
FILL = """import itertools
big = open('big', 'ab', 0)
try:
    while big.write(bytes(1 << 20)): pass
except OSError: pass
try:
    for n in itertools.count(): open(f'{n}' + 'x' * 200, 'x')
except OSError as e: print(e.errno)
"""


def test_one_that_filled_its_disk_is_resumed_and_can_be_emptied(cay):
    """As often as it is. Its room is what it was: a start that brought some would show as a file that grew. Control: it is full."""
    def fill():
        assert box.run(f"cd /tmp && python3 -c \"{FILL}\"", timeout=120).out == "122\n"
        return box.run("stat -c %s /tmp/big").out

    with cay.create() as box:
        assert box.run("rm -f /tmp/big; fallocate -l 800M /tmp/big").exit_code == 0
        size = fill()
        for _ in range(3):
            assert pause_files(cay, box) == 204
            reply = resume(cay, box)
            assert reply.status == 201, reply.body
            assert int(fill()) - int(size) < 1 << 20
        assert box.run("echo more > /tmp/more").exit_code != 0
        assert box.run("rm -f /tmp/big /tmp/*x && echo more > /tmp/more && cat /tmp/more").out == "more\n"
        assert pause_files(cay, box) == 204 and resume(cay, box).status == 201
        assert box.run("cat /tmp/more; hostname; grep -c $(hostname) /etc/hosts").out == f"more\n{box.id}\n1\n"


def test_its_samples(cay):
    """Of files alone there is nothing to measure: the answer is what was measured before, and nothing is an answer, too."""
    def metrics(box):
        reply = cay.call("GET", f"/sandboxes/{box.id}/metrics")
        assert reply.status == 200, reply.json
        return reply.json

    def telemetry(box):
        reply = cay.call("GET", f"/api/sandbox/{box.id}/telemetry/metrics")
        assert reply.status == 200, reply.json
        return [series["dataPoints"] for series in reply.json["series"]]

    with cay.create() as never, cay.create() as before:
        measured = metrics(before)
        assert measured and pause_files(cay, never) == 204 and pause_files(cay, before) == 204
        assert metrics(never) == [] and telemetry(never) == [[]] * 7
        assert metrics(before) == measured
        assert list(cay.call("GET", f"/sandboxes/metrics?sandbox_ids={never.id},{before.id}").json["sandboxes"]) == [before.id]
        assert resume(cay, never).status == 201 and metrics(never)


def test_a_reboot_at_resume(cay):
    """on_resume="reboot" of the newest SDKs; of one that runs it asks for nothing, of one with its memory for a reboot."""
    with cay.create() as box:
        box.write("/home/user/file", b"x")
        boot = box.run(BOOT_ID).out
        assert resume(cay, box, memory=False).status == 200 and box.run(BOOT_ID).out == boot
        for path in (f"/v2/sandboxes/{box.id}/connect", f"/sandboxes/{box.id}/resume"):
            assert cay.call("POST", f"/sandboxes/{box.id}/pause", {}).status == 204
            assert cay.call("POST", path, {"timeout": 60, "memory": False}).status == 201
            assert box.run(BOOT_ID).out != boot and box.read("/home/user/file").body == b"x"
            left = when(cay.call("GET", f"/sandboxes/{box.id}").json["endAt"]) - time.time()
            assert 30 < left <= 60
            boot = box.run(BOOT_ID).out


def test_the_end_of_its_time_keeps_its_files(cay):
    with cay.create(timeout_s=2, autoPause=True, autoPauseMemory=False) as box:
        box.write("/home/user/file", b"x")
        until(lambda: state(cay, box) == "paused", 20, "paused at the end of its time")
        now = cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json
        assert (now["reason"], now["tier"]) == ("timeout", "files")
        assert connect(cay, box).status == 201 and box.read("/home/user/file").body == b"x"


def test_what_is_sent_to_it_does_not_wake_it(cay):
    """There is no memory in which what was asked for could go on, as upstream has it."""
    with cay.create(autoPause=True, autoResume={"enabled": True}) as box:
        assert pause_files(cay, box) == 204
        for reply in (box.request("GET", "/", port=8000), box.request("GET", "/envs")):
            assert reply.status == 502 and "files" in reply.json["message"]
        assert state(cay, box) == "paused" and resume(cay, box).status == 201
        assert box.run("echo here").out == "here\n"


def test_what_is_refused(cay, other_tenant):
    box = cay.create()
    for memory in ("no", 0, None, {}):
        status = cay.call("POST", f"/sandboxes/{box.id}/pause", {"memory": memory}).status
        assert status == (204 if memory is None else 400)
    assert resume(cay, box).status == 201
    assert cay.call("POST", "/v2/sandboxes", {"templateID": "host", "autoPauseMemory": False}).status == 400
    assert cay.call("POST", "/v2/sandboxes", {"templateID": "host", "autoPause": True, "autoPauseMemory": False,
                                              "autoResume": {"enabled": True}}).status == 400
    assert pause_files(other_tenant, box) == 404
    assert pause_files(cay, box) == 204
    assert other_tenant.call("POST", f"/sandboxes/{box.id}/resume", {"timeout": 10}).status == 404
    assert box.kill().status == 204
    assert resume(cay, box).status == 404 and pause_files(cay, box) == 404 and box.kill().status == 404


def test_many_callers_at_once(cay):
    with cay.create() as box, ThreadPoolExecutor(16) as pool:
        for _ in range(3):
            assert sorted(pool.map(lambda _: pause_files(cay, box), range(16))) == [204] + [409] * 15
            statuses = set(pool.map(lambda _: resume(cay, box).status, range(16)))
            assert statuses <= {200, 201} and 201 in statuses
        calls = pool.map(lambda n: pause_files(cay, box) if n % 2 else resume(cay, box).status, range(32))
        assert set(calls) <= {200, 201, 204, 409}
        resume(cay, box)
        assert box.run("echo here").out == "here\n"


def test_a_kill_while_it_is_paused_or_being_so(cay):
    with ThreadPoolExecutor(4) as pool:
        for n in range(12):
            box = cay.create()
            calls = [pool.submit(pause_files, cay, box), pool.submit(resume, cay, box)]
            time.sleep(n * 0.003)
            assert box.kill().status == 204
            for call in calls:
                call.result()
            assert cay.call("GET", f"/sandboxes/{box.id}").status == 404
            assert box.id not in listed(cay, "running,paused")


def test_its_policy_can_be_changed_meanwhile(cay):
    with cay.create() as box:
        assert pause_files(cay, box) == 204
        assert cay.call("PUT", f"/sandboxes/{box.id}/network", {"denyOut": ["10.9.9.9"]}).status == 204
        assert resume(cay, box).status == 201
        assert cay.call("GET", f"/sandboxes/{box.id}").json["network"]["denyOut"] == ["10.9.9.9"]


# -- with daemons that end ---------------------------------------------------------------------------


@pytest.fixture()
def own():
    server = OwnServer(keep_args=(f"--egress={BUILD}/src/egress/cay-egress", "--egress-processes=1",
                                  f"--egress-user={EGRESS_USER}"))
    yield server
    server.stop()


def disk(own):
    """By privd's own mounts: the disk is in no other's."""
    pids = daemons(own, "cay-privd")
    if not pids:
        raise OSError("cay-privd is being started again")
    return f"/proc/{pids[0]}/root/{own.state}/privd/disk"


def kept_on_disk(own):
    return os.listdir(f"{disk(own)}/kept")


def crash(own):
    """All programs end at once, as the machine's do."""
    pids = [own.keep_pid, *(pid for name in ("cayd", "cay-privd", "cay-egress") for pid in daemons(own, name))]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids))


def test_it_outlives_every_program(own):
    cay = Client(own.url, own.key())
    with cay.create(envVars={"A": "b"}) as box:
        box.write("/home/user/file", b"x")
        assert pause_files(cay, box) == 204
        for names in (["cayd"], ["cay-privd"], ["cay-egress"], ["cayd", "cay-privd", "cay-egress"]):
            kill_daemons(own, *names)
            until(lambda: len(kept_on_disk(own)) == 1, patient=True)
            wait_ready(cay)
            assert state(cay, box) == "paused"
        assert resume(cay, box).status == 201
        assert box.read("/home/user/file").body == b"x" and box.run("echo $A").out == "b\n"
        assert kept_on_disk(own) == []


def test_it_outlives_a_start_that_has_no_record_of_a_sandbox(own):
    """As after a restart of the machine: all programs have ended, the files of /run are gone; the others are lost, and told so."""
    cay = Client(own.url, own.key())
    box, other = cay.create(timeout_s=3000), cay.create(timeout_s=3000)
    box.write("/home/user/file", b"x")
    assert pause_files(cay, box) == 204
    crash(own)
    shutil.rmtree(own.run)
    own.start()
    wait_ready(cay)
    assert cay.call("GET", f"/sandboxes/{other.id}").status == 404
    assert state(cay, box) == "paused" and resume(cay, box).status == 201
    assert box.read("/home/user/file").body == b"x"


def test_one_whose_files_are_lost_is_ended(own):
    cay = Client(own.url, own.key())
    box = cay.create()
    assert pause_files(cay, box) == 204
    [name] = kept_on_disk(own)
    os.rename(f"{disk(own)}/kept/{name}", f"{disk(own)}/templates/lost")
    kill_daemons(own, "cay-privd")
    wait_ready(cay)
    until(lambda: cay.call("GET", f"/sandboxes/{box.id}").status == 404)
    assert events_of(cay, box)[-1] == ("sandbox.ended", "error")


def test_what_no_sandbox_has_is_removed(own):
    cay = Client(own.url, own.key())
    box = cay.create()
    assert pause_files(cay, box) == 204
    [name] = kept_on_disk(own)
    os.rename(f"{disk(own)}/kept/{name}", f"{disk(own)}/kept/77")
    kill_daemons(own, "cay-privd")
    until(lambda: kept_on_disk(own) == [], patient=True)
    wait_ready(cay)
    assert cay.call("GET", f"/sandboxes/{box.id}").status == 404


def test_files_that_cannot_be_kept_are_told_of_and_kept_once_they_can_be():
    """The state disk refuses the new name: the caller is told after half a minute that it has ended, and cay tries on."""
    server = OwnServer()
    try:
        cay = Client(server.url, server.key())
        box = cay.create()
        assert box.run("echo one > here; sync").exit_code == 0
        with immutable(f"/proc/{daemons(server, 'cay-privd')[0]}/root/{server.state}/privd/disk/kept"):
            reply = cay.call("POST", f"/sandboxes/{box.id}/pause", {"memory": False})
            assert reply.status == 503 and "could not be kept yet" in reply.json["message"], reply.body
            assert resume(cay, box).status == 503
        until(lambda: resume(cay, box).status == 201, what="it is kept, and goes on")
        assert box.run("cat here").out == "one\n"
    finally:
        server.stop()
