"""Snapshots as files for other servers (docs/snapshots.md, "As a file"): their return, here and on another server with the same
key, and refusals. Each refusal of changed bytes has a control: the same bytes with the MACs that they would have
are taken, so that it is the MACs alone which refuse them."""

import hmac
import http.client
import os
import pathlib
import struct
import subprocess
import threading
import time

import pytest
from client import Client
from conftest import BUILD, OwnServer
from imagelib import layout
from importerlib import shell
from test_archive import FILL, HIDE, SEAL, SHOW
from test_recovery import daemons, kill_daemons, wait_ready
from waitlib import until

CAY = BUILD / "src/cli/cay"
PIECE, MAC, HEADER, FOOTER = 1 << 20, 32, 512, 16
KEY = bytes(range(32))
EXPORT_MAX_S = 120
IMPORT = "/cay/v1/snapshots/import"


def key_file(tmp, name, text):
    path = tmp / name
    path.write_bytes(text)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Two with one key, and one with none."""
    tmp = pathlib.Path(tmp_path_factory.mktemp("keys"))
    keys = [key_file(tmp, "hex", KEY.hex().encode() + b"\n"), key_file(tmp, "raw", KEY), None]
    made = []
    try:
        for key in keys:
            made.append(OwnServer(privd_args=(f"--seal={SEAL}", *([f"--exchange-key={key}"] if key else []))))
        if Client(made[0].url, made[0].key()).call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
            pytest.skip("files are in memory here")
        yield made
    finally:
        for server in made:
            server.stop()


class Place:
    """A server, and its operator as a client."""

    def __init__(self, own):
        self.own, self.cay = own, Client(own.url, own.key())

    def disk(self):
        return pathlib.Path(f"/proc/{daemons(self.own, 'cay-privd')[0]}/root/{self.own.state}/privd/disk")

    def left(self):
        """Names of kept files, of those that are half made, and of those that are being received."""
        spool = pathlib.Path(self.own.state) / "images"
        return {"kept": os.listdir(self.disk() / "kept"), "archiving": os.listdir(self.disk() / "archiving"), "images": os.listdir(spool)}


NOTHING = {"kept": [], "archiving": [], "images": []}


@pytest.fixture
def places(servers):
    all_ = [Place(own) for own in servers]
    yield all_
    for place in all_:
        for one in place.cay.call("GET", "/v2/sandboxes?state=running,paused&limit=100").json:
            place.cay.call("DELETE", f"/sandboxes/{one['sandboxID']}")
        for one in place.cay.call("GET", "/snapshots").json:
            place.cay.call("DELETE", f"/templates/{one['snapshotID']}")
        until(lambda p=place: p.left() == NOTHING, what=lambda p=place: f"the end of what was made: {p.left()}")


def snapshot(place, script="echo one > /home/user/here", python=None, name=None):
    """The id of a snapshot of a sandbox with these files, and what SHOW sees of them."""
    with place.cay.create() as box:
        assert box.run(script, user="root").exit_code == 0
        if python:
            assert run_python(box, python + '\nprint("done")') == "done\n"
            assert box.run(HIDE, user="root").exit_code == 0
        seen = run_python(box, SHOW) if python else None
        r = place.cay.call("POST", f"/sandboxes/{box.id}/snapshots", {"name": name} if name else {})
        assert r.status == 201, r.body
    return r.json["snapshotID"], seen


def run_python(box, script):
    r = box.run(f"exec /usr/bin/python3 -c '{script}'", user="root")
    assert r.exit_code == 0, r.stderr
    return r.out


def export(place, id_):
    return place.cay.call("GET", f"/cay/v1/snapshots/{id_}/export", timeout=EXPORT_MAX_S)


def exported(place, id_):
    r = export(place, id_)
    assert r.status == 200, r.body
    assert r.headers["Content-Type"] == "application/vnd.cay.snapshot" and int(r.headers["Content-Length"]) == len(r.body)
    return r.body


def import_(place, body, name=None, client=None):
    return (client or place.cay).call("POST", IMPORT + (f"?name={name}" if name else ""), body, timeout=EXPORT_MAX_S)


# -- the format, written anew ---------------------------------------------------------------------------


def parts(file):
    """SquashFS, header, MACs."""
    magic, n = struct.unpack("<QQ", file[-FOOTER:])
    assert magic == 0x3161796163726331 and len(file) == n + -(-n // PIECE) * MAC + FOOTER
    return file[:n - HEADER], file[n - HEADER:n], file[n:-FOOTER]


def signed(squashfs, header, key=KEY):
    """As docs/snapshots.md and src/seal/sign.h say that it is."""
    body = squashfs + header
    of_file = hmac.digest(key, b"cay-seal exchange 1\0" + b"cay exchange 1".ljust(128, b"\0") + struct.pack("<Q", len(body)) + header, "sha256")
    macs = b"".join(hmac.digest(of_file, struct.pack("<Q", i) + body[i * PIECE:(i + 1) * PIECE], "sha256") for i in range(-(-len(body) // PIECE)))
    return body + macs + struct.pack("<QQ", 0x3161796163726331, len(body))


def with_text(header, at, size, text):
    return header[:at] + text.encode().ljust(size, b"\0") + header[at + size:]


NAME_AT, NAME_SIZE, SYSTEM_AT, SYSTEM_SIZE, SIZES_AT = 56, 68, 196, 64, 260


# -- what comes back ------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [0, 1])
def test_all_of_the_files_come_back(places, to):
    """To the server itself, after the snapshot has gone, and to another one with the same key."""
    id_, seen = snapshot(places[0], python=FILL, name="full")
    file = exported(places[0], id_)
    assert signed(*parts(file)[:2]) == file, "it is signed as the page says"
    assert places[0].cay.call("DELETE", f"/templates/{id_}").status == 204
    r = import_(places[to], file, "again")
    assert r.status == 201 and r.json["names"] == ["again:default"] and r.json["snapshotID"] != id_, r.body
    kept = places[to].left()
    assert len(kept["kept"]) == 1 and kept["archiving"] == kept["images"] == []
    layer = places[to].disk() / "kept" / kept["kept"][0]
    assert sorted(os.listdir(layer)) == ["archive", "root", "root.work", "usr", "usr.work"]
    assert os.listdir(layer / "root") == ["etc"] and os.listdir(layer / "usr") == [], "nothing is unpacked"
    # "file" is below what its sandboxes write: two of them, a fork, a snapshot, a rollback.
    with places[to].cay.create(template="again") as box, places[to].cay.create(template=r.json["snapshotID"]) as other:
        assert run_python(box, SHOW) == seen and run_python(other, SHOW) == seen
        assert box.run("cat /etc/hostname").out.strip() == box.id
        assert box.run("echo two > /root/t/text; rm -r /root/t/many1 /usr/local/t; echo three > /root/t/more", user="root").exit_code == 0
        made = places[to].cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"]
        refused = export(places[to], made)
        assert refused.status == 409 and "file below them" in refused.json["message"]
        fork = places[to].cay.call("POST", f"/sandboxes/{box.id}/fork", {}).json[0]["sandbox"]["sandboxID"]
        with places[to].cay.create(template=made) as third:
            assert third.run("cat /root/t/text /root/t/more; ls -d /root/t/many1 /usr/local/t | wc -l", user="root").out.split() == ["two", "three", "0"]
        assert places[to].cay.call("DELETE", f"/sandboxes/{fork}").status == 204
        back = places[to].cay.call("POST", f"/cay/v1/sandboxes/{box.id}/rollback", {"snapshotID": "again"})
        assert back.status == 200 and run_python(box, SHOW) == seen
        assert places[to].cay.call("POST", f"/sandboxes/{other.id}/pause", {"memory": False}).status == 204
        assert "archived before" in places[to].cay.call("POST", f"/cay/v1/sandboxes/{other.id}/archive", {}).json["message"]
    assert places[to].cay.call("GET", "/snapshots?name=again").json[0]["sandboxID"] == ""


def test_a_server_without_a_key_takes_its_own_back(places):
    id_, _ = snapshot(places[2])
    file = exported(places[2], id_)
    assert places[2].cay.call("DELETE", f"/templates/{id_}").status == 204
    r = import_(places[2], file)
    assert r.status == 201
    with places[2].cay.create(template=r.json["snapshotID"]) as box:
        assert box.run("cat /home/user/here").out == "one\n"
    for place in places[:2]:
        r = import_(place, file)
        assert r.status == 400 and "another key" in r.json["message"]
    r = import_(places[2], exported(places[0], snapshot(places[0])[0]))
    assert r.status == 400 and "another key" in r.json["message"]


def test_by_the_command_line(places, tmp_path):
    id_, _ = snapshot(places[0], name="tools")
    file = tmp_path / "tools.snapshot"

    def cay(place, *words):
        return subprocess.run([CAY, *words], env={**os.environ, "CAY_URL": place.own.url, "E2B_API_KEY": place.own.key()}, capture_output=True,
                              text=True, timeout=EXPORT_MAX_S)

    done = cay(places[0], "snapshot", "export", "tools", str(file))
    assert done.returncode == 0 and done.stdout.startswith("tools is in "), done.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    done = cay(places[1], "snapshot", "import", str(file), "mine")
    assert done.returncode == 0, done.stderr
    assert places[1].cay.call("GET", "/snapshots?name=mine").json[0]["snapshotID"] == done.stdout.strip()
    bad = bytearray(file.read_bytes())
    bad[100] ^= 1
    file.write_bytes(bad)
    done = cay(places[1], "snapshot", "import", str(file))
    assert done.returncode == 1 and "piece 0, from byte 0" in done.stderr
    done = cay(places[0], "snapshot", "export", "none", str(tmp_path / "none"))
    assert done.returncode == 1 and "no snapshot" in done.stderr and not (tmp_path / "none").exists()


# -- what is refused ------------------------------------------------------------------------------------


def test_a_bit_that_changed_anywhere_is_refused(places):
    """A bit in each 4 KiB, and in header, MACs and footer. The control: with the MACs of the changed bytes, which only the key gives, it is taken,
    and the sandbox sees them."""
    id_, _ = snapshot(places[0], "head -c 60000 /dev/urandom > /home/user/random; echo plain-text-of-mine > /home/user/here")
    file = exported(places[0], id_)
    squashfs, header, macs = parts(file)
    points = [*range(7, len(file), 4096), *(len(squashfs) + at for at in (0, 9, 20, 60, 300, 511)), len(squashfs) + HEADER, len(file) - FOOTER - 1,
              *range(len(file) - FOOTER, len(file), 5)]
    assert len(points) < 200
    for at in points:
        bad = bytearray(file)
        bad[at] ^= 1 << (at % 8)
        r = import_(places[1], bytes(bad))
        assert r.status == 400, (at, r.status, r.body)
    assert places[1].left() == NOTHING
    assert import_(places[1], file).status == 201
    # The first page has the super block, whose times the kernel does not look at.
    changed = squashfs[:8] + struct.pack("<I", 1) + squashfs[12:]
    assert changed != squashfs and import_(places[1], changed + file[len(squashfs):]).status == 400
    r = import_(places[1], signed(changed, header))
    assert r.status == 201, r.body
    with places[1].cay.create(template=r.json["snapshotID"]) as box:
        assert box.run("cat /home/user/here").out == "plain-text-of-mine\n"
    assert import_(places[1], signed(squashfs, header, key=bytes(32))).status == 400


def test_pieces_of_two_files_do_not_mix(places):
    """Of one length, from one key: a piece, the MACs, or the header of the other. The control is each file itself."""
    ids = [snapshot(places[0], f"head -c {3 << 20} /dev/urandom > /home/user/random")[0] for _ in range(2)]
    files = [exported(places[0], id_) for id_ in ids]
    one, two = parts(files[0]), parts(files[1])
    length = min(len(one[0]), len(two[0]))
    length -= length % PIECE
    assert length >= 2 * PIECE
    a, b = one[0][:length], two[0][:length]  # cut to one length: no file system, but the MACs are looked at first
    first, second = signed(a, one[1][:16] + struct.pack("<Q", length) + one[1][24:]), signed(b, two[1][:16] + struct.pack("<Q", length) + two[1][24:])
    assert len(first) == len(second)
    n = length + HEADER
    mixed = [
        second[:PIECE] + first[PIECE:],  # a piece
        second[:PIECE] + first[PIECE:n] + second[n:n + MAC] + first[n + MAC:],  # with its MAC
        first[PIECE:2 * PIECE] + first[:PIECE] + first[2 * PIECE:n] + first[n + MAC:n + 2 * MAC] + first[n:n + MAC] + first[n + 2 * MAC:],  # moved
        first[:length] + second[length:n] + first[n:],  # the header
        first[:n] + second[n:],  # all MACs
    ]
    for i, file in enumerate(mixed):
        r = import_(places[1], file)
        assert r.status == 400 and "damaged" in r.json["message"], (i, r.body)
    for file in files:
        assert import_(places[1], file).status == 201


def test_cut_extended_and_foreign_files_are_refused(places):
    file = exported(places[0], snapshot(places[0])[0])
    squashfs, header, macs = parts(file)
    archive_of_no_header = squashfs + b"\0" * MAC * (-(-len(squashfs) // PIECE)) + struct.pack("<QQ", 0x3161796163726331, len(squashfs))
    for bad in (b"", b"x", file[:-1], file[1:], file + b"\0", file[:4096], file[FOOTER:], file * 2, squashfs, archive_of_no_header, b"\0" * len(file)):
        r = import_(places[1], bad)
        assert r.status == 400 and "no exported snapshot" in r.json["message"], (len(bad), r.body)
    connection = places[1].cay.connect()
    connection.putrequest("POST", IMPORT)
    connection.putheader("X-API-Key", places[1].cay.key)
    connection.putheader("Content-Length", str(3 << 30))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    assert places[1].left() == NOTHING
    # Headers that the key has signed are believed, and what they ask for has to be there.
    r = import_(places[1], signed(squashfs, with_text(header, NAME_AT, NAME_SIZE, "absent")))
    assert r.status == 409 and "'absent'" in r.json["message"] and "cay template build absent" in r.json["hint"]
    r = import_(places[1], signed(squashfs, with_text(header, NAME_AT + NAME_SIZE, 72, "sha256:" + "0" * 64)))
    assert r.status == 409 and "sha256:0000" in r.json["message"]
    r = import_(places[1], signed(squashfs, with_text(header, SYSTEM_AT, SYSTEM_SIZE, "debian 3")))
    assert r.status == 409 and "of debian 3, and this server's is of" in r.json["message"]
    r = import_(places[1], signed(squashfs, header[:8] + struct.pack("<I", 9) + header[12:]))
    assert r.status == 400 and "another version" in r.json["message"]
    assert places[1].left() == NOTHING and import_(places[1], signed(squashfs, header)).status == 201


def test_names_that_mean_something_else_are_refused(places):
    """Of a template of the server's, or like an id: a create by it would begin with the file. The control is another name."""
    id_, _ = snapshot(places[0])
    file = exported(places[0], id_)
    for name in ("host", "base", id_, "s" + "0" * 20, "t" + "0" * 20):
        r = import_(places[1], file, name)
        assert r.status == 400 and "no name for a snapshot" in r.json["message"], (name, r.body)
    assert places[1].left() == NOTHING
    r = import_(places[1], file, "host-of-mine")
    assert r.status == 201 and r.json["names"] == ["host-of-mine:default"]


