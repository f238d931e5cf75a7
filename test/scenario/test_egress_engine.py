"""cay-egress with a stand-in for privd, cayd and the internet (test/egress/internet.py): real clients in a
network namespace as a sandbox has it. No packet leaves those namespaces."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from waitlib import until
from worldlib import boxes_fixture, restarted, world_fixture  # isort: skip: it makes the next one found
from internet import (BANNER_PORT, CONNECT_PORT, DNS, ECHO_PORT, HOST_ADDRESS, METADATA, OTHER, OWN4, PRIVATE, SINK_PORT,
                      SOCKS_PORT, SOURCE_PORT, TCP_PORT, WEB, WEB6, UnixConnection, dns_wire, inside, listener, run)

FAR = [f"far-{i}.example.net" for i in range(12)]
ZONE = {
    "web.example.com": {"a": [[WEB]], "aaaa": [[WEB6]]},
    "v4.example.com": {"a": [[WEB]]},
    "other.example.net": {"a": [[OTHER]]},
    "deep.sub.example.org": {"a": [[OTHER]]},
    "metadata.example.com": {"a": [[METADATA]]},
    "private.example.com": {"a": [[PRIVATE]]},
    "host.example.com": {"a": [[HOST_ADDRESS]]},
    "mixed.example.com": {"a": [[METADATA, PRIVATE, WEB]]},
    "rebind.example.com": {"a": [[WEB], [PRIVATE]]},
    "slow.example.com": {"mode": "slow"},
    "truncated.example.com": {"a": [[WEB]], "mode": "truncated"},
    "half.example.com": {"a": [[WEB]], "mode": "half"},
    "servfail.example.com": {"mode": "servfail"},
    "garbage.example.com": {"mode": "garbage"},
    "huge.example.com": {"a": [[WEB] + [f"10.1.{i // 250}.{i % 250 + 1}" for i in range(600)]]},
    "alias.example.com": {"a": [[WEB]], "chain": ["canonical.example.net"]},
    "inward.example.com": {"a": [[PRIVATE]], "chain": ["canonical.example.net"]},
    "loop.example.com": {"a": [[]], "chain": ["loop-2.example.com", "loop.example.com"]},
    "long.example.com": {"a": [[]], "chain": [f"n{i}.example.com" for i in range(500)]},
    "far.example.com": {"a": [[WEB]], "chain": FAR},
    "far-inward.example.com": {"a": [[PRIVATE]], "chain": FAR},
    "far-metadata.example.com": {"a": [[METADATA]], "chain": FAR},
    "later.example.com": {"a": [[], [WEB]]},
    "later-inward.example.com": {"a": [[], [PRIVATE]]},
    "closed.example.net": {"a": [[OTHER]]},
    "quiet.example.net": {"a": [[OTHER]]},
}
IPV6_RECVERR = 25  # linux/in6.h
WEB_ONLY = {"rules": [{"name": "web", "domains": ["web.example.com", "v4.example.com"], "action": "allow"}]}


world, box = world_fixture(ZONE), boxes_fixture(WEB_ONLY)


def address_of(sandbox, name):
    code, found = sandbox.resolve(name)
    assert code == 0 and len(found) == 1, (name, code, found)
    return found[0]


def exactly(connection, n):
    data = b""
    while len(data) < n:
        piece = connection.recv(n - len(data))
        assert piece, f"ended after {data!r}"
        data += piece
    return data


def answer_to(connection, request):
    """Head and body of one HTTP response."""
    connection.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        data += exactly(connection, 1)
    n = next(int(line.split(b":")[1]) for line in data.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    return data, exactly(connection, n)


def reached(done):
    """It is the server's answer, not cay's about it."""
    return json.loads(done.stdout).get("method") == "GET"


def ended(connection):
    """The other side has ended or reset it."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


# -- what is allowed ---------------------------------------------------------------------------------

def test_an_allowed_name_is_reached(world, box):
    s = box()
    seen = json.loads(s.curl("http://v4.example.com/a/b?c=d").stdout)
    assert seen["path"] == "/a/b?c=d" and seen["headers"]["Host"] == "v4.example.com"
    assert seen["address"] == f"::ffff:{WEB}"
    done = s.curl("--cacert", world.ca, "https://web.example.com/x")
    assert json.loads(done.stdout)["tls"], done.stderr


def test_ipv6_inside(world, box):
    s = box()
    assert reached(s.curl("-6", "http://web.example.com/"))
    assert reached(s.curl("-6", "--cacert", world.ca, "https://web.example.com/"))


def test_opaque_bytes_by_name(box):
    s = box()
    with s.connect(address_of(s, "v4.example.com"), ECHO_PORT) as c:
        for text in (b"hello\n", b"GE nothing like HTTP\n", b"\0" * 100000):
            c.sendall(text)
            assert exactly(c, len(text)) == text


def test_a_server_that_speaks_first(box):
    s = box()
    with s.connect(address_of(s, "v4.example.com"), BANNER_PORT) as c:
        assert c.recv(100) == b"SSH-2.0-stand-in\r\n"
        c.sendall(b"SSH-2.0-client\r\n")
        assert c.recv(100) == b"SSH-2.0-client\r\n"


def test_half_closed_both_ways(box):
    s = box()
    with s.connect(address_of(s, "v4.example.com"), SINK_PORT) as c:
        data = os.urandom(1 << 20)
        for _ in range(8):
            c.sendall(data)
        c.shutdown(socket.SHUT_WR)
        assert c.recv(100) == str(8 << 20).encode()
        assert c.recv(100) == b""
    with s.connect(address_of(s, "v4.example.com"), SOURCE_PORT) as c:
        c.sendall(f"{5 << 20}\n".encode())
        count = 0
        while data := c.recv(1 << 20):
            count += len(data)
        assert count == 5 << 20


def test_keep_alive_is_one_connection_each(world, box):
    s = box()
    done = s.curl("-v", *["http://v4.example.com/1"] * 3)
    assert done.stdout.count('"GET"') == 3 and done.stderr.count("Connected to") == 1
    records = [r for r in world.audit(f"sandbox=sandbox{s.slot}&limit=100") if r["event"] != "end"]
    assert [r["event"] for r in records] == ["connection", "request", "request", "request"]


def test_request_bodies_and_sizes(box):
    s = box()
    done = s.curl("-d", "a" * 100000, "http://v4.example.com/post")
    assert len(json.loads(done.stdout)["body"]) == 100000
    assert len(s.curl("http://v4.example.com/bytes/3000000").stdout) == 3000000


def test_suffixes(world, box):
    s = box({"rules": [{"domains": ["*.example.org"], "action": "allow"}]})
    assert reached(s.curl("http://deep.sub.example.org/"))
    for name in ("example.org", "evilexample.org", "example.org.evil.com"):
        assert "egress_denied" in s.curl(f"http://{name}/").stdout


