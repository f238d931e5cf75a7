"""/cay/v1's policies and secrets on a server without cay-egress: those taken, shown and refused."""

import json

import pytest

POLICY = {"default": "deny", "rules": [{"name": "web", "action": "allow", "domains": ["web.example.com"], "ports": [443]}]}
BIND = {"kind": "bearer", "domains": ["api.example.com"]}


@pytest.fixture
def made(cay):
    ids = []

    def make(path="/cay/v1/sandboxes", **fields):
        reply = cay.call("POST", path, {"templateID": "host", "timeout": 300, **fields})
        assert reply.status == 201, reply.body
        ids.append(reply.json["sandboxID"])
        return ids[-1]

    yield make
    for one in ids:
        cay.call("DELETE", f"/sandboxes/{one}")


def policy_of(cay, sandbox):
    reply = cay.call("GET", f"/cay/v1/sandboxes/{sandbox}/policy")
    assert reply.status == 200, reply.body
    return reply.json


def test_cays_own_create_lets_nothing_out_unless_told(cay, made):
    assert policy_of(cay, made()) == {"default": "deny"}
    assert policy_of(cay, made(policy=POLICY)) == POLICY
    assert policy_of(cay, made("/v2/sandboxes"))["default"] == "public"
    assert policy_of(cay, made("/v2/sandboxes", allow_internet_access=False))["default"] == "deny"


@pytest.mark.parametrize("policy, place", [
    ({"default": "everything"}, "default"), ({"rules": [{"action": "allow", "ports": [0]}]}, "rules[0].ports[0]"),
    ({"rule": []}, "rule"), ({"inject": [{"credential": "NOT_THERE", "domains": ["a.example"]}]}, "NOT_THERE")])
def test_a_bad_policy_is_refused_whole_with_its_place(cay, made, policy, place):
    refused = cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "policy": policy})
    assert refused.status == 400 and place in refused.json["message"], refused.body
    one = made(policy=POLICY)
    refused = cay.call("PUT", f"/cay/v1/sandboxes/{one}/policy", policy)
    assert refused.status == 400 and place in refused.json["message"], refused.body
    assert policy_of(cay, one) == POLICY


def test_what_can_never_have_an_effect_is_told(cay, made):
    """The server's ceiling is "public": a private address of a rule is never let out."""
    vain = {"rules": [{"action": "allow", "domains": ["a.example"], "addresses": ["203.0.113.0/24"]}]}
    reply = cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "policy": vain})
    assert reply.status == 201, reply.body
    one = reply.json["sandboxID"]
    try:
        said = reply.json["warnings"]
        assert len(said) == 1 and said[0].startswith("rules[0].addresses[0]: 203.0.113.0/24 is private"), said
        assert "ceiling" in said[0] and "--egress-ceiling=allow" in said[0]
        assert policy_of(cay, one) == vain  # it is taken all the same
        again = cay.call("PUT", f"/cay/v1/sandboxes/{one}/policy", vain)
        assert again.status == 200 and again.json == {"warnings": said}
        assert cay.call("PUT", f"/cay/v1/sandboxes/{one}/policy", POLICY).status == 204
    finally:
        cay.call("DELETE", f"/sandboxes/{one}")
    checked = cay.call("POST", "/cay/v1/policies/check", vain)
    assert checked.status == 200 and checked.json == {"warnings": said}
    assert cay.call("POST", "/cay/v1/policies/check", POLICY).json == {"warnings": []}
    refused = cay.call("POST", "/cay/v1/policies/check", {"rules": [{"action": "allow", "ports": [0]}]})
    assert refused.status == 400 and "rules[0].ports[0]" in refused.json["message"]


def test_a_policy_is_replaced(cay, made):
    one = made()
    path = f"/cay/v1/sandboxes/{one}/policy"
    assert cay.call("PUT", path, POLICY).status == 204
    assert policy_of(cay, one) == POLICY
    assert cay.call("PUT", path).status == 400  # nothing is not {}
    assert cay.call("PUT", path, {}).status == 204
    assert policy_of(cay, one) == {}


def test_it_replaces_what_the_network_object_said(cay, made):
    one = made("/v2/sandboxes", secure=True, network={"denyOut": ["1.1.1.1"], "allowPublicTraffic": False})
    assert cay.call("PUT", f"/cay/v1/sandboxes/{one}/policy", POLICY).status == 204
    assert cay.call("GET", f"/sandboxes/{one}").json["network"] == {"allowPublicTraffic": False}


def test_of_others_nothing_is_told(cay, made, other_tenant):
    one = made()
    for method, tail, body in (("GET", "policy", None), ("PUT", "policy", POLICY), ("GET", "denials", None)):
        assert other_tenant.call(method, f"/cay/v1/sandboxes/{one}/{tail}", body).status == 404
    assert other_tenant.call("GET", "/cay/v1/audit/verify").status == 403
    assert policy_of(cay, one) == {"default": "deny"}


def test_dialects_do_not_mix(cay):
    for field in ({"network": {}}, {"allow_internet_access": True}):
        refused = cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", **field})
        assert refused.status == 400 and "policy" in refused.json["message"]


