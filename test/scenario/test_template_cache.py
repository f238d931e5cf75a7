"""Steps of the template builder that are not run again: a random number that a step writes stays the same as long as the step is
taken from what is kept, and is another once it was run. Without a network."""

import os
import signal

import pytest
from e2b import Sandbox, Template
from leftovers import children
from test_pause_files import kept_on_disk, needs_a_disk  # noqa: F401 (a fixture)
from test_template_builder import (answers, archive, copy, ended, name, of_builds, request, run, sdk, send,  # noqa: F401 (fixtures)
                                   start)
from test_tenants import quota, tenant, used  # noqa: F401 (a fixture)
from waitlib import until

CACHED_MAX = 64  # CORE_BUILD_CACHED


def drawn(path):
    """A step whose result is another each time that it is run."""
    return run(f"cat /proc/sys/kernel/random/uuid >> {path}")


def build(client, one, *steps, **more):
    """The numbers of the steps that were not run, and the build."""
    made = request(client, one)
    assert start(client, made, steps=list(steps), **more).status == 202
    said = ended(client, made)
    assert said["status"] == "ready", said
    lines = [line["message"] for line in said["logEntries"]]
    taken = [int(line[len("CACHED ["):].split("/")[0]) for line in lines if line.startswith("CACHED [")]
    ran = [int(line[1:].split("/")[0]) for line in lines if line.startswith("[") and line[1].isdigit()]
    assert sorted(taken + ran) == list(range(1, len(steps) + 1)), lines
    return taken


def read(client, one, *paths):
    with client.create(template=one) as box:
        return [box.run(f"cat {path}").out for path in paths]


STEPS = (drawn("/tmp/a"), drawn("/tmp/b"), drawn("/tmp/c"))
PATHS = ("/tmp/a", "/tmp/b", "/tmp/c")


def test_what_did_not_change_is_not_run_again(cay, name):  # noqa: F811
    assert build(cay, name, *STEPS) == []
    first = read(cay, name, *PATHS)
    assert build(cay, name, *STEPS) == [1, 2, 3]
    assert read(cay, name, *PATHS) == first
    # one more at the end, one that changed in the middle
    assert build(cay, name, *STEPS, drawn("/tmp/d")) == [1, 2, 3]
    assert read(cay, name, *PATHS) == first
    assert build(cay, name, STEPS[0], run("echo other >> /tmp/b"), STEPS[2]) == [1]
    a, b, c = read(cay, name, *PATHS)
    assert a == first[0] and b == "other\n" and c != first[2]
    # and what it was before is there still
    assert build(cay, name, *STEPS) == [1, 2, 3]
    assert read(cay, name, *PATHS) == first and of_builds(cay) == []


def test_user_folder_and_variables_hold_after_steps_that_were_not_run(cay, name):  # noqa: F811
    steps = ({"type": "ENV", "args": ["ONE", "1", "PATH", "/opt/x:$PATH"]}, {"type": "WORKDIR", "args": ["/srv/here"]},
             {"type": "USER", "args": ["root"]}, {"type": "ENV", "args": ["TWO", "$ONE$ONE"]})
    say = run("echo $(id -un) $PWD $ONE $TWO ${PATH%%:*} > /srv/said")
    assert build(cay, name, *steps) == []
    assert build(cay, name, *steps, say) == [1, 2, 3, 4]
    with cay.create(template=name) as box:
        assert box.run("cat /srv/said").out == "root /srv/here 1 11 /opt/x\n"
        assert box.run("echo $TWO").out == "11\n"


def test_force(cay, name):  # noqa: F811
    build(cay, name, *STEPS)
    first = read(cay, name, *PATHS)
    assert build(cay, name, STEPS[0], {**STEPS[1], "force": True}, STEPS[2]) == [1]
    second = read(cay, name, *PATHS)
    assert second[0] == first[0] and second[1] != first[1] and second[2] != first[2]
    assert build(cay, name, *STEPS) == [1, 2, 3]  # of the later one
    assert read(cay, name, *PATHS) == second
    assert build(cay, name, *STEPS, force=True) == []
    assert all(was != now for was, now in zip(second, read(cay, name, *PATHS)))


def test_what_the_sdk_calls_it(sdk, cay, name):  # noqa: F811
    def lines_of(template, **more):
        lines = []
        Template.build(template, name, on_build_logs=lambda entry: lines.append(entry.message), **more)
        return [line.split("]")[0] + "]" for line in lines if "RUN cat" in line]

    def template(skip):
        one = Template().from_template("host").run_cmd("cat /proc/sys/kernel/random/uuid > /tmp/a")
        return (one.skip_cache() if skip else one).run_cmd("cat /proc/sys/kernel/random/uuid > /tmp/b")

    assert lines_of(template(False)) == ["[1/2]", "[2/2]"]
    assert lines_of(template(False)) == ["CACHED [1/2]", "CACHED [2/2]"]
    assert lines_of(template(True)) == ["CACHED [1/2]", "[2/2]"]
    assert lines_of(template(False), skip_cache=True) == ["[1/2]", "[2/2]"]
    with Sandbox.create(name) as box:
        assert len(box.commands.run("cat /tmp/a /tmp/b").stdout.split()) == 2


