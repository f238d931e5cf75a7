"""Daytona's network settings and what its control plane has besides, by HTTP; the unmodified SDK is in test/sdk.
Against the stand-in internet of egresslib.py."""

import json

import pytest

from client import Sandbox
from egresslib import box, fetch, internet, stack  # noqa: F401: fixtures
from test_toolbox import Box
from waitlib import until

WEB, OTHER = "http://web.example.com/a", "http://other.example.net/a"
TLS_WEB = "https://web.example.com/a"
REQUIRED = {"id": str, "organizationId": str, "name": str, "user": str, "env": dict, "labels": dict, "public": bool,
            "networkBlockAll": bool, "target": str, "cpu": int, "gpu": int, "memory": int, "disk": int, "kvm": bool,
            "toolboxProxyUrl": str}


class Daytona:
    """Calls as Daytona's clients make them."""

    def __init__(self, client):
        self.client = client

    def call(self, method, path, body=None, key=None):
        headers = {"Authorization": f"Bearer {key or self.client.key}", "X-Daytona-Source": "sdk-python"}
        return self.client.call(method, f"/api{path}", body, headers, key=False)

    def get(self, sandbox):
        reply = self.call("GET", f"/sandbox/{sandbox.id}")
        assert reply.status == 200, reply.body
        return reply.json

    def update(self, sandbox, **settings):
        reply = self.call("POST", f"/sandbox/{sandbox.id}/network-settings", settings)
        assert reply.status == 200, reply.body
        return reply.json

    def refused(self, status, method, path, body=None, why="", key=None):
        reply = self.call(method, path, body, key)
        assert reply.status == status, (reply.status, reply.body)
        error = reply.json
        assert set(error) == {"path", "timestamp", "statusCode", "error", "message"}, error
        assert error["statusCode"] == status and error["path"] == f"/api{path.partition('?')[0]}"
        assert why in error["message"], error
        return error


@pytest.fixture
def daytona(stack):
    return Daytona(stack.cay)


@pytest.fixture
def own(stack, daytona):
    """A sandbox made by Daytona's call; E2B's agent runs its commands."""
    made = []

    def make(**fields):
        reply = daytona.call("POST", "/sandbox", {"snapshot": "host", **fields})
        assert reply.status == 200, reply.body
        made.append(Sandbox(stack.cay, stack.cay.call("GET", f"/sandboxes/{reply.json['id']}").json))
        made[-1].dto = reply.json
        return made[-1]

    yield make
    for one in made:
        one.kill()


def reaches(sandbox, url):
    """Whether a request passes; one that does not is refused with the reason."""
    seen = fetch(sandbox, url)
    if isinstance(seen, dict) and "path" in seen:
        return True
    assert isinstance(seen, dict) and seen["error"]["type"] == "egress_denied" and seen["message"], vars(seen)
    return False


def lists(dto):
    return dto["networkBlockAll"], dto.get("networkAllowList"), dto.get("domainAllowList")


def test_what_a_create_says_is_in_force(own):
    one = own(env={"HERE": "1"}, labels={"code-toolbox-language": "python"}, volumes=[], ttlMinutes=5)
    for field, kind in REQUIRED.items():
        assert isinstance(one.dto[field], kind), field
    assert one.dto["state"] == "started" and one.dto["labels"] == {"code-toolbox-language": "python"}
    assert one.dto["public"] is False and one.dto["env"] == {} and "autoDestroyAt" in one.dto
    assert one.run("echo $HERE").out == "1\n"
    assert lists(one.dto) == (False, None, None) and reaches(one, WEB) and reaches(one, OTHER)
    one = own(networkBlockAll=True)
    assert lists(one.dto) == (True, None, None) and not reaches(one, WEB) and not reaches(one, f"http://{internet.WEB}/")
    one = own(domainAllowList="web.example.com, *.example.net")
    assert lists(one.dto) == (False, None, "web.example.com, *.example.net")
    assert reaches(one, WEB) and reaches(one, OTHER) and not reaches(one, f"http://{internet.WEB}/")


