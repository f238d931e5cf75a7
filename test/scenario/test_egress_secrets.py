"""Attempts of a sandbox to read a secret that is put on its requests: where a placeholder may stand, and what a
server gives back. The server's log is the control: it tells that the secret was there to be given back."""

import base64
import gzip
import json
import ssl
import zlib

import pytest

from worldlib import API, OTHER_HOST, RULES, inject, sandbox, seal, world_with_origin  # isort: skip: it makes the next ones found
from origins import MODEL, PLAIN, REAL_KEY

URL = f"https://{API}:{MODEL}"
HERE = "cay-secret:KEY"


@pytest.fixture(scope="module")
def world():
    with world_with_origin("origins.py", "requests.log") as w:
        yield w


@pytest.fixture
def origins(world):
    world.origin.clear()
    return world.origin


def holder(world, value=REAL_KEY, **bind):
    return sandbox(world, [seal(world, "KEY", value, kind="placeholder", **bind)], inject("KEY"))


def curl(s, *arguments):
    return s.curl("--cacert", s.ca, *arguments)


def sent(origins, name):
    return [value for line in origins.seen() for key, value in line["headers"] if key.lower() == name]


def decoded(text):
    """Everything in a text that may be base64, decoded at each of the four alignments."""
    out = b""
    for at in range(4):
        piece = text[at:].encode().translate(None, b' "\\:,[]{}*\n')
        out += base64.b64decode(piece[:len(piece) // 4 * 4], altchars=b"+/", validate=False)
    return out


# -- the answer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["", "u", "us", "user", "x-access-token"])
def test_not_through_basic(world, origins, user):
    """Basic's base64 of a user of the sandbox's choice, echoed."""
    with holder(world) as s:
        r = curl(s, "-u", f"{user}:{HERE}", f"{URL}/echo")
    echoed = base64.b64encode(f"{user}:{REAL_KEY}".encode()).decode()
    assert sent(origins, "authorization") == [f"Basic {echoed}"]
    assert "[redacted]" in r.stdout
    value = [v for k, v in json.loads(r.stdout)["headers"] if k == "Authorization"][0].split()[1]
    plain = base64.b64decode("".join(c if c.isalnum() or c in "+/=" else "A" for c in value))
    assert REAL_KEY.encode()[1:-1] not in plain and REAL_KEY.encode()[4:10] not in plain


@pytest.mark.parametrize("spelling", [HERE, "cay-secret%3AKEY", "%63ay-secret:KEY"])
def test_not_through_basic_with_escapes(world, origins, spelling):
    """As a form writes the placeholder: the key itself is put there, and not a form of it that is not searched for."""
    secret = "sk-real/with+signs=0123456789"
    with holder(world, value=secret) as s:
        given = base64.b64encode(f"user:{spelling}".encode()).decode()
        r = curl(s, "-H", f"Authorization: Basic {given}", f"{URL}/echo")
    (echoed,) = sent(origins, "authorization")
    assert "[redacted]" in r.stdout and echoed[14:-8] not in r.stdout, r.stdout
    assert base64.b64decode(echoed[6:]) == f"user:{secret}".encode()


@pytest.mark.parametrize("form", ["slash", "unicode", "lower", "partial", "html", "html-open", "octal", "mail", "base64", "hex"])
def test_not_in_another_form(world, origins, form):
    secret = "sk-real/0123+456789=abc"
    with holder(world, value=secret) as s:
        r = curl(s, "-H", f"Authorization: Bearer {HERE}", f"{URL}/echo-as?{form}")
    assert sent(origins, "authorization") == [f"Bearer {secret}"]
    assert "redacted" in r.stdout, r.stdout


def test_not_in_ranges(world, origins):
    """Six bytes at a time of what a host keeps."""
    with holder(world) as s:
        put = curl(s, "-X", "PUT", "-H", f"X-Api-Key: {HERE}", f"{URL}/file")
        ranges = [curl(s, "-H", f"Range: bytes={at}-{at + 5}", "-H", "If-Range: x", f"{URL}/file")
                  for at in (0, 6, 12)]
        anyway = curl(s, "-i", f"{URL}/file?anyway")
    assert put.returncode == 0 and sent(origins, "x-api-key") == [REAL_KEY]
    for r in ranges:
        assert r.stdout.startswith("[redacted]") and len(r.stdout) == len(REAL_KEY)
    assert sent(origins, "range") == sent(origins, "if-range") == []
    assert "502" in anyway.stdout.splitlines()[0] and "a part of the whole" in anyway.stdout


def test_ranges_where_nothing_is_searched(world, origins):
    """The control: the same host and file, for a sandbox without the credential."""
    with holder(world) as s:
        curl(s, "-X", "PUT", "-H", f"X-Api-Key: {HERE}", f"{URL}/file")
    with sandbox(world, [], []) as s:
        r = s.curl("-k", "-H", "Range: bytes=0-5", f"{URL}/file")
    assert r.stdout == REAL_KEY[:6]


@pytest.mark.parametrize("how", ["g", "g-chunked", "g-close", "d", "r", "r-close", "m", "m-chunked"])
def test_compressed_answers(world, origins, how):
    with holder(world) as s:
        r = curl(s, "-i", "-H", f"X-Api-Key: {HERE}", f"{URL}/zipped?{how}", f"{URL}/v1/next")
    assert sent(origins, "x-api-key") == [REAL_KEY] * 2
    assert r.returncode == 0 and '"X-Api-Key", "[redacted]' in r.stdout, r.stdout
    assert REAL_KEY not in r.stdout and "content-encoding" not in r.stdout.lower()
    assert '{"ok": true}' in r.stdout  # the connection, or the next, goes on


@pytest.mark.parametrize("how", ["c", "c-chunked", "c-close", "t", "x", "b"])
def test_compressed_answers_that_are_bad(world, how):
    """Cut short, with more after the end, none at all, a coding that is not read: no whole answer comes of it."""
    with holder(world) as s:
        r = curl(s, "-i", "-H", f"X-Api-Key: {HERE}", f"{URL}/zipped?{how}")
    assert REAL_KEY not in r.stdout
    assert r.returncode != 0 or "502" in r.stdout.splitlines()[0], r.stdout


def test_compressed_to_little(world):
    """40 MB of one byte in 40 KB: they arrive, and cay-egress has not grown by them."""
    def held():
        return max(int(line.split()[1]) for line in open(f"/proc/{world.egress.pid}/status", encoding="ascii")
                   if line.startswith("VmHWM"))

    with holder(world) as s:
        before = held()
        r = s.curl("--cacert", s.ca, "-o", "/dev/null", "-w", "%{size_download}", "--limit-rate", "30M",
                   "-H", f"X-Api-Key: {HERE}", f"{URL}/zipped?g-large")
    assert int(r.stdout) > 40_000_000
    assert held() - before < 8000


# -- the places ---------------------------------------------------------------------------------------


ANYWHERE = {"headers": ["*"], "target": True, "bodies": True}


@pytest.mark.parametrize("bind", [{"domains": [API, OTHER_HOST]}, {"domains": None, "any_domain": True}], ids=["bound", "any"])
def test_only_where_the_policy_names_it(world, origins, bind):
    """The binding has both hosts and all paths; `inject` has one host, a method and some of its paths. The second host is read
    for a credential of its own, which is no reason to put another there."""
    key = seal(world, "KEY", REAL_KEY, kind="placeholder", **ANYWHERE, **bind)
    other = seal(world, "ELSE", "another-value-0123", kind="header", header="X-Else", domains=[OTHER_HOST])
    policy = inject("KEY", paths=["/v1*", "/echo"], methods=["POST"]) + inject("ELSE", domains=[OTHER_HOST])
    text, body = ("-H", "Content-Type: text/plain"), ("-d", f"key={HERE}")
    with sandbox(world, [key, other], policy) as s:
        curl(s, *text, *body, "-H", f"X-Own: {HERE}", f"{URL}/v1/x?k={HERE}")
        (seen,) = origins.seen()  # the control
        assert sent(origins, "x-own") == [REAL_KEY] and seen["body"] == f"key={REAL_KEY}" and seen["target"] == f"/v1/x?k={REAL_KEY}"
        origins.clear()
        heads = (("-H", f"X-Own: {HERE}"), ("-H", "Authorization: Bearer ${e2b.secrets.KEY}"), ("-u", f"a:{HERE}"))
        for url in (f"{URL}/echo", f"{URL}/v2", f"https://{OTHER_HOST}:{MODEL}/v1/x"):
            more = () if url.endswith("/echo") else ("-X", "POST")
            for head in heads if url.startswith(URL) else heads[:2]:  # a key of the client's own is left out there
                r = curl(s, *more, *head, url)
                assert "does not name it here" in r.stdout, r.stdout
            assert "does not name it here" in curl(s, *more, f"{url}?k={HERE}").stdout
        assert origins.seen() == []
        for url in (f"{URL}/v2", f"https://{OTHER_HOST}:{MODEL}/v1/x"):  # a text may speak of placeholders
            curl(s, *text, *body, url)
        assert [seen["body"] for seen in origins.seen()] == [f"key={HERE}"] * 2
        origins.clear()
        copied = curl(s, "-X", "POST", "-H", f"X-Own: {HERE}", "-H", "x-amz-copy-source: /v1/y", f"{URL}/v1/x")
        assert "does not name it here" in copied.stdout and origins.seen() == []  # a second path


@pytest.mark.parametrize("base", [URL, f"http://{API}:{PLAIN}"], ids=["read", "plain"])
def test_refused_of_a_sandbox_without_credentials(world, origins, base):
    """A placeholder that it has from elsewhere, where its requests are read: the server would learn the credential's name, and the
    program that it is no key. The controls are the same requests without one, and one in a body."""
    ways = [("-H", f"X-Own: {HERE}"), ("-H", f"Authorization: Bearer {HERE}"), ("-u", f"user:{HERE}"),
            ("-H", "Cookie: k=${e2b.secrets.KEY}"), ("-G", "--data-urlencode", f"k={HERE}")]
    with sandbox(world, [], [], [{"action": "allow", "domains": [API], "paths": ["/v1*"]}]) as s:
        said = [curl(s, "-i", *way, f"{base}/v1/x").stdout for way in ways]
        assert all("403" in text and "there is no credential KEY for this sandbox" in text for text in said), said
        assert origins.seen() == []
        curl(s, "-H", "X-Own: secret:KEY", "-u", "user:own", f"{base}/v1/x")
        curl(s, "-H", "Content-Type: text/plain", "-d", HERE, f"{base}/v1/x")
    assert [seen["body"] for seen in origins.seen()] == ["", HERE] and sent(origins, "x-own") == ["secret:KEY"]


def test_not_on_what_a_policy_only_warns_of(world, origins):
    """A request that a rule denies passes with `"mode": "warn"`, but no value goes with it."""
    rules = [{"action": "deny", "domains": [API], "paths": ["/v2*"]}, *RULES]
    with sandbox(world, [seal(world, "KEY", REAL_KEY, kind="placeholder", **ANYWHERE)], inject("KEY"), rules, mode="warn") as s:
        curl(s, "-H", f"X-Own: {HERE}", f"{URL}/v1/x")
        assert sent(origins, "x-own") == [REAL_KEY]  # the control
        origins.clear()
        refused = curl(s, "-H", f"X-Own: {HERE}", f"{URL}/v2/x")
        assert "does not name it here" in refused.stdout and origins.seen() == []
        curl(s, "-H", "Content-Type: text/plain", "-d", f"key={HERE}", f"{URL}/v2/x")
        assert [seen["body"] for seen in origins.seen()] == [f"key={HERE}"]


def test_a_policy_that_warns_stays_under_the_ceiling(world, origins):
    """Its ceiling denies what it would let pass; and a key goes with no request that only a warning lets pass, be it the policy's
    own or that of a ceiling."""
    closed = {"action": "deny", "name": "closed"}
    policy = {"mode": "warn", "rules": [{**closed, "domains": [API], "paths": ["/v2*"]}, *RULES], "inject": inject("KEY")}
    ceiling = {"default": "public", "rules": [{**closed, "name": "limit", "domains": [API], "paths": ["/v1/admin*", "/v2/admin*"]},
                                              {**closed, "name": "limit", "domains": [OTHER_HOST]}]}
    credentials = [seal(world, "KEY", REAL_KEY, kind="header", header="X-Own")]
    with sandbox(world, [], []) as s:
        assert world.put(s, policy, ceiling, credentials=credentials)[0] == 204
        for path, sends in (("/v1/x", [REAL_KEY]), ("/v2/x", [])):
            origins.clear()
            assert curl(s, f"{URL}{path}").returncode == 0 and len(origins.seen()) == 1
            assert sent(origins, "x-own") == sends
        origins.clear()
        for url in (f"{URL}/v1/admin", f"{URL}/v2/admin", f"https://{OTHER_HOST}:{MODEL}/v1/x"):
            assert "limit" in curl(s, url).stdout
        assert origins.seen() == []
        assert world.put(s, {**policy, "mode": "enforce"}, {**ceiling, "mode": "warn"}, credentials=credentials)[0] == 204
        curl(s, f"{URL}/v1/admin")
        assert len(origins.seen()) == 1 and sent(origins, "x-own") == []
    passed = {r["path"]: (r.get("warned"), r.get("credential")) for r in world.audit() if r["event"] == "request" and
              r["verdict"] == "allow" and r["sandbox"] == f"sandbox{s.slot}"}
    assert passed == {"/v1/x": (None, "KEY"), "/v2/x": (True, None), "/v1/admin": (True, None)}, passed


def test_headers_alone_by_default(world, origins):
    """A header that holds keys is replaced in; another, a path and a query are refused; a body goes as it is."""
    with holder(world) as s:
        good = curl(s, "-H", f"X-Api-Key: {HERE}", f"{URL}/v1/x")
        other = curl(s, "-H", f"X-Meta: {HERE}", f"{URL}/v1/x")
        query = curl(s, f"{URL}/v1/x?key={HERE}")
        body = curl(s, "-H", "Content-Type: text/plain", "--data", HERE, f"{URL}/file")
    assert json.loads(good.stdout) == {"ok": True}
    assert "not put into the header X-Meta" in other.stdout and "headers" in other.stdout
    assert "not put into paths and queries" in query.stdout
    assert body.returncode == 0
    assert [line["body"] for line in origins.seen()] == ["", HERE]


def test_headers_that_it_names(world, origins):
    with holder(world, headers=["X-Own"]) as s:
        named = curl(s, "-H", f"x-own: {HERE}", f"{URL}/echo")
        usual = curl(s, "-H", f"Authorization: Bearer {HERE}", f"{URL}/echo")
    assert named.returncode == 0 and sent(origins, "x-own") == [REAL_KEY]
    assert "not put into the header Authorization" in usual.stdout


@pytest.mark.parametrize("bind, says", [
    ({"headers": []}, "bind.headers"), ({"headers": ["Host"]}, "bind.headers[0]"), ({"headers": ["a b"]}, "bind.headers[0]"),
    ({"headers": "Authorization"}, "bind.headers"), ({"target": 1}, "bind.target"), ({"bodies": "yes"}, "bind.bodies"),
    ({"require": None}, "bind.require"), ({"kind": "bearer", "bodies": True}, "kind placeholder")])
def test_bad_places(world, bind, says):
    bind = {"kind": "placeholder", "domains": [API]} | bind
    status, text = world.call("POST", "/v1/seal", {"tenant": "tenant1", "name": "K", "value": REAL_KEY, "bind": bind})
    assert status == 400 and says in text, text


@pytest.mark.parametrize("spelling", ["cay-secret%3AKEY", "cay-secret%3aKEY", "%24%7Be2b.secrets.KEY%7D"])
def test_as_forms_have_it(world, origins, spelling):
    """URLSearchParams, `params=` of requests and httpx, curl's --data-urlencode."""
    value = "sk-real/with+signs=0123456789"
    with holder(world, value=value, target=True, bodies=True) as s:
        curl(s, f"{URL}/echo?key={spelling}&b=1")
        curl(s, "--data", f"key={spelling}&b=1", f"{URL}/echo")
    quoted = "sk-real%2Fwith%2Bsigns%3D0123456789"
    assert origins.seen()[0]["target"] == f"/echo?key={quoted}&b=1"
    assert origins.seen()[1]["body"] == f"key={quoted}&b=1"


@pytest.mark.parametrize("kind", ["application/vnd.api+json", "application/json; charset=utf-8"])
@pytest.mark.parametrize("chunked", [False, True])
def test_in_json_bodies(world, origins, kind, chunked):
    more = ["-H", "Transfer-Encoding: chunked"] if chunked else []
    file = world.dir / "large.json"
    file.write_text(json.dumps({"k": HERE, "x": "y" * 1_200_000}), encoding="ascii")
    with holder(world, bodies=True) as s:
        r = curl(s, "-H", f"Content-Type: {kind}", *more, "--data-binary", json.dumps({"k": HERE, "x": "y" * 5000}), f"{URL}/echo")
        assert r.returncode == 0 and REAL_KEY not in r.stdout
        large = curl(s, "-H", f"Content-Type: {kind}", *more, "--data-binary", f"@{file}", f"{URL}/v1/x")
    first, second = (json.loads(line["body"]) for line in origins.seen())
    assert first == {"k": REAL_KEY, "x": "y" * 5000}
    assert large.returncode == 0 and second == {"k": HERE, "x": "y" * 1_200_000}  # longer than is held: as it is


# -- in pieces, and encoded again ------------------------------------------------------------------------


def spoken(s, pieces):
    """The outcome of a request whose pieces are records of TLS of their own."""
    context = ssl.create_default_context(cafile=str(s.ca))
    with context.wrap_socket(s.connect(s.resolve(API)[1][0], MODEL), server_hostname=API) as c:
        c.settimeout(60)
        for piece in pieces:
            c.sendall(piece)
        got = b""
        while piece := c.recv(65536):
            got += piece
    return got


@pytest.mark.parametrize("how", ["whole", "bytes", "extensions"])
def test_in_pieces(world, origins, how):
    """A placeholder over the borders of records and chunks is one; in what frames a chunk it is none. The control is `whole`."""
    body = f"before {HERE} behind".encode()
    chunks = {"whole": b"%x\r\n%s\r\n" % (len(body), body),
              "bytes": b"".join(b"1\r\n%c\r\n" % byte for byte in body),
              "extensions": b"".join(b"1;a=\"%s\"\r\n%c\r\n" % (HERE.encode(), byte) for byte in body)}[how]
    data = (f"POST /echo HTTP/1.1\r\nHost: {API}:{MODEL}\r\nConnection: close\r\nContent-Type: text/plain\r\n"
            f"Transfer-Encoding: chunked\r\nX-Api-Key: {HERE}\r\n\r\n").encode() + chunks + b"0\r\n\r\n"
    with holder(world, bodies=True) as s:
        got = spoken(s, [data] if how == "whole" else [data[i:i + 1] for i in range(len(data))])
    assert b" 200 " in got.splitlines()[0] and REAL_KEY.encode() not in got and got.count(b"[redacted]") == 2, got
    (seen,) = origins.seen()
    assert seen["body"] == f"before {REAL_KEY} behind" and sent(origins, "x-api-key") == [REAL_KEY]


ENCODED_AGAIN = {
    "gzip": (gzip.compress(HERE.encode()), ["Content-Encoding: gzip"]), "gzip unsaid": (gzip.compress(HERE.encode()), []),
    "deflate": (zlib.compress(HERE.encode()), ["Content-Encoding: deflate"]),
    "said only": (HERE.encode(), ["Content-Encoding: gzip"]), "base64": (base64.b64encode(HERE.encode()), []),
    "twice percent": (b"key=cay-secret%253AKEY", ["Content-Type: application/x-www-form-urlencoded"]),
    "percent letters twice": (b"key=%2563ay-secret:KEY", ["Content-Type: application/x-www-form-urlencoded"]),
    "JSON escapes": (b'{"k": "\\u0063ay-secret:KEY"}', ["Content-Type: application/json"]),
    "UTF-16": (HERE.encode("utf-16-le"), []), "HTML": (b"cay-secret&#58;KEY", []), "hex": (HERE.encode().hex().encode(), []),
    "Basic in Basic": (b"", ["Authorization: Basic " + base64.b64encode(base64.b64encode(b"u:" + HERE.encode())).decode()]),
    "base64 in a key's header": (b"", ["X-Api-Key: " + base64.b64encode(HERE.encode()).decode()])}


@pytest.mark.parametrize("case", ENCODED_AGAIN)
def test_encoded_again(world, origins, case):
    """A text that a server would have to decode first is no placeholder: it goes as it is, and gives nothing away. The
    control is the same request with it in the open."""
    body, lines = ENCODED_AGAIN[case]
    lines = [part for line in (lines if any("Content-Type" in line for line in lines) else [*lines, "Content-Type: text/plain"])
             for part in ("-H", line)]
    with holder(world, bodies=True) as s:
        (world.dir / "encoded").write_bytes(body)
        r = curl(s, *lines, "--data-binary", f"@{world.dir / 'encoded'}", f"{URL}/echo")
        control = curl(s, "-H", "Content-Type: text/plain", "--data-binary", HERE, f"{URL}/echo")
    first, second = origins.seen()
    assert first["body"].encode("latin-1") == body and r.returncode == 0, r.stdout + r.stderr
    assert {line.partition(": ")[2] for line in lines[1::2]} <= {value for _, value in first["headers"]}
    assert REAL_KEY not in json.dumps(first) and second["body"] == REAL_KEY, control.stderr


# -- keys beside it -----------------------------------------------------------------------------------


def test_no_other_key_beside_it(world, origins):
    """Newer SDKs send Authorization beside x-api-key; an attacker's key would be one, too."""
    with sandbox(world, [seal(world, "k", REAL_KEY, kind="header", header="x-api-key")], inject("k")) as s:
        curl(s, "-H", "Authorization: Bearer own", "-H", "X-Auth-Token: own", "-H", "X-Other: stays",
             "-H", "X_Api_Key: own", "-H", "X_AUTH-Token: own", "-H", "X.Api~Key: own", f"{URL}/v1/x")  # to CGI and WSGI they are the same
    assert sent(origins, "authorization") == sent(origins, "x-auth-token") == []
    assert sent(origins, "x_api_key") == sent(origins, "x_auth-token") == sent(origins, "x.api~key") == []
    assert sent(origins, "x-api-key") == [REAL_KEY] and sent(origins, "x-other") == ["stays"]


def test_required(world, origins):
    """Another person's key would carry files out to his account at an allowed host."""
    with holder(world) as s:
        control = curl(s, "-H", "Authorization: Bearer attacker", f"{URL}/echo")
    assert sent(origins, "authorization") == ["Bearer attacker"], control.stdout
    origins.clear()
    with holder(world, require=True) as s:
        own = curl(s, "-H", "Authorization: Bearer attacker", f"{URL}/echo")
        none = curl(s, f"{URL}/echo")
        both = curl(s, "-H", f"X-Api-Key: {HERE}", "-H", "Authorization: Bearer attacker", f"{URL}/v1/x")
    for r in (own, none):
        assert "must carry the key cay-secret:KEY" in r.stdout, r.stdout
    assert json.loads(both.stdout) == {"ok": True}
    assert len(origins.seen()) == 1 and sent(origins, "authorization") == []


OWN = "attackers-own-key"
KEYS = [f"Cookie: session={OWN}", f"X-Api-Key: {OWN}", f"api-key: {OWN}", f"xi-api-key: {OWN}", f"DD-API-KEY: {OWN}",
        f"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.{OWN}", f"X-Forwarded-Authorization: {OWN}",
        f"XI_API_Key: {OWN}"]
QUERY = ["key", "api_key", "API-Key", "access_token", "%6bey", "X-Amz-Signature", "sig", "key%5B%5D"]


def test_required_is_the_only_key(world, origins):
    """Nothing of the client's own that a server would take for a key leaves beside the one that is required."""
    head = [part for line in KEYS for part in ("-H", line)]
    query = "&".join(f"{name}={OWN}" for name in QUERY) + f"&page_token=next&q=1;token={OWN}"
    for require in (False, True):  # the first is the control: all of it arrives
        origins.clear()
        with holder(world, require=require) as s:
            r = curl(s, "-H", f"Authorization: Bearer {HERE}", *head, f"{URL}/echo?{query}")
        (seen,) = origins.seen()
        assert sent(origins, "authorization") == [f"Bearer {REAL_KEY}"], r.stdout
        assert (OWN in json.dumps(seen)) != require, seen
        if require:
            assert seen["target"] == "/echo?page_token=next&q=1"
        else:
            assert json.dumps(seen).count(OWN) == len(KEYS) + len(QUERY) + 1


@pytest.mark.parametrize("header, passes", [
    (f"Authorization: Bearer {HERE}", True), (f"Authorization: Token token={HERE}", True),
    (f'Authorization: Token token="{HERE}"', True), (f"Authorization: {HERE}", True),
    (f"Authorization: Bearer {OWN} {HERE}", False), (f"Authorization: Bearer {OWN},{HERE}", False),
    (f"Authorization: Bearer {HERE} {OWN}", False), (f"Authorization: Bearer {OWN}{HERE}", False),
    (f"Authorization: {OWN};{HERE}", False)])
def test_required_stands_alone(world, origins, header, passes):
    with holder(world, require=True) as s:
        r = curl(s, "-H", header, f"{URL}/echo")
    assert len(origins.seen()) == passes, r.stdout
    assert passes or "alone" in r.stdout


def test_required_in_cookies_and_queries(world, origins):
    with holder(world, require=True, headers=["Cookie"], target=True) as s:
        good = curl(s, "-H", f"Cookie: k={HERE}", f"{URL}/echo")
        mixed = curl(s, "-H", f"Cookie: k={HERE}; session={OWN}", f"{URL}/echo")
        query = curl(s, f"{URL}/echo?key={HERE}&token={OWN}")
    assert good.returncode == query.returncode == 0 and "alone" in mixed.stdout
    assert sent(origins, "cookie") == [f"k={REAL_KEY}"]
    assert [seen["target"] for seen in origins.seen()] == ["/echo", f"/echo?key={REAL_KEY}"]