# -- what is not -------------------------------------------------------------------------------------

def test_a_denied_name_says_why(world, box):
    s = box()
    done = s.curl("-i", "http://other.example.net/secret?token=1")
    head, body = done.stdout.split("\n\n", 1)
    answer = json.loads(body)
    assert head.startswith("HTTP/1.1 403") and "x-cay-denied: deny" in head
    assert answer["error"]["type"] == "egress_denied" and "other.example.net" in answer["message"]
    assert answer["sandbox_allows"] == ["web.example.com", "v4.example.com"] and "cay.internal" in answer["help"]
    assert world.asked("other.example.net") == 0, "a denied name was asked for outside"
    listed = json.loads(s.curl("http://cay.internal/denials").stdout)["denials"]
    assert listed[-1]["name"] == "other.example.net" and listed == world.denials(s)
    assert "token" not in json.dumps(world.audit(f"sandbox=sandbox{s.slot}"))


def test_a_denied_name_over_tls_and_bytes(world, box):
    s = box()
    done = s.curl("-k", "https://other.example.net/")
    assert json.loads(done.stdout)["error"]["type"] == "egress_denied"
    with s.connect(address_of(s, "other.example.net"), BANNER_PORT) as c:
        with pytest.raises(ConnectionResetError):
            c.recv(100)
    assert [d["port"] for d in world.denials(s)] == [443, BANNER_PORT]


@pytest.mark.parametrize("address", [WEB, METADATA, PRIVATE, HOST_ADDRESS, "[fd00:ec2::254]", "100.100.100.200"])
def test_bare_addresses_need_a_rule(box, address):
    s = box()
    assert "egress_denied" in s.curl(f"http://{address}/").stdout


@pytest.mark.parametrize("address", [METADATA, HOST_ADDRESS, "[fd00:ec2::254]", "100.100.100.200"])
def test_what_no_policy_opens(world, box, address):
    """The positive control: with the same policy everything else is reached, private addresses too."""
    s = box({"default": "allow"})
    assert reached(s.curl(f"http://{PRIVATE}/"))
    assert json.loads(s.curl(f"http://{address}/").stdout)["rule"] == "never"


def test_public_is_not_private(box):
    s = box({"default": "public"})
    assert reached(s.curl(f"http://{WEB}/"))
    assert reached(s.curl("http://other.example.net/"))
    for where in (PRIVATE, "private.example.com"):
        assert "egress_denied" in s.curl(f"http://{where}/").stdout


@pytest.mark.parametrize("name", ["metadata", "private", "host"])
def test_a_name_that_points_inward(box, name):
    s = box({"rules": [{"domains": ["*.example.com"], "action": "allow"}]})
    assert reached(s.curl("http://v4.example.com/"))
    assert "egress_denied" in s.curl(f"http://{name}.example.com/").stdout


def test_of_several_addresses_only_the_allowed(box):
    s = box({"rules": [{"domains": ["mixed.example.com", "huge.example.com"], "action": "allow"}]})
    assert json.loads(s.curl("http://mixed.example.com/").stdout)["address"] == f"::ffff:{WEB}"
    assert json.loads(s.curl("http://huge.example.com/").stdout)["address"] == f"::ffff:{WEB}"


def test_rebinding(world, box):
    """The second answer is the private address: it is checked like the first, never dialled."""
    s = box({"rules": [{"domains": ["rebind.example.com"], "action": "allow"}]})
    assert json.loads(s.curl("http://rebind.example.com/").stdout)["address"] == f"::ffff:{WEB}"
    answer = until(lambda: "egress_denied" in s.curl("http://rebind.example.com/").stdout)
    assert answer and world.asked("rebind.example.com") >= 2


def test_a_ceiling_caps(box):
    s = box({"default": "allow"}, ceiling=WEB_ONLY)
    assert reached(s.curl("http://v4.example.com/"))
    assert "egress_denied" in s.curl("http://other.example.net/").stdout


def test_methods_and_paths(box):
    s = box({"rules": [{"name": "read", "domains": ["v4.example.com"], "methods": ["GET"], "paths": ["/ok/*"],
                        "action": "allow"}]})
    assert reached(s.curl("http://v4.example.com/ok/1"))
    for arguments in (["http://v4.example.com/no"], ["-X", "POST", "http://v4.example.com/ok/1"],
                      ["--path-as-is", "http://v4.example.com/ok/../no"],
                      ["http://v4.example.com/ok/%2e%2e/no"], ["http://v4.example.com/ok//no"]):
        assert "egress_denied" in s.curl(*arguments).stdout, arguments
    assert reached(s.curl("-k", "https://v4.example.com/ok/1")), "read, and on"
    assert "egress_denied" in s.curl("-k", "https://v4.example.com/no").stdout, "TLS that must be read passed unread"
    with s.connect(address_of(s, "v4.example.com"), ECHO_PORT) as c:
        c.sendall(b"not http\n")
        with pytest.raises(ConnectionResetError):
            c.recv(10)


# -- names must agree --------------------------------------------------------------------------------

def test_sni_must_be_the_dialled_name(world, box):
    s = box({"rules": [{"domains": ["v4.example.com", "other.example.net"], "action": "allow"}]})
    address = address_of(s, "v4.example.com")
    done = s.run("openssl", "s_client", "-connect", f"{address}:443", "-servername", "v4.example.com", stdin=-3)
    assert "CONNECTED" in done.stdout and "stand-in" in done.stdout
    done = s.run("openssl", "s_client", "-connect", f"{address}:443", "-servername", "other.example.net", stdin=-3)
    assert "O = cay" in done.stderr and "stand-in" not in done.stdout  # the refusal's own certificate
    assert world.denials(s)[-1]["rule"] == "sni"


def test_sni_to_a_bare_address_is_held_against_the_rules(box):
    s = box({"default": "public", "rules": [{"domains": ["other.example.net"], "action": "deny"}]})
    for name, ok in (("web.example.com", True), ("other.example.net", False)):
        done = s.run("openssl", "s_client", "-connect", f"{WEB}:443", "-servername", name, stdin=-3)
        assert ("O = cay" in done.stderr) != ok, done.stderr


def test_a_client_hello_in_pieces(world, box):
    """Also when its name comes late: nothing of it passes before that."""
    s = box()
    hello = client_hello("other.example.net")
    with s.connect(address_of(s, "v4.example.com"), 443) as c:
        for i in range(0, len(hello), 17):
            c.sendall(hello[i:i + 17])
            time.sleep(0.002)
        assert c.recv(100)[:2] == bytes([0x16, 3])  # cay-egress's own handshake, to say why
    assert world.denials(s)[-1]["rule"] == "sni"


