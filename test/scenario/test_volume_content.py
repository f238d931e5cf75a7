"""Contents of volumes without a sandbox: E2B's /volumecontent with the volume's token. Their server is a sandbox of cay's own,
which no list has, and which makes way for what mounts the volume."""

import collections
import hashlib
import http.client
import json
import os
import re
import threading
import urllib.parse

import pytest

from client import Client
from test_pause_files import disk, needs_a_disk  # noqa: F401 (a fixture)
from test_recovery import kill_daemons, wait_ready
from test_volumes import refused, volume, with_volume  # noqa: F401 (a fixture)
from waitlib import until

MIB = 1 << 20
SERVED_MAX = 8  # VOLUME_SERVERS_MAX


class Contents:
    def __init__(self, cay, one, token=None):
        self.cay, self.id = cay, one["volumeID"]
        self.token = token or cay.call("GET", f"/volumes/{self.id}").json["token"]

    def call(self, method, name, body=None, token=True, headers=None, **query):
        sent = {"Authorization": f"Bearer {self.token if token is True else token}"} if token else {}
        words = urllib.parse.urlencode(query)
        return self.cay.call(method, f"/volumecontent/{self.id}/{name}?{words}", body, {**sent, **(headers or {})}, key=False)

    def write(self, path, data, **query):
        return self.call("PUT", "file", data, path=path, headers={"Content-Type": "application/octet-stream"}, **query)

    def read(self, path):
        return self.call("GET", "file", path=path)

    def stat(self, path):
        return self.call("GET", "path", path=path)

    def names(self, path="/", **query):
        return [one["path"] for one in self.call("GET", "dir", path=path, **query).json]


@pytest.fixture()
def contents(cay, volume):  # noqa: F811
    return Contents(cay, volume("contents"))


def test_every_call(cay, contents):
    assert contents.names() == []
    made = contents.call("POST", "dir", path="/a", uid=1001, gid=1002, mode=0o750)
    assert made.status == 201, made.body
    assert {k: made.json[k] for k in ("name", "type", "path", "mode", "uid", "gid")} == {
        "name": "a", "type": "directory", "path": "/a", "mode": 0o750, "uid": 1001, "gid": 1002}
    assert contents.call("POST", "dir", path="/a").status == 409
    assert contents.call("POST", "dir", path="/b/c/d").status == 404
    assert contents.call("POST", "dir", path="/b/c/d", force="true").json["uid"] == 1000
    assert contents.call("POST", "dir", path="/b/c/d", force="true", mode=0o700).json["mode"] == 0o700
    wrote = contents.write("/b/file", b"hello", uid=7, gid=8, mode=0o640)
    assert wrote.status == 201 and (wrote.json["size"], wrote.json["uid"], wrote.json["gid"], wrote.json["mode"]) == (5, 7, 8, 0o640)
    again = contents.write("/b/file", b"hi")  # owner and mode stay
    assert again.status == 201 and (again.json["size"], again.json["uid"], again.json["mode"]) == (2, 7, 0o640)
    assert contents.write("/b/file", b"no", force="false").status == 409
    assert contents.write("/nowhere/file", b"x").status == 404 and contents.write("/b", b"x").status == 400
    assert contents.read("/b/file").body == b"hi"
    assert contents.read("/b/none").status == 404 and contents.read("/b").status == 400
    assert contents.write("/empty", b"").json["mode"] == 0o644 and contents.read("/empty").body == b""
    assert contents.names() == ["/a", "/b", "/empty"]
    assert contents.names(depth=3) == ["/a", "/b", "/b/c", "/b/c/d", "/b/file", "/empty"] and contents.names("/b") == ["/b/c", "/b/file"]
    changed = contents.call("PATCH", "path", {"uid": 3, "mode": 0o600}, path="/b/file")
    assert changed.status == 200 and (changed.json["uid"], changed.json["gid"], changed.json["mode"]) == (3, 8, 0o600)
    assert contents.stat("/b/file").json == changed.json
    assert contents.call("DELETE", "path", path="/b").status == 204 and contents.stat("/b").status == 404
    for status, reply in ((404, contents.call("DELETE", "path", path="/b")), (400, contents.call("DELETE", "path", path="/")),
                          (404, contents.call("GET", "dir", path="/b")), (400, contents.call("GET", "dir", path="/empty")),
                          (404, contents.call("PATCH", "path", {"mode": 1}, path="/b")), (405, contents.call("POST", "file", path="/b"))):
        assert reply.status == status and reply.json["code"] == status and reply.json["message"], reply.body


