"""Snapshots and forks of files: what they begin with, that nothing of one changes with another, names, lists, refusals, ends of
programs in between."""

import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from client import Client
from conftest import BUILD, OwnServer
from test_lifecycle import when
from test_pause_files import disk, kept_on_disk, needs_a_disk, pause_files  # noqa: F401 (a fixture)
from test_recovery import kill_daemons, wait_ready
from waitlib import until


def snapshot(cay, box, **body):
    reply = cay.call("POST", f"/sandboxes/{box.id}/snapshots", body)
    assert reply.status == 201, reply.body
    return reply.json


def delete(cay, name):
    return cay.call("DELETE", f"/templates/{name}").status


def all_ids(cay, query=""):
    return [one["snapshotID"] for one in cay.call("GET", f"/snapshots{query}").json]


def fork(cay, box, **body):
    reply = cay.call("POST", f"/sandboxes/{box.id}/fork", body)
    assert reply.status == 201, reply.body
    return reply.json


def other(box, made):
    """The client's sandbox for what a fork gave."""
    return type(box)(box.client, made["sandbox"])


def test_new_ones_begin_with_its_files(cay):
    with cay.create(envVars={"A": "b"}) as box:
        box.write("/home/user/file", b"one")
        assert box.run("rm -f /etc/motd; mkdir /opt/x; (sleep 1000 >/dev/null 2>&1 &)", user="root").exit_code == 0
        pid = box.run("pgrep -f 'sleep [1]000'").out
        made = snapshot(cay, box)
        assert made["names"] == [] and made["snapshotID"] in all_ids(cay, f"?sandboxID={box.id}")
        assert box.run("pgrep -f 'sleep [1]000'").out == pid  # the source goes on
        with cay.create(template=made["snapshotID"]) as a, cay.create(template=made["snapshotID"], envVars={"A": "c"}) as b:
            assert cay.call("GET", f"/sandboxes/{a.id}").json["templateID"] == made["snapshotID"]
            assert cay.call("GET", f"/cay/v1/sandboxes/{a.id}").json["note"] == ""  # it is what was asked for
            for one in (a, b):
                assert one.read("/home/user/file").body == b"one"
                assert one.run("ls -d /opt/x; ls /etc/motd; hostname; pgrep -f 'sleep [1]000'").out == f"/opt/x\n{one.id}\n"
            assert (a.run("echo $A").out, b.run("echo $A").out) == ("\n", "c\n")
            a.write("/home/user/file", b"two")
            assert b.read("/home/user/file").body == box.read("/home/user/file").body == b"one"
            assert delete(cay, made["snapshotID"]) == 204 and delete(cay, made["snapshotID"]) == 404
            assert box.kill().status == 204
            assert (a.read("/home/user/file").body, b.read("/home/user/file").body) == (b"two", b"one")
            second = snapshot(cay, a)["snapshotID"]  # of one that came from one
            with cay.create(template=second) as c:
                assert c.read("/home/user/file").body == b"two"
            assert delete(cay, second) == 204
        reply = cay.call("POST", "/v2/sandboxes", {"templateID": made["snapshotID"]})
        assert reply.status == 404


def test_one_boots_anew_on_its_own_files(cay, other_tenant):
    """Not on what has the snapshot's number by then, which is another tenant's."""
    with other_tenant.create() as source:
        made = snapshot(other_tenant, source)
    with other_tenant.create(template=made["snapshotID"]) as box, cay.create() as neighbour:
        box.write("/home/user/own", b"own")
        neighbour.write("/home/user/secret", b"secret")
        assert delete(other_tenant, made["snapshotID"]) == 204
        of_neighbour = snapshot(cay, neighbour)["snapshotID"]
        for _ in range(2):
            assert other_tenant.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {"memory": False}).status == 204
            assert other_tenant.call("POST", f"/cay/v1/sandboxes/{box.id}/resume", {}).status == 201
            assert box.read("/home/user/own").body == b"own" and box.read("/home/user/secret").status == 404
        assert delete(cay, of_neighbour) == 204