def client_hello(name):
    import ssl
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def test_host_must_be_the_dialled_name(world, box):
    s = box({"rules": [{"domains": ["v4.example.com", "other.example.net"], "action": "allow"}]})
    done = s.curl("-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: other.example.net", "http://v4.example.com/")
    assert done.stdout == "421"
    assert reached(s.curl("-H", "Host: V4.Example.COM.", "http://v4.example.com/"))
    # on a connection that was right once, too
    with s.connect(address_of(s, "v4.example.com"), 80) as c:
        for name, status in (("v4.example.com", b"200"), ("other.example.net", b"421"), ("v4.example.com", b"200")):
            head, _ = answer_to(c, f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            assert head.split()[1] == status


def test_connect_authority_must_agree_with_what_is_inside(world, box):
    s = box({"rules": [{"domains": ["v4.example.com", "other.example.net"], "action": "allow"}]})
    proxy = ("-x", f"http://127.0.0.1:{TCP_PORT}")
    assert json.loads(s.curl(*proxy, "--cacert", world.ca, "https://v4.example.com/").stdout)["tls"]
    done = s.curl(*proxy, "-k", "--connect-to", "other.example.net:443:v4.example.com:443", "https://other.example.net/")
    assert json.loads(done.stdout)["rule"] == "sni"
    done = s.curl(*proxy, "-p", "-H", "Host: other.example.net", "-o", "/dev/null", "-w", "%{http_code}",
                  "http://v4.example.com/")
    assert done.stdout == "421"


# -- explicit proxies --------------------------------------------------------------------------------

def test_http_proxy(world, box):
    s = box()
    proxy = ("-x", f"http://127.0.0.1:{TCP_PORT}")
    assert json.loads(s.curl(*proxy, "http://web.example.com/abs?q").stdout)["path"] == "/abs?q"
    assert "egress_denied" in s.curl(*proxy, "http://other.example.net/").stdout
    assert s.curl(*proxy, "-H", "Host: v4.example.com", "-o", "/dev/null", "-w", "%{http_code}",
                  "http://web.example.com/").stdout == "421"
    done = s.curl("-v", *proxy, "-k", "https://other.example.net/")
    assert "HTTP/1.1 403" in done.stderr and "x-cay-denied: deny" in done.stderr
    for name, status in (("closed.example.net", "502"), ("nowhere.example.com", "502")):
        t = box({"rules": [{"domains": [name], "action": "allow"}]})
        done = t.curl(*proxy, "-o", "/dev/null", "-w", "%{http_connect}", f"https://{name}:9/")
        assert done.stdout == status, done


def test_proxy_from_ipv6_loopback(world, box):
    s = box()
    assert reached(s.curl("-x", f"http://[::1]:{TCP_PORT}", "http://web.example.com/"))


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
def test_socks(world, box, scheme):
    s = box()
    proxy = ("-x", f"{scheme}://127.0.0.1:{TCP_PORT}")
    assert reached(s.curl(*proxy, "http://v4.example.com/"))
    assert json.loads(s.curl("-x", f"socks5h://127.0.0.1:{TCP_PORT}", "--cacert", world.ca,
                             "https://v4.example.com/").stdout)["tls"]
    done = s.curl(*proxy, "http://other.example.net/")
    assert done.returncode == 97, done


def test_socks_by_address_and_bad_requests(box):
    s = box({"rules": [{"addresses": [WEB], "action": "allow"}]})

    def ask(request, greeting=b"\5\1\0"):
        with s.connect("127.0.0.1", TCP_PORT) as c:
            c.sendall(greeting)
            if c.recv(2) != b"\5\0":
                return None
            c.sendall(request)
            answer = c.recv(10)
            return answer[1] if answer else None

    v4 = lambda a, port, command=1: bytes([5, command, 0, 1]) + socket.inet_aton(a) + struct.pack(">H", port)  # noqa: E731
    assert ask(v4(WEB, ECHO_PORT)) == 0
    assert ask(v4(PRIVATE, ECHO_PORT)) == 2
    assert ask(v4(WEB, ECHO_PORT, command=2)) == 7
    assert ask(b"\5\1\0\x09abcdef") == 8
    assert ask(b"", greeting=b"\5\1\2") is None
    with s.connect("127.0.0.1", TCP_PORT) as c:  # one byte at a time, both messages at once
        for byte in b"\5\1\0" + v4(WEB, ECHO_PORT):
            c.sendall(bytes([byte]))
        assert exactly(c, 12)[:4] == b"\5\0\5\0"
        c.sendall(b"ping\n")
        assert c.recv(4) == b"ping"


def test_the_listener_is_no_way_to_itself(box):
    s = box({"default": "allow"})
    for where in ("127.0.0.1", "localhost", OWN4):
        done = s.curl("-x", f"http://127.0.0.1:{TCP_PORT}", f"http://{where}:{TCP_PORT}/", "--noproxy", "")
        assert "egress_denied" in done.stdout or "egress_unreachable" in done.stdout, done


# -- DNS ---------------------------------------------------------------------------------------------

def test_dns(world, box):
    s = box()
    a = address_of(s, "web.example.com")
    assert a.startswith(("198.18.", "198.19.")) and address_of(s, "WEB.Example.com") == a
    assert s.resolve("web.example.com", 28)[1][0].startswith("fdca:79ee:18::")
    assert address_of(s, "anything.at.all") != a
    assert s.resolve("web.example.com", 65) == (0, []) and s.resolve("web.example.com", 15) == (0, [])
    assert s.resolve("localhost") == (0, ["127.0.0.1"])
    reverse = ".".join(reversed(a.split("."))) + ".in-addr.arpa"
    assert s.resolve(reverse, 12) == (0, ["web.example.com"])
    assert s.resolve("8.8.8.8.in-addr.arpa", 12)[0] == 3
    assert s.resolve("web.example.com", server=DNS)[1] == [a], "every resolver is this one"
    assert s.resolve("a" * 63 + "." + "b" * 63)[0] == 0
    assert s.resolve("quiet.example.net")[0] == 0
    assert world.asked("anything.at.all") == 0 and world.asked("quiet.example.net") == 0


def test_names_are_answered_after_an_error_of_the_socket(box):
    """libuv stops a watch whose socket has an error. It stays in the socket here until the names were asked for."""
    s, poll = box(), select.poll()
    s.udp.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
    poll.register(s.udp, 0)
    s.udp.sendto(b"to a port that nothing listens at", ("::1", 9))
    until(lambda: any(events & select.POLLERR for _, events in poll.poll(0)))
    assert s.resolve("v4.example.com")[1]
    assert s.udp.recvmsg(512, 512, socket.MSG_ERRQUEUE)[0]
    assert s.resolve("v4.example.com")[1]


def test_dns_over_tcp(box):
    s = box()
    question = b"\3web\7example\3com\0" + struct.pack(">HH", 1, 1)
    message = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + question
    with s.connect(DNS, 53) as c:
        for _ in range(3):
            c.sendall(struct.pack(">H", len(message)) + message)
            n = struct.unpack(">H", exactly(c, 2))[0]
            assert s.parse(exactly(c, n)) == (0, [address_of(s, "web.example.com")])


def test_malformed_dns_is_survived(box):
    s = box()
    with s.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
        u.connect((DNS, 53))
        for i in range(200):
            u.send(os.urandom(i))
            u.send(b"\0\1\1\0\0\1\0\0\0\0\0\0" + b"\xc0\x0c" * i)
    assert address_of(s, "web.example.com")


@pytest.mark.parametrize("name", ["slow", "servfail", "garbage", "nowhere", "loop", "long"])
def test_bad_answers_from_outside(box, name):
    s = box({"rules": [{"domains": ["*.example.com"], "action": "allow"}]})
    done = s.curl("-o", "/dev/null", "-w", "%{http_code}", f"http://{name}.example.com/")
    assert done.stdout == ("504" if name == "slow" else "502")


def test_a_truncated_answer_is_asked_again_over_tcp(world, box):
    s = box({"rules": [{"domains": ["truncated.example.com"], "action": "allow"}]})
    assert reached(s.curl("http://truncated.example.com/"))
    assert any(line == "dns truncated.example.com 1 tcp" for line in world.asked_log.read_text().splitlines())


def test_half_an_answer_holds_up_nothing_else(world, box):
    """Over TCP, where answers come one behind the other in a connection. The control: the name itself has no answer."""
    policy = {"rules": [{"domains": ["*.example.com"], "action": "allow"}]}
    loud, neighbour = box(policy), box(policy, tenant="tenant2")
    with subprocess.Popen(loud.command("curl", "-s", "http://half.example.com/"), stdout=subprocess.PIPE, text=True) as half:
        until(lambda: re.search("dns half.example.com .* tcp", world.asked_log.read_text()), what="the question over TCP")
        own = subprocess.Popen(loud.command("curl", "-s", "http://truncated.example.com/"), stdout=subprocess.PIPE, text=True)
        assert reached(neighbour.curl("http://truncated.example.com/"))
        assert json.loads(own.communicate()[0])["method"] == "GET"
        assert "no answer from DNS in time" in half.communicate()[0]


def test_more_addresses_than_anybody_needs(box):
    s = box({"rules": [{"domains": ["huge.example.com"], "action": "allow"}]})
    assert reached(s.curl("http://huge.example.com/"))


def test_other_names_of_an_allowed_one(world, box):
    """It is the name that was dialled which counts, and the address; a name in between is neither asked nor allowed."""
    s = box({"rules": [{"domains": ["alias.example.com", "inward.example.com"], "action": "allow"}]})
    assert reached(s.curl("http://alias.example.com/"))
    assert "egress_denied" in s.curl("http://inward.example.com/").stdout
    assert "egress_denied" in s.curl("http://canonical.example.net/").stdout
    assert world.asked("canonical.example.net") == 0


def test_chains_of_other_names(world, box):
    """However many names there are in between, the address at the end counts; a chain that turns back or ends nowhere has
    none. The control: one as long that leads outside."""
    s = box({"rules": [{"domains": ["*.example.com"], "action": "allow"}]})
    for name in ("loop", "long"):
        assert "egress_unreachable" in s.curl(f"http://{name}.example.com/").stdout, name
    for name in ("far-inward", "far-metadata"):
        assert "egress_denied" in s.curl(f"http://{name}.example.com/").stdout, name
    assert reached(s.curl("http://far.example.com/"))
    assert not any(world.asked(name) for name in FAR)


def test_a_name_that_gets_an_address_later(box):
    s = box({"rules": [{"domains": ["*.example.com"], "action": "allow"}]})
    for name in ("later", "later-inward"):
        assert "egress_unreachable" in s.curl(f"http://{name}.example.com/").stdout
    until(lambda: reached(s.curl("http://later.example.com/")))
    until(lambda: "egress_denied" in s.curl("http://later-inward.example.com/").stdout)


def test_an_address_that_stands_for_nothing(box):
    s = box({"default": "allow"})
    assert json.loads(s.curl("http://198.18.77.77/").stdout)["rule"] == "unknown-address"


# -- no other way ------------------------------------------------------------------------------------

def test_other_protocols_have_no_path(box):
    s = box({"default": "allow"})
    with s.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
        u.settimeout(10)
        u.connect((WEB, 443))
        with pytest.raises(OSError):
            u.send(b"quic")
            u.recv(10)
    with pytest.raises(OSError):
        with s.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as r:
            r.sendto(b"\x08\0\xf7\xff\0\0\0\0", (WEB, 0))


# -- life --------------------------------------------------------------------------------------------

def test_connections_wait_for_the_policy(world, box):
    s = box(None)
    results = []
    thread = threading.Thread(target=lambda: results.append(s.curl("http://v4.example.com/")))
    thread.start()
    until(lambda: json.loads(world.call("GET", f"/v1/sandboxes/{s.slot}/{s.gen}/usage")[1])["connections"] == 1)
    assert world.put(s, WEB_ONLY)[0] == 204
    thread.join()
    assert reached(results[0])


def test_without_a_policy_all_is_refused(box):
    s = box(None)
    assert json.loads(s.curl("http://v4.example.com/").stdout)["rule"] == "no-policy"


def test_a_policy_before_the_listener(world):
    from internet import Sandbox
    s = Sandbox(next(world.slots), 5)
    world.sandboxes.append(s)
    assert world.put(s, WEB_ONLY)[0] == 204
    world.privd.add(s)
    assert reached(s.curl("http://v4.example.com/"))
    stale = type("Old", (), {"slot": s.slot, "gen": 4})
    assert world.put(stale, {"default": "allow"})[0] == 409
    world.end(s)


def test_a_changed_policy_cuts(world, box):
    s = box({"rules": [{"domains": ["v4.example.com", "other.example.net"], "action": "allow"}]})
    keep = s.connect(address_of(s, "v4.example.com"), ECHO_PORT)
    address = address_of(s, "other.example.net")
    lose = inside(s.name, lambda: [socket.create_connection((address, ECHO_PORT), 60) for _ in range(1000)])
    http = s.connect(address_of(s, "other.example.net"), 80)
    for c in (keep, *lose):
        c.sendall(b"x\n")
    for c in (keep, *lose):
        assert c.recv(2) == b"x\n"
    http.sendall(b"GET / HTTP/1.1\r\nHost: other.example.net\r\n\r\n")
    assert exactly(http, 12) == b"HTTP/1.1 200"
    assert world.put(s, WEB_ONLY)[0] == 204
    assert all(ended(c) for c in (*lose, http))
    keep.sendall(b"y\n")
    assert keep.recv(2) == b"y\n"
    for c in (keep, *lose, http):
        c.close()
    assert "egress_denied" in s.curl("http://other.example.net/").stdout


def wide(*names):
    """A policy that takes long to ask: as many names as there may be come before these."""
    others = [f"name{n}.example.com" for n in range(4000 - len(names))]
    return {"rules": [{"domains": [*others, *names], "action": "allow"}]}


def echoes(s, name, count):
    """So many connections, each of which has carried something."""
    address = address_of(s, name)
    made = inside(s.name, lambda: [socket.create_connection((address, ECHO_PORT), 60) for _ in range(count)])
    for c in made:
        c.sendall(b"x\n")
    assert all(exactly(c, 2) == b"x\n" for c in made)
    return made


def comes_back(connection, data):
    """Is what is sent now echoed, behind whatever was sent before?"""
    seen = b""
    with contextlib.suppress(ConnectionError, BrokenPipeError):
        connection.sendall(data)
        while data not in seen and (more := connection.recv(65536)):
            seen = seen[-len(data):] + more
    return data in seen


@contextlib.contextmanager
def moving(connections):
    """Bytes go on them all the time, and nothing reads the echoes."""
    over = threading.Event()

    def send():
        while not over.is_set():
            for c in connections:
                with contextlib.suppress(OSError):
                    c.send(b"m", socket.MSG_DONTWAIT)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_nothing_is_carried_once_a_change_is_answered(world, box):
    """Neither where bytes move nor where none do. The control: allowed ones are carried."""
    s = box(wide("v4.example.com", "other.example.net"))
    keep, moves, idle = echoes(s, "v4.example.com", 20), echoes(s, "other.example.net", 200), echoes(s, "other.example.net", 200)
    with moving(moves):
        assert world.put(s, wide("v4.example.com"))[0] == 204
        assert not any(comes_back(c, b"after\n") for c in idle)
    assert not any(comes_back(c, b"after\n") for c in moves)
    assert all(comes_back(c, b"after\n") for c in keep)
    for c in (*keep, *moves, *idle):
        c.close()


def test_two_changes_at_once(world, box):
    """Each allows what the other denies: both are answered, and what the one in force denies is not carried."""
    names = ["v4.example.com", "other.example.net"]
    s = box(wide(*names))
    held = {name: echoes(s, name, 150) for name in names}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert [r[0] for r in pool.map(lambda name: world.put(s, wide(name)), names)] == [204, 204]
    in_force, = [name for name in names if reached(s.curl(f"http://{name}/"))]
    for name, connections in held.items():
        if name != in_force:
            assert not any(comes_back(c, b"after\n") for c in connections)
        for c in connections:
            c.close()
    again, = echoes(s, in_force, 1)  # the control
    assert comes_back(again, b"after\n")
    again.close()


def test_a_change_whose_sandbox_or_caller_goes(world, box):
    s, other = world.sandbox(wide("v4.example.com", "other.example.net")), box()
    held = echoes(s, "other.example.net", 300)
    caller = UnixConnection(world.control, 30)
    caller.request("PUT", f"/v1/sandboxes/{s.slot}/{s.gen}", json.dumps(
        {"id": "x", "tenant": "t", "policy": wide("v4.example.com"), "ceilings": []}))
    caller.close()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(world.put, s, wide("other.example.net", "v4.example.com"))
        world.end(s)
        assert answer.result()[0] in (204, 409)
    for c in held:
        c.close()
    assert reached(other.curl("http://v4.example.com/"))
    assert world.put(other, {"rules": []})[0] == 204
    assert "egress_denied" in other.curl("http://v4.example.com/").stdout


def test_a_bad_policy_changes_nothing(world, box):
    s = box()
    status, text = world.put(s, {"rules": [{"action": "allow", "ports": ["x"]}]})
    assert status == 400 and "rules[0].ports[0]" in text
    for body in ({"policy": {}}, {"id": "x" * 99, "tenant": "t", "policy": {}}):
        assert world.call("PUT", f"/v1/sandboxes/{s.slot}/{s.gen}", body)[0] == 400
    assert reached(s.curl("http://v4.example.com/"))


def test_limits(world, box):
    s = box({**WEB_ONLY, "limits": {"connections": 3, "bytes": 1000000}})
    address = address_of(s, "v4.example.com")
    held = [s.connect(address, ECHO_PORT) for _ in range(3)]
    for c in held:
        c.sendall(b"x\n")
        assert c.recv(2) == b"x\n"
    assert json.loads(s.curl("http://v4.example.com/").stdout)["rule"] == "limit"
    for c in held:
        c.close()
    until(lambda: reached(s.curl("http://v4.example.com/")))
    with s.connect(address, SOURCE_PORT) as c:
        c.sendall(b"50000000\n")
        assert ended(c)
    assert json.loads(s.curl("http://v4.example.com/").stdout)["rule"] == "limit"
    usage = json.loads(world.call("GET", f"/v1/sandboxes/{s.slot}/{s.gen}/usage")[1])
    assert 1000000 <= usage["bytes_up"] + usage["bytes_down"] <= 1000000 + 65536


def break_off(connection, *first):
    """With a reset, after these bytes."""
    for piece in first:
        connection.sendall(piece)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_places_of_connections_come_back(world, box):
    """Whatever state a connection is broken off in; and no more of them than were taken, which the control is: at the end as
    many as the limit says are held, and one more is refused."""
    names = ["v4.example.com", "slow.example.com", "closed.example.net"]
    s = box({"rules": [{"domains": names, "action": "allow"}], "limits": {"connections": 3}})
    v4, slow, closed, denied = (address_of(s, name) for name in (*names, "other.example.net"))
    get = b"GET / HTTP/1.1\r\nHost: v4.example.com\r\n\r\n"
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the beginning of a ClientHello
    ways = [(v4, 80), (v4, 80, get[:20]), (v4, 443, hello), (v4, 80, get), (v4, SOURCE_PORT, b"50000000\n"), (denied, 80, get),
            (denied, 443, hello), (slow, 80, get.replace(b"v4", b"slow")), (closed, 1, b"x"), ("127.0.0.1", TCP_PORT, b"\x05\x01"),
            ("127.0.0.1", TCP_PORT, b"\x05\x01\x00"), ("127.0.0.1", TCP_PORT, b"CONNECT v4.example.com:80 HTTP/1.1\r\n")]

    def open_now():
        return json.loads(world.call("GET", f"/v1/sandboxes/{s.slot}/{s.gen}/usage")[1])["connections"]

    for address, port, *first in ways:
        for _ in range(5):
            break_off(s.connect(address, port), *first)
        until(lambda: open_now() == 0, what=lambda a=address, p=port, f=first: f"{open_now()} open after {a} {p} {f}")
    held = [s.connect(v4, ECHO_PORT) for _ in range(3)]
    for c in held:
        c.sendall(b"x\n")
        assert c.recv(2) == b"x\n"
    assert open_now() == 3 and json.loads(s.curl("http://v4.example.com/").stdout)["rule"] == "limit"
    for c in held:
        break_off(c)
    until(lambda: reached(s.curl("http://v4.example.com/")))


def test_connections_per_second(box):
    """More wait, and none is lost. That they take a second at least is no matter of the machine's speed."""
    s = box({**WEB_ONLY, "limits": {"connections_per_second": 5}})
    address, begun = address_of(s, "v4.example.com"), time.monotonic()
    held = [s.connect(address, ECHO_PORT) for _ in range(12)]
    for c in held:
        c.sendall(b"x\n")
        assert c.recv(2) == b"x\n"
        c.close()
    assert time.monotonic() - begun > 1


def test_requests_per_second(box):
    s = box({**WEB_ONLY, "limits": {"requests_per_second": 2}})
    done = s.curl("-w", "%{http_code}\n", "-o", "/dev/null", *(f"http://v4.example.com/{i}" for i in range(6)))
    assert "429" in done.stdout and done.stdout.startswith("200")


def test_one_sandbox_is_not_another(world, box):
    a, b = box(), box({"rules": [{"domains": ["other.example.net"], "action": "allow"}]})
    assert reached(a.curl("http://v4.example.com/"))
    assert "egress_denied" in b.curl("http://v4.example.com/").stdout
    assert reached(b.curl("http://other.example.net/"))
    assert {d["name"] for d in world.denials(b)} == {"v4.example.com"} and world.denials(a) == []


def test_killed_and_started_again(world, box):
    s = box()
    c = s.connect(address_of(s, "v4.example.com"), ECHO_PORT)
    c.sendall(b"x\n")
    assert c.recv(2) == b"x\n"
    world.kill_egress()
    assert ended(c)
    waiting = s.connect(WEB, ECHO_PORT)  # in the backlog: nothing passes
    waiting.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    world.start_egress()
    until(lambda: world.call("GET", f"/v1/sandboxes/{s.slot}/{s.gen}/usage")[0] == 200)
    assert world.put(s, WEB_ONLY)[0] == 204
    assert waiting.recv(4096).startswith(b"HTTP/1.1 403")
    assert reached(s.curl("http://v4.example.com/"))
    check = json.loads(world.call("GET", "/v1/audit/verify")[1])
    assert check["ok"] and check["lines"] > 1, check


def restart(world, *sandboxes):
    world.kill_egress()
    world.start_egress()
    for s in sandboxes:
        until(lambda s=s: world.call("GET", f"/v1/sandboxes/{s.slot}/{s.gen}/usage")[0] == 200)
        assert world.put(s, WEB_ONLY)[0] == 204


def meaning(sandbox, address):
    return sandbox.resolve(".".join(reversed(address.split("."))) + ".in-addr.arpa", 12)


def test_an_address_means_the_same_name_after_a_restart(world, box):
    """Numbers were given out in turn: the first name that was asked for after a restart had the address of the first one before."""
    s = box()
    web, never = address_of(s, "v4.example.com"), "198.18.77.77"
    restart(world, s)
    other = address_of(s, "other.example.net")
    assert other != web and address_of(s, "v4.example.com") == web
    restart(world, s)
    with s.connect(web, ECHO_PORT) as c:  # not asked for again
        c.sendall(b"x\n")
        assert c.recv(2) == b"x\n"
    assert meaning(s, web) == (0, ["v4.example.com"]) and meaning(s, other) == (0, ["other.example.net"])
    assert meaning(s, never) == (3, [])
    with s.connect(never, ECHO_PORT) as c:
        c.sendall(b"GET / HTTP/1.1\r\nHost: v4.example.com\r\n\r\n")
        assert c.recv(4096).startswith(b"HTTP/1.1 403")


def test_names_with_the_same_number_keep_theirs_after_a_restart(world, box):
    """Of 1,500 names and 1,500 others some 17 have the number of one of the others. The control: many of the others have the next."""
    s = box()
    before = {f"a{i}.example.com": address_of(s, f"a{i}.example.com") for i in range(1500)}
    restart(world, s)
    after = {f"b{i}.example.com": address_of(s, f"b{i}.example.com") for i in range(1500)}
    assert not {*before.values()} & {*after.values()}
    assert {name: address_of(s, name) for name in before} == before
    twin = box()
    assert 0 < sum(address_of(twin, name) != address for name, address in reversed(after.items())) < 150
    assert sum(address_of(twin, name) != address for name, address in before.items()) < 150


def test_a_name_that_is_asked_for_before_the_rules_are_there_keeps_its_address(world, box):
    """After a restart of cay-egress the sockets of a sandbox come before its rules. A name whose number another one had before was
    given that one's address then. The control: in a sandbox where it is asked for first, it has that address."""
    s, twin = box(), box()
    names = [f"a{i}.example.com" for i in range(1500)]
    had = {address_of(s, name): name for name in names}
    name = next(name for name in (f"b{i}.example.com" for i in range(1500)) if address_of(twin, name) in had)
    first, own = address_of(twin, name), address_of(s, name)
    assert first != own
    world.kill_egress()
    world.start_egress()
    until(lambda: world.call("GET", f"/v1/sandboxes/{s.slot}/{s.gen}/usage")[0] == 200)
    with s.socket(socket.AF_INET, socket.SOCK_DGRAM) as c:
        c.connect(("198.18.0.1", 53))
        c.send(struct.pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0) + dns_wire(name) + struct.pack(">HH", 1, 1))
        select.select([c], [], [], 0.3)  # where it is answered at once
        assert world.put(s, WEB_ONLY)[0] == 204
        c.settimeout(20)
        assert s.parse(c.recv(4096)) == (0, [own])
    assert had[first] != name and meaning(s, first) == (0, [had[first]])