@pytest.mark.parametrize("query", [{"uid": -1}, {"uid": 65535}, {"gid": "x"}, {"mode": 0o10000}, {"force": "maybe"}, {"path": ""}])
def test_bad_input(contents, query):
    assert contents.call("POST", "dir", **{"path": "/x", **query}).status == 400
    assert contents.stat("/x").status == 404


def test_bad_bodies_and_depths(contents):
    for body in (b"[]", b"{", {"uid": "x"}, {"mode": 0o10000}, {"gid": 1 << 40}):
        assert contents.call("PATCH", "path", body, path="/", headers={"Content-Type": "application/json"}).status == 400
    for depth in (0, 65, "x", -1):
        assert contents.call("GET", "dir", path="/", depth=depth).status == 400


def test_a_sandbox_has_what_was_written_and_the_other_way_round(cay, contents):
    """The sandbox that serves the volume makes way at once, and comes back when the sandbox is gone."""
    assert contents.write("/in", b"from outside").status == 201
    with with_volume(cay, ("contents", "/v")) as box:
        assert box.run("cat /v/in; stat -c ' %U %a' /v/in; echo more > /v/out").out == "from outside user 644\n"
        for reply in (contents.read("/in"), contents.write("/in", b"x"), contents.stat("/")):
            assert reply.status == 409 and box.id in reply.json["message"]
    assert until(lambda: (r := contents.read("/out")).status == 200 and r.body) == b"more\n"


def test_beside_readers_it_reads(cay, contents):
    assert contents.write("/in", b"x").status == 201
    with with_volume(cay, ("contents:ro", "/v")) as box:
        assert contents.read("/in").body == b"x" == box.run("cat /v/in").out.encode()
        reply = contents.write("/in", b"y")
        assert reply.status == 409 and box.id in reply.json["message"]
        with with_volume(cay, ("contents:ro", "/v")) as other:
            assert other.run("cat /v/in").out == "x"
        assert contents.read("/in").body == b"x"
    assert until(lambda: contents.write("/in", b"y").status == 201)


def test_no_list_has_what_serves(cay, contents):
    lists = ("/v2/sandboxes", "/sandboxes", "/api/sandbox", "/cay/v1/volumes")
    before = [cay.call("GET", path).json for path in lists]
    assert contents.names() == []
    assert [cay.call("GET", path).json for path in lists] == before


def test_a_token_opens_its_volume_alone(cay, volume, contents, other_tenant):  # noqa: F811
    """Positive control: the right one. All else is answered alike, and without a token 401."""
    second = Contents(cay, volume("second"))
    theirs = other_tenant.call("POST", "/volumes", {"name": "theirs"}).json
    foreign = Contents(other_tenant, theirs)
    assert contents.stat("/").status == second.stat("/").status == foreign.stat("/").status == 200
    text = set()
    for token in (second.token, foreign.token, cay.key, "0" * 64, contents.token[:-1], contents.token + "0"):
        reply = contents.call("GET", "path", path="/", token=token)
        assert reply.status == 404
        text.add(reply.body)
    nothing = Contents(cay, {"volumeID": "v" + "0" * 19}, contents.token).stat("/")
    assert nothing.status == 404 and {nothing.body} == {one.replace(contents.id.encode(), b"v" + b"0" * 19) for one in text}
    assert contents.call("GET", "path", path="/", token=None).status == 401
    assert contents.call("GET", "path", path="/", token=None, headers={"X-API-Key": cay.key}).status == 401
    assert other_tenant.call("DELETE", f"/volumes/{foreign.id}").status == 204
    assert foreign.stat("/").status == 404


