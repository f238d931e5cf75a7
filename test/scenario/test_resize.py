"""Other limits for a sandbox that is there: they hold in the kernel, are charged to its tenant, and stay; what it uses
is not taken from it."""

import concurrent.futures
import contextlib
import errno
import os
import pathlib
import signal
import threading

import leftovers
import pytest
from client import Client, Sandbox
from waitlib import until

MIB, GIB = 1 << 20, 1 << 30
HOLD = "x = bytearray(int(__import__('sys').argv[1]) << 20); print('held', flush=True); __import__('time').sleep(600)"


def resize(client, box, **to):
    return client.call("POST", f"/cay/v1/sandboxes/{box.id}/resize", to)


def limits(client, box):
    seen = client.call("GET", f"/cay/v1/sandboxes/{box.id}").json
    return seen["memoryBytes"] // MIB, seen["diskBytes"] // MIB, seen["cpuMilli"]


def good(client, box, **to):
    reply = resize(client, box, **to)
    assert reply.status == 200, reply.body
    seen = reply.json
    assert {name: seen[name] for name in to} == to
    return limits(client, box)


def refused(client, box, status, why, **to):
    before = limits(client, box)
    reply = resize(client, box, **to)
    assert reply.status == status and why in reply.json["message"], (reply.status, reply.body)
    assert limits(client, box) == before


def takes(box, mib):
    """Whether a program inside can have so much memory."""
    done = box.run(f"python3 -c 'bytearray({mib} << 20)'")
    assert done.exit_code in (0, 1, -1), done.exit_code  # -1: killed
    return done.exit_code == 0


def files(server, name):
    """The limits of all of the server's sandboxes, as the kernel has them; one of before may go meanwhile."""
    for hierarchy in ("memory", "cpu", "cpu,cpuacct", ""):
        for path in pathlib.Path("/sys/fs/cgroup", hierarchy).glob(f"{server.cgroup}/*/work/{name}"):
            try:
                text = path.read_text().strip()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENODEV):
                    raise
                continue
            yield text


@pytest.fixture
def box(cay):
    with cay.create(timeout_s=600) as box:
        yield box


def test_memory_shrinks_and_grows_while_it_runs(cay, box):
    pid = box.run("sleep 600 >/dev/null 2>&1 & echo $!").out.strip()
    assert limits(cay, box)[0] == 512 and takes(box, 300)
    assert good(cay, box, memoryBytes=200 * MIB)[0] == 200
    assert not takes(box, 300)
    assert good(cay, box, memoryBytes=512 * MIB)[0] == 512
    assert takes(box, 300) and box.run(f"kill -0 {pid}").exit_code == 0  # programs go on
    assert box.run("echo still").out == "still\n"


def test_what_is_out_of_memory_is_told_the_limit_in_force(cay, box):
    """Also where it was frozen when it was resized; and the agent's own figures have it."""
    def told():
        done = cay.call("POST", f"/cay/v1/sandboxes/{box.id}/exec", {"shell": "exec python3 -c 'bytearray(300 << 20)'"})
        return done.json["reason"], box.request("GET", "/metrics").json["mem_total_mib"]

    good(cay, box, memoryBytes=200 * MIB)
    reason, total = told()
    assert "limit of 200 MiB" in reason and total == 200
    assert cay.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {}).status in (200, 204)
    good(cay, box, memoryBytes=220 * MIB)
    assert cay.call("POST", f"/cay/v1/sandboxes/{box.id}/resume", {}).status in (200, 201)
    until(lambda: "limit of 220 MiB" in told()[0], 20)  # no resume waits for its hooks, with which the agent learns it
    assert told()[1] == 220