def test_names_of_another_sandbox_are_not_there(world):
    """Its file goes with the sandbox; and one that is left over, as of a machine that went down, is no other sandbox's."""
    first = world.sandbox(WEB_ONLY)
    web = address_of(first, "v4.example.com")
    kept = world.state / f"names-{first.slot}"
    until(lambda: "v4.example.com;" in kept.read_text())
    kept.write_text(kept.read_text().replace(f"sandbox{first.slot}", "sandbox-of-before"))
    restart(world, first)
    assert meaning(first, web) == (3, []) and address_of(first, "v4.example.com") == web
    world.end(first)
    until(lambda: not kept.exists())


def test_names_of_a_sandbox_that_ends_while_cay_egress_is_away_go(world, box):
    """They stayed on the disk until another sandbox had the slot. The control: those of one that is still there stay."""
    s, gone = box(), world.sandbox(WEB_ONLY)
    for one in (s, gone):
        address_of(one, "v4.example.com")
        until(lambda one=one: "v4.example.com;" in (world.state / f"names-{one.slot}").read_text())
    (world.state / "names-12x").write_text("")
    world.kill_egress()
    world.end(gone)
    assert (world.state / f"names-{gone.slot}").exists()
    world.start_egress()
    until(lambda: not (world.state / f"names-{gone.slot}").exists())
    assert "v4.example.com;" in (world.state / f"names-{s.slot}").read_text()
    (world.state / "names-12x").unlink()


