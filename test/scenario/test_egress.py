"""The way out of real sandboxes: the whole server in a network namespace of its own, with a stand-in internet
behind it (test/egress/internet.py). The tests are about what a sandbox's programs reach, what they do not, and what they are told."""


import pytest

from egresslib import box, fetch, internet, stack  # noqa: F401: fixtures
from waitlib import until


def test_public_is_what_a_sandbox_reaches_unless_it_says_otherwise(box):
    one = box()
    assert fetch(one, "http://web.example.com/a?b=c")["path"] == "/a?b=c"
    assert fetch(one, f"http://{internet.OTHER}/")["address"].endswith(internet.OTHER)
    assert fetch(one, "https://web.example.com/", "-k")["tls"]
    assert "stand-in" in one.run(f"timeout 5 bash -c 'exec 3<>/dev/tcp/web.example.com/{internet.BANNER_PORT}; head -1 <&3'").out


def test_what_nobody_reaches(stack, box):
    """Metadata and private addresses stand in the internet of this test: they answer, to others."""
    one = box()
    for target in (internet.METADATA, internet.PRIVATE, "inside.example.com", "meta.example.com", "100.100.100.200",
                   "192.0.2.1", "[fd00:ec2::254]"):
        r = one.run(f"curl -sS -g --max-time 20 -w '%{{http_code}}' http://{target}/")
        assert r.exit_code != 0 or r.out.endswith("403"), f"{target}: {r.out}"
    for address in (internet.METADATA, internet.PRIVATE):  # the control: a process in cay-egress's network
        reached = internet.inside(stack.networks.host,
                                  lambda a=address: internet.socket.create_connection((a, 80), 5))
        reached.close()


def test_no_question_leaves_before_a_connection(stack, box):
    one = box()
    one.run("getent hosts secret-data.web.example.com; getent hosts other.example.net")
    one.run("timeout 3 bash -c 'echo hello > /dev/udp/8.8.8.8/5353'; ping -c1 -W1 8.8.8.8")
    assert "secret-data" not in stack.networks.asked() and "other.example.net" not in stack.networks.asked()


def test_without_internet(box):
    one = box(allow_internet_access=False)
    r = one.run("curl -sS --max-time 20 -w '%{http_code}' http://web.example.com/")
    assert r.out.endswith("403") and "deny" in r.out, r.out
    assert one.run(f"curl -sS --max-time 20 http://{internet.OTHER}:8080/ -o /dev/null -w '%{{http_code}}'").out in ("403", "000")
    r = one.run("curl -sS --max-time 20 https://web.example.com/")  # as upstream: the program fails
    assert r.exit_code == 35 and not r.out, (r.exit_code, r.out)
    assert "web.example.com:443" in one.run("cay-denials").out


def test_over_tls_where_names_are_allowed_the_refusal_says_which(box):
    """The control of the one above: under the sandbox's own authority."""
    one = box(network={"denyOut": ["0.0.0.0/0"], "allowOut": ["web.example.com"]})
    r = one.run("curl -sS --max-time 20 https://other.example.net/")
    assert "egress_denied" in r.out and "web.example.com" in r.out, r.out


def test_allow_beats_deny_and_updates_are_live(stack, box):
    one = box(network={"denyOut": ["0.0.0.0/0"], "allowOut": ["web.example.com"]})
    assert fetch(one, "http://web.example.com/")["path"] == "/"
    r = one.run("curl -sS --max-time 20 http://other.example.net/")
    assert "web.example.com" in r.out  # the refusal says what is allowed
    assert "egress_denied" in r.out
    one.run(f"(exec 3<>/dev/tcp/web.example.com/{internet.ECHO_PORT}; echo held > /tmp/held; cat <&3; echo over > /tmp/held) "
            "> /dev/null 2>&1 & for i in $(seq 50); do grep -q held /tmp/held && break; sleep 0.1; done")
    assert one.run("cat /tmp/held").out == "held\n"
    path = f"/sandboxes/{one.id}/network"
    assert stack.cay.call("PUT", path, {"allowOut": ["other.example.net"], "denyOut": ["0.0.0.0/0"]}).status == 204
    assert fetch(one, "http://other.example.net/")["path"] == "/"
    assert "egress_denied" in one.run("curl -sS --max-time 20 http://web.example.com/").out
    cut = one.run("for i in $(seq 50); do grep -q over /tmp/held && break; sleep 0.1; done; cat /tmp/held")
    assert cut.out == "over\n"  # connections denied now were cut
    assert stack.cay.call("PUT", path, {}).status == 204  # absent is cleared
    assert fetch(one, "http://web.example.com/")["path"] == "/"


