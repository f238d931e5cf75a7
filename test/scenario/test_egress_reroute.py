"""Names whose connections go to an address that their policy names: cay-egress alone, in the stand-in internet.
`nothing.example.com` has no address in DNS, so that what answers under it was rerouted (without: the control)."""

import pytest

from worldlib import box_fixture, world_fixture  # isort: skip: it makes the next ones found
from internet import ECHO_PORT, HOST_ADDRESS, METADATA, OTHER, PRIVATE, WEB  # noqa: E402

NAME = "nothing.example.com"
WAY = "way.example.net"
ZONE = {"web.example.com": {"a": [[WEB]]}, NAME: {}, WAY: {"a": [[OTHER]]}, "inside.example.net": {"a": [[PRIVATE]]},
        "meta.example.net": {"a": [[METADATA]]}, "host.example.net": {"a": [[HOST_ADDRESS]]}, "zero.example.net": {"aaaa": [["::"]]}}
ALLOWED = [{"action": "deny", "name": "no-admin", "domains": [NAME], "paths": ["/admin*"]},
           {"action": "allow", "name": "models", "domains": [NAME]}]
OPEN = {"default": "allow"}
HELLO = b"\0hell"  # no word, which could become a request


world, box = world_fixture(ZONE), box_fixture(ALLOWED)


def policy(to=None, rules=ALLOWED, **more):
    return {"rules": rules, **({"reroute": [{"domain": NAME, "to": to}]} if to else {}), **more}


def put(world, box, *arguments, **more):
    status, text = world.put(box, *arguments, **more)
    assert status == 204, text


def curl(box, url, *more):
    return box.curl("--cacert", box.ca, "-w", " %{http_code}", *more, url)


def test_connections_go_to_the_address_under_the_rules_of_the_name(world, box):
    assert curl(box, f"http://{NAME}/x").stdout.endswith("502")  # the control: there is no such server
    asked = world.asked(NAME)
    put(world, box, policy(f"{OTHER}:8080"))
    r = curl(box, f"http://{NAME}/x", f"http://{NAME}/y")
    assert r.stdout.count(" 200") == 2 and '"/x"' in r.stdout, r.stdout + r.stderr
    assert "no-admin" in curl(box, f"http://{NAME}/admin/x").stdout
    assert "egress_denied" in curl(box, f"http://{OTHER}:8080/x").stdout  # it opens the address to no one else
    for version in ("--http1.1", "--http2"):  # TLS that is read: the name's certificate, the name's rules
        assert curl(box, f"https://{NAME}/tls", version).stdout.endswith("502"), "no TLS is spoken there"
    put(world, box, policy(f"{OTHER}:8443"))
    for version in ("--http1.1", "--http2"):
        assert curl(box, f"https://{NAME}/tls", version).stdout.endswith("200")
        assert "no-admin" in curl(box, f"https://{NAME}/admin/x", version).stdout
    assert world.asked(NAME) == asked, "a rerouted name was asked for outside"
    (record,) = [r for r in world.audit(f"sandbox=sandbox{box.slot}") if r["event"] == "request" and r.get("path") == "/y"]
    assert (record["name"], record["rerouted"], record["rerouted_port"], record["verdict"]) == (NAME, OTHER, 8080, "allow")
    assert "address" not in record


@pytest.mark.parametrize("to, ceiling, passes", [
    (OTHER, {"default": "public"}, True), (OTHER, {"default": "deny", "rules": [{"action": "allow", "domains": [NAME]}]}, False),
    (PRIVATE, {"default": "public"}, False), (PRIVATE, OPEN, True), (METADATA, OPEN, False), ("127.0.0.1", OPEN, False)])
def test_ceilings_and_what_is_never_reached_hold_for_the_address(world, box, to, ceiling, passes):
    put(world, box, policy(to), ceiling=ceiling)
    r = curl(box, f"http://{NAME}:8080/x")
    assert r.stdout.endswith("200" if passes else "403"), r.stdout + r.stderr
    assert passes or "rerouted to" in r.stdout or "denied" in r.stdout


def test_a_policy_that_changes_the_way_cuts(world, box):
    def talk(s):
        try:
            s.sendall(HELLO)
            return s.recv(5)
        except OSError:
            return b""

    rules = [{"action": "allow", "domains": [NAME]}]
    put(world, box, policy(OTHER, rules))
    with box.connect(box.resolve(NAME)[1][0], ECHO_PORT) as s:
        assert talk(s) == HELLO
        put(world, box, policy(OTHER, rules, limits={"connections": 9}))
        assert talk(s) == HELLO  # the control: another policy with the same way
        put(world, box, policy(WEB, rules))
        assert talk(s) == b""