def test_updates_are_in_force_when_they_are_answered(own, daytona):
    one = own()
    assert lists(daytona.update(one, domainAllowList="web.example.com")) == (False, None, "web.example.com")
    assert reaches(one, WEB) and not reaches(one, OTHER)
    assert lists(daytona.update(one, networkAllowList=f"{internet.OTHER}/32")) == (False, f"{internet.OTHER}/32", None)
    assert reaches(one, f"http://{internet.OTHER}/") and not reaches(one, f"http://{internet.WEB}/") and not reaches(one, WEB)
    assert lists(daytona.update(one, networkBlockAll=True)) == (True, None, None)
    assert not reaches(one, WEB) and not reaches(one, f"http://{internet.OTHER}/")
    assert lists(daytona.update(one, networkAllowList="")) == (True, None, None) and not reaches(one, WEB)
    assert lists(daytona.update(one, networkBlockAll=False)) == (False, None, None) and reaches(one, OTHER)


@pytest.mark.parametrize("settings, closed", [({"networkBlockAll": True}, True), ({"networkAllowList": "192.0.2.1/32"}, True),
                                              ({"domainAllowList": "other.example.net"}, False)])
def test_what_is_blocked_fails_as_a_connection(own, settings, closed):
    """As with upstream's, programs that look at no status of HTTP fail; where names are allowed they are told the reason."""
    one = own()
    assert "path" in fetch(one, TLS_WEB)
    one = own(**settings)
    seen = fetch(one, TLS_WEB)
    if closed:
        assert seen.exit_code == 35, vars(seen)  # CURLE_SSL_CONNECT_ERROR
    else:
        assert seen["error"]["type"] == "egress_denied", seen


def test_a_clone_that_is_refused_says_why(stack, own):
    """git itself shows no more of an answer than its status."""
    one = own(domainAllowList="other.example.net")
    clone = lambda url, status: Box(stack.cay, one.id).refused(status, "POST", "/git/clone", {"url": url, "path": "w"})["message"]  # noqa: E731
    for url in (f"{TLS_WEB}/r.git", f"{WEB}/r.git"):
        said = clone(url, 403)
        assert "returned error: 403" in said and "reason: " in said and "web.example.com" in said.split("reason: ")[1], said
        assert "denied" in said.split("reason: ")[1], said
    assert "reason: " not in clone("file:///nothing/here.git", 404)
    assert one.run("ls -d /tmp/tmp.* 2>/dev/null | wc -l").out == "0\n"


OPEN = "exec 3<>/dev/tcp/web.example.com/80 && echo open >/dev/shm/state; read -r line <&3; echo cut >/dev/shm/state"


def test_an_update_cuts_what_it_denies(own, daytona):
    one = own()
    one.run(f"bash -c '{OPEN}' >/dev/null 2>&1 &")
    until(lambda: one.run("cat /dev/shm/state").out == "open\n")
    daytona.update(one, domainAllowList="web.example.com")
    assert one.run("cat /dev/shm/state").out == "open\n"  # still allowed
    daytona.update(one, domainAllowList="other.example.net")
    until(lambda: one.run("cat /dev/shm/state").out == "cut\n")


def test_what_was_set_last_is_in_force(stack, own, daytona, box):
    one = box(metadata={"of": "e2b"}, network={"denyOut": ["0.0.0.0/0"], "allowOut": ["web.example.com"],
                                               "allowPublicTraffic": False})
    assert daytona.get(one)["labels"] == {"of": "e2b"} and lists(daytona.get(one)) == (False, None, None)
    assert lists(daytona.update(one, networkAllowList="")) == (False, None, None)
    assert reaches(one, WEB) and not reaches(one, OTHER)  # clearing what is not there opened nothing
    daytona.update(one, domainAllowList="other.example.net")
    assert not reaches(one, WEB) and reaches(one, OTHER)
    assert stack.cay.call("GET", f"/sandboxes/{one.id}").json["network"] == {"allowPublicTraffic": False}
    assert daytona.get(one)["public"] is False
    assert stack.cay.call("PUT", f"/sandboxes/{one.id}/network", {"daytona": {"networkBlockAll": True}}).status == 204
    assert lists(daytona.get(one)) == (False, None, None) and reaches(one, WEB)
    daytona.update(one, domainAllowList="other.example.net")
    assert stack.cay.call("PUT", f"/cay/v1/sandboxes/{one.id}/policy", {}).status == 204
    assert lists(daytona.get(one)) == (True, None, None) and not reaches(one, OTHER)