def test_addresses_of_names_are_their_tenants_own(world, box):
    """Numbers were those of all tenants: an attacker who asked for 4,000 names in sandboxes of his own knew which of them would stand
    at the address that another tenant's program had kept over a pause, if that sandbox asked for it first. The control:
    sandboxes of one tenant have the same, as one that comes again has to."""
    names = [f"n{i}.example.com" for i in range(3)]
    one, again, other = box(), box(), box(tenant="tenant2")
    asked = [[s.resolve(name)[1] for name in names] for s in (one, again, other)]
    assert asked[0] == asked[1] and asked[0] != asked[2] and all(len(a) == 1 for a in asked[2])


def test_events_tell_denials(world, box):
    from internet import UnixConnection
    s = box()
    c = UnixConnection(world.control)
    c.request("GET", "/v1/events")
    r = c.getresponse()
    assert json.loads(r.readline())["event"] == "hello"
    s.curl("http://other.example.net/")
    event = json.loads(r.readline())
    assert (event["event"], event["sandbox"], event["name"]) == ("denial", f"sandbox{s.slot}", "other.example.net")
    c.close()


def test_the_audit_log_is_chained(world, box):
    s = box()
    s.curl("http://v4.example.com/path?secret=1")
    records = world.audit(f"sandbox=sandbox{s.slot}")
    until(lambda: [r["event"] for r in world.audit(f"sandbox=sandbox{s.slot}")] == ["connection", "request", "end"])
    assert records[1]["method"] == "GET" and records[1]["path"] == "/path" and records[1]["rule"] == "web"
    assert world.audit("verdict=deny&limit=1")[0]["verdict"] == "deny" if world.denials(s) else True
    assert json.loads(world.call("GET", "/v1/audit/verify")[1])["ok"]
    log = world.audit_log()
    before = log.read_bytes()
    lines = before.splitlines(keepends=True)
    try:
        log.write_bytes(b"".join(lines[:-2] + [lines[-2].replace(b"allow", b"deny!")] + lines[-1:]))
        assert not json.loads(world.call("GET", "/v1/audit/verify")[1])["ok"]
        log.write_bytes(b"".join(lines[:-2] + lines[-1:]))
        assert not json.loads(world.call("GET", "/v1/audit/verify")[1])["ok"]
    finally:
        log.write_bytes(before)
    assert json.loads(world.call("GET", "/v1/audit/verify")[1])["ok"]


