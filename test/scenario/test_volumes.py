"""Volumes by the APIs: what outlives a sandbox, who may have which, pause, fork and rollback with one, the programs' ends, the
dialects. The privileged part is in test_volumes_privd.py."""

import os

import pytest

from client import Client
from test_pause_files import FILL, disk, needs_a_disk, pause_files, resume  # noqa: F401 (a fixture)
from test_recovery import kill_daemons, wait_ready
from waitlib import until

MIB = 1 << 20


@pytest.fixture()
def volume(cay):
    """Makes volumes, and removes them with what is left of their sandboxes."""
    names = []

    def make(name, size=64 * MIB):
        reply = cay.call("POST", "/cay/v1/volumes", {"name": name, "sizeBytes": size})
        assert reply.status == 201, reply.body
        names.append(name)
        return reply.json

    yield make
    for one in cay.call("GET", "/cay/v1/volumes").json:
        if one["name"] in names:
            for box in one["sandboxes"]:
                cay.call("DELETE", f"/sandboxes/{box}")
            assert cay.call("DELETE", f"/volumes/{one['volumeID']}").status == 204


def with_volume(cay, *mounts, **more):
    """mounts: (name, path), read-only where the name says so."""
    return cay.create(volumeMounts=[{"name": name, "path": path} for name, path in mounts], **more)


def refused(cay, *mounts):
    body = {"templateID": "host", "volumeMounts": [{"name": name, "path": path} for name, path in mounts]}
    return cay.call("POST", "/v2/sandboxes", body)


def test_files_outlive_sandboxes(cay, volume):
    made = volume("data", 8 * MIB)
    with with_volume(cay, ("data", "/mnt/data")) as box:
        assert box.run("echo one > /mnt/data/file; mkdir /mnt/data/dir; stat -Lc %U /mnt/data").out == "user\n"
        assert box.write("/mnt/data/dir/up", b"loaded").status == 200
        assert cay.call("GET", f"/sandboxes/{box.id}").json["volumeMounts"] == [{"name": "data", "path": "/mnt/data", "readOnly": False}]
        for name in ("data", "data:ro"):
            reply = refused(cay, (name, "/mnt/data"))
            assert reply.status == 409 and box.id in reply.json["message"]
        reply = cay.call("DELETE", "/cay/v1/volumes/data")
        assert reply.status == 409 and box.id in reply.json["message"]
        full = box.run("dd if=/dev/urandom of=/mnt/data/big bs=1M count=32 2>&1; rm -f /mnt/data/big; dd if=/dev/urandom of=big bs=1M count=32 2>&1")
        assert full.out.count("uota") + full.out.count("No space") == 1  # its size is its own, and the sandbox's disk another
    readers = [with_volume(cay, ("data:ro", "/home/user/in")) for _ in range(2)]
    for box in readers:
        assert box.run("cat in/file in/dir/up; echo x > in/file || echo refused").out == "one\nloadedrefused\n"
        assert box.read("/home/user/in/dir/up").body == b"loaded" and box.write("/home/user/in/x", b"").status >= 400
    assert refused(cay, ("data", "/v")).status == 409
    listed = {v["volumeID"]: v for v in cay.call("GET", "/cay/v1/volumes").json}[made["volumeID"]]
    assert sorted(listed["sandboxes"]) == sorted(box.id for box in readers) and listed["sizeBytes"] == 8 * MIB
    for box in readers:
        box.kill()
    with with_volume(cay, ("data", "/v")) as box:
        assert box.run("cat /v/file && rm -r /v/dir && ls /v").out == "one\nfile\n"