def test_the_kernel_has_them(cay, own_server, box):
    if not list(files(own_server, "memory.limit_in_bytes")):
        pytest.skip("version 2 of control groups: test_memory_shrinks_and_grows_while_it_runs looks from inside")
    good(cay, box, memoryBytes=211 * MIB, cpuMilli=170)
    assert str(211 * MIB) in list(files(own_server, "memory.limit_in_bytes"))
    assert "17000" in list(files(own_server, "cpu.cfs_quota_us"))
    good(cay, box, memoryBytes=222 * MIB, cpuMilli=330)
    assert str(222 * MIB) in list(files(own_server, "memory.limit_in_bytes")) and "33000" in list(files(own_server, "cpu.cfs_quota_us"))
    assert str(211 * MIB) not in list(files(own_server, "memory.limit_in_bytes"))


def test_one_grows_while_another_shrinks(cay, box):
    good(cay, box, memoryBytes=200 * MIB, cpuMilli=1000)
    assert good(cay, box, memoryBytes=400 * MIB, cpuMilli=300)[::2] == (400, 300) and takes(box, 300)
    assert good(cay, box, memoryBytes=200 * MIB, cpuMilli=1000)[::2] == (200, 1000) and not takes(box, 300)


def test_memory_that_is_used_is_not_taken(cay, box):
    box.write("/tmp/hold.py", HOLD.encode())
    box.run("python3 /tmp/hold.py 250 >/tmp/held 2>&1 &")
    until(lambda: box.run("cat /tmp/held").out == "held\n", 20)
    refused(cay, box, 409, "bytes of memory", memoryBytes=128 * MIB)
    refused(cay, box, 409, "bytes of memory", memoryBytes=128 * MIB, cpuMilli=500)  # none of them
    assert good(cay, box, memoryBytes=400 * MIB)[0] == 400
    assert box.run("pgrep -f hold.py").exit_code == 0  # it lives


def test_disk_shrinks_and_grows_and_what_is_used_is_not_taken(cay, box):
    write = "head -c {}M /dev/zero > /tmp/big && sync /tmp/big"
    assert box.run(write.format(300)).exit_code == 0
    refused(cay, box, 409, "bytes of disk", diskBytes=100 * MIB)
    assert good(cay, box, diskBytes=400 * MIB)[1] == 400
    assert box.run(write.format(600)).exit_code != 0
    assert box.run("rm /tmp/big").exit_code == 0
    assert good(cay, box, diskBytes=1024 * MIB)[1] == 1024
    assert until(lambda: box.run(write.format(600)).exit_code == 0, 40)


@pytest.mark.parametrize("to, why", [
    ({"memoryBytes": 513 * MIB}, "at most 536870912 bytes (512 MiB)"), ({"diskBytes": 2 * GIB}, "at most"), ({"cpuMilli": 1024000}, "at most"),
    ({"memoryBytes": 31 * MIB}, "(32 MiB to 16 TiB)"), ({"diskBytes": MIB}, "(16 MiB to 64 TiB)"), ({"cpuMilli": 9}, "10 to 1024000 thousandths"),
    ({"memoryBytes": 0}, "found 0, allowed are"), ({"memoryBytes": -1}, "found -1, allowed are"), ({"memoryBytes": "1"}, "memoryBytes"),
    ({"cpuMilli": 1 << 32}, "cpuMilli"), ({"pids": 100}, "pids")])
def test_what_is_not_to_be(cay, box, to, why):
    before = limits(cay, box)
    reply = resize(cay, box, **to)
    assert reply.status == 400 and why in reply.json["message"], reply.body
    assert limits(cay, box) == before


def test_nothing_asked_for_is_refused_and_what_it_has_changes_nothing(cay, box):
    assert resize(cay, box).status == 400 and limits(cay, box)[0] == 512
    assert good(cay, box, memoryBytes=512 * MIB)[0] == 512


def test_the_tenants_quota_holds_and_is_charged(cay, new_key):
    owner = Client(cay.url, new_key("resize-quota"))
    used = lambda: cay.call("GET", "/cay/v1/tenants/resize-quota/quota").json["used"]["memoryBytes"]  # noqa: E731
    with owner.create(timeout_s=600) as box:
        good(owner, box, memoryBytes=200 * MIB)
        assert used() == 200 * MIB
        assert cay.call("PATCH", "/cay/v1/tenants/resize-quota/quota", {"memoryBytes": 300 * MIB}).status == 200
        refused(owner, box, 429, "quota memoryBytes", memoryBytes=301 * MIB)
        good(owner, box, memoryBytes=300 * MIB)
        assert used() == 300 * MIB
    until(lambda: used() == 0, 10)


