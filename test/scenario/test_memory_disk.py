"""A server whose state disk is memory keeps no files without their processes: it says so, and what helps; that does."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
from client import Client
from conftest import BUILD, EGRESS_USER, TEMPLATE_INODES, UID_BASE, USER, free_port

CAY = BUILD / "src/cli/cay"
SETTINGS = f"""[listen]
port = {{port}}
[state]
dir = {{base}}/state
run = {{base}}/run
log = {{base}}/log
template_inodes = {TEMPLATE_INODES}
disk_backend = {{backend}}
[sandbox]
first_uid = {UID_BASE}
[server]
user = {USER}
[egress]
user = {EGRESS_USER}
"""


class Place:
    def __init__(self):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-", dir="/var/tmp"))
        self.base.chmod(0o755)
        self.port = free_port()

    def cay(self, *words):
        return subprocess.run([CAY, *words], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                              env={**os.environ, "CAY_CONFIG": str(self.base / "cay.conf")})

    def up(self, backend):
        (self.base / "cay.conf").write_text(SETTINGS.format(base=self.base, port=self.port, backend=backend))
        done = self.cay("up", "--no-build")
        assert done.returncode == 0, done.stderr
        return Client(f"http://127.0.0.1:{self.port}", (self.base / "state/cayd/api-key").read_text().strip())


@pytest.fixture
def place():
    if os.geteuid() != 0:
        pytest.skip("starting a server needs root")
    one = Place()
    yield one
    done = one.cay("down", "--purge")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(one.base)


def test_the_advice_of_what_cannot_be_kept_helps(place):
    client = place.up("memory")
    with client.create() as box:
        for path, body in ((f"/sandboxes/{box.id}/pause", {"memory": False}), (f"/sandboxes/{box.id}/snapshots", {}),
                           (f"/sandboxes/{box.id}/fork", {"count": 1}), (f"/cay/v1/sandboxes/{box.id}/pause", {"tier": "memory"}),
                           ("/volumes", {"name": "v"})):
            reply = client.call("POST", path, body)
            assert reply.status == 501 and "its state disk is memory" in reply.json["message"], (path, reply.body)
            hint = reply.json.get("hint", reply.json["message"])
            for advice in ("`cay pause` (frozen)", "[state] disk_backend = btrfs", "`cay down`", "`cay up`"):
                assert advice in hint, (path, reply.body)
        assert place.cay("pause", box.id).returncode == 0 and place.cay("resume", box.id).returncode == 0
        assert box.run("echo on").out == "on\n"
    assert place.cay("down").returncode == 0
    client = place.up("btrfs")
    with client.create() as box:
        assert box.run("echo kept >here").exit_code == 0
        done = place.cay("pause", "--files", box.id)
        assert done.returncode == 0, done.stderr
        assert place.cay("resume", box.id).returncode == 0 and box.run("cat here").out == "kept\n"
        made = client.call("POST", f"/sandboxes/{box.id}/snapshots", {})
        assert made.status == 201
        assert client.call("DELETE", f"/templates/{made.json['snapshotID']}").status == 204