def test_a_changed_policy_cuts_the_request_under_way(world, box):
    """Name and address stay allowed: it is the path that no longer is."""
    rule = {"name": "r", "domains": ["v4.example.com"], "methods": ["GET"], "action": "allow"}
    s = box({"rules": [{**rule, "paths": ["/bytes/*"]}]})
    with s.connect(address_of(s, "v4.example.com"), 80) as c:
        c.sendall(b"GET /bytes/200000000 HTTP/1.1\r\nHost: v4.example.com\r\n\r\n")
        assert exactly(c, 12) == b"HTTP/1.1 200"
        assert world.put(s, {"rules": [{**rule, "paths": ["/other/*"]}]})[0] == 204
        count = 0
        with contextlib.suppress(ConnectionError):
            while data := c.recv(1 << 20):
                count += len(data)
        assert count < 200000000


def test_bytes_of_a_request_are_limited_too(world, box):
    s = box({**WEB_ONLY, "limits": {"bytes": 1000000}})
    with s.connect(address_of(s, "v4.example.com"), 80) as c:
        c.sendall(b"GET /bytes/4000000000 HTTP/1.1\r\nHost: v4.example.com\r\n\r\n")
        count = 0
        with contextlib.suppress(ConnectionError):
            while data := c.recv(1 << 20):
                count += len(data)
        assert 0 < count <= 1000000 + 65536  # unread bytes are lost with the reset
    usage = json.loads(world.call("GET", f"/v1/sandboxes/{s.slot}/{s.gen}/usage")[1])
    assert 1000000 <= usage["bytes_up"] + usage["bytes_down"] <= 1000000 + 65536, usage
    assert json.loads(s.curl("http://v4.example.com/").stdout)["rule"] == "limit"