def test_anothers_is_not_there(cay, other_tenant, box):
    reply = resize(other_tenant, box, memoryBytes=100 * MIB)
    none = resize(other_tenant, type("None_", (), {"id": "i" + "0" * 20}), memoryBytes=100 * MIB)
    assert (reply.status, none.status) == (404, 404) and limits(cay, box)[0] == 512


def test_they_stay_over_pauses_and_restarts_and_forks_have_them(cay, own_server, box):
    good(cay, box, memoryBytes=200 * MIB, diskBytes=700 * MIB, cpuMilli=500)
    assert cay.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {}).status in (200, 204)
    assert good(cay, box, memoryBytes=220 * MIB)[0] == 220  # one that stands still, too
    for name in ("cayd", "cay-privd"):
        pid = leftovers.children(own_server.keep_pid, name)[0]
        os.kill(pid, signal.SIGKILL)
        until(lambda: leftovers.children(own_server.keep_pid, name) not in ([], [pid]), 30)  # noqa: B023
        until(lambda: limits(cay, box) == (220, 700, 500), 30, patient=True)
    assert until(lambda: cay.call("POST", f"/cay/v1/sandboxes/{box.id}/resume", {}).status in (200, 201), 30)
    assert limits(cay, box) == (220, 700, 500) and not takes(box, 300)
    assert good(cay, box, memoryBytes=210 * MIB)[0] == 210
    forks = cay.call("POST", f"/sandboxes/{box.id}/fork", {"count": 1}).json
    fork = Sandbox(cay, forks[0]["sandbox"]) if "sandbox" in forks[0] else None
    assert fork and limits(cay, fork) == (210, 700, 500) and not takes(fork, 300)
    fork.kill()


# -- ends in the middle ------------------------------------------------------------------------------------


@contextlib.contextmanager
def stopped_privd(server):
    """privd, at which requests wait; it goes on afterwards, where it was not ended meanwhile."""
    pid = leftovers.children(server.keep_pid, "cay-privd")[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def end(server, name):
    pid = leftovers.children(server.keep_pid, name)[0]
    os.kill(pid, signal.SIGKILL)
    until(lambda: leftovers.children(server.keep_pid, name) not in ([], [pid]), 30)


def asked(cay, box, **to):
    """A resize that waits for its answer; its row is written. The answer is not looked at: the server ends."""
    def ask():
        with contextlib.suppress(Exception):
            resize(cay, box, **to)

    before = limits(cay, box)
    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: limits(cay, box) != before, 20)  # the greater of both
    return thread


def test_a_privd_that_is_killed_with_a_resize_is_followed_by_one_that_does_it(cay, own_server, box):
    good(cay, box, memoryBytes=200 * MIB, cpuMilli=500)
    with stopped_privd(own_server):
        thread = asked(cay, box, memoryBytes=400 * MIB, cpuMilli=300)
        assert limits(cay, box)[::2] == (400, 500)
        end(own_server, "cay-privd")
    thread.join()
    until(lambda: takes(box, 300), 30, patient=True)
    until(lambda: limits(cay, box)[::2] == (400, 300), 30, patient=True)
    assert good(cay, box, memoryBytes=200 * MIB)[0] == 200 and not takes(box, 300)


def test_a_cayd_that_is_killed_with_a_resize_is_followed_by_one_that_has_it(cay, own_server, box):
    good(cay, box, memoryBytes=200 * MIB)
    with stopped_privd(own_server):
        thread = asked(cay, box, memoryBytes=400 * MIB)
        pid = leftovers.children(own_server.keep_pid, "cayd")[0]
        os.kill(pid, signal.SIGKILL)
        thread.join()
    until(lambda: leftovers.children(own_server.keep_pid, "cayd") not in ([], [pid]), 30)
    until(lambda: limits(cay, box)[0] == 400, 30, patient=True)
    until(lambda: takes(box, 300), 30, patient=True)
    assert good(cay, box, memoryBytes=200 * MIB)[0] == 200 and not takes(box, 300)


