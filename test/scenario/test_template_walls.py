"""The resources of a build of a template, and what it cannot reach: archives that are too many, a disk that is full,
commands that do not end, fork or write without end, files of the host and of others. Refused, or ended with the reason in
its log; nothing is left. Without a network."""

import hashlib
import http.client
import json
import os
import pathlib
import socket
import urllib.parse
import uuid

import pytest
from client import Client
from conftest import OwnServer
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from test_template_builder import (address, archive, copy, ended, name, of_builds, put, request, run, send, start,  # noqa: F401
                                   status)
from test_tenants import tenant, used  # noqa: F401 (a fixture)
from waitlib import until

MIB = 1 << 20
FILES_EACH, UPLOADS = 256, 4  # CORE_BUILD_FILES_EACH, CORE_BUILD_UPLOADS


def failed(client, made, step):
    said = ended(client, made)
    assert said["status"] == "error" and said["reason"]["step"] == step, said
    assert of_builds(client) == []
    return said["reason"]["message"]


def present(client, made, files_hash):
    return address(client, made, files_hash).json["present"]


# -- archives ------------------------------------------------------------------------------------------

def send_all(client, made, hashes):
    """Over one connection."""
    there = urllib.parse.urlsplit(client.url)
    connection, said = http.client.HTTPConnection(there.hostname, there.port, timeout=60), []
    for one in hashes:
        url = urllib.parse.urlsplit(address(client, made, one).json["url"])
        connection.request("PUT", f"{url.path}?{url.query}", body=b"x")
        reply = connection.getresponse()
        reply.read()
        said.append(reply.status)
    connection.close()
    return said


def test_more_archives_than_a_tenant_may_have(cay, tenant, name):  # noqa: F811
    made = request(tenant, name)
    theirs = request(cay, name)
    kept = send(cay, theirs, b"of another tenant " + os.urandom(8))
    hashes = [f"{i:064x}" for i in range(FILES_EACH + 1)]
    assert send_all(tenant, made, hashes) == [200] * len(hashes)
    assert [present(tenant, made, one) for one in (hashes[1], hashes[-2], hashes[-1])] == [True] * 3
    assert not present(tenant, made, hashes[0])  # which was not used for longest
    assert present(cay, theirs, kept)
    assert tenant.call("DELETE", f"/templates/{name}").status == 204