def test_names_and_lists(cay, other_tenant):
    with cay.create() as box:
        first = snapshot(cay, box, name="mine")
        assert first["names"] == ["mine:default"] and all_ids(cay, "?name=mine") == [first["snapshotID"]]
        second = snapshot(cay, box, name="mine")  # the name moves
        assert all_ids(cay, "?name=mine:default") == [second["snapshotID"]] and all_ids(cay, "?name=none") == []
        ids = all_ids(cay, f"?sandboxID={box.id}")
        assert ids == [second["snapshotID"], first["snapshotID"]]
        page = cay.call("GET", f"/snapshots?sandboxID={box.id}&limit=1")
        token = page.headers["X-Next-Token"]
        rest = cay.call("GET", f"/snapshots?sandboxID={box.id}&limit=1&nextToken={token}")
        assert [page.json[0]["snapshotID"], rest.json[0]["snapshotID"]] == ids and "X-Next-Token" not in rest.headers
        with cay.create(template="mine") as one:
            assert one.run("hostname").out == f"{one.id}\n"
        # Another tenant's are not there.
        assert all_ids(other_tenant) == [] and delete(other_tenant, "mine") == 404
        assert delete(other_tenant, first["snapshotID"]) == 404
        assert other_tenant.call("POST", "/v2/sandboxes", {"templateID": first["snapshotID"]}).status == 404
        assert other_tenant.call("POST", f"/sandboxes/{box.id}/snapshots", {}).status == 404
        assert other_tenant.call("POST", f"/sandboxes/{box.id}/fork", {}).status == 404
        assert delete(cay, "mine") == 204 and delete(cay, first["snapshotID"]) == 204


def test_what_is_refused(cay):
    with cay.create() as box:
        for name in ("a/b", "../x", "-a", ".", "a b", "x" * 101, "\u00e4"):
            assert cay.call("POST", f"/sandboxes/{box.id}/snapshots", {"name": name}).status == 400, name
        for body in ({"name": 1}, {"name": []}):
            assert cay.call("POST", f"/sandboxes/{box.id}/snapshots", body).status == 400
        for body in ({"count": 0}, {"count": 101}, {"count": -1}, {"count": "1"}, {"timeout": 0}, {"timeout": 10**9}):
            assert cay.call("POST", f"/sandboxes/{box.id}/fork", body).status == 400, body
        for query in ("?limit=0", "?limit=101", "?limit=x", "?nextToken=none"):
            assert cay.call("GET", f"/snapshots{query}").status == 400
        assert all_ids(cay, f"?nextToken=s{'0' * 20}") == []  # one that is gone by now
        assert cay.call("POST", "/sandboxes/inone/snapshots", {}).status == 404
        assert cay.call("POST", "/sandboxes/inone/fork", {}).status == 404
        # With its memory it has files that stand still; with its files alone it is resumed first.
        assert cay.call("POST", f"/sandboxes/{box.id}/pause", {}).status == 204
        assert delete(cay, snapshot(cay, box)["snapshotID"]) == 204
        assert cay.call("POST", f"/sandboxes/{box.id}/fork", {}).status == 409
        assert cay.call("GET", f"/sandboxes/{box.id}").json["state"] == "paused"
        assert cay.call("POST", f"/sandboxes/{box.id}/resume", {"timeout": 60}).status == 201
        assert pause_files(cay, box) == 204
        assert cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).status == 409
        refused = cay.call("POST", f"/sandboxes/{box.id}/fork", {})
        assert refused.status == 409 and f"cay resume {box.id}" in refused.json["message"], refused.body
    assert cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).status == 404


def test_forks(cay):
    before = all_ids(cay)
    with cay.create(metadata={"a": "b"}, envVars={"A": "b"}, network={"denyOut": ["10.1.2.3"]}) as box:
        box.write("/home/user/file", b"one")
        [made] = fork(cay, box)
        left = when(cay.call("GET", f"/sandboxes/{made['sandbox']['sandboxID']}").json["endAt"]) - time.time()
        assert 0 < left <= 15
        forks = [other(box, one) for one in [made, *fork(cay, box, count=3, timeout=60)]]
        assert len({one.id for one in forks} | {box.id}) == 5
        for one in forks:
            detail = cay.call("GET", f"/sandboxes/{one.id}").json
            assert detail["metadata"] == {"a": "b"} and detail["network"]["denyOut"] == ["10.1.2.3"]
            assert one.read("/home/user/file").body == b"one" and one.run("echo $A $E2B_SANDBOX_ID").out == f"b {one.id}\n"
            one.write("/home/user/file", one.id.encode())
        assert box.read("/home/user/file").body == b"one"
        assert [one.read("/home/user/file").body.decode() for one in forks] == [one.id for one in forks]
        for one in forks:
            assert one.kill().status == 204
    until(lambda: all_ids(cay) == before)


def rollback(client, box, name):
    return client.call("POST", f"/cay/v1/sandboxes/{box.id}/rollback", {"snapshotID": name})