def test_only_a_whole_address_or_name_is_a_way(world, box):
    for to in ("other.example.net:0", "a..b", "other.example.net:80:80", "1.2.3", f"{OTHER}:0", f"{OTHER}:x", f"{OTHER}:80:80", f"[{OTHER}]:80", "fd00::1:99999", "[fd00::1"):
        status, text = world.put(box, policy(to))
        assert status == 400 and "reroute[0]" in text, (to, status, text)
    assert world.put(box, policy("[fd00::1]:80"))[0] == 204
    assert world.put(box, {"reroute": [{"domain": NAME}]})[0] == 400


# -- names ---------------------------------------------------------------------------------------------

PRIVATE_RULE = [{"action": "allow", "addresses": ["10.0.0.0/8"], "ports": [8080]}]
ONLY_NAME = {"rules": [{"action": "allow", "domains": [NAME]}]}


@pytest.mark.parametrize("to, ceiling, rules, passes", [
    (WAY, None, [], True), (WAY, {"default": "public"}, [], True),
    (WAY, ONLY_NAME, [], False), (WAY, {"rules": [{"action": "allow", "domains": [NAME, WAY]}]}, [], True),
    (WAY, {"rules": [{"action": "allow", "domains": [NAME, WAY], "paths": ["/x*"]}]}, [], False),
    ("inside.example.net", OPEN, [], False), ("inside.example.net", OPEN, PRIVATE_RULE, True),
    ("inside.example.net", {"default": "public"}, PRIVATE_RULE, False),
    ("meta.example.net", OPEN, PRIVATE_RULE, False), ("host.example.net", OPEN, [], False), ("zero.example.net", OPEN, [], False)])
def test_a_name_as_the_way(world, box, to, ceiling, rules, passes):
    """It is resolved outside and dialled as any name: by what limits it, and no private address for the name alone. The
    controls: the rows that pass, and an address in the policy, which its owner wrote (above)."""
    put(world, box, policy(f"{to}:8080", rules + ALLOWED), ceiling=ceiling)
    asked = world.asked(to)
    r = curl(box, f"http://{NAME}/x")
    assert r.stdout.endswith("200" if passes else "403"), r.stdout + r.stderr
    if passes:
        record = [e for e in world.audit(f"sandbox=sandbox{box.slot}") if e["event"] == "request"][-1]
        assert (record["name"], record["rerouted_name"], record["rerouted_port"]) == (NAME, to, 8080)
    if ceiling == ONLY_NAME:
        assert world.asked(to) == asked, "a name that is denied was asked for outside"


@pytest.mark.parametrize("deny, passes", [([], True), ([{"action": "deny", "domains": [WAY]}], False),
                                          ([{"action": "deny", "addresses": ["0.0.0.0/1", "128.0.0.0/1"]}], False)])
def test_a_way_that_a_rule_denies(world, box, deny, passes):
    """A rule of the policy that denies the name, or the address that it leads to, holds for the way too. The control: no such rule."""
    put(world, box, policy(f"{WAY}:8080", deny + [{"action": "allow", "domains": [WAY, NAME]}]))
    assert curl(box, f"http://{NAME}/x").stdout.endswith("200" if passes else "403")


def test_a_way_by_name_is_read_and_cut_as_one_by_address(world, box):
    put(world, box, policy(f"{WAY}:8443"))
    for version in ("--http1.1", "--http2"):
        assert curl(box, f"https://{NAME}/tls", version).stdout.endswith("200")
        assert "no-admin" in curl(box, f"https://{NAME}/admin/x", version).stdout
    assert "egress_denied" in curl(box, f"http://{WAY}:8080/x").stdout  # it opens the name to no one else
    rules = [{"action": "allow", "domains": [NAME]}]
    put(world, box, policy(WAY, rules))
    with box.connect(box.resolve(NAME)[1][0], ECHO_PORT) as s:
        for way, answer in ((WAY, HELLO), (WAY, HELLO), ("other.example.org", b"")):
            put(world, box, policy(way, rules, limits={"connections": 9}))
            try:
                s.sendall(HELLO)
                got = s.recv(5)
            except OSError:
                got = b""
            assert got == answer