def test_removal_ends_what_serves(cay):
    made = cay.call("POST", "/volumes", {"name": "gone"}).json
    one = Contents(cay, made, made["token"])
    assert one.write("/x", b"x").status == 201
    assert cay.call("DELETE", f"/volumes/{one.id}").status == 204
    assert one.read("/x").status == 404
    assert cay.call("POST", "/volumes", {"name": "gone"}).status == 201  # the name is free, and the files are gone
    again = Contents(cay, cay.call("GET", "/volumes/gone").json)
    assert again.token != one.token and again.names() == [] and one.read("/x").status == 404
    assert cay.call("DELETE", "/volumes/gone").status == 204


def test_paths_lead_nowhere_else(cay, contents):
    """Links of a sandbox's programs, and ".." of the client: the volume is all there is. Positive control: a link within."""
    assert contents.write("/real", b"inside").status == 201
    with with_volume(cay, ("contents", "/v")) as box:
        assert box.run("cd /v; ln -s real near; ln -s /real far; ln -s /etc/passwd out; ln -s ../../../../../etc/passwd up; ln -s / root;"
                       "ln -s /proc/self/environ own; ln -s loop loop; mkdir d; mkfifo d/fifo; ln -s ../real d/in; echo done").out == "done\n"
    until(lambda: contents.stat("/").status == 200)
    for path in ("/near", "near", "/far", "/d/in", "/x/../near", "/../../real", "/root/real", "/root/root/d/../real"):
        assert contents.read(path).body == b"inside", path
    for path in ("/out", "/up", "/own", "/proc", "/proc/self/environ", "/etc/passwd", "/../etc/passwd", "/root/etc/passwd", "/root/proc/1/environ", "/%2e%2e/etc/passwd"):
        assert contents.read(path).status == 404, path
    assert contents.read("/d/fifo").status == contents.read("/loop").status == 400
    for path, target in (("/out", "/etc/passwd"), ("/up", "../../../../../etc/passwd"), ("/loop", "loop")):
        entry = contents.stat(path).json
        assert entry["type"] == "symlink" and entry["target"] == target
    assert contents.stat("/d/fifo").json["type"] == "unknown"
    assert contents.names("/root") == ["/root/" + name for name in sorted(("d", "far", "loop", "near", "out", "own", "real", "root", "up"))]
    assert contents.write("/out", b"x").status == 409  # through a link nothing is made
    assert contents.call("PATCH", "path", {"mode": 0o600}, path="/out").status == 400
    assert contents.call("PATCH", "path", {"uid": 5}, path="/out").json["uid"] == 5
    assert contents.call("DELETE", "path", path="/root").status == 204 and contents.read("/real").body == b"inside"
    assert contents.call("DELETE", "path", path="/d").status == 204


def test_nothing_else_is_served(cay, contents):
    for method, path in (("POST", "/process.Process/Start"), ("GET", "/files?path=/"), ("GET", "/envs"), ("POST", "/init"),
                         ("POST", "/cay/volume-end"), ("GET", "/health")):
        reply = cay.call(method, f"/volumecontent/{contents.id}{path}", key=False, headers={"Authorization": f"Bearer {contents.token}"})
        assert reply.status == 404, (path, reply.status)
    assert contents.stat("/").status == 200


def test_odd_names(contents):
    for name in ("ü", "a b", "a\nb", "%2F", "~", "~root", "#?&=", "\\", "x" * 255):
        path = f"/{name}"
        assert contents.write(path, name.encode()).status == 201, name
        assert contents.read(path).body == name.encode() and contents.stat(path).json["name"] == name
    assert contents.write("/" + "x" * 256, b"").status == 400 and contents.call("GET", "path", path="/" + "x/" * 3000).status == 400