def test_where_it_stands(cay, volume):
    """An empty directory gives way; files there are not hidden; the link is root's."""
    volume("data")
    for path in ("/etc", "/etc/passwd", "/usr/bin"):
        # Of the sandbox before, which was not to be, nothing is left soon after.
        reply = until(lambda: (r := refused(cay, ("data", path))) and "just ending" not in r.json["message"] and r)
        assert reply.status == 409 and f"cannot be at {path}: something else" in reply.json["message"]
        assert "agent answered" not in reply.json["message"] and "host directory" in reply.json["message"]
    for path in ("data", "/", "/proc/x", "/a/../b", "/dev/shm/x", "/run/volumes/0"):
        assert refused(cay, ("data", path)).status == 400
    assert refused(cay, ("nothing", "/v")).status == 404
    until(lambda: all(v["sandboxes"] == [] for v in cay.call("GET", "/cay/v1/volumes").json if v["name"] == "data"))
    with with_volume(cay, ("data", "/opt")) as box:
        assert box.run("echo x > /opt/file && readlink /opt; rm /opt 2>/dev/null || echo refused").out == "/run/volumes/0\nrefused\n"
        assert box.run("mount | grep -c ' /run/volumes/0 .*nosuid.*nodev'").out == "1\n"


def test_a_place_with_files_of_the_template(cay, volume):
    """They go into a volume that is new, with owner and mode of the place; later sandboxes see the volume's own."""
    volume("home")
    with cay.create() as plain:
        modes = plain.run("stat -c '%a %U %n' /root /root/.bashrc", user="root").out
        names = plain.run("ls -A /root", user="root").out
    with with_volume(cay, ("home", "/root")) as box:
        assert box.run("ls -A /root/", user="root").out == names and ".bashrc" in names
        assert box.run("readlink /root; stat -L -c '%a %U' /root; stat -c '%a %U %n' /root/.bashrc", user="root").out.splitlines() == [
            "/run/volumes/0", modes.splitlines()[0].rsplit(" ", 1)[0], modes.splitlines()[1]]
        box.run("echo mine > /root/.bashrc; rm /root/.profile; echo kept > /root/kept", user="root")
        # A directory that a program has put there stays, and refuses the resume.
        assert box.run("rm /root && mkdir /root && echo own > /root/own && ls /root", user="root").out == "own\n"
        assert pause_files(cay, box) == 204
        reply = resume(cay, box)
        assert reply.status == 409 and "cannot be at /root" in reply.json["message"], reply.body
    with with_volume(cay, ("home", "/root")) as box:
        assert box.run("ls -A /root/; cat /root/.bashrc", user="root").out == names.replace(".profile", "kept") + "mine\n"
    with with_volume(cay, ("home:ro", "/home/user")) as box:
        assert box.run("ls -A /home/user/; cat /home/user/kept", user="root").out == names.replace(".profile", "kept") + "kept\n"


def test_a_place_that_was_half_cleared(cay, volume):
    """By a sandbox that ended meanwhile: the next goes on, and replaces no file that is there already."""
    volume("half")
    with with_volume(cay, ("half", "/v")) as box:
        box.run("touch /v/.cay-filling; echo mine > /v/.bashrc")
    with with_volume(cay, ("half", "/root")) as box:
        found = box.run("cat /root/.bashrc; ls -A /root/", user="root").out
        assert found.startswith("mine\n") and "\n.profile\n" in found and ".cay" not in found, found


def test_a_place_with_too_many_files(cay, volume):
    """It stays as it is: of a snapshot, as templates have none so large."""
    volume("large")
    with cay.create() as box:
        box.run("mkdir /srv/many && cd /srv/many && seq 5000 | xargs touch", user="root")
        made = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"]
    reply = cay.call("POST", "/v2/sandboxes", {"templateID": made, "volumeMounts": [{"name": "large", "path": "/srv/many"}]})
    assert reply.status == 409 and "at most 4096 files and 64 MiB" in reply.json["message"], reply.body
    until(lambda: all(v["sandboxes"] == [] for v in cay.call("GET", "/cay/v1/volumes").json if v["name"] == "large"))
    assert cay.call("DELETE", f"/templates/{made}").status == 204