def test_a_bad_update_changes_nothing(own, daytona):
    one = own(domainAllowList="web.example.com")
    path = f"/sandbox/{one.id}/network-settings"
    for settings, why in (({}, "At least one"), ({"networkAllowList": "10.0.0.1"}, "Missing CIDR prefix"),
                          ({"networkAllowList": ",".join(["10.0.0.0/8"] * 11)}, "more than 10"),
                          ({"domainAllowList": "https://a.com"}, "Invalid domain"),
                          ({"domainAllowList": "a.com", "networkBlockAll": True}, "cannot be combined"),
                          ({"domainAllowList": "a.com", "networkAllowList": "1.2.3.0/24"}, "mutually exclusive"),
                          ({"networkBlockAll": "yes"}, "networkBlockAll"), ({"networkDenyList": "1.2.3.0/24"}, "networkDenyList")):
        daytona.refused(400, "POST", path, settings, why)
    daytona.refused(400, "POST", path, b"{", "line 1")
    assert lists(daytona.get(one)) == (False, None, "web.example.com") and reaches(one, WEB) and not reaches(one, OTHER)


@pytest.mark.parametrize("fields, why", [
    ({"networkAllowList": "::/0"}, "IPv4"), ({"networkBlockAll": True, "domainAllowList": "a.com"}, "cannot be combined"),
    ({"volumes": [{"volumeId": "v", "mountPath": "/v", "subpath": "a"}]}, "subpath"), ({"volumes": [{"volumeId": "v"}]}, "mountPath"), ({"buildInfo": {"dockerfileContent": "FROM x"}}, "snapshot"),
    ({"autoStopInterval": -1}, "autoStopInterval"), ({"autoStopInterval": 9999999}, "at most"), ({"ttlMinutes": -1}, "ttlMinutes"), ({"name": "a/b"}, "name"), ({"name": "x" * 64}, "name"),
    ({"cpu": 4}, "cpu"), ({"memory": 4096}, "memory"), ({"disk": 4096}, "disk"), ({"cpu": -1}, "cpu"), ({"user": "root"}, "user"),
    ({"target": "us"}, "local"), ({"secrets": [{"A": "b"}]}, "Secret with name b not found"), ({"outboundProxyUrl": "http://p.example"}, "proxy"),
    ({"env": {"A=B": "1"}}, "variable"), ({"labels": {"a": 1}}, "labels"), ({"unheardOf": 1}, "unheardOf")])
def test_what_a_create_cannot_do_is_refused(daytona, fields, why):
    daytona.refused(400, "POST", "/sandbox", {"snapshot": "host", **fields}, why)


def test_names_resources_and_ends_when_idle(stack, own, daytona):
    one = own(name="my-box", cpu=1, disk=1, autoStopInterval=30)
    assert (one.dto["name"], one.dto["cpu"], one.dto["disk"]) == ("my-box", 1, 1)
    assert one.dto["autoStopInterval"] == 30
    assert daytona.call("GET", "/sandbox/my-box").json["id"] == one.id
    listed = {s["sandboxID"]: s for s in stack.cay.call("GET", "/v2/sandboxes").json}
    assert listed[one.id]["name"] == "my-box"
    again = daytona.call("POST", "/sandbox", {"snapshot": "host", "name": "my-box"})
    assert again.status == 409 and "my-box" in again.json["message"]
    others = stack.cay.call("POST", "/cay/v1/keys", {"tenant": "others", "label": "test"}).json["key"]
    daytona.refused(404, "GET", "/sandbox/my-box", key=others)
    assert daytona.call("POST", "/sandbox/my-box/autostop/60").json["autoStopInterval"] == 60
    for bad in ("-1", "x", "9999999", "1.5"):
        daytona.refused(400, "POST", f"/sandbox/my-box/autostop/{bad}")
    plain = own()
    assert "name" not in stack.cay.call("GET", f"/sandboxes/{plain.id}").json
    assert plain.dto["name"] == plain.id and plain.dto["autoStopInterval"] == 15
    assert own(ttlMinutes=5).dto["autoStopInterval"] == 0


