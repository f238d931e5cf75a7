"""`cay template ls` and `cay template rm` with templates of a tenant's own, by the command and a key of that tenant's, and what the error
says of them where a name is no template's."""

import json
import os
import re
import subprocess
import uuid

import pytest
from client import Client
from conftest import BUILD
from e2b import Template
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from test_template_builder import ended, request, run, start, status
from waitlib import until


class Tenant:
    """A tenant of the test's own: its calls, and `cay` with its key."""

    def __init__(self, server, key):
        self.client, self.key, self.url = Client(server.url, key), key, server.url
        self.name = self.client.call("GET", "/cay/v1/status").json["tenant"]

    def __call__(self, *args):
        return subprocess.run([BUILD / "src/cli/cay", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                              stdin=subprocess.DEVNULL, env={**os.environ, "CAY_URL": self.url, "E2B_API_KEY": self.key})

    def listed(self):
        return {one["id"]: one["note"] for one in json.loads(self("template", "ls", "--json").stdout) if one["tenant"] == self.name}

    def absent(self, name="no-such"):
        reply = self.client.call("POST", "/v2/sandboxes", {"templateID": name})
        assert reply.status == 404, reply.body
        return reply.json["message"]


@pytest.fixture
def mine(server, new_key):
    return Tenant(server, new_key("t-" + uuid.uuid4().hex[:12]))


@pytest.fixture
def sdk(sdk_environment, mine, monkeypatch):
    monkeypatch.setenv("E2B_API_KEY", mine.key)


def test_one_that_an_sdk_built(sdk, mine):
    """By its name, as the SDK was given it: also with capitals."""
    for tag in ("v1", "v2"):
        Template.build(Template().from_template("host").run_cmd(f"echo {tag} > /tmp/said"), f"My-Tools:{tag}")
    assert mine.listed() == {"My-Tools": f"built by the tenant {mine.name}, stands on host"}
    assert "there are: My-Tools:v2, My-Tools:v1, host" in mine.absent()
    gone = mine("template", "rm", "My-Tools:v1")
    assert gone.returncode == 0, gone.stderr
    assert not Template.exists("My-Tools:v1") and Template.exists("My-Tools:v2")
    again = mine("template", "rm", "My-Tools:v1")
    assert again.returncode != 0 and "not found" in again.stderr and "cay template ls" in again.stderr, again.stderr
    with mine.client.create(template="My-Tools:v2") as box:
        gone = mine("template", "rm", "My-Tools", "--json")
        assert gone.returncode == 0 and json.loads(gone.stdout) == {"removed": "My-Tools"}, gone.stderr
        assert box.run("cat /tmp/said").out == "v2\n"
    assert mine.listed() == {} and not Template.exists("My-Tools:v2") and "My-Tools" not in mine.absent()


def test_one_that_a_build_file_made(mine, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM host\nRUN echo made > /tmp/said\n")
    made = mine("template", "build", "tools", tmp_path)
    assert made.returncode == 0, made.stderr
    assert mine.listed() == {"tools": f"snapshot of the tenant {mine.name}, stands on host"}
    assert "there are: tools, host" in mine.absent()
    gone = mine("template", "rm", "tools")
    assert gone.returncode == 0, gone.stderr
    assert mine.listed() == {} and mine.client.call("GET", "/snapshots").json == []


def test_one_that_is_being_built_is_not_removed(mine):
    made = request(mine.client, "busy")
    assert start(mine.client, made, steps=[run("sleep 1000")]).status == 202
    refused = mine("template", "rm", "busy")
    assert refused.returncode != 0 and "is being built" in refused.stderr, refused.stderr
    box = until(lambda: [one for one in mine.client.call("GET", "/v2/sandboxes").json if "cay.build" in (one.get("metadata") or {})],
                what="it has a sandbox")[0]
    assert mine.client.call("DELETE", f"/sandboxes/{box['sandboxID']}").status == 204
    assert ended(mine.client, made)["status"] == "error"
    assert mine("template", "rm", "busy").returncode == 0
    assert mine.client.call("GET", f"/templates/{made['templateID']}/builds/{made['buildID']}/status").status == 404


def test_those_of_others(cay, mine, other_tenant):
    """The server's and another tenant's are not removed, and another tenant's are not named."""
    made = request(other_tenant, "theirs")
    assert start(other_tenant, made).status == 202 and ended(other_tenant, made)["status"] == "ready"
    assert mine.listed() == {} and "theirs" not in mine.absent() and "theirs" not in mine("template", "ls").stdout
    for one in ("theirs", "theirs:default", made["templateID"]):
        refused = mine("template", "rm", one)
        assert refused.returncode != 0 and "there is no template" in refused.stderr, refused.stderr
    refused = mine("template", "rm", "host")
    assert refused.returncode != 0 and "this machine itself and stays" in refused.stderr, refused.stderr
    assert status(other_tenant, made)["status"] == "ready"
    # the operator sees it, and removes its own alone
    assert "theirs" in [one["id"] for one in cay.call("GET", "/cay/v1/templates").json]
    assert cay.call("DELETE", "/cay/v1/templates/theirs").status == 404
    assert status(other_tenant, made)["status"] == "ready"
    assert other_tenant.call("DELETE", "/cay/v1/templates/theirs").status == 204


def test_more_than_an_error_has_room_for(mine):
    """Those that fit, and how many more there are."""
    with mine.client.create(template="host") as box:
        for i in range(4):
            assert mine.client.call("POST", f"/sandboxes/{box.id}/snapshots", {"name": f"{'x' * 97}-{i}"}).status == 201
    said = mine.absent()
    assert re.search(rf"there are: {'x' * 97}-3 and [0-9]+ more", said) and said.count("x-") == 1, said
    for i in range(4):
        assert mine("template", "rm", f"{'x' * 97}-{i}").returncode == 0