@pytest.mark.parametrize("start", ["running", "frozen", "files"])
def test_rollback(cay, start):
    """Its files are the snapshot's, its programs are gone, the rest is its own."""
    with cay.create(metadata={"a": "b"}, envVars={"A": "b"}, timeout_s=200) as box:
        box.write("/home/user/file", b"one")
        made = snapshot(cay, box, name="before")
        box.write("/home/user/file", b"two")
        box.write("/home/user/later", b"two")
        boot = box.run("cat /proc/sys/kernel/random/boot_id").out
        if start != "running":
            assert cay.call("POST", f"/sandboxes/{box.id}/pause", {"memory": start == "frozen"}).status == 204
        reply = rollback(cay, box, "before")
        assert (reply.status, reply.json["sandboxID"]) == (200, box.id)
        assert box.read("/home/user/file").body == b"one" and box.read("/home/user/later").status == 404
        assert box.run("echo $A $(hostname)").out == f"b {box.id}\n" and box.run("cat /proc/sys/kernel/random/boot_id").out != boot
        detail = cay.call("GET", f"/sandboxes/{box.id}").json
        assert (detail["metadata"], detail["state"]) == ({"a": "b"}, "running")
        if start == "running":
            assert 100 < when(detail["endAt"]) - time.time() <= 200
        assert rollback(cay, box, made["snapshotID"]).status == 200  # and again
        assert delete(cay, "before") == 204


def test_what_is_refused_of_rollbacks(cay, other_tenant):
    """Nothing of the sandbox changes."""
    with cay.create() as box, other_tenant.create() as stranger:
        box.write("/home/user/file", b"mine")
        made, others = snapshot(cay, box), snapshot(other_tenant, stranger)
        for body, status in (({}, 400), ({"snapshotID": 1}, 400), ({"snapshotID": "../x"}, 404), ({"snapshotID": "snone"}, 404),
                             ({"snapshotID": others["snapshotID"]}, 404), ({"snapshotID": "x" * 5000}, 400)):
            assert cay.call("POST", f"/cay/v1/sandboxes/{box.id}/rollback", body).status == status, body
        assert rollback(cay, stranger, made["snapshotID"]).status == 404
        assert rollback(other_tenant, box, others["snapshotID"]).status == 404
        assert box.read("/home/user/file").body == b"mine"
        assert delete(cay, made["snapshotID"]) == 204 and rollback(cay, box, made["snapshotID"]).status == 404
        assert delete(other_tenant, others["snapshotID"]) == 204
    assert rollback(cay, box, made["snapshotID"]).status == 404


def test_they_are_told(cay):
    """A fork's own snapshot is not; a refused one is not."""
    with cay.create() as box:
        made = snapshot(cay, box, name="told")
        assert cay.call("POST", f"/sandboxes/{box.id}/snapshots", {"name": "a/b"}).status == 400
        forks = [one["sandbox"]["sandboxID"] for one in fork(cay, box, count=2)]
        assert delete(cay, "told") == 204
        for one in forks:
            cay.call("DELETE", f"/sandboxes/{one}")

        def told():
            lines = cay.call("GET", f"/cay/v1/events?sandbox={box.id}&since=0&follow=0").body.splitlines()
            return [{k: v for k, v in json.loads(line).items() if k not in ("id", "time", "sandbox")} for line in lines][1:]
        about = {"snapshot": made["snapshotID"], "name": "told"}
        assert told() == [{"type": "snapshot.created", **about}, {"type": "sandbox.forked", "forks": forks, "failed": 0},
                          {"type": "snapshot.deleted", **about}]


