"""Templates that the operator publishes for all tenants, and what a tenant may have of its own: names, and their number."""

import os
import signal
import subprocess
import uuid

import pytest
from client import Client
from conftest import BUILD
from leftovers import children
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from test_template_builder import answers, ended, request, run, start
from waitlib import until


@pytest.fixture
def name(cay):
    one = "p-" + uuid.uuid4().hex[:12]
    yield one
    until(lambda: cay.call("DELETE", f"/templates/{one}").status in (204, 404), what="the template is deleted")


@pytest.fixture
def stranger(server, new_key):
    """A tenant of the test's own, which has nothing yet."""
    return Client(server.url, new_key("t-" + uuid.uuid4().hex[:12]))


def build(client, name, *commands, **spec):
    made = request(client, name)
    assert start(client, made, steps=[run(one) for one in commands], **spec).status == 202
    said = ended(client, made)
    assert said["status"] == "ready", said
    return made


def publish(client, name, on=True):
    return client.call("PATCH", f"/v2/templates/{name}", {"public": on})


def says(client, template, command="cat /tmp/made"):
    with client.create(template=template) as box:
        return box.run(command).out


def create(client, template):
    return client.call("POST", "/v2/sandboxes", {"templateID": template}).status


def shown(client, name):
    return [(one["public"], one["templateID"]) for one in client.call("GET", "/templates").json if name in one["names"]]


def listed(client, name):
    return [(one["ready"], one["building"], one["note"]) for one in client.call("GET", "/cay/v1/templates").json if one["id"] == name]


def test_builds_are_listed_for_their_tenant_and_the_operator(cay, stranger, other_tenant, name):
    tenant = stranger.call("GET", "/cay/v1/status").json["tenant"]
    made = request(stranger, name)
    assert listed(cay, name) == listed(stranger, name) == [(False, False, f"asked for, and not begun, by the tenant {tenant}")]
    assert start(stranger, made).status == 202
    assert ended(stranger, made)["status"] == "ready"
    assert listed(cay, name) == listed(stranger, name) == [(True, False, f"built by the tenant {tenant}, stands on host")]
    assert listed(other_tenant, name) == []
    failed = request(stranger, name)
    assert start(stranger, failed, steps=[run("false")]).status == 202
    assert ended(stranger, failed)["status"] == "error" and len(listed(cay, name)) == 1
    assert stranger.call("DELETE", f"/templates/{name}").status == 204
    assert listed(cay, name) == []
    build(cay, name)
    assert len(listed(cay, name)) == 1
    publish(cay, name)
    assert listed(cay, name) == listed(stranger, name) == [(True, False, "published by the operator")]


def test_a_published_template_is_for_all(cay, stranger, name):
    made = build(cay, name, "echo 1 > /tmp/made")
    paths = [f"/templates/{name}", f"/templates/aliases/{name}", f"/templates/{made['templateID']}"]
    assert [stranger.call("GET", path).status for path in paths] == [404, 404, 404]
    assert create(stranger, name) == 404 and shown(stranger, name) == []
    assert publish(cay, name).json == {"names": [name]}
    assert [stranger.call("GET", path).status for path in paths] == [200, 200, 200]
    assert stranger.call("GET", paths[1]).json == {"templateID": made["templateID"], "public": True}
    assert shown(stranger, name) == shown(cay, name) == [(True, made["templateID"])]
    assert [says(stranger, one) for one in (name, f"{name}:default", made["templateID"])] == ["1\n"] * 3
    assert create(stranger, f"{name}:other") == 404
    # to begin with it is all that is open
    there = made["templateID"]
    assert stranger.call("DELETE", f"/templates/{name}").status == 404
    assert stranger.call("GET", f"/templates/{there}/builds/{made['buildID']}/status").status == 404
    assert stranger.call("GET", f"/templates/{there}/files/{'0' * 64}").status == 404
    assert stranger.call("POST", "/templates/tags", {"target": name, "tags": ["v2"]}).status == 404
    assert stranger.call("DELETE", "/templates/tags", {"name": name, "tags": ["default"]}).status == 404
    assert stranger.call("GET", f"/templates/{name}").json["builds"] == []
    assert publish(stranger, name).status == publish(stranger, name, False).status == 404
    assert stranger.call("GET", "/snapshots").json == []
    of_daytona = stranger.call("GET", f"/api/snapshots?name={name}").json["items"]
    assert [(one["id"], one["general"]) for one in of_daytona] == [(there, True)]
    assert stranger.call("DELETE", f"/api/snapshots/{name}").status == 404
    # built on, and the newest is for all
    build(stranger, "on-it", "cat /tmp/made > /tmp/more", fromTemplate=name)
    build(cay, name, "echo 2 > /tmp/made")
    assert says(stranger, name) == "2\n" and says(stranger, "on-it", "cat /tmp/more") == "1\n"
    # taken back: sandboxes made of it stay
    with stranger.create(template=name) as box:
        seen = stranger.call("GET", f"/sandboxes/{box.id}").json
        assert (seen["templateID"], seen["alias"]) == (there, name)
        for one in (name, there):
            assert [s["sandboxID"] for s in stranger.call("GET", f"/v2/sandboxes?template={one}").json] == [box.id], one
        assert publish(cay, name, False).status == 200
        assert create(stranger, name) == create(stranger, there) == 404 and says(cay, name) == "2\n"
        assert box.run("cat /tmp/made").out == "2\n"
    assert stranger.call("DELETE", "/templates/on-it").status == 204