def test_one_that_is_full_can_be_emptied(cay, volume):
    """By the next sandbox that has it, and without one. Its size stays what it was, however often it was mounted full."""
    made, sizes = volume("full", 4 * MIB), []
    for _ in range(3):
        with with_volume(cay, ("full", "/v")) as box:
            assert box.run(f"cd /v && python3 -c \"{FILL}\"").out == "122\n"
            sizes.append(int(box.run("stat -c %s /v/big").out))
            assert " rw," in box.run("grep ' /run/volumes/0 ' /proc/mounts").out
    assert sizes[-1] - sizes[0] < MIB and 2 * MIB < sizes[0] < 4 * MIB
    token = cay.call("GET", f"/volumes/{made['volumeID']}").json["token"]

    def remove():
        return cay.call("DELETE", f"/volumecontent/{made['volumeID']}/path?path=/big", headers={"Authorization": f"Bearer {token}"}, key=False)

    assert until(lambda: remove().status == 204)
    with with_volume(cay, ("full", "/v")) as box:
        assert box.run("rm -rf /v/*; head -c 2M /dev/urandom > /v/new; stat -c %s /v/new").out == f"{2 * MIB}\n"


def test_pause_fork_snapshot_and_rollback(cay, volume):
    volume("data")
    with with_volume(cay, ("data", "/v")) as box:
        box.run("echo one > /v/file")
        made = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"]
        reply = cay.call("POST", f"/sandboxes/{box.id}/fork", {"count": 1})
        assert reply.status == 409 and "volume" in reply.json["message"]
        box.run("echo two > /v/file; echo two > own")
        # Frozen, it has the volume still; with its files alone, another may have it meanwhile.
        assert cay.call("POST", f"/sandboxes/{box.id}/pause", {}).status == 204
        assert refused(cay, ("data", "/v")).status == 409
        assert resume(cay, box).status == 201 and box.run("cat /v/file").out == "two\n"
        assert pause_files(cay, box) == 204
        assert cay.call("DELETE", "/cay/v1/volumes/data").status == 409  # it needs it again
        with with_volume(cay, ("data", "/w")) as other:
            assert other.run("cat /w/file; echo three > /w/file").out == "two\n"
            reply = resume(cay, box)
            assert reply.status == 409 and other.id in reply.json["message"], reply.body
            assert cay.call("GET", f"/sandboxes/{box.id}").json["state"] == "paused"
        assert resume(cay, box).status == 201
        assert box.run("cat /v/file own").out == "three\ntwo\n"
        # Its own files are as they were; the volume is not rolled back.
        assert cay.call("POST", f"/cay/v1/sandboxes/{box.id}/rollback", {"snapshotID": made}).status == 200
        assert box.run("cat /v/file; ls own").out == "three\n"
    with cay.create(template=made) as box:  # a snapshot has no volumes
        assert box.run("cat /v/file").out == "" and cay.call("GET", f"/sandboxes/{box.id}").json["volumeMounts"] == []
    assert cay.call("DELETE", f"/templates/{made}").status == 204
    with with_volume(cay, ("data:ro", "/v")) as box:
        fork = cay.call("POST", f"/sandboxes/{box.id}/fork", {"count": 1, "timeout": 300}).json[0]["sandbox"]
        assert type(box)(cay, fork).run("cat /v/file; echo x > /v/file || echo refused").out == "three\nrefused\n"
        cay.call("DELETE", f"/sandboxes/{fork['sandboxID']}")