def test_bytes_of_an_upload_are_limited_too(world, box):
    """Of a body of 50 MB the server gets no more than the limit, however fast it comes."""
    s = box({**WEB_ONLY, "limits": {"bytes": 5000000}})
    head = b"POST / HTTP/1.1\r\nHost: v4.example.com\r\nContent-Length: 50000000\r\n\r\n"
    with s.connect(address_of(s, "v4.example.com"), 80) as c, contextlib.suppress(ConnectionError):
        c.sendall(head + bytes(50000000))
        c.recv(1)
    usage = json.loads(world.call("GET", f"/v1/sandboxes/{s.slot}/{s.gen}/usage")[1])
    assert 5000000 <= usage["bytes_up"] + usage["bytes_down"] <= 5000000 + 65536, usage
    assert json.loads(s.curl("http://v4.example.com/").stdout)["rule"] == "limit"


def test_http_1_0_without_host(box):
    s = box()
    with s.connect(address_of(s, "v4.example.com"), 80) as c:
        _, body = answer_to(c, b"GET / HTTP/1.0\r\n\r\n")
        assert json.loads(body)["headers"]["Host"] == "v4.example.com:80"


def test_offline(world, box):
    s = box()
    with restarted(world, "--egress-offline"):
        assert world.put(s, WEB_ONLY)[0] == 204
        assert "offline" in s.curl("http://v4.example.com/").stdout
    assert world.put(s, WEB_ONLY)[0] == 204
    assert reached(s.curl("http://v4.example.com/"))