def test_ones_own_name_comes_first(cay, stranger, name):
    build(cay, name, "echo all > /tmp/made")
    build(stranger, name, "echo own > /tmp/made")
    assert publish(cay, name).status == 200
    assert says(stranger, name) == "own\n" and says(cay, name) == "all\n"
    assert [public for public, _ in sorted(shown(stranger, name))] == [False, True]
    assert stranger.call("DELETE", f"/templates/{name}").status == 204
    assert says(stranger, name) == "all\n"


def test_each_tag_of_a_published_name(cay, stranger, name):
    build(cay, name, "echo 1 > /tmp/made")
    build(cay, f"{name}:v2", "echo 2 > /tmp/made")
    assert publish(cay, name).status == 200
    assert says(stranger, name) == "1\n" and says(stranger, f"{name}:v2") == "2\n"
    # the name is taken back also when nothing has it any more
    assert cay.call("DELETE", "/templates/tags", {"name": name, "tags": ["default", "v2"]}).status == 204
    assert create(stranger, name) == create(stranger, f"{name}:v2") == 404
    assert publish(cay, name, False).status == 200
    build(cay, name, "true")
    assert create(stranger, name) == 404


def test_a_deleted_one_takes_its_word_back(cay, stranger, name):
    build(cay, name, "true")
    assert publish(cay, name).status == 200
    assert cay.call("DELETE", f"/templates/{name}").status == 204
    assert create(stranger, name) == 404
    build(cay, name, "true")
    assert create(stranger, name) == 404 and shown(cay, name)[0][0] is False


def test_a_restart_forgets_nothing(cay, own_server, stranger, name):
    if not own_server:
        pytest.skip("it kills its own server's cayd")
    build(cay, name, "echo 1 > /tmp/made")
    assert publish(cay, name).status == 200
    cayd = children(own_server.keep_pid, "cayd")[0]
    os.kill(cayd, signal.SIGKILL)
    until(lambda: children(own_server.keep_pid, "cayd") not in ([], [cayd]) and answers(cay), 60, "cayd answers")
    assert says(stranger, name) == "1\n"


def test_who_may_publish_what(cay, server, stranger, name):
    build(stranger, name, "true")
    refused = publish(stranger, name)
    assert refused.status == 403 and "operator" in refused.json["message"]
    assert publish(stranger, name, False).status == 200
    assert publish(cay, name).status == 404  # another tenant's
    assert publish(cay, "base").status == 200 and publish(cay, "base", False).status == 403
    assert publish(cay, "no-such-template").status == publish(stranger, "no-such-template").status == 404
    for role in ("owner", "read-only"):
        key = cay.call("POST", "/cay/v1/keys", {"role": role}).json["key"]
        assert publish(Client(server.url, key), "base", False).status == 403
    assert cay.call("PATCH", f"/v2/templates/{name}", {"public": "yes"}).status == 400
    assert stranger.call("DELETE", f"/templates/{name}").status == 204


def test_a_snapshot_by_the_command_line(cay, server, stranger, name):
    env = {**os.environ, "CAY_URL": server.url, "E2B_API_KEY": server.key}

    def cli(*words):
        return subprocess.run([BUILD / "src/cli/cay", "template", "publish", *words], capture_output=True, text=True, env=env,
                              stdin=subprocess.DEVNULL, timeout=60, check=False)

    assert cli(name).returncode != 0
    with cay.create() as box:
        box.run("echo kept > /tmp/made")
        made = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {"name": name}).json["snapshotID"]
    assert cli(name).returncode == 0
    assert says(stranger, name) == "kept\n" and create(stranger, made) == 404
    assert stranger.call("GET", f"/templates/aliases/{name}").json == {"templateID": name, "public": True}
    assert shown(stranger, name) == shown(cay, name) == [(True, name)]
    assert stranger.call("GET", f"/templates/{name}").json["builds"] == []
    assert stranger.call("GET", f"/api/snapshots/{name}").json["general"] is True
    assert [one["ready"] for one in stranger.call("GET", "/cay/v1/templates").json if one["id"] == name] == [True]
    assert stranger.call("GET", "/snapshots").json == []
    assert stranger.call("DELETE", f"/templates/{name}").status == 404
    assert cli(name, "--off").returncode == 0
    assert create(stranger, name) == 404
    assert cay.call("DELETE", f"/templates/{made}").status == 204


# -- what a tenant may have --------------------------------------------------------------------------


def quota(cay, tenant, **most):
    reply = cay.call("PATCH", f"/cay/v1/tenants/{tenant}/quota", most)
    assert reply.status == 200, reply.body
    return reply.json


def test_the_quota_of_templates(cay, server, new_key):
    tenant = "q-" + uuid.uuid4().hex[:12]
    client = Client(server.url, new_key(tenant))
    assert quota(cay, tenant, templates=1)["used"]["templates"] == 0
    build(client, "first", "true")
    refused = client.call("POST", "/v3/templates", {"name": "second"})
    assert refused.status == 429 and "quota templates" in refused.json["message"], refused.body
    build(client, "first:v2", "true")  # the same template
    assert quota(cay, tenant)["used"]["templates"] == 1
    assert client.call("DELETE", "/templates/first").status == 204
    assert quota(cay, tenant)["used"]["templates"] == 0
    build(client, "second", "true")
    assert quota(cay, tenant, templates=None)["quota"]["templates"] is None
    build(client, "third", "true")
    hours = client.call("GET", f"/cay/v1/tenants/{tenant}/usage?hours=2").json
    assert sum(hour["builds"] for hour in hours) == 4 and all(hour["templateGiBSeconds"] == 0 for hour in hours)
    for one in ("second", "third"):
        assert client.call("DELETE", f"/templates/{one}").status == 204