def test_the_command_line(cay):
    def run(*args):
        return subprocess.run([BUILD / "src/cli/cay", *args], capture_output=True, text=True, timeout=60,
                              env={"PATH": os.environ["PATH"], "E2B_API_URL": cay.url, "E2B_API_KEY": cay.key})
    with cay.create() as box:
        box.write("/home/user/file", b"one")
        made = run("snapshot", "create", box.id[:12], "by-hand")
        assert made.returncode == 0, made.stderr
        name = made.stdout.strip()
        assert [name, "by-hand", box.id, "host"] in [line.split()[:4] for line in run("snapshot", "ls").stdout.splitlines()]
        assert name in run("snapshot", "ls", "-q").stdout.split()
        one = run("create", "by-hand", "--ttl=60s")
        assert one.returncode == 0, one.stderr
        assert run("exec", one.stdout.strip(), "cat", "/home/user/file").stdout == "one"
        forks = run("fork", "--count=2", "--ttl=60s", box.id)
        assert forks.returncode == 0, forks.stderr
        box.write("/home/user/file", b"two")
        assert run("rollback", box.id, "none").returncode != 0 and run("rollback", box.id[:12], "by-hand").stdout.strip() == box.id
        assert box.read("/home/user/file").body == b"one"
        ids = forks.stdout.split()
        assert len(set(ids)) == 2 and [run("exec", i, "cat", "/home/user/file").stdout for i in ids] == ["one"] * 2
        assert run("kill", one.stdout.strip(), *ids).returncode == 0
        assert run("snapshot", "rm", "by-hand").returncode == 0 and run("snapshot", "rm", "by-hand").returncode == 1
        for bad in (["rm", "../x"], ["rm", ".."], ["create", box.id, "a/b"], ["create", "inone"], ["create"]):
            assert run("snapshot", *bad).returncode != 0, bad
        for count in ("0", "101", "x", "-1"):
            assert run("fork", f"--count={count}", box.id).returncode != 0, count


def test_while_it_writes_and_many_at_once(cay):
    """Files are of one moment: a log that is only appended to has no hole, and each number was there when it was copied."""
    with cay.create() as box, ThreadPoolExecutor(8) as pool:
        box.run("(n=0; while :; do n=$((n+1)); echo $n >>/home/user/log; done >/dev/null 2>&1 &)")
        until(lambda: box.read("/home/user/log").body)
        ids = list(pool.map(lambda _: snapshot(cay, box)["snapshotID"], range(8)))
        made = list(pool.map(lambda name: cay.create(template=name), ids))
        for one in made:
            lines = one.read("/home/user/log").body.split()
            assert [int(n) for n in lines] == list(range(1, len(lines) + 1)) and lines
        at = int(box.run("tail -n1 /home/user/log").out)
        until(lambda: int(box.run("tail -n1 /home/user/log").out) > at)
        assert set(pool.map(lambda name: delete(cay, name), ids)) == {204}
        assert set(pool.map(lambda one: one.kill().status, made)) == {204}


# -- with daemons that end ---------------------------------------------------------------------------


@pytest.fixture()
def own():
    server = OwnServer()
    yield server
    server.stop()


def test_it_outlives_every_program(own):
    cay = Client(own.url, own.key())
    with cay.create() as box:
        box.write("/home/user/file", b"one")
        name = snapshot(cay, box, name="mine")["snapshotID"]
        for names in (["cayd"], ["cay-privd"], ["cayd", "cay-privd"]):
            kill_daemons(own, *names)
            until(lambda: len(kept_on_disk(own)) == 1, patient=True)
            wait_ready(cay)
            assert all_ids(cay) == [name]
        with cay.create(template="mine") as one:
            assert one.read("/home/user/file").body == b"one"
        assert delete(cay, name) == 204 and kept_on_disk(own) == []


@pytest.mark.parametrize("victim", ["cayd", "cay-privd"])
def test_one_that_was_not_answered_is_whole_or_gone(own, victim):
    cay = Client(own.url, own.key())
    with cay.create() as box, ThreadPoolExecutor(1) as pool:
        box.write("/home/user/file", b"one")
        for delay_ms in (0, 2, 5, 10):
            def ask():
                try:
                    return cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).status
                except OSError:
                    return None
            asked = pool.submit(ask)
            time.sleep(delay_ms / 1000)
            kill_daemons(own, victim)
            status = asked.result()
            wait_ready(cay)
            until(lambda: box.read("/home/user/file").body == b"one", patient=True)  # the source runs
            ids = all_ids(cay)
            until(lambda: len(kept_on_disk(own)) == len(ids), patient=True)
            if status == 201:
                assert len(ids) == 1
            for one in ids:
                with cay.create(template=one) as made:
                    assert made.read("/home/user/file").body == b"one"
                assert delete(cay, one) == 204


def test_a_name_that_means_something_else_is_refused(cay):
    """A snapshot's comes before the server's templates, and one like an id took the place of the snapshot which that is of."""
    with cay.create() as box:
        made = snapshot(cay, box)["snapshotID"]
        for name in ("host", "base", made, "s" + "0" * 20, "t" + "0" * 20):
            reply = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {"name": name})
            assert reply.status == 400 and "no name for a snapshot" in reply.json["message"], (name, reply.body)
        assert delete(cay, made) == 204
    assert cay.call("GET", "/snapshots?nextToken=zzz").status == 400