@pytest.mark.parametrize("url,resolved_here", [
    (f"socks5://{OTHER}:{SOCKS_PORT}", True), (f"socks5://user:pass word@{OTHER}:{SOCKS_PORT}", True),
    (f"socks5h://{OTHER}:{SOCKS_PORT}", False), (f"http://{OTHER}:{CONNECT_PORT}", False)])
def test_an_upstream_proxy(world, box, url, resolved_here):
    s = box({"rules": [{"domains": ["v4.example.com", "deep.sub.example.org"], "action": "allow"}]})
    policy = {"rules": [{"domains": ["v4.example.com", "private.example.com"], "action": "allow"}]}
    with restarted(world, f"--egress-upstream-proxy={url}"):
        assert world.put(s, policy)[0] == 204
        before = world.asked("v4.example.com")
        assert reached(s.curl("http://v4.example.com/"))
        with s.connect(address_of(s, "v4.example.com"), ECHO_PORT) as c:
            c.sendall(b"through\n")
            assert exactly(c, 8) == b"through\n"
        assert (world.asked("v4.example.com") > before) == resolved_here
        if resolved_here:  # an address resolved here was checked here
            assert "egress_denied" in s.curl("http://private.example.com/").stdout
        assert "egress_denied" in s.curl("http://other.example.net/").stdout
        assert "egress_denied" in s.curl(f"http://{METADATA}/").stdout


def test_an_upstream_proxy_of_its_own(world, box):
    s = box(WEB_ONLY, proxy={"address": f"{OTHER}:{SOCKS_PORT}", "username": "user", "password": "pass word"})
    assert reached(s.curl("http://v4.example.com/"))
    bad = box(WEB_ONLY, proxy={"address": f"{OTHER}:{SOCKS_PORT}", "username": "user", "password": "wrong"})
    assert "refuses user and password" in bad.curl("http://v4.example.com/").stdout
    inward = box(WEB_ONLY, proxy={"address": f"{PRIVATE}:{SOCKS_PORT}"})
    assert "egress_" in inward.curl("http://v4.example.com/").stdout
    assert world.put(s, WEB_ONLY, proxy={"address": "proxy.example.com:1080"})[0] == 400


def test_a_proxy_of_its_own_is_under_the_ceilings(world, box):
    """Its address and port, and the log says where it is."""
    proxy = {"address": f"{OTHER}:{SOCKS_PORT}", "username": "user", "password": "pass word"}
    for ceiling, open_ in ((None, True), ({"default": "public"}, True), ({"rules": [{"action": "allow", "domains": ["v4.example.com"]}]}, False),
                           ({"default": "public", "rules": [{"action": "deny", "addresses": [f"{OTHER}/32"]}]}, False),
                           ({"default": "public", "rules": [{"action": "deny", "ports": [SOCKS_PORT]}]}, False),
                           ({"rules": [{"action": "allow", "domains": ["v4.example.com"]},
                                       {"action": "allow", "addresses": [f"{OTHER}/32"], "ports": [SOCKS_PORT]}]}, True)):
        s = box(WEB_ONLY, proxy=proxy, ceilings=[ceiling] if ceiling else [])
        done = s.curl("http://v4.example.com/")
        assert reached(done) == open_ and (open_ or "the upstream proxy" in done.stdout), (ceiling, done)
        status, text = world.call("POST", f"/v1/sandboxes/{s.slot}/{s.gen}/explain", {"to": "http://v4.example.com"})
        said = json.loads(text)
        assert status == 200 and (said["verdict"] == "deny") != open_, said
        assert any("own proxy" in note for note in said["notes"]) if open_ else "denied, the upstream proxy" in said["text"], said
        assert open_ or said["by"] == f'proxy "{OTHER}"', said
        seen = [r for r in world.audit() if r.get("address") == OTHER and r.get("port") == SOCKS_PORT][-1]
        assert (seen["verdict"] == "allow") == open_, seen


def test_only_its_own_shard(world):
    from internet import Sandbox
    with restarted(world, "--shard=1/2"):
        odd, even = Sandbox(1001, 1), Sandbox(1002, 1)
        world.sandboxes += [odd, even]
        for s, status in ((odd, 204), (even, 409)):
            world.privd.add(s)
            assert world.put(s, WEB_ONLY)[0] == status
        assert reached(odd.curl("http://v4.example.com/"))
        world.end(odd)
        world.end(even)


HOST_PORT = 9300


@contextlib.contextmanager
def service_of_the_host(world):
    """On all of its addresses, as a database is; it says "arrived" to each client."""
    s = inside(world.host, lambda: listener(socket.SOCK_STREAM, HOST_PORT))
    s.setblocking(True)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                c, _ = s.accept()
                with contextlib.suppress(OSError), c:
                    c.recv(4096)
                    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\narrived")

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield
    finally:
        s.shutdown(socket.SHUT_RDWR)
        s.close()


def test_addresses_of_the_host_when_the_kernel_has_lost_messages(world, box):
    """The host gets more addresses than the queue holds in which the kernel tells of them, since cay-egress stands still meanwhile.
    The kernel says so with an error; cay-egress did not listen any more then, and every address that came later was reached. The
    controls: messages were lost, and a process on the host reaches the address."""
    def change(netns, what, addresses):
        run("ip", "-n", netns, "-batch", "-", input="".join(f"address {what} {a}/32 dev lo\n" for a in addresses))

    def drops():
        text = inside(world.host, lambda: pathlib.Path("/proc/thread-self/net/netlink").read_text())
        return sum(int(line.split()[8]) for line in text.splitlines()[1:])

    def said(address):
        return s.curl(f"http://{address}:{HOST_PORT}/").stdout

    s, many, later = box({"default": "allow"}), [f"11.9.{n // 200}.{n % 200 + 1}" for n in range(1000)], "11.10.0.1"
    lost = drops()
    with service_of_the_host(world):
        os.kill(world.egress.pid, signal.SIGSTOP)
        try:
            change(world.host, "add", many)
            assert drops() > lost
        finally:
            os.kill(world.egress.pid, signal.SIGCONT)
        change(world.host, "add", [later])
        try:
            for address in (many[-1], later):
                assert run("ip", "netns", "exec", world.host, "curl", "-sS", f"http://{address}:{HOST_PORT}/") == "arrived"
                until(lambda a=address: "arrived" not in said(a), 30)
        finally:
            change(world.host, "delete", [*many, later])
    change(world.net, "add", many[-1:])
    try:
        until(lambda: '"method": "GET"' in s.curl(f"http://{many[-1]}/").stdout, 30)  # it is not the host's any more
    finally:
        change(world.net, "delete", many[-1:])