def test_every_program_may_end(own_server):
    """Kills at each call are test_crash_matrix.py's."""
    cay = Client(own_server.url, own_server.key())
    assert cay.call("POST", "/volumes", {"name": "data"}).status == 201
    box = with_volume(cay, ("data", "/v"))
    box.run("echo one > /v/file; exec 3>>/v/open; (while :; do echo x >&3; sleep 0.01; done >/dev/null 2>&1 &)")
    for name in ("cayd", "cay-privd"):
        kill_daemons(own_server, name)
        wait_ready(cay)
        until(lambda: box.run("cat /v/file").out == "one\n", what=f"it is served after the end of {name}", patient=True)
        # 503 until cayd and cay-privd have found each other again; nothing but that and the refusal may come.
        reply = until(lambda: (r := refused(cay, ("data:ro", "/v"))).status != 503 and r, what=f"creates after the end of {name}", patient=True)
        assert reply.status == 409 and box.id in reply.json["message"]
        assert cay.call("DELETE", "/cay/v1/volumes/data").status == 409
    lines = int(box.run("wc -l < /v/open").out)
    until(lambda: int(box.run("wc -l < /v/open").out) > lines, what="it writes on")
    assert box.kill().status == 204
    with with_volume(cay, ("data", "/v")) as box:
        assert box.run("cat /v/file").out == "one\n"
    assert cay.call("DELETE", "/cay/v1/volumes/data").status == 204
    assert os.listdir(f"{disk(own_server)}/volumes") == []


def test_it_is_the_tenants(cay, other_tenant, volume):
    made = volume("data")
    for name in ("data", made["volumeID"]):
        for path in (f"/volumes/{name}", f"/cay/v1/volumes/{name}", f"/api/volumes/{name}"):
            method = "GET" if not path.startswith("/cay") else "DELETE"
            theirs, nothing = other_tenant.call(method, path), other_tenant.call(method, path.replace(name, "nothing"))
            assert theirs.status == nothing.status == 404
            assert theirs.json["message"].replace(name, "nothing") == nothing.json["message"]
        assert refused(other_tenant, (name, "/v")).status == 404
    for path in ("/volumes", "/cay/v1/volumes", "/api/volumes"):
        assert other_tenant.call("GET", path).json == []
    assert other_tenant.call("POST", "/volumes", {"name": "data"}).status == 201  # names are a tenant's own
    assert other_tenant.call("DELETE", "/cay/v1/volumes/data").status == 204
    cay.call("PATCH", "/cay/v1/tenants/others/quota", {"volumes": 0})
    reply = other_tenant.call("POST", "/volumes", {"name": "data"})
    assert reply.status == 429 and "volumes" in reply.json["message"]
    cay.call("PATCH", "/cay/v1/tenants/others/quota", {"volumes": None})


def test_daytonas_calls(cay, volume):
    reply = cay.call("GET", "/api/volumes/by-name/mine")
    assert reply.status == 404 and reply.json["message"] == "Volume with name mine not found"
    made = cay.call("POST", "/api/volumes", {"name": "mine"})
    assert made.status == 200 and made.json["state"] == "ready" and made.json["name"] == "mine"
    one = made.json["id"]
    assert cay.call("POST", "/api/volumes", {"name": "mine"}).status == 409
    assert cay.call("GET", "/api/volumes/by-name/mine").json == cay.call("GET", f"/api/volumes/{one}").json == made.json
    assert made.json in cay.call("GET", "/api/volumes").json
    asked = {"snapshot": "host", "volumes": [{"volumeId": one, "mountPath": "/mnt/v", "subpath": "x"}]}
    reply = cay.call("POST", "/api/sandbox", asked)
    assert reply.status == 400 and "subpath" in reply.json["message"]
    del asked["volumes"][0]["subpath"]
    box = cay.call("POST", "/api/sandbox", asked).json
    assert box["volumes"] == asked["volumes"]
    assert cay.call("POST", f"/api/toolbox/{box['id']}/process/execute", {"command": "echo x > /mnt/v/f; ls /mnt/v/"}).json["result"].split() == ["f"]
    assert cay.call("DELETE", f"/api/volumes/{one}").status == 409
    assert cay.call("DELETE", f"/api/sandbox/{box['id']}").status == 200
    assert cay.call("DELETE", f"/api/volumes/{one}").status == 200
