"""Life and end of sandboxes: time to live, kill, what is left behind, limits."""

import datetime
import time
from concurrent.futures import ThreadPoolExecutor

import leftovers
import pytest
from client import Sandbox
from waitlib import until


def when(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_ttl_ends_it(cay):
    box = cay.create(timeout_s=2)
    assert cay.call("GET", f"/sandboxes/{box.id}").status == 200
    until(lambda: cay.call("GET", f"/sandboxes/{box.id}").status == 404, 10, "the end by TTL")
    assert box.request("GET", "/health").status == 502


def ends(client):
    return {one["sandboxID"]: one["reason"] for one in client.call("GET", "/cay/v1/ended").json}


def test_how_it_ended_is_told_to_its_tenant_alone(cay, other_tenant):
    """By GET and the list of those that ended."""
    boxes = {"killed": cay.create(), "timeout": cay.create(timeout_s=1)}
    made = cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "idle": {"timeout": 1}})
    assert made.status == 201, made.body
    boxes["idle"] = Sandbox(cay, made.json)
    assert boxes["killed"].kill().status == 204
    until(lambda: boxes["idle"].id in ends(cay) and boxes["timeout"].id in ends(cay), 20, "their ends")
    for reason, box in boxes.items():
        answer, none = cay.call("GET", f"/cay/v1/sandboxes/{box.id}"), other_tenant.call("GET", f"/cay/v1/sandboxes/{box.id}")
        assert answer.status == none.status == 404
        assert f"has ended: {reason}, at 20" in answer.json["message"]
        assert none.json["message"] == f"there is no sandbox '{box.id}' (it may have ended)"
        assert ends(cay)[box.id] == reason and box.id not in ends(other_tenant)
    assert [one["reason"] for one in cay.call("GET", "/cay/v1/ended?limit=1").json] in (["idle"], ["timeout"])
    for limit in ("0", "257", "x"):
        assert cay.call("GET", f"/cay/v1/ended?limit={limit}").status == 400


def test_timeout_shortens_and_extends(cay):
    with cay.create(timeout_s=100) as box:
        for seconds in (500, 50):
            assert cay.call("POST", f"/sandboxes/{box.id}/timeout", {"timeout": seconds}).status == 204
            end = when(cay.call("GET", f"/sandboxes/{box.id}").json["endAt"])
            assert abs(end - time.time() - seconds) < 5
        before = cay.call("GET", f"/sandboxes/{box.id}").json["endAt"]
        assert cay.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 5}).status == 200
        assert cay.call("GET", f"/sandboxes/{box.id}").json["endAt"] == before
        assert cay.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 900}).status == 200
        assert when(cay.call("GET", f"/sandboxes/{box.id}").json["endAt"]) > when(before) + 500


def test_list_pages_and_filters(cay):
    boxes = [cay.create(metadata={"group": "list-test", "n": str(n)}) for n in range(5)]
    try:
        seen, token = [], ""
        for _ in range(10):
            reply = cay.call("GET", "/v2/sandboxes?metadata=group%3Dlist-test&limit=2&nextToken=" + token)
            seen += [item["sandboxID"] for item in reply.json]
            token = reply.headers.get("X-Next-Token") or ""
            if not token:
                break
        assert sorted(seen) == sorted(box.id for box in boxes)
        only = cay.call("GET", "/v2/sandboxes?metadata=group%3Dlist-test%26n%3D3").json
        assert [item["sandboxID"] for item in only] == [boxes[3].id]
    finally:
        for box in boxes:
            box.kill()


def test_kill_leaves_nothing(cay, own_server):
    """Twenty at once, used and killed: the host is as before (the pool of ready slots aside)."""
    def use(n):
        with cay.create() as box:
            assert box.run("(sleep 600 >/dev/null 2>&1 &); sudo sh -c '(sleep 600 >/dev/null 2>&1 &)'; head -c 1000000 /dev/zero > ~/f; echo $?").out == "0\n"

    if not own_server:
        pytest.skip("counts need a server of the tests' own: other users' sandboxes would be counted")
    use(0)
    before, before_fds = leftovers.settled(own_server), leftovers.daemon_descriptors(own_server.keep_pid)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(20)))

    def same_descriptors():
        now = leftovers.daemon_descriptors(own_server.keep_pid)
        return all(now[name] <= before_fds[name] + 4 for name in now)

    assert leftovers.returned(own_server, before) == before
    until(same_descriptors, 20, f"{before_fds} again")