def test_files_that_changed(cay, own_server, name):  # noqa: F811
    made = request(cay, name)
    one, other = (send(cay, made, archive([("f", text)])) for text in (os.urandom(8), os.urandom(8)))
    steps = (drawn("/tmp/a"), copy(one, "f", "/srv/f"), drawn("/tmp/c"))
    assert build(cay, name, *steps) == []
    assert build(cay, name, *steps) == [1, 2, 3]
    assert build(cay, name, steps[0], copy(other, "f", "/srv/f"), steps[2]) == [1]


def test_what_it_begins_with_changed(cay, name):  # noqa: F811
    below = name + "-below"
    try:
        build(cay, below, run("echo 1 > /tmp/below"))
        assert build(cay, name, *STEPS, fromTemplate=below) == []
        assert build(cay, name, *STEPS, fromTemplate=below) == [1, 2, 3]
        build(cay, below, run("echo 2 > /tmp/below"))
        assert build(cay, name, *STEPS, fromTemplate=below) == []
        assert read(cay, name, "/tmp/below") == ["2\n"]
        made = request(cay, name, memoryMB=128)
        assert start(cay, made, fromTemplate=below, steps=list(STEPS)).status == 202
        said = ended(cay, made)
        assert said["status"] == "ready" and "CACHED" not in str(said)
    finally:
        cay.call("DELETE", f"/templates/{below}")


def test_steps_of_a_build_that_failed(cay, name):  # noqa: F811
    made = request(cay, name)
    assert start(cay, made, steps=[STEPS[0], run("exit 3"), STEPS[2]]).status == 202
    assert ended(cay, made)["reason"]["step"] == "2"
    assert build(cay, name, STEPS[0], run("exit 0"), STEPS[2]) == [1]


def test_another_tenant_shares_none(cay, tenant, name):  # noqa: F811
    build(cay, name, *STEPS)
    assert build(tenant, name, *STEPS) == []
    assert all(own != other for own, other in zip(read(cay, name, *PATHS), read(tenant, name, *PATHS)))
    assert build(tenant, name, *STEPS) == [1, 2, 3]
    assert tenant.call("DELETE", f"/templates/{name}").status == 204
    assert build(cay, name, *STEPS) == [1, 2, 3]  # its own are there


def test_they_count_and_go_with_their_template(cay, own_server, tenant, name):  # noqa: F811
    assert used(tenant)["snapshots"] == 0
    before = set(kept_on_disk(own_server)) if own_server else set()
    build(tenant, name, *STEPS)
    new = set(kept_on_disk(own_server)) - before if own_server else set()
    assert new or not own_server
    assert used(tenant)["snapshots"] == 4
    build(tenant, name, *STEPS)
    until(lambda: used(tenant)["snapshots"] == 4, what="the build before it is gone")
    assert tenant.call("DELETE", f"/templates/{name}").status == 204
    until(lambda: used(tenant)["snapshots"] == 0, what="all of it is gone")
    until(lambda: not own_server or not new & set(kept_on_disk(own_server)), what="the disk has none of it")
    assert build(tenant, name, *STEPS) == []
    assert tenant.call("DELETE", f"/templates/{name}").status == 204


def test_they_give_way(cay, tenant, name):  # noqa: F811
    """To what the tenant itself keeps, where its quota allows no more."""
    quota(cay, tenant, snapshots=4)
    build(tenant, name, *STEPS)
    with tenant.create(template="host") as box:
        made = [tenant.call("POST", f"/sandboxes/{box.id}/snapshots", {}) for _ in range(4)]
    assert [reply.status for reply in made] == [201, 201, 201, 429]
    assert used(tenant)["snapshots"] == 4
    for reply in made[:3]:
        assert tenant.call("DELETE", f"/templates/{reply.json['snapshotID']}").status == 204
    assert build(tenant, name, *STEPS) == []
    assert tenant.call("DELETE", f"/templates/{name}").status == 204


def test_no_more_than_so_many(cay, tenant, name):  # noqa: F811
    steps = [{"type": "ENV", "args": [f"V{i}", "1"]} for i in range(CACHED_MAX + 3)]
    assert build(tenant, name, *steps) == []
    assert used(tenant)["snapshots"] == CACHED_MAX + 1
    assert build(tenant, name, *steps[:8]) == list(range(1, 9))
    assert build(tenant, name, run("true"), run("true ")) == []  # the oldest gave way, from its end
    assert build(tenant, name, *steps[:8]) == list(range(1, 9))
    assert tenant.call("DELETE", f"/templates/{name}").status == 204
    until(lambda: used(tenant)["snapshots"] == 0, what="all of it is gone")


def test_a_restart_forgets_them(cay, own_server, tenant, name):  # noqa: F811
    if own_server is None:
        pytest.skip("needs a server of its own")
    build(tenant, name, *STEPS)
    (cayd,) = children(own_server.keep_pid, "cayd")
    os.kill(cayd, signal.SIGKILL)
    until(lambda: answers(cay), 60, "cayd is back")
    until(lambda: used(tenant)["snapshots"] == 1, what="only the template is there")
    assert build(tenant, name, *STEPS) == []
    assert tenant.call("DELETE", f"/templates/{name}").status == 204