def test_sizes_that_no_sandbox_can_have_are_refused(places):
    """Its creates would ask for them. The control: the least and the most that one can have."""
    squashfs, header, _ = parts(exported(places[0], snapshot(places[0])[0]))

    def taken(memory=16 << 20, disk=1 << 20, cpu=10):
        sizes = header[:SIZES_AT] + struct.pack("<IQQ", cpu, memory, disk) + header[SIZES_AT + 20:]
        return import_(places[1], signed(squashfs, sizes))

    assert struct.unpack("<IQQ", header[SIZES_AT:SIZES_AT + 20]) == (2000, 512 << 20, 1 << 30)
    for bad in ({"memory": 0}, {"memory": (16 << 20) - 1}, {"memory": (16 << 40) + 1}, {"memory": (1 << 64) - 1}, {"disk": 0}, {"disk": (1 << 20) - 1},
                {"disk": (64 << 40) + 1}, {"disk": 1 << 63}, {"cpu": 0}, {"cpu": 9}, {"cpu": 1024001}, {"cpu": (1 << 32) - 1}):
        r = taken(**bad)
        assert r.status == 400 and "which none can have" in r.json["message"], (bad, r.body)
        assert str(*bad.values()) in r.json["message"]
    assert places[1].left() == NOTHING
    assert taken().status == 201
    r = taken(16 << 40, 64 << 40, 1024000)
    assert r.status == 201, r.body
    with places[1].cay.create(template=r.json["snapshotID"]) as box:
        assert box.run("cat /home/user/here").out == "one\n"
        told = places[1].cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json
        assert (told["memoryBytes"], told["diskBytes"]) == (16 << 40, 64 << 40)