def test_errors_have_daytonas_shape(stack, own, daytona):
    one = own()
    others = stack.cay.call("POST", "/cay/v1/keys", {"tenant": "others", "label": "test"}).json["key"]
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/network-settings")):
        error = daytona.refused(404, method, f"/sandbox/{one.id}{path}", {"networkBlockAll": True}, "not found", key=others)
        assert error["error"] == "Not Found"
    daytona.refused(401, "GET", f"/sandbox/{one.id}", key="e2b_" + "0" * 40)
    daytona.refused(401, "GET", "/volumes", key="dtn_x")
    daytona.refused(404, "GET", "/sandbox/nosuchsandbox")
    for method, path in (("GET", f"/sandbox/{one.id}/organization"), ("GET", f"/sandbox/{one.id}/secrets"), ("PUT", "/sandbox"), ("GET", "/x/%zz?a=b"),
                         ("POST", "/snapshots/any/deactivate")):
        error = daytona.refused(501, method, path, why="not supported yet")
        assert error["error"] == "Not Implemented"
    daytona.refused(404, "POST", "//sandbox", {}, "ends in a slash")
    daytona.refused(400, "POST", "/sandbox", {"target": "us"}, "unset DAYTONA_TARGET")
    assert one.dto["toolboxProxyUrl"].endswith("/api/toolbox")
    assert reaches(one, WEB)


def test_a_list_page_by_page_and_a_delete(own, daytona):
    mine = [own(labels={"mark": "list", "n": str(n)}) for n in range(3)]
    labels = "labels=%7B%22mark%22%3A%22list%22%7D"
    first = daytona.call("GET", f"/sandbox?{labels}&limit=2").json
    assert [i["id"] for i in first["items"]] == [mine[2].id, mine[1].id] and "env" not in first["items"][0]
    rest = daytona.call("GET", f"/sandbox?{labels}&limit=2&cursor={first['nextCursor']}").json
    assert [i["id"] for i in rest["items"]] == [mine[0].id] and rest["nextCursor"] is None
    same = "states=started&sort=createdAt&order=desc&regionIds=local&includeWarm=false"
    assert len(daytona.call("GET", f"/sandbox?{labels}&{same}").json["items"]) == 3
    for filter in ("name=a", "states=started&states=stopped", "order=asc", "minGpu=1", "label=x"):
        daytona.refused(400, "GET", f"/sandbox?{labels}&{filter}", why=filter.rpartition("&")[2])
    daytona.refused(400, "GET", "/sandbox?labels=%5B%5D", why="labels")
    daytona.refused(400, "GET", "/sandbox?cursor=x", why="cursor")
    reply = daytona.call("DELETE", f"/sandbox/{mine[0].id}")
    assert reply.status == 200 and reply.json["state"] == "destroyed" and reply.json["id"] == mine[0].id
    daytona.refused(404, "GET", f"/sandbox/{mine[0].id}")
    daytona.refused(404, "DELETE", f"/sandbox/{mine[0].id}")


def is_ready(stack):
    try:
        return stack.cay.call("GET", "/health").status == 200
    except OSError:
        return False  # being started again


def test_settings_outlive_cayd_and_cay_egress(stack, own, daytona, box):
    one, other = own(), box()
    daytona.update(one, domainAllowList="web.example.com")
    daytona.update(other, networkBlockAll=True)
    for name, old in [(name, stack.kill(name)) for name in ("cayd", "cay-egress")]:
        stack.wait_replaced(name, old)
    until(lambda: is_ready(stack))
    assert lists(daytona.get(one)) == (False, None, "web.example.com") and lists(daytona.get(other)) == (True, None, None)
    until(lambda: "path" in json.loads(one.run(f"curl -sS --max-time 20 {WEB}").out or "{}"))
    assert not reaches(one, OTHER) and not reaches(other, WEB)