def test_streams_both_ways(cay, volume):  # noqa: F811
    """Larger than all that is held on the way; the client's own memory is a piece."""
    big = Contents(cay, volume("big", 640 * MIB))
    piece, n = os.urandom(MIB), 320
    sent, got = hashlib.sha256(), hashlib.sha256()

    def pieces():
        for i in range(n):
            one = i.to_bytes(8, "big") + piece[8:]
            sent.update(one)
            yield one

    connection = http.client.HTTPConnection(cay.host, cay.port, timeout=120)
    connection.request("PUT", f"/volumecontent/{big.id}/file?path=/big", body=pieces(), encode_chunked=True,
                       headers={"Authorization": f"Bearer {big.token}", "Transfer-Encoding": "chunked"})
    answer = connection.getresponse()
    assert answer.status == 201 and json.loads(answer.read())["size"] == n * MIB
    connection.request("GET", f"/volumecontent/{big.id}/file?path=/big", headers={"Authorization": f"Bearer {big.token}"})
    answer = connection.getresponse()
    while data := answer.read(MIB):
        got.update(data)
    assert got.digest() == sent.digest()
    connection.close()


def test_a_volume_that_is_full(cay, volume):  # noqa: F811
    small = Contents(cay, volume("small", 4 * MIB))
    reply = small.write("/x", os.urandom(16 * MIB))
    assert reply.status == 507, reply.body
    assert small.call("DELETE", "path", path="/x").status == 204


def test_calls_under_way_keep_the_volume(cay, contents):
    """A sandbox that wants it meanwhile is refused, and the upload ends well."""
    connection = http.client.HTTPConnection(cay.host, cay.port, timeout=60)
    connection.putrequest("PUT", f"/volumecontent/{contents.id}/file?path=/slow")
    connection.putheader("Authorization", f"Bearer {contents.token}")
    connection.putheader("Content-Length", str(2 * MIB))
    connection.endheaders()
    connection.send(bytes(MIB))
    until(lambda: contents.stat("/slow").status == 200)
    reply = refused(cay, ("contents", "/v"))
    assert reply.status == 409 and "under way" in reply.json["message"]
    connection.send(bytes(MIB))
    answer = connection.getresponse()
    assert answer.status == 201 and json.loads(answer.read())["size"] == 2 * MIB
    connection.close()
    with with_volume(cay, ("contents", "/v")) as box:
        assert box.run("stat -c %s /v/slow").out == f"{2 * MIB}\n"


@pytest.mark.parametrize("mount", ["contents:ro", "contents"])
def test_reads_beside_creates_are_served(cay, contents, mount):
    """The sandbox that serves the volume makes way for each. A read that was on its way to it then was answered 503, or 409 without a sandbox's id:
    it is begun anew. Beside a sandbox that only reads each is served; beside one that may write it is told which."""
    assert contents.write("/in", b"x").status == 201
    found, stop = collections.Counter(), threading.Event()

    def reads():
        while not stop.is_set():
            reply = contents.read("/in")
            found[reply.status, reply.body if reply.status == 200 else re.sub(r"sandbox \w{21}", "sandbox ID", reply.json["message"])[:60]] += 1

    threads = [threading.Thread(target=reads) for _ in range(12)]
    for t in threads:
        t.start()
    boxes = 0
    try:
        while boxes < 25:
            made = cay.call("POST", "/v2/sandboxes", {"templateID": "host", "volumeMounts": [{"name": mount, "path": "/v"}]})
            if made.status == 409:  # a read is under way
                continue
            assert made.status == 201, made.body
            boxes += 1
            served = found.total()
            until(lambda: found.total() > served, 20, "reads are answered beside it")  # noqa: B023
            read = found[200, b"x"]
            assert cay.call("DELETE", f"/sandboxes/{made.json['sandboxID']}").status == 204
            until(lambda: found[200, b"x"] > read, 20, "and served after it")  # noqa: B023
    finally:
        stop.set()
        for t in threads:
            t.join()
    in_use = (409, "volume 'contents' is in use by sandbox ID: it may be writing")
    assert {*found} == {(200, b"x")} | ({in_use} if mount == "contents" else set()), found


def test_many_calls_at_once(contents):
    """A single sandbox is made for all of them. Beyond its calls at a time the answer is 429."""
    found = []

    def one(i):
        found.append(contents.write(f"/{i}", b"x" * i).status)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) <= {201, 429} and found.count(201) >= 1
    assert len(contents.names()) == found.count(201)


