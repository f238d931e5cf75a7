"""Sandboxes that Daytona's clients create with an image: the states up to the sandbox, the template that the next create finds,
what a failure says, what a tenant may have of them, and that another tenant's are not there."""

import pytest
from test_daytona_image import log
from test_daytona_snapshot import account, mine  # noqa: F401 (fixtures)
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from waitlib import until

SLOW = "FROM host\nRUN echo first; while [ ! -e /tmp/no ] && [ $((n += 1)) -lt 30 ]; do sleep 0.1; done; echo second > /done\n"
WAITING = ("pending_build", "building_snapshot", "creating")


def begin(account, dockerfile, **fields):  # noqa: F811
    return account.kept(account.good("POST", "sandbox", {"buildInfo": {"dockerfileContent": dockerfile}, **fields}))


def ended(account, dto, state="started"):  # noqa: F811
    shown = until(lambda: (s := account.good("GET", f"sandbox/{dto['id']}"))["state"] not in WAITING and s, 100, "the image is built")
    assert shown["state"] == state and shown["id"] == dto["id"], shown
    return shown


def test_a_sandbox_of_an_image(mine):  # noqa: F811
    made = begin(mine, SLOW, name="of-image", env={"A": "b c"}, labels={"x": "1"}, cpu=1, autoStopInterval=7, autoDeleteInterval=60)
    assert (made["state"], made["name"], made["labels"], made["cpu"]) == ("pending_build", "of-image", {"x": "1"}, 1)
    name, id = made["snapshot"], made["id"]
    assert name.startswith("image-") and mine.names(f"?name={name}") == [name]
    assert mine.good("GET", "sandbox/of-image")["state"] == "building_snapshot"
    for query, found in (("", True), ("?labels=%7B%22x%22%3A%221%22%7D", True), ("?labels=%7B%22x%22%3A%222%22%7D", False), ("?states=started", False)):
        # the sandbox of a build's step may be there, too
        assert (id in [one["id"] for one in mine.good("GET", f"sandbox{query}")["items"]]) == found, query
    assert [one["state"] for one in mine.good("GET", "sandbox/paginated")["items"] if one["id"] == id] == ["building_snapshot"]
    for method, path in (("POST", "stop"), ("POST", "start"), ("POST", "pause"), ("POST", "fork"), ("PUT", "labels")):
        mine.refused(409, method, f"sandbox/{id}/{path}", {"labels": {}}, "building_snapshot: wait")
    mine.refused(409, "POST", "sandbox", {"snapshot": "host", "name": "of-image"}, "name of-image")
    mine.refused(409, "POST", "sandbox", {"name": "of-image", "buildInfo": {"dockerfileContent": "FROM host\n"}}, "name of-image")
    url = mine.good("GET", f"sandbox/{id}/build-logs-url")["url"]
    assert url.endswith("/build-logs") and "\nfirst\n" in log(mine, name, follow=True)
    shown = ended(mine, made)
    assert {key: shown[key] for key in ("name", "labels", "cpu", "snapshot", "autoStopInterval", "autoDeleteInterval")} == \
        {"name": "of-image", "labels": {"x": "1"}, "cpu": 1, "snapshot": name, "autoStopInterval": 7, "autoDeleteInterval": 60}
    assert mine.run(made, "cat /done; echo $A; id -un") == "second\nb c\ndaytona\n"
    assert mine.good("GET", f"sandbox/{id}/build-logs-url")["url"] == url
    assert [one["id"] for one in mine.good("GET", "sandbox")["items"]] == [id]


def test_the_next_create_finds_the_template(mine):  # noqa: F811
    dockerfile = "FROM host\nRUN cat /proc/sys/kernel/random/uuid > /made\n"
    first, second = (begin(mine, dockerfile) for _ in range(2))  # the second waits for the same build
    assert first["snapshot"] == second["snapshot"] and first["id"] != second["id"]
    ended(mine, first)
    ended(mine, second)
    third = begin(mine, dockerfile)
    assert (third["state"], third["snapshot"]) == ("started", first["snapshot"])
    said = mine.run(first, "cat /made")
    assert said and mine.run(second, "cat /made") == mine.run(third, "cat /made") == said
    assert len(mine.names("?name=image-")) == 1
    other = begin(mine, dockerfile + "ENV B=1\n")
    assert other["state"] == "pending_build" and other["snapshot"] != first["snapshot"]
    ended(mine, other)


def test_a_build_that_fails(mine):  # noqa: F811
    failing = "FROM host\nRUN echo why not >&2; exit 7\n"
    made = begin(mine, failing, name="fails")
    shown = ended(mine, made, "build_failed")
    assert "status 7" in shown["errorReason"] and "why not" in shown["errorReason"]
    assert "why not" in log(mine, shown["snapshot"])
    mine.refused(400, "POST", "sandbox/fails/start", why="build_failed: delete it")
    mine.refused(409, "POST", "sandbox", {"name": "fails", "snapshot": "host"}, "fails")
    assert mine.good("DELETE", "sandbox/fails")["state"] == "destroyed"
    mine.refused(404, "GET", f"sandbox/{made['id']}", why="not found")
    again = begin(mine, failing, name="fails")  # a failed one is built anew
    assert again["state"] == "pending_build"
    ended(mine, again, "build_failed")