HALF_CLOSED = """
import socket, ssl, sys
name, tls = sys.argv[1:]
s = socket.create_connection((name, 443 if tls == "tls" else 80), 20)
request = f"GET /half HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n".encode()
if tls == "tls":
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    c = ssl.create_default_context().wrap_bio(into, out, server_hostname=name)
    def do(what):
        while True:
            try:
                return what()
            except ssl.SSLWantReadError:
                if out.pending:
                    s.sendall(out.read())
                more = s.recv(65536)
                into.write(more) if more else into.write_eof()
    do(c.do_handshake)
    c.write(request)
    try:
        c.unwrap()  # its end is announced; the server's is to come
    except ssl.SSLWantReadError:
        pass
    s.sendall(out.read())
    s.shutdown(socket.SHUT_WR)
    try:
        while more := do(lambda: c.read(65536)):
            sys.stdout.write(more.decode())
    except ssl.SSLZeroReturnError:
        pass  # the end, announced
else:
    s.sendall(request)
    s.shutdown(socket.SHUT_WR)
    print(b"".join(iter(lambda: s.recv(65536), b"")).decode())
"""


def test_a_client_that_ends_its_side_is_answered(stack):
    """Through HTTP, and through interception, which the path wants."""
    with stack.cay.create() as one:
        policy = {"rules": [{"action": "allow", "domains": ["web.example.com"], "paths": ["/half"]}]}
        assert stack.cay.call("PUT", f"/cay/v1/sandboxes/{one.id}/policy", policy).status == 204
        one.write("/tmp/half.py", HALF_CLOSED.encode())
        for how in ("plain", "tls"):
            got = one.run(f"python3 /tmp/half.py web.example.com {how} 2>&1").out
            assert got.startswith("HTTP/1.1 200 ") and '"path": "/half"' in got, (how, got)


def test_a_killed_egress_takes_the_network_and_nothing_else(stack, box):
    one = box()
    assert fetch(one, "http://web.example.com/")["path"] == "/"
    stack.kill("cay-egress")
    assert one.run("echo alive").out == "alive\n"
    until(lambda: "path" in (got if isinstance(got := fetch(one, "http://web.example.com/"), dict) else {}))
    denied = box(allow_internet_access=False)
    assert "egress_denied" in denied.run("curl -sS --max-time 20 http://web.example.com/").out


@pytest.mark.parametrize("program", ["cay-privd", "cayd"])
def test_the_others_restart_under_it(stack, box, program):
    one = box(network={"denyOut": ["0.0.0.0/0"], "allowOut": ["web.example.com"]})
    assert fetch(one, "http://web.example.com/")["path"] == "/"
    stack.wait_replaced(program, stack.kill(program))
    until(lambda: one.run("echo alive").out == "alive\n", patient=True)
    assert fetch(one, "http://web.example.com/")["path"] == "/"
    assert "egress_denied" in one.run("curl -sS --max-time 20 http://other.example.net/").out


def test_root_inside_cannot_undo_it(box):
    one = box(allow_internet_access=False)
    r = one.run("nft flush ruleset; iptables -F; ip route del default; ip link add x type dummy; "
                "python3 -c 'import socket; s=socket.socket(); s.setsockopt(1, 36, 1)'", user="root")
    assert r.exit_code != 0 and "Operation not permitted" in (r.stderr.decode() + r.out) or "not found" in r.stderr.decode()
    taken = one.run("python3 -c \"import socket; s=socket.socket(socket.AF_INET6); s.setsockopt(1, 2, 1); "
                    "s.setsockopt(1, 15, 1); s.bind(('::', 3128))\"", user="root")
    assert taken.exit_code != 0 and "in use" in taken.stderr.decode()
    assert "egress_denied" in one.run("curl -sS --max-time 20 http://web.example.com/").out