def slow_upload(contents):
    """A call that is under way until its connection is closed."""
    connection = http.client.HTTPConnection(contents.cay.host, contents.cay.port, timeout=60)
    connection.putrequest("PUT", f"/volumecontent/{contents.id}/file?path=/slow")
    connection.putheader("Authorization", f"Bearer {contents.token}")
    connection.putheader("Content-Length", str(2 * MIB))
    connection.endheaders()
    connection.send(bytes(MIB))
    until(lambda: contents.stat("/slow").status == 200, what="the upload is under way")
    return connection


def test_more_volumes_than_are_served_at_a_time(cay, volume):  # noqa: F811
    """The volume whose contents were asked for least lately makes way for the next; where calls are under way for each the answer is 429."""
    many = [Contents(cay, volume(f"many{n}")) for n in range(SERVED_MAX + 2)]
    for n, each in enumerate([*many, *many]):
        assert each.write(f"/{n}", b"x").status == 201, n
    found = []
    threads = [threading.Thread(target=lambda each=each: found.append(each.names())) for each in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(sorted, found)) == sorted(sorted([f"/{n}", f"/{n + len(many)}"]) for n in range(len(many)))
    uploads = [slow_upload(each) for each in many[:SERVED_MAX]]
    reply = many[-1].stat("/")
    assert reply.status == 429 and f"contents of {SERVED_MAX} volumes" in reply.json["message"]
    assert [each.stat("/slow").status for each in many[:SERVED_MAX]] == [200] * SERVED_MAX
    uploads.pop().close()
    until(lambda: many[-1].stat("/").status == 200, what="one whose call has ended makes way")
    for each in uploads:
        each.close()


def test_after_the_ends_of_the_programs(own_server):
    """The sandbox that served is ended by the next start, and the volume is served anew, or mounted."""
    cay = Client(own_server.url, own_server.key())
    contents = Contents(cay, cay.call("POST", "/volumes", {"name": "contents"}).json)
    assert contents.write("/x", b"kept").status == 201
    for names in (["cayd"], ["cay-privd"], ["cayd", "cay-privd"]):
        kill_daemons(own_server, *names)
        wait_ready(cay)
        assert until(lambda: (r := contents.read("/x")).status == 200 and r.body, what=f"it is served after the end of {names}", patient=True) == b"kept"
    kill_daemons(own_server, "cayd")
    wait_ready(cay)
    box = until(lambda: (r := cay.call("POST", "/v2/sandboxes", {"templateID": "host", "volumeMounts": [
        {"name": "contents", "path": "/v"}]})).status == 201 and r.json, what="it is mounted", patient=True)
    assert cay.call("GET", "/v2/sandboxes").json[0]["sandboxID"] == box["sandboxID"] and len(cay.call("GET", "/v2/sandboxes").json) == 1
    assert cay.call("DELETE", f"/sandboxes/{box['sandboxID']}").status == 204
    assert cay.call("DELETE", f"/volumes/{contents.id}").status == 204
    until(lambda: cay.call("GET", "/cay/v1/status").json["sandboxes"] == 0, what="what served has ended")


def test_its_quota(cay, volume, other_tenant):  # noqa: F811
    """The sandbox that serves counts as one of its tenant: at the quota's end there is none, and the answer says why."""
    theirs = Contents(other_tenant, other_tenant.call("POST", "/volumes", {"name": "mine"}).json)
    cay.call("PATCH", "/cay/v1/tenants/others/quota", {"sandboxes": 0})
    reply = theirs.stat("/")
    assert reply.status == 429 and reply.json["message"]
    cay.call("PATCH", "/cay/v1/tenants/others/quota", {"sandboxes": None})
    assert theirs.stat("/").status == 200
    assert other_tenant.call("DELETE", f"/volumes/{theirs.id}").status == 204


def test_read_only_keys_get_no_token(server, cay, contents):
    made = cay.call("POST", "/cay/v1/keys", {"tenant": "default", "label": "r", "role": "read-only"})
    assert made.status == 201, made.body
    reader = Client(server.url, made.json["key"])
    assert reader.call("GET", f"/volumes/{contents.id}").json["token"] == ""