def test_a_template_of_an_image_is_found_by_its_digest(places, tmp_path):
    """It has another name on the other server; without it nothing is taken."""
    from_image = layout(tmp_path, [shell()])

    def cay(place, *words):
        done = subprocess.run([CAY, *words], env={**os.environ, "CAY_URL": place.own.url, "E2B_API_KEY": place.own.key()}, capture_output=True,
                              text=True, timeout=EXPORT_MAX_S)
        assert done.returncode == 0, done.stderr

    def take_image(place, name):
        cay(place, "template", "import", f"--state-dir={place.own.state}", name, f"oci:{tmp_path}")

    take_image(places[0], "mine")
    try:
        with places[0].cay.create(template="mine") as box:
            assert box.run("echo one > /home/user/here").exit_code == 0
            id_ = places[0].cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"]
        file = exported(places[0], id_)
        refused = import_(places[1], file)
        assert refused.status == 409 and from_image in refused.json["message"] and "'mine'" in refused.json["message"]
        take_image(places[1], "yours")
        r = import_(places[1], file)
        assert r.status == 201 and r.json["templateID"] == "yours"
        with places[1].cay.create(template=r.json["snapshotID"]) as box:
            assert box.run("read x < /home/user/here; echo $x").out == "one\n"
        assert places[1].cay.call("DELETE", "/cay/v1/templates/yours").status == 409, "the snapshot lies on it"
        for place in places[:2]:
            for one in place.cay.call("GET", "/snapshots").json:
                assert place.cay.call("DELETE", f"/templates/{one['snapshotID']}").status == 204
    finally:
        for place, name in ((places[0], "mine"), (places[1], "yours")):
            until(lambda p=place, n=name: p.cay.call("DELETE", f"/cay/v1/templates/{n}").status in (204, 404), what="the end of the template")