@pytest.mark.parametrize("network, why", [
    ({"egressProxy": {"address": "proxy.example.com:1080"}}, "in digits"),
    ({"egressProxy": {"address": "10.0.0.1:1080"}}, "public"),
    ({"egressProxy": {"address": "127.0.0.1:1080"}}, "public"),
    ({"egressProxy": {"address": "1.1.1.1:1080", "username": "u", "password": "hush-hush"}}, "password"),
    ({"rules": {"*": [{"transform": {"headers": {"X": "y"}}}]}}, "domain"),
    ({"rules": {"a.example": [{"transform": {"headers": {"X": "***"}}}]}}, "shown")])
def test_networks_that_are_refused(cay, network, why):
    refused = cay.call("POST", "/v2/sandboxes", {"templateID": "host", "network": network})
    assert refused.status == 400 and why in refused.json["message"] and "hush" not in refused.json["message"]


def test_without_cay_egress_nothing_secret_is_taken(cay):
    refused = cay.call("POST", "/cay/v1/secrets", {"name": "KEY", "value": "a-secret-value", "bind": BIND})
    assert refused.status == 503 and "cay-egress" in refused.json["message"] and "a-secret" not in refused.json["message"]
    assert cay.call("GET", "/cay/v1/secrets").json == []
    assert cay.call("DELETE", "/cay/v1/secrets/KEY").status == 404
    rules = {"a.example": [{"transform": {"headers": {"X-Key": "a-secret-value"}}}]}
    refused = cay.call("POST", "/v2/sandboxes", {"templateID": "host", "network": {"rules": rules}})
    assert refused.status == 503 and "a-secret" not in refused.json["message"]
    assert cay.call("GET", "/cay/v1/audit").status == 503


@pytest.mark.parametrize("query", ["sandbox=x", "verdict=maybe", "since=yesterday", "limit=0", "limit=10001"])
def test_bad_questions_to_the_log(cay, query):
    assert cay.call("GET", f"/cay/v1/audit?{query}").status == 400


def test_ceilings_are_the_operators(cay, other_tenant):
    path = "/cay/v1/tenants/others/ceiling"
    assert other_tenant.call("GET", path).status == 404
    assert other_tenant.call("PUT", path, {"default": "allow"}).status == 403
    assert other_tenant.call("GET", "/cay/v1/tenants").status == 403
    hidden = [other_tenant.call("GET", f"/cay/v1/tenants/{name}/ceiling") for name in ("default", "nobody")]
    assert [r.status for r in hidden] == [404, 404]
    assert hidden[0].json["message"].replace("default", "nobody") == hidden[1].json["message"]
    assert cay.call("PUT", path, POLICY).status == 204
    assert other_tenant.call("GET", path).json == POLICY
    assert other_tenant.call("DELETE", path).status == 403
    assert {t["name"]: t["ceiling"] for t in cay.call("GET", "/cay/v1/tenants").json}["others"] == POLICY
    for bad, place in (({"rules": [{"action": "allow", "ports": [0]}]}, "rules[0].ports[0]"),
                       ({"inject": [{"credential": "A", "domains": ["a.example"]}]}, "inject")):
        refused = cay.call("PUT", path, bad)
        assert refused.status == 400 and place in refused.json["message"], refused.body
    assert cay.call("PUT", path).status == 400
    assert cay.call("GET", path).json == POLICY
    assert cay.call("PUT", "/cay/v1/tenants/nobody/ceiling", POLICY).status == 404
    assert cay.call("DELETE", path).status == 204
    assert cay.call("GET", path).status == 404


def test_a_policy_has_a_size(cay, made):
    """128 KiB of names, 256 KiB as JSON: where policies are set, looked at and asked about. The control: as much as that is taken."""
    one = made(policy=POLICY)
    policy = f"/cay/v1/sandboxes/{one}/policy"

    def names(count):
        return {"rules": [{"action": "allow", "domains": [f"{i:052}.example.org" for i in range(count)]}]}

    def padded(value, size):
        text = json.dumps(value)
        return (text + " " * (size - len(text))).encode()

    assert cay.call("PUT", policy, padded(names(2048), 256 * 1024)).status == 204
    assert policy_of(cay, one) == names(2048)
    for method, path in (("PUT", policy), ("POST", "/cay/v1/policies/check")):
        refused = cay.call(method, path, names(2049))
        assert refused.status == 400 and "131072 bytes" in refused.json["message"], refused.body
        refused = cay.call(method, path, padded(POLICY, 256 * 1024 + 1))
        assert refused.status == 413 and "262144 bytes" in refused.json["message"], refused.body
    refused = cay.call("POST", f"{policy}/explain", padded({"to": "a.example", "policy": POLICY}, 256 * 1024 + 1))
    assert refused.status == 413
    refused = cay.call("PUT", f"/sandboxes/{one}/network", padded({"allowOut": ["a.example"]}, 256 * 1024 + 1))
    assert refused.status == 413
    assert policy_of(cay, one) == names(2048)