def test_a_sandbox_that_cannot_be_made_of_it(mine):  # noqa: F811
    made = begin(mine, "FROM host\n", volumes=[{"volumeId": "no-such", "mountPath": "/x"}])
    assert made["state"] == "pending_build"
    assert "no-such" in ended(mine, made, "error")["errorReason"]
    mine.refused(400, "POST", f"sandbox/{made['id']}/stop", why="is error: delete it")
    for begins in ({"buildInfo": {"dockerfileContent": "FROM host\n"}}, {"snapshot": "host"}):  # its template is there by now
        mine.refused(400, "POST", "sandbox", {**begins, "volumes": [{"volumeId": "no-such", "mountPath": "/x"}]}, "no-such")


def test_deleted_while_it_is_built(mine):  # noqa: F811
    made = begin(mine, SLOW)
    assert mine.good("DELETE", f"sandbox/{made['id']}")["state"] == "destroyed"
    mine.refused(404, "GET", f"sandbox/{made['id']}", why="not found")
    mine.refused(404, "DELETE", f"sandbox/{made['id']}", why="not found")
    until(lambda: mine.good("GET", f"snapshots/{made['snapshot']}")["state"] == "active", 100, "the build goes on")
    assert mine.good("GET", "sandbox")["items"] == []
    assert begin(mine, SLOW)["state"] == "started"


@pytest.mark.parametrize("body, status, why", [
    ({"buildInfo": {}}, 400, "dockerfileContent"), ({"buildInfo": []}, 400, "buildInfo"), ({"buildInfo": {"dockerfileContent": 1}}, 400, "dockerfileContent"),
    ({"buildInfo": {"dockerfileContent": "RUN x\n"}}, 400, "line 1"), ({"buildInfo": {"dockerfileContent": "FROM host\nARG B\n"}}, 501, "ARG"),
    ({"snapshot": "host", "buildInfo": {"dockerfileContent": "FROM host\n"}}, 400, "snapshot"),
    ({"buildInfo": {"dockerfileContent": "FROM host\n"}, "cpu": 100000}, 400, "cpu"), ({"buildInfo": {"dockerfileContent": "FROM host\n"}, "gpu": 1}, 400, "GPUs"),
    ({"buildInfo": {"dockerfileContent": "FROM host\nCOPY a /b\n"}}, 400, "contextHashes")])
def test_what_is_refused_before_anything_is_built(mine, body, status, why):  # noqa: F811
    mine.refused(status, "POST", "sandbox", body, why)
    assert mine.names("?name=image-") == [] and mine.good("GET", "sandbox")["items"] == []


def test_they_are_the_tenants_own(mine, account):  # noqa: F811
    made = begin(mine, SLOW, name="own")
    other = account()
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/build-logs-url"), ("POST", "/stop")):
        for name in (made["id"], "own"):
            other.refused(404, method, f"sandbox/{name}{path}", why="not found")
    assert other.good("GET", "sandbox")["items"] == []
    theirs = begin(other, SLOW)
    assert theirs["state"] == "pending_build"  # not the first one's template
    ended(mine, made)
    ended(other, theirs)


def test_what_a_tenant_may_have(mine):  # noqa: F811
    def image(i):
        until(lambda: (r := mine.call("POST", "sandbox", {"buildInfo": {"dockerfileContent": f"FROM host\n# {i}\n"}})).status != 429
              and made.append(mine.kept(r.json)) is None, 60, "a build may begin")

    made = []
    for i in range(16):
        image(i)
    for one in made:
        ended(mine, one)
    names = mine.names("?name=image-")
    assert len(names) == 16
    mine.refused(429, "POST", "sandbox", {"buildInfo": {"dockerfileContent": "FROM host\n# 16\n"}}, "made of each")
    for one in (made[5], made[3]):
        assert mine.good("DELETE", f"sandbox/{one['id']}")
    image(16)  # in the place of the one that was not used for longest
    ended(mine, made[-1])
    assert {*mine.names("?name=image-")} == {*names} - {made[3]["snapshot"]} | {made[-1]["snapshot"]}


def test_the_quota_of_templates(mine, cay):  # noqa: F811
    tenant = ended(mine, begin(mine, "FROM host\n# one\n"))["organizationId"]
    assert cay.call("PATCH", f"/cay/v1/tenants/{tenant}/quota", {"templates": 1}).status == 200
    mine.refused(429, "POST", "sandbox", {"buildInfo": {"dockerfileContent": "FROM host\n# two\n"}}, "templates")
    assert begin(mine, "FROM host\n# one\n")["state"] == "started"