def test_a_kill_while_a_resize_waits_ends_both(cay, own_server):
    box = cay.create(timeout_s=600)
    good(cay, box, memoryBytes=100 * MIB)
    with stopped_privd(own_server):
        thread = asked(cay, box, memoryBytes=200 * MIB)
        killer = threading.Thread(target=box.kill)
        killer.start()
    thread.join()
    killer.join()
    assert cay.call("GET", f"/cay/v1/sandboxes/{box.id}").status == 404
    with cay.create(timeout_s=600) as other:
        assert good(cay, other, memoryBytes=200 * MIB)[0] == 200


def test_resizes_at_once_do_not_exceed_a_quota(cay, new_key):
    owner = Client(cay.url, new_key("resize-race"))
    quota = lambda: cay.call("GET", "/cay/v1/tenants/resize-race/quota").json["used"]["memoryBytes"] // MIB  # noqa: E731
    with owner.create(timeout_s=600) as one, owner.create(timeout_s=600) as two:
        for box in (one, two):
            good(owner, box, memoryBytes=100 * MIB)
        assert cay.call("PATCH", "/cay/v1/tenants/resize-race/quota", {"memoryBytes": 400 * MIB}).status == 200
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            replies = list(pool.map(lambda box: resize(owner, box, memoryBytes=300 * MIB).status, (one, two)))
        assert sorted(replies) == [200, 429] and quota() == 400


# -- Daytona's ------------------------------------------------------------------------------------------


@pytest.fixture
def theirs(cay):
    made = cay.call("POST", "/api/sandbox", {"snapshot": "host", "autoStopInterval": 60})
    assert made.status == 200, made.body
    yield made.json["id"]
    cay.call("DELETE", f"/sandboxes/{made.json['id']}")


@pytest.mark.parametrize("to, why", [
    ({}, "No resource changes"), ({"disk": 1}, "Disk resize can only be performed on a stopped sandbox"),
    ({"cpu": 1}, "decrease the number of CPU cores"), ({"cpu": 0}, "cpu"), ({"memory": 1.5}, "memory"),
    ({"memory": 2}, "memory: found 2, a sandbox has at most 0.5 on this server"),
    ({"cpu": 1000}, "cpu: found 1000, a sandbox has at most 2.0 on this server")])
def test_of_one_that_runs_by_daytonas_rules(cay, theirs, to, why):
    before = cay.call("GET", f"/api/sandbox/{theirs}").json
    assert before["cpu"] == 2
    reply = cay.call("POST", f"/api/sandbox/{theirs}/resize", to)
    assert reply.status == 400 and why in reply.json["message"], reply.body
    assert cay.call("GET", f"/api/sandbox/{theirs}").json == before


def test_of_one_that_is_stopped_by_daytonas_rules(cay, theirs):
    ask = lambda **to: cay.call("POST", f"/api/sandbox/{theirs}/resize", to)  # noqa: E731
    assert cay.call("POST", f"/api/sandbox/{theirs}/stop").status == 200
    assert "disk: found 9, a sandbox has at most 1.0 on this server" in ask(disk=9).json["message"]
    reply = ask(cpu=1)
    assert reply.status == 200 and (reply.json["cpu"], reply.json["state"]) == (1, "stopped"), reply.body
    assert "No resource changes" in ask(cpu=1).json["message"]
    assert cay.call("POST", f"/api/sandbox/{theirs}/start").status == 200
    reply = ask(cpu=2)
    assert reply.status == 200 and (reply.json["cpu"], reply.json["state"]) == (2, "started"), reply.body
    assert cay.call("POST", f"/api/sandbox/{theirs}/pause").status == 200
    assert "started or stopped" in ask(cpu=1).json["message"]