def test_what_cannot_be_exported_is_said(places):
    cases = [("setfattr -n user.mine -v x /etc || python3 -c 'import os; os.setxattr(\"/etc\", \"user.mine\", b\"x\")'", "/etc has extended attributes"),
             ("truncate -s 1T /home/user/longer", "32 GiB")]
    for script, reason in cases:
        id_, _ = snapshot(places[0], script)
        r = export(places[0], id_)
        assert r.status == 409 and reason in r.json["message"], r.body
        assert len(places[0].left()["kept"]) >= 1 and places[0].left()["archiving"] == []
        with places[0].cay.create(template=id_):
            pass


def test_of_another_tenant_and_by_its_roles(places):
    id_, _ = snapshot(places[0], name="mine")
    other = Client(places[0].own.url, places[0].cay.call("POST", "/cay/v1/keys", {"tenant": "other"}).json["key"])
    reader = Client(places[0].own.url, places[0].cay.call("POST", "/cay/v1/keys", {"role": "read-only"}).json["key"])
    for name in (id_, "mine", "s0000"):
        assert other.call("GET", f"/cay/v1/snapshots/{name}/export").status == 404
    assert reader.call("GET", f"/cay/v1/snapshots/{id_}/export").status == 403
    file = exported(places[0], id_)
    assert reader.call("POST", IMPORT, file).status == 403
    assert Client(places[0].own.url, "e2b_" + "0" * 40).call("POST", IMPORT, file).status == 401
    r = import_(places[0], file, client=other)
    assert r.status == 201 and places[0].cay.call("GET", "/snapshots").json[0]["snapshotID"] == id_
    assert [s["snapshotID"] for s in other.call("GET", "/snapshots").json] == [r.json["snapshotID"]]
    # Its quota is asked before anything is sent.
    assert places[0].cay.call("PATCH", "/cay/v1/tenants/other/quota", {"snapshots": 1}).status == 200
    refused = import_(places[0], file, client=other)
    assert refused.status == 429 and "snapshots" in refused.json["message"]
    assert other.call("DELETE", f"/templates/{r.json['snapshotID']}").status == 204
    assert import_(places[0], b"x", client=other).status == 400
    r = import_(places[0], file, client=other)
    assert r.status == 201 and other.call("DELETE", f"/templates/{r.json['snapshotID']}").status == 204
    assert places[0].cay.call("PATCH", "/cay/v1/tenants/other/quota", {"snapshots": None}).status == 200