def begin_upload(url):
    """A client that sends a part, and then nothing."""
    parts = urllib.parse.urlsplit(url)
    s = socket.create_connection((parts.hostname, parts.port), timeout=60)
    s.sendall(f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n0123456789".encode())
    return s


def test_more_archives_at_a_time(cay, own_server, name):  # noqa: F811
    made = request(cay, name)
    url = [address(cay, made, f"{i:064x}").json["url"] for i in range(UPLOADS + 2)]
    count = lambda: sum(len(one) == 16 for one in os.listdir(own_server.state / "cayd" / "builds"))  # noqa: E731
    if own_server is None:
        pytest.skip("needs a server of its own")
    held = [begin_upload(url[i]) for i in range(UPLOADS)]
    until(lambda: count() == UPLOADS, what="they are being received")
    refused = put(url[UPLOADS], b"x")
    assert refused.status_code == 429 and "at a time" in refused.json()["message"], refused.text
    held[0].close()
    until(lambda: put(url[UPLOADS], b"x").status_code == 200, what="another is received when one has gone")
    held[1].sendall(b"x" * 90)  # the others are as they were
    assert held[1].recv(100).startswith(b"HTTP/1.1 200")
    for one in held:
        one.close()
    until(lambda: count() == 0, what="what was cut is removed")
    assert [present(cay, made, f"{i:064x}") for i in range(UPLOADS + 1)] == [False, True, False, False, True]


# -- commands ------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def short_lived():
    """A server whose sandboxes live half a minute, and whose builds half of that."""
    server = OwnServer(cayd_args=["--sandbox-default-ttl=20s", "--sandbox-max-ttl=30s"])
    yield Client(server.url, server.key())
    server.stop()


NEVER_READY = (("false", "its last status is 1"), ("sleep 1000", "no call of it ended"), ("yes", "no call of it ended"),
               ("exec 2>&1; echo no such thing; exit 77", "its last status is 77"))


def test_ready_commands_that_never_succeed(short_lived):
    """A ready command that fails, that hangs, that writes without end, that says why it fails: all at once."""
    made = [request(short_lived, f"never-ready:v{i}") for i in range(len(NEVER_READY))]
    for one, (ready, _) in zip(made, NEVER_READY):
        assert start(short_lived, one, startCmd="sleep 1000", readyCmd=ready).status == 202
    for one, (ready, why) in zip(made, NEVER_READY):
        said = ended(short_lived, one)
        assert said["status"] == "error" and said["reason"]["step"] == "finalize", said
        message = said["reason"]["message"]
        assert "the ready command did not succeed within 1" in message and why in message, (ready, message)
    assert of_builds(short_lived) == []
    assert short_lived.call("GET", "/templates/aliases/never-ready").status == 404
    assert short_lived.call("DELETE", "/templates/never-ready").status == 204


def test_a_ready_command_that_says_much(cay, name):  # noqa: F811
    made = request(cay, name)
    assert start(cay, made, startCmd="sleep 1000", readyCmd="head -c 30000000 /dev/zero; head -c 30000000 /dev/zero >&2").status == 202
    said = ended(cay, made)
    assert said["status"] == "ready" and len(said["logEntries"]) < 20, said


def test_a_start_command_that_says_much(cay, name):  # noqa: F811
    made = request(cay, name)
    assert start(cay, made, startCmd="yes | head -c 20000000; sleep 1000", readyCmd="sleep 1").status == 202
    assert ended(cay, made)["status"] == "ready"
    last = status(cay, made, "?logsOffset=4095")["logEntries"]
    assert [line["message"] for line in last] == ["the log is full: lines from here on are not kept"]


def test_a_step_that_fills_the_disk(cay, tenant, name):  # noqa: F811
    made = request(tenant, name)
    step = run("head -c 3000000000 /dev/zero > /var/tmp/big || { cat /nothing; exit 9; }", "root")
    assert start(tenant, made, steps=[run("true"), step]).status == 202
    message = failed(tenant, made, "2")
    assert "status 9" in message and "quota exceeded" in message, message
    assert start(tenant, other := request(tenant, name), steps=[run("echo there is room > /tmp/x; cat /tmp/x")]).status == 202
    assert ended(tenant, other)["status"] == "ready"
    assert tenant.call("DELETE", f"/templates/{name}").status == 204
    until(lambda: used(tenant)["snapshots"] == 0, what="nothing of it is kept")


def test_files_that_fill_the_disk(cay, tenant, name):  # noqa: F811
    """An archive of a few KiB that unpacks to more than the sandbox has."""
    made = request(tenant, name)
    bomb = archive([("zeros", bytes(600 * MIB))])
    assert len(bomb) < MIB
    files_hash = send(tenant, made, bomb)
    assert start(tenant, made, steps=[copy(files_hash, "zeros", "/srv/zeros")]).status == 202
    said = ended(tenant, made)
    assert said["status"] == "error" and "quota exceeded" in said["reason"]["message"], said
    assert of_builds(tenant) == [] and tenant.call("DELETE", f"/templates/{name}").status == 204
    until(lambda: used(tenant)["snapshots"] == 0, what="nothing of it is kept")


def processes_of(server):
    """Of its sandboxes, by their range of uids."""
    low, high, n = server.uid_base, server.uid_base + server.slots_max * 65536, 0
    for one in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            n += low <= one.stat().st_uid < high
        except OSError:
            continue
    return n


def test_a_step_that_forks_without_end(cay, own_server, name):  # noqa: F811
    """No further than the sandbox's own limit of processes; they end with its build."""
    if own_server is None:
        pytest.skip("needs a server of its own")
    made = request(cay, name)
    bomb = "i=0; while [ $i -lt 3000 ]; do sleep 1000 & i=$((i+1)); done 2>/dev/null; echo began; exit 5"
    before = processes_of(own_server)
    assert start(cay, made, steps=[run(bomb, "root")]).status == 202
    box = until(lambda: of_builds(cay), what="its sandbox is there")[0]
    until(lambda: ended_or_many(cay, made, own_server, before), 60, "it has as many processes as it may have")
    assert processes_of(own_server) - before < 700  # 512, and what begins sandboxes
    cay.call("DELETE", f"/sandboxes/{box['sandboxID']}")
    assert failed(cay, made, "1")
    until(lambda: processes_of(own_server) <= before + 8, 60, "its processes are gone")


def ended_or_many(cay, made, server, before):
    return status(cay, made)["status"] == "error" or processes_of(server) - before > 400


# -- what is not theirs --------------------------------------------------------------------------------

def test_files_of_the_host(cay, own_server, name, tmp_path):  # noqa: F811
    """By names that lead out of the archive, by links in it, by a command: only its own mark is found (the control)."""
    mark = f"mark-{uuid.uuid4().hex}"
    host = pathlib.Path("/var/tmp") / mark
    host.write_text("of the host\n")
    try:
        made = request(cay, name)
        body = archive([("out", str(host)), ("up", "../" * 12 + f"var/tmp/{mark}"), ("own", b"of the archive\n")])
        files_hash = send(cay, made, body)
        for source in (str(host), "../" * 12 + f"var/tmp/{mark}", f"./../../var/tmp/{mark}"):
            one = request(cay, name)
            assert start(cay, one, steps=[copy(files_hash, source, "/srv/"), run(f"! grep -rs 'of the [h]ost' /srv")]).status == 202
            ended(cay, one)
        assert start(cay, made, steps=[copy(files_hash, ".", "/srv/"), run(
            f"cat /srv/own; cat /srv/out /srv/up; echo mine > /srv/{mark}; find / -xdev -name '{mark}' 2>/dev/null; "
            f"ls {own_server.base if own_server else '/var/lib/cay'} 2>/dev/null; true", "root")]).status == 202
        said = ended(cay, made)
        texts = [line["message"] for line in said["logEntries"]]
        assert said["status"] == "ready" and "of the archive" in texts and f"/srv/{mark}" in texts
        assert "of the host" not in "\n".join(texts) and f"/var/tmp/{mark}" not in texts and "cayd" not in texts, texts
    finally:
        host.unlink()


SEARCH = ("for d in / /proc/[0-9]*/root /proc/[0-9]*/cwd /proc/[0-9]*/fd/*; do find -H $d -maxdepth 6 -name '{mark}' 2>/dev/null; done; "
          "sed -n 's/.*\\(lowerdir\\|upperdir\\|workdir\\)=\\([^,:]*\\).*/\\2/p' /proc/self/mountinfo | while read p; do ls $p/../../* 2>/dev/null; done; "
          "i=0; while [ $i -lt 8 ]; do mknod /tmp/b$i b 7 $i && grep -ac '{mark}' /tmp/b$i && echo read; i=$((i+1)); done 2>/dev/null; "
          "mkdir /tmp/m; for t in btrfs overlay; do mount -t $t /dev/loop0 /tmp/m && echo mounted; done 2>/dev/null; echo done")


def test_layers_of_another_tenant(cay, tenant, name):  # noqa: F811
    """By any path, link, device or mount that root of a step can try: only its own is found (the control)."""
    mark = f"mark-{uuid.uuid4().hex}"
    made = request(cay, name)
    step = run(f"mkdir /srv/d && echo x > /srv/d/{mark}", "root")
    assert start(cay, made, steps=[step]).status == 202 and ended(cay, made)["status"] == "ready"
    found = {}
    with cay.create(template=name):  # its layer is mounted on this machine meanwhile
        for client, steps in ((tenant, []), (cay, [step])):
            one = request(client, f"{name}-2")
            assert start(client, one, steps=[*steps, run(SEARCH.replace("{mark}", mark), "root")]).status == 202
            said = ended(client, one)
            assert said["status"] == "ready", said
            found[client] = [line["message"] for line in said["logEntries"] if not line["message"].startswith("[")]
            assert client.call("DELETE", f"/templates/{name}-2").status == 204
    assert f"/srv/d/{mark}" in found[cay] and "done" in found[cay]
    assert "done" in found[tenant] and not any(mark in line or line in ("read", "mounted") for line in found[tenant]), found[tenant]


def test_a_step_of_another_tenant_is_not_found_by_its_hash(cay, tenant, name):  # noqa: F811
    """Its files, its step, its place are the same: what the other has sent and run is not used."""
    body = archive([("secret", b"of the first tenant\n")])
    files_hash, steps = hashlib.sha256(body).hexdigest(), []
    made = request(cay, name)
    assert send(cay, made, body) == files_hash
    steps = [copy(files_hash, "secret", "/srv/secret"), run("cat /srv/secret")]
    assert start(cay, made, steps=steps).status == 202 and ended(cay, made)["status"] == "ready"
    again = request(cay, name)
    assert start(cay, again, steps=steps).status == 202  # the control: for itself nothing is run again
    assert sum(line["message"].startswith("CACHED [") for line in ended(cay, again)["logEntries"]) == 2
    theirs = request(tenant, name)
    assert start(tenant, theirs, steps=steps).status == 202
    message = failed(tenant, theirs, "1")
    assert "not sent" in message
    assert "first tenant" not in str(status(tenant, theirs)) and not present(tenant, theirs, files_hash)
    # the bytes of its own are under the same hash, and are its own
    own = archive([("secret", b"of the second\n")])
    assert put(address(tenant, theirs, files_hash).json["url"], own).status_code == 200
    one = request(tenant, name)
    assert start(tenant, one, steps=steps).status == 202
    texts = [line["message"] for line in ended(tenant, one)["logEntries"]]
    assert "of the second" in texts and not any("CACHED" in text or "first tenant" in text for text in texts), texts
    with cay.create(template=name) as box:
        assert box.run("cat /srv/secret").out == "of the first tenant\n"
    assert tenant.call("DELETE", f"/templates/{name}").status == 204


def test_what_a_build_says_stays_with_its_tenant(cay, own_server, tenant, name):  # noqa: F811
    """A value in its steps, its variables or its output is in its own log alone, not in the server's."""
    if own_server is None:
        pytest.skip("needs a server of its own")
    word = f"word-{uuid.uuid4().hex}"
    made = request(tenant, name)
    steps = [{"type": "ENV", "args": ["TOKEN", word]}, run(f"echo {word}; echo $TOKEN >&2; exit 3")]
    assert start(tenant, made, steps=steps, startCmd=f"echo {word}").status == 202
    assert word in failed(tenant, made, "2")
    assert cay.call("GET", f"/templates/{made['templateID']}/builds/{made['buildID']}/status").status == 404
    assert word not in own_server.log.read_text()
    assert tenant.call("DELETE", f"/templates/{name}").status == 204


# -- what clients see of a template --------------------------------------------------------------------

def test_sandboxes_show_their_template(cay, name):  # noqa: F811
    """As E2B's: templateID is the template's, which stays when it is built anew; alias is its name."""
    made = request(cay, name)
    assert start(cay, made, steps=[run("true")]).status == 202 and ended(cay, made)["status"] == "ready"
    with cay.create(template=f"{name}:default") as one, cay.create(template=made["templateID"]) as two, cay.create() as other:
        ids = {one.id, two.id}
        shown = [cay.call("GET", f"/sandboxes/{box.id}").json for box in (one, two)]
        assert [(s["templateID"], s["alias"]) for s in shown] == [(made["templateID"], name)] * 2
        assert one.run("echo $E2B_TEMPLATE_ID").out.strip() == made["templateID"]
        created = [json.loads(line) for line in cay.call("GET", "/cay/v1/events?since=0&follow=0").body.splitlines()]
        assert {e["templateID"] for e in created if e["type"] == "sandbox.created" and e["sandbox"] in ids} == {made["templateID"]}
        assert cay.call("GET", f"/api/sandbox/{one.id}").json["snapshot"] == name  # Daytona's word for it
        listed = lambda wanted: {box["sandboxID"] for box in cay.call("GET", f"/v2/sandboxes?template={wanted}").json}  # noqa: E731
        assert listed(name) == listed(made["templateID"]) == listed(f"{name}:default") == ids
        assert other.id in listed("host") and not ids & listed("host")
        reply = cay.call("POST", f"/sandboxes/{one.id}/fork", {"count": 1})
        assert reply.status == 201, reply.body
        fork = reply.json[0]["sandbox"]
        assert fork["templateID"] == made["templateID"] and fork["alias"] == name
        assert cay.call("DELETE", f"/sandboxes/{fork['sandboxID']}").status == 204
        again = request(cay, name)
        assert start(cay, again, steps=[run("echo other")]).status == 202 and ended(cay, again)["status"] == "ready"
        assert cay.call("GET", f"/sandboxes/{one.id}").json["templateID"] == made["templateID"] == again["templateID"]
        assert cay.call("DELETE", f"/templates/{name}").status == 204
        after = cay.call("GET", f"/sandboxes/{one.id}").json
        assert after["templateID"] == made["templateID"] and "alias" not in after and listed(made["templateID"]) == ids
