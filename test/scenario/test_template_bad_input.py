"""A build of a template that asks for something that is not there, or cannot be: the documented answer, and nothing is
lost. The faults of an image are in test_template_import.py and test_template_registry.py. Without a network."""

import os

import pytest
from imagelib import layout, tar
from importerlib import cli  # noqa: F401 (a fixture)
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from test_template_builder import copy, ended, name, of_builds, request, run, start  # noqa: F401 (a fixture)
from test_tenants import tenant, used  # noqa: F401 (a fixture)
from waitlib import until


def failed(client, made, step, **spec):
    assert start(client, made, **spec).status == 202
    said = ended(client, made)
    assert said["status"] == "error" and said["reason"]["step"] == step, said
    assert of_builds(client) == []
    return said["reason"]["message"]


def check_as_before(client, name, text):  # noqa: F811
    """The template that was there before a build of it failed is still there."""
    with client.create(template=name) as box:
        assert box.run("cat /tmp/said").out == text


@pytest.fixture
def there(cay, name):  # noqa: F811
    made = request(cay, name)
    assert start(cay, made, steps=[run("echo first > /tmp/said")]).status == 202 and ended(cay, made)["status"] == "ready"
    return name


@pytest.mark.parametrize("unknown", ["no-such-template", "no-such-template:tag", "t" + "0" * 20, "s" + "0" * 20])
def test_an_unknown_template(cay, there, unknown):
    message = failed(cay, request(cay, there), "base", fromTemplate=unknown)
    assert unknown in message, message
    check_as_before(cay, there, "first\n")


def test_copy_of_a_file_that_was_not_uploaded(cay, there):
    made = request(cay, there)
    message = failed(cay, made, "2", steps=[run("echo second > /tmp/said"), copy("7" * 64, "x", "/srv/x")])
    assert "not sent" in message, message
    check_as_before(cay, there, "first\n")


def test_a_run_step_that_fails(cay, there):
    """Its last output and its status are the error."""
    message = failed(cay, request(cay, there), "2", steps=[run("echo second > /tmp/said"), run("echo so far; echo why not >&2; exit 7")])
    assert "status 7" in message and "so far" in message and "why not" in message, message
    message = failed(cay, request(cay, there), "1", steps=[run("kill -9 $$")])
    assert "ended by SIGKILL" in message, message
    message = failed(cay, request(cay, there), "1", steps=[run("whoami", "nobody-of-that-name")])
    assert message.startswith("failed to run command 'whoami': command failed: unauthenticated: invalid username"), message
    check_as_before(cay, there, "first\n")


def test_two_builds_of_one_name_of_which_one_fails(cay, there):
    made = [request(cay, there), request(cay, there)]
    assert [start(cay, one, steps=[run(step)]).status for one, step in zip(made, ("sleep 1; exit 3", "echo second > /tmp/said"))] == [202, 202]
    assert [ended(cay, one)["status"] for one in made] == ["error", "ready"]
    check_as_before(cay, there, "second\n")


def test_deletion_while_it_is_used(cay, tenant, name):  # noqa: F811
    """By a sandbox, by one that is paused, by a fork, by a template that was built on it, by a build that is under way."""
    above = name + "-above"
    made = request(tenant, name)
    assert start(tenant, made, steps=[run("echo first > /tmp/said")]).status == 202
    assert tenant.call("DELETE", f"/templates/{name}").status == 409  # while it is built
    assert ended(tenant, made)["status"] == "ready"
    with tenant.create(template=name) as one, tenant.create(template=name) as paused:
        assert tenant.call("POST", f"/sandboxes/{paused.id}/pause", {"memory": False}).status == 204
        (fork,) = tenant.call("POST", f"/sandboxes/{one.id}/fork", {"count": 1, "timeout": 300}).json
        built = request(tenant, above)
        assert start(tenant, built, fromTemplate=name, steps=[run("cat /tmp/said; sleep 2; cat /tmp/said")]).status == 202
        until(lambda: of_builds(tenant), what="the build that stands on it has begun")
        assert tenant.call("DELETE", f"/templates/{name}").status == 204
        assert tenant.call("POST", "/v2/sandboxes", {"templateID": name}).status == 404
        said = ended(tenant, built)
        assert said["status"] == "ready" and sum(line["message"] == "first" for line in said["logEntries"]) == 2, said
        assert tenant.call("POST", f"/sandboxes/{paused.id}/connect", {"timeout": 300}).status == 201
        for box in (one, paused, type(one)(tenant, fork["sandbox"])):
            assert box.run("cat /tmp/said").out == "first\n"
        assert tenant.call("DELETE", f"/sandboxes/{fork['sandbox']['sandboxID']}").status == 204
    check_as_before(tenant, above, "first\n")
    assert tenant.call("DELETE", f"/templates/{above}").status == 204
    until(lambda: used(tenant)["snapshots"] == 0, what="nothing of it is kept")


@pytest.mark.skipif(os.geteuid() != 0, reason="images are imported by root")
def test_an_image_without_a_shell(cli, cay, name, tmp_path):  # noqa: F811
    """Its files are served; a command, which needs a shell, is refused with that, and so is a step."""
    layout(tmp_path / "layout", [tar(("etc", "dir"), ("etc/first", "file", {"data": b"low\n"}))])
    made = cli.imported(f"oci:{tmp_path}/layout")
    assert made.returncode == 0, made.stderr
    with cay.create(template="made") as box:
        assert box.read("/etc/first").body == b"low\n"
        assert box.write("/tmp/x", b"x").status == 200 and box.read("/tmp/x").body == b"x"
    for step in (run("true"), {"type": "WORKDIR", "args": ["/srv"]}):
        message = failed(cay, request(cay, name), "1", fromTemplate="made", steps=[step])
        assert "/bin/" in message, message
    assert cay.call("DELETE", f"/templates/{name}").status == 204
    assert cli("template", "rm", "made").returncode == 0