def begin_import(place, length, sent):
    connection = place.cay.connect()
    connection.putrequest("POST", IMPORT)
    connection.putheader("X-API-Key", place.cay.key)
    connection.putheader("Content-Length", str(length))
    connection.endheaders()
    connection.send(sent)
    until(lambda: place.left()["images"] != [], what="the file that is being received")
    return connection


def test_one_of_a_tenant_at_a_time(places):
    """A file that its client does not read, and a file that is still being sent, count until they end."""
    id_, _ = snapshot(places[0], f"head -c {40 << 20} /dev/urandom > /home/user/random")
    connection = places[0].cay.connect()
    connection.request("GET", f"/cay/v1/snapshots/{id_}/export", headers={"X-API-Key": places[0].cay.key})
    answer = connection.getresponse()
    assert answer.status == 200 and answer.read(1)
    refused = export(places[0], id_)
    assert refused.status == 429 and "one at a time" in refused.json["message"]
    assert places[0].left()["archiving"] == [], "it has no name by then"
    answer.close()
    connection.close()
    until(lambda: export(places[0], id_).status == 200, what="the end of the export")
    connection = begin_import(places[0], 1 << 20, b"x" * 1000)
    refused = import_(places[0], b"x")
    assert refused.status == 429 and "one at a time" in refused.json["message"]
    connection.close()
    until(lambda: import_(places[0], b"x").status == 400, what="the end of the import")
    assert len(places[0].cay.call("GET", "/snapshots").json) == 1