def test_many_at_once(cay):
    with ThreadPoolExecutor(16) as pool:
        boxes = list(pool.map(lambda _: cay.create(), range(32)))
        outs = list(pool.map(lambda box: box.run("hostname; cat /etc/hostname").out, boxes))
        assert len({out.split()[0] for out in outs}) == 32
        assert all(reply.status == 204 for reply in pool.map(lambda box: box.kill(), boxes))


def test_memory_limit_spares_the_agent(cay):
    with cay.create() as box:
        result = box.run("python3 -c 'x = bytearray(8 << 30)'", timeout=120)
        assert result.exit_code != 0
        assert box.run("echo alive").out == "alive\n"


def test_pids_limit_spares_the_agent(cay):
    with cay.create() as box:
        bomb = "for i in $(seq 20000); do sleep 30 & done 2>/dev/null; true"
        box.run(f"timeout 20 bash -c '{bomb}' >/dev/null 2>&1; pkill sleep; true", timeout=120)
        assert box.run("echo alive").out == "alive\n"


def test_disk_limit(cay):
    with cay.create() as box:
        result = box.run("head -c 200G /dev/zero > ~/big; ls -l ~/big | cut -d' ' -f5; rm ~/big; echo x > ~/small && echo ok",
                         timeout=300)
        size, ok = result.out.split()
        assert int(size) < 200 * 2**30 and ok == "ok"
        assert "space" in result.stderr.decode() or "quota" in result.stderr.decode().lower()


def test_metrics_and_logs(cay):
    with cay.create() as box:
        box.run("echo x")
        reply = cay.call("GET", f"/sandboxes/{box.id}/metrics")
        assert reply.status == 200
        until(lambda: cay.call("GET", f"/sandboxes/{box.id}/metrics").json, 30, "a metric")
        metric = cay.call("GET", f"/sandboxes/{box.id}/metrics").json[-1]
        assert metric["memUsed"] > 0 and metric["memTotal"] >= metric["memUsed"] and metric["cpuCount"] >= 1
        logs = cay.call("GET", f"/v2/sandboxes/{box.id}/logs").json["logs"]
        assert logs and all({"timestamp", "level", "message"} <= set(line) for line in logs)


def test_killed_process_is_gone_when_told_so(cay):
    """A client that asks for the pid right after "killed" does not find it dying."""
    with cay.create() as box:
        for _ in range(30):
            pids = []
            stream = box.stream("process.Process/Start", {"process": {"cmd": "/bin/sleep", "args": ["100"]}})
            pids.append(next(stream)["event"]["start"]["pid"])
            killed = box.rpc("process.Process/SendSignal", {"process": {"pid": pids[0]}, "signal": "SIGNAL_SIGKILL"})
            assert killed.status == 200 and killed.json == {}
            assert box.run("/bin/kill", args=["-0", str(pids[0])]).exit_code != 0
            stream.close()


# -- ending when idle --------------------------------------------------------------------------------


def create_idle(cay, **idle):
    return cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "idle": idle})


def test_what_computes_lives_on_and_what_waits_ends(cay):
    """Nothing is asked of them but whether they are there, which is no use."""
    with Sandbox(cay, create_idle(cay, timeout=5).json) as box:
        assert box.run("(while :; do :; done >/dev/null 2>&1 &)").exit_code == 0
        shown = cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json
        assert shown["idle"] == {"timeout": 5, "traffic": True, "processes": True}
        end = cay.call("GET", f"/sandboxes/{box.id}").json["endAt"]
        until(lambda: cay.call("GET", f"/sandboxes/{box.id}").json["endAt"] > end, what="its end moves on")
    waits = create_idle(cay, timeout=1).json["sandboxID"]
    until(lambda: cay.call("GET", f"/sandboxes/{waits}").status == 404, what="what waits ends")


def test_processes_are_switched_off(cay):
    with Sandbox(cay, create_idle(cay, timeout=5, processes=False).json) as box:
        assert box.run("(while :; do :; done >/dev/null 2>&1 &)").exit_code == 0
        until(lambda: cay.call("GET", f"/sandboxes/{box.id}").status == 404, what="it ends, though it computes")


def test_idle_times_that_are_refused(cay):
    for idle in ({}, {"timeout": 0}, {"timeout": -1}, {"timeout": "1"}, {"timeout": 10**9}, {"timeout": 1, "traffic": "yes"},
                 {"timeout": 1, "traffic": False, "processes": False}, {"timeout": 1, "cpu": True}):
        assert create_idle(cay, **idle).status == 400, idle
    assert cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "idle": 5}).status == 400
    for idle, said in (({"timeout": 172800}, '"idle": "timeout" must be between'), ({}, '"idle": "timeout" is missing')):
        reply = create_idle(cay, **idle)
        assert reply.status == 400 and said in reply.json["message"], reply.body
