"""Whose authority a sandbox trusts: its tenant's, and not that of the tenant which its template was made by."""

import re
import uuid

from client import Client
from egresslib import stack  # noqa: F401: a fixture
from test_egress_clients import ok
from test_template_publish import build, publish
from waitlib import until

BUNDLE, OWN, JAVA = "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/cay-egress.pem", "/etc/ssl/certs/java/cacerts"
READ = {"rules": [{"action": "allow", "name": "read", "domains": ["web.example.com"], "paths": ["/x"]}]}
DIALS = "openssl s_client -connect web.example.com:443 -servername web.example.com </dev/null 2>/dev/null"
# As a store of Java has it: with no certificate of the text before it at all, the answer is no.
IN_STORE = f"""
import pathlib, ssl, sys
store = pathlib.Path("{JAVA}")
print(store.exists() and ssl.PEM_cert_to_DER_cert(sys.stdin.read()) in store.read_bytes())
"""


def reads_tls(client, template):
    box = client.create(template=template, timeout_s=600)
    assert client.call("PUT", f"/cay/v1/sandboxes/{box.id}/policy", READ).status == 204
    return box


def is_trusted(box, leaf):
    assert box.write("/tmp/leaf.pem", leaf.encode()).status == 200
    return box.run(f"openssl verify -CAfile {BUNDLE} /tmp/leaf.pem").exit_code == 0


def in_java(box, authority):
    assert box.write("/tmp/authority.pem", authority.encode()).status == 200
    return ok(box, f"python3 -c '{IN_STORE}' < /tmp/authority.pem") == "True\n"


def first_of(text):
    return re.search("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", text, re.S)[0]


def test_the_publishers_is_not_trusted(stack):  # noqa: F811
    """The control: in a sandbox of the publisher's the same certificate of a server is trusted, and each reaches the host by its own."""
    cay, name = stack.cay, "p-" + uuid.uuid4().hex[:12]
    key = cay.call("POST", "/cay/v1/keys", {"tenant": "t-" + uuid.uuid4().hex[:8], "label": "test"}).json["key"]
    other = Client(stack.server.url, key)
    build(cay, name)
    assert publish(cay, name).status == 200
    try:
        with reads_tls(cay, name) as mine, reads_tls(other, name) as box:
            leaf, authority = first_of(ok(mine, DIALS)), first_of(ok(mine, f"cat {OWN}"))
            own = first_of(ok(box, DIALS))
            assert is_trusted(mine, leaf) and is_trusted(box, own)
            assert not is_trusted(box, leaf) and not is_trusted(mine, own)
            assert authority in ok(mine, f"cat {BUNDLE}")
            assert authority not in ok(box, f"cat {BUNDLE} {OWN}") and not in_java(box, authority)
            assert in_java(box, first_of(ok(box, f"cat {OWN}"))) == in_java(mine, authority)
            assert ok(mine, f"grep -c BEGIN {BUNDLE}") == ok(box, f"grep -c BEGIN {BUNDLE}")  # and all others are there still
            for one in mine, box:
                assert ok(one, "curl -sS -o /dev/null -w '%{http_code}' https://web.example.com/x") == "200"
    finally:
        until(lambda: cay.call("DELETE", f"/templates/{name}").status in (204, 404), what="the template is deleted")