def test_a_key_that_is_revoked_holds_no_place_of_its_tenants(places):
    """Its import ends with its connection: the tenant's others would wait an hour for it."""
    made = [places[0].cay.call("POST", "/cay/v1/keys", {"tenant": "revoked"}).json for _ in range(2)]
    lost, other = (Client(places[0].own.url, key["key"]) for key in made)
    connection = lost.connect()
    connection.putrequest("POST", IMPORT)
    connection.putheader("X-API-Key", lost.key)
    connection.putheader("Content-Length", "1000000")
    connection.endheaders()
    connection.send(b"x" * 1000)
    until(lambda: places[0].left()["images"] != [], what="the file that is being received")
    assert import_(places[0], b"x", client=other).status == 429
    assert places[0].cay.call("DELETE", f"/cay/v1/keys/{made[0]['id']}").status == 204
    until(lambda: places[0].left() == NOTHING, what="the end of the import")
    assert import_(places[0], b"x", client=other).status == 400
    with pytest.raises(ConnectionError):
        for _ in range(100):
            connection.send(b"x" * 1000)
            time.sleep(0.01)
    connection.close()


@pytest.mark.parametrize("name", ["cayd", "cay-privd"])
def test_killed_in_the_midst_leaves_nothing(places, name):
    id_, _ = snapshot(places[0], f"head -c {60 << 20} /dev/urandom > /home/user/random")
    file = exported(places[0], id_)
    for at in (0.0, 0.05, 0.15, 0.4):
        for ask in (lambda: export(places[0], id_), lambda: import_(places[0], file)):
            done = []

            def call(ask=ask, done=done):
                try:
                    done.append(ask())
                except (OSError, http.client.HTTPException):
                    done.append(None)  # its connection has ended with cayd, perhaps in the midst of the file

            client = threading.Thread(target=call)
            client.start()
            client.join(at)
            kill_daemons(places[0].own, name)
            client.join(EXPORT_MAX_S)
            wait_ready(places[0].cay)
            listed = {s["snapshotID"] for s in places[0].cay.call("GET", "/snapshots").json}
            good = done[0] and done[0].status == 201
            assert id_ in listed and (not good or len(listed) == 2), (at, done[0] and done[0].body)
            for one in listed - {id_}:
                with places[0].cay.create(template=one) as box:
                    assert box.run("wc -c < /home/user/random").out.strip() == str(60 << 20)
                assert places[0].cay.call("DELETE", f"/templates/{one}").status == 204
            until(lambda: [len(v) for v in places[0].left().values()] == [1, 0, 0], what=lambda: f"nothing but the snapshot: {places[0].left()}")
    with places[0].cay.create(template=id_) as box:
        assert box.run("wc -c < /home/user/random").out.strip() == str(60 << 20)


def test_a_key_that_others_may_read_is_not_used(places, servers):
    """It is read at each use; while it is none, nothing is exported, and nothing is imported, with the reason."""
    id_, _ = snapshot(places[1])
    file = exported(places[1], id_)
    path = next(pathlib.Path(str(part).split("=", 2)[2]) for part in servers[1].command if "--exchange-key=" in str(part))
    for mode, text, reason in ((0o644, KEY, "root alone"), (0o600, KEY[:31], "32 random bytes"), (0o600, b"z" * 64, "64 hex digits")):
        path.write_bytes(text)
        path.chmod(mode)
        for r in (export(places[1], id_), import_(places[1], file)):
            assert r.status == 503 and reason in r.json["message"] and KEY.hex() not in r.json["message"], r.body
    path.write_bytes(KEY)
    path.chmod(0o600)
    assert exported(places[1], id_) and import_(places[1], file).status == 201
