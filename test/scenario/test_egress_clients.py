"""Real clients inside real sandboxes, through cay-egress, against the stand-in internet: what they need of the
way out is what they get, with no settings but the authority of the stand-in's certificates."""

import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import textwrap
import zipfile

import pytest

from conftest import BUILD
from egresslib import ZONE, Stack, internet, library_archive

GRPC_PORT, GIT_PORT, PROXY = 9443, 9418, "127.0.0.1:3128"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
# A user inside may have few processes where these tests run: threads that are only for speed are left out.
THRIFTY = {"NODE_OPTIONS": "--v8-pool-size=1", "UV_THREADPOOL_SIZE": "1", "GIT_CONFIG_COUNT": "1",
           "GIT_CONFIG_KEY_0": "pack.threads", "GIT_CONFIG_VALUE_0": "1"}
REGISTRIES = {"presets": ["package-registries", "github"]}
PUBLIC_NAMES = {name: {"a": [[internet.WEB]]} for name in
                ("deb.debian.org", "pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "github.com")}
SUITES = {"debian": ("bookworm", "bookworm-updates"), "debian-security": ("bookworm-security",)}


# -- what stands out there ---------------------------------------------------------------------------

def write(home, name, data):
    path = home / "site" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def make_wheel(home):
    files = {"cay_tiny/__init__.py": "ANSWER = 42\n",
             "cay_tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: cay-tiny\nVersion: 1.0\n",
             "cay_tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files["cay_tiny-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files) + "cay_tiny-1.0.dist-info/RECORD,,\n"
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as z:
        for name, text in files.items():
            z.writestr(name, text)
    digest = hashlib.sha256(wheel.getvalue()).hexdigest()
    write(home, "files.pythonhosted.org/packages/cay_tiny-1.0-py3-none-any.whl", wheel.getvalue())
    write(home, "pypi.org/simple/cay-tiny/index.html",
          "<!DOCTYPE html><html><body><a href=\"https://files.pythonhosted.org/packages/cay_tiny-1.0-py3-none-any.whl"
          f"#sha256={digest}\">cay_tiny-1.0-py3-none-any.whl</a></body></html>")


def make_npm_package(home):
    tarball = io.BytesIO()
    with tarfile.open(fileobj=tarball, mode="w:gz") as t:
        for name, text in (("package/package.json", '{"name": "cay-tiny", "version": "1.0.0", "main": "index.js"}'),
                           ("package/index.js", "module.exports = 42;\n")):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o644
            t.addfile(info, io.BytesIO(text.encode()))
    data = tarball.getvalue()
    version = {"name": "cay-tiny", "version": "1.0.0", "main": "index.js", "dist": {
        "tarball": "https://registry.npmjs.org/tarballs/cay-tiny-1.0.0.tgz",
        "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode(),
        "shasum": hashlib.sha1(data).hexdigest()}}
    write(home, "registry.npmjs.org/tarballs/cay-tiny-1.0.0.tgz", data)
    write(home, "registry.npmjs.org/cay-tiny", json.dumps(
        {"name": "cay-tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}))


def make_debian(home):
    """A signed archive of one package. Returns the public key."""
    root, keys = home / "deb", home / "gnupg"
    for directory in (root / "DEBIAN", root / "usr/share/cay-tiny"):
        directory.mkdir(parents=True)
        directory.chmod(0o755)
    (root / "DEBIAN/control").write_text("Package: cay-tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: test <t@example.com>\n"
                                         "Description: nothing much\n")
    (root / "usr/share/cay-tiny/answer").write_text("42\n")
    write(home, "deb.debian.org/debian/pool/cay-tiny_1.0_all.deb", b"")
    package = home / "site/deb.debian.org/debian/pool/cay-tiny_1.0_all.deb"
    internet.run("dpkg-deb", "--root-owner-group", "--build", root, package)
    data = package.read_bytes()
    index = ((root / "DEBIAN/control").read_text() + f"Filename: pool/cay-tiny_1.0_all.deb\nSize: {len(data)}\n"
             f"SHA256: {hashlib.sha256(data).hexdigest()}\n\n").encode()
    keys.mkdir(mode=0o700)
    gpg = ("gpg", "--homedir", keys, "--batch", "--passphrase", "")
    internet.run(*gpg, "--quick-generate-key", "stand-in <t@example.com>", "rsa2048", "sign", "never")
    architecture = internet.run("dpkg", "--print-architecture").strip()
    for archive, suites in SUITES.items():
        for suite in suites:
            body = index if suite == "bookworm" else b""
            place = f"main/binary-{architecture}/Packages.gz"
            zipped = gzip.compress(body)
            lines = "".join(f" {hashlib.sha256(d).hexdigest()} {len(d)} {name}\n"
                            for d, name in ((zipped, place), (body, place.removesuffix(".gz"))))
            release = (f"Origin: Debian\nLabel: Debian\nSuite: {suite}\nCodename: {suite}\nArchitectures: {architecture}\n"
                       f"Components: main\nDate: Sat, 01 Jan 2022 00:00:00 UTC\nSHA256:\n{lines}")
            signed = internet.run(*gpg, "--clearsign", input=release)
            write(home, f"deb.debian.org/{archive}/dists/{suite}/InRelease", signed)
            write(home, f"deb.debian.org/{archive}/dists/{suite}/{place}", zipped)
    internet.run(*gpg, "--output", home / "archive.gpg", "--export")
    internet.run("gpgconf", "--homedir", keys, "--kill", "all")
    return (home / "archive.gpg").read_bytes()


def make_repository(home):
    bare, work = home / "git/tiny.git", home / "work"
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main")
    internet.run(*git, "init", "-q", "--bare", bare)
    internet.run(*git, "-C", bare, "config", "http.receivepack", "true")
    internet.run(*git, "init", "-q", work)
    (work / "answer").write_text("42\n")
    internet.run(*git, "-C", work, "add", "answer")
    internet.run(*git, "-C", work, "commit", "-q", "-m", "one")
    internet.run(*git, "-C", work, "push", "-q", bare, "main")


def needs(*programs):
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")


@pytest.fixture(scope="module")
def stack():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    s = Stack(zone={**ZONE, **PUBLIC_NAMES})
    yield s
    s.close()


@pytest.fixture(scope="module")
def home(stack):
    return stack.networks.dir


@pytest.fixture
def outside(stack):
    """Starts a server program in the stand-in internet, to be ended with the test."""
    started = []

    def start(*command, **more):
        started.append(subprocess.Popen(["ip", "netns", "exec", stack.networks.net, *(str(part) for part in command)], **more))
        return started[-1]

    yield start
    for p in started:
        p.kill()
        p.wait()


def trusted(stack, policy=None):
    """A sandbox that trusts the stand-in's authority as it would trust any."""
    one = stack.cay.create(timeout_s=1800)
    assert one.write("/tmp/stand-in.pem", stack.networks.ca.read_bytes()).status == 200
    assert one.run(f"cat /tmp/stand-in.pem >> {BUNDLE}", user="root").exit_code == 0
    if policy is not None:
        assert stack.put(one, policy)[0] == 204
    return one


@pytest.fixture(scope="module")
def one(stack):
    with trusted(stack) as made:
        yield made


@pytest.fixture(scope="module")
def developer(stack):
    """A sandbox that reaches the package registries and github.com, nothing else."""
    with trusted(stack, REGISTRIES) as made:
        yield made


@pytest.fixture(scope="module")
def libraries(one):
    """Python packages of the tests' own environment, for programs inside."""
    names = ("httpx", "httpcore", "h11", "h2", "hpack", "hyperframe", "anyio", "idna", "certifi", "typing_extensions")
    assert one.write("/tmp/libraries.zip", library_archive(*names)).status == 200
    return {"PYTHONPATH": "/tmp/libraries.zip", "SSL_CERT_FILE": BUNDLE}


def ok(sandbox, command, user=None, env=None, **more):
    r = sandbox.run(command, user=user, env={**THRIFTY, "NODE_EXTRA_CA_CERTS": BUNDLE, **(env or {})}, timeout=120, **more)
    assert r.exit_code == 0, f"{command}: {r.exit_code} {r.out} {r.stderr.decode()}"
    return r.out


def python(sandbox, program, *arguments, **more):
    assert sandbox.write("/tmp/program.py", textwrap.dedent(program).encode()).status == 200
    return ok(sandbox, " ".join(("python3 /tmp/program.py", *arguments)), **more)


# -- curl --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("env", [{}, {"http_proxy": f"http://{PROXY}", "https_proxy": f"http://{PROXY}"},
                                 {"ALL_PROXY": f"socks5h://{PROXY}"}], ids=["plainly", "http proxy", "socks5h"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_curl(one, scheme, env):
    seen = json.loads(ok(one, f"curl -sS --max-time 30 {scheme}://web.example.com/a?b", env=env))
    assert (seen["path"], seen["tls"]) == ("/a?b", scheme == "https")
    assert seen["headers"]["Host"] == "web.example.com" and "Proxy-Connection" not in seen["headers"]


def test_the_authority_is_what_makes_it_trusted(stack):
    """The control of every https test here: a certificate of a third party is refused."""
    with stack.cay.create() as plain:
        # The operator's ca_file is trusted inside too: so by a CA that no server has.
        made = plain.run("openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=else -keyout /dev/null -out /tmp/else.pem")
        assert made.exit_code == 0, made.stderr
        r = plain.run("curl -sS --max-time 30 --capath /none --cacert /tmp/else.pem https://web.example.com/")
        assert r.exit_code == 60, (r.exit_code, r.out, r.stderr)


JAVA = """
import java.net.URI; import java.net.http.*;
public class X { public static void main(String[] a) throws Exception {
  var c = HttpClient.newHttpClient();
  for (var url : a)
    System.out.println(c.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString()).body()); } }
"""
THRIFTY_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@pytest.mark.skipif(not pathlib.Path("/etc/ssl/certs/java/cacerts").exists() or not shutil.which("javac"), reason="no JDK is installed")
def test_java_trusts_the_authority(stack):
    """Out of the box: a host whose requests are read, and one that is refused, which says why. The control: the store as
    it was. keytool checks the store's digest."""
    keytool = " ".join(["keytool", *(f"-J{option}" for option in THRIFTY_JAVA.split()), "-storepass changeit"])
    with stack.cay.create(timeout_s=600) as s:
        policy = {"rules": [{"action": "allow", "name": "read", "domains": ["web.example.com"], "paths": ["/x"]}]}
        assert stack.cay.call("PUT", f"/cay/v1/sandboxes/{s.id}/policy", policy).status == 204
        assert s.write("/tmp/X.java", JAVA.encode()).status == 200
        java = f"cd /tmp; java {THRIFTY_JAVA}"
        out = ok(s, f"{java} X.java https://web.example.com/x https://web.example.com/y https://other.example.net/")
        assert '"path": "/x"' in out and out.count("egress_denied") == 4, out  # type and code of two
        assert ok(s, f"{keytool} -list -cacerts").count("cay-egress-") == 2  # the tenant's, and the operator's ca_file
        assert s.write("/tmp/without", pathlib.Path("/etc/ssl/certs/java/cacerts").read_bytes()).status == 200
        r = s.run(f"{java} -Djavax.net.ssl.trustStore=/tmp/without X.java https://web.example.com/x 2>&1", timeout=120)
        assert r.exit_code != 0 and "unable to find valid certification path" in r.out, r.out


def test_curl_large_both_ways(one):
    ok(one, "head -c 20000000 /dev/urandom > /tmp/large")
    for scheme in ("http", "https"):
        assert ok(one, f"curl -sS --max-time 60 {scheme}://web.example.com/bytes/20000000 | wc -c") == "20000000\n"
        got = ok(one, f"curl -sS --max-time 60 -H 'Expect:' -T /tmp/large {scheme}://web.example.com/up -o /tmp/back -w '%{{http_code}}'")
        assert got == "200"


def test_openssl(one):
    for extra in ("", f"-proxy {PROXY}"):
        out = ok(one, f"openssl s_client -connect web.example.com:443 -servername web.example.com {extra} "
                      f"-verify_return_error -CAfile {BUNDLE} < /dev/null 2>&1")
        assert "Verification: OK" in out and "CN = stand-in" in out


# -- git ---------------------------------------------------------------------------------------------

def clone_change_push(sandbox, url, name):
    out = ok(sandbox, f"""set -e; cd /tmp; rm -rf {name}; git clone -q {url} {name}; cd {name}; cat answer
        git config user.name t; git config user.email t@example.com
        git checkout -q -b {name}; echo {name} > new; git add new; git commit -q -m new; git push -q origin {name}""")
    assert out == "42\n"


def pushed(home, name):
    return internet.run("git", "-c", "safe.directory=*", "-C", home / "git/tiny.git", "show", f"{name}:new") == f"{name}\n"


@pytest.fixture(scope="module")
def repository(home):
    needs("git")
    make_repository(home)


def test_git_over_https(repository, home, developer):
    clone_change_push(developer, "https://github.com/git/tiny.git", "https")
    assert pushed(home, "https")


def test_git_through_the_explicit_proxy(repository, home, one):
    ok(one, "true")
    clone_change_push(one, f"-c http.proxy=http://{PROXY} https://github.com/git/tiny.git", "proxied")
    assert pushed(home, "proxied")


def test_git_protocol(repository, home, one, outside):
    outside("git", "-c", "safe.directory=*", "daemon", f"--base-path={home}/git", "--export-all", "--enable=receive-pack",
            f"--port={GIT_PORT}", "--reuseaddr", "--listen=0.0.0.0", env={**os.environ, "HOME": str(home)})
    # A connection is made before the server is reached: only an answer says that it listens.
    ok(one, "for i in $(seq 100); do timeout 5 git ls-remote -q git://github.com/tiny.git > /dev/null 2>&1 && break; sleep 0.1; done")
    clone_change_push(one, "git://github.com/tiny.git", "plain")
    assert pushed(home, "plain")


def test_git_is_told(developer):
    r = developer.run("git clone https://web.example.com/git/tiny.git /tmp/no", env=THRIFTY)
    assert r.exit_code != 0 and not developer.run("ls /tmp/no").out


# -- packages ----------------------------------------------------------------------------------------

def needs_pip():
    if subprocess.run(["/usr/bin/python3", "-c", "import pip"], capture_output=True).returncode != 0:
        pytest.skip("pip is not installed")


def test_pip(home, developer):
    needs_pip()
    make_wheel(home)
    ok(developer, "python3 -m pip install -q --target /tmp/py cay-tiny")
    assert ok(developer, "PYTHONPATH=/tmp/py python3 -c 'import cay_tiny; print(cay_tiny.ANSWER)'") == "42\n"


def test_npm(home, developer):
    needs("npm")
    make_npm_package(home)
    ok(developer, "mkdir -p /tmp/npm; cd /tmp/npm; npm install --no-audit --no-fund cay-tiny")
    assert ok(developer, "cd /tmp/npm; node -p 'require(\"cay-tiny\")'") == "42\n"


def test_apt(home, developer):
    needs("apt-get", "dpkg-deb", "gpg")
    key = make_debian(home)
    assert developer.write("/etc/apt/trusted.gpg.d/stand-in.gpg", key, user="root").status == 200
    ok(developer, "chmod 644 /etc/apt/trusted.gpg.d/stand-in.gpg", user="root")
    if int(ok(developer, "ulimit -u | sed s/unlimited/100000/")) < 64:
        # Too few processes to check signatures in, and apt checks them even where it need not: its script for that and
        # the children of it are alive or not when apt forks for the next thing, which then fails or not.
        ok(developer, "sed -i 's/^deb /deb [trusted=yes] /' /etc/apt/sources.list", user="root")
        ok(developer, "echo 'Dir::Bin::apt-key \"/bin/false\";' > /etc/apt/apt.conf.d/zz-few-processes", user="root")
    out = ok(developer, "apt-get -q update && apt-get -q install -y cay-tiny", user="root")
    assert "Setting up cay-tiny" in out, out
    assert ok(developer, "cat /usr/share/cay-tiny/answer") == "42\n"


def test_the_presets_open_nothing_else(stack, developer):
    """The control: everything above is reached because it is named."""
    r = developer.run("curl -sS --max-time 20 http://web.example.com/")
    assert "egress_denied" in r.out and "package-registries" in r.out
    with trusted(stack, {}) as closed:
        assert "egress_denied" in closed.run("curl -sS --max-time 20 http://deb.debian.org/").out


# -- a policy that is learned -------------------------------------------------------------------------

PIP = "python3 -m pip install -q --no-cache-dir --disable-pip-version-check --retries 0 --target /tmp/py"
NPM = "mkdir -p /tmp/npm; cd /tmp/npm; npm install --no-audit --no-fund --fetch-retries=0 --cache=/tmp/npm-cache"


def cay(stack, *arguments, given=""):
    done = subprocess.run([BUILD / "src/cli/cay", *arguments], input=given, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "CAY_URL": stack.server.url, "E2B_API_KEY": stack.server.key()})
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def installs(sandbox, command):
    """Does it? And what the last refusals name, where it does not."""
    r = sandbox.run(command, env={**THRIFTY, "NODE_EXTRA_CA_CERTS": BUNDLE}, timeout=120)
    return r.exit_code == 0, {d["name"] for d in sandbox.client.call(
        "GET", f"/cay/v1/sandboxes/{sandbox.id}/denials").json["denials"]}


def learn(stack, warn, command):
    """As its owner: a policy that only warns, the job, what was learned from it; which is then a new sandbox's own."""
    with trusted(stack) as first:
        cay(stack, "policy", "set", first.id, "-", given=json.dumps({"default": "deny"}))
        assert not installs(first, command)[0]  # the control: nothing is allowed
        cay(stack, "policy", "set", first.id, "-", given=json.dumps({"mode": "warn", **warn}))
        assert installs(first, command)[0]
        learned = cay(stack, "policy", "learned", first.id)
    second = trusted(stack)
    cay(stack, "policy", "set", second.id, "-", given=learned)
    assert json.loads(cay(stack, "policy", "show", second.id)) == json.loads(learned)
    return second, json.loads(learned)


def names_of(policy):
    assert policy["default"] == "deny"
    return {name for rule in policy["rules"] for name in rule["domains"]}


@pytest.mark.parametrize("learner", ["pip", "npm"])
def test_a_policy_learned_from_a_program_is_enough_for_it_alone(stack, home, learner):
    needs_pip()
    needs("npm")
    make_wheel(home)
    make_npm_package(home)
    jobs = {"pip": f"{PIP} cay-tiny", "npm": f"{NPM} cay-tiny"}
    hosts = {"pip": {"pypi.org", "files.pythonhosted.org"}, "npm": {"registry.npmjs.org"}}
    stranger, = jobs.keys() - {learner}
    second, policy = learn(stack, {}, jobs[learner])
    with second:
        assert names_of(policy) == hosts[learner] and all(rule["ports"] == [443] for rule in policy["rules"])
        assert installs(second, jobs[learner]) == (True, set())
        passed, refused = installs(second, jobs[stranger])
        assert not passed and refused and refused <= hosts[stranger], refused
        r = second.run("curl -sS --max-time 20 http://web.example.com/")
        assert "egress_denied" in r.out and "web.example.com" in r.out


def test_a_policy_learned_where_requests_were_read_has_their_paths(stack, home):
    """As pip's index is asked: its own package alone is got afterwards, from the host that it was got from."""
    needs_pip()
    make_wheel(home)
    write(home, "pypi.org/simple/cay-other/index.html", "<!DOCTYPE html><html><body></body></html>")
    read = {"rules": [{"action": "allow", "domains": ["pypi.org"], "paths": ["/never"]}]}
    second, policy = learn(stack, read, f"{PIP} cay-tiny")
    with second:
        index, = (rule for rule in policy["rules"] if rule["domains"] == ["pypi.org"])
        assert (index["methods"], index["paths"]) == (["GET"], ["/simple/cay-tiny/"])
        assert names_of(policy) == {"pypi.org", "files.pythonhosted.org"}
        assert installs(second, f"{PIP} cay-tiny") == (True, set())
        assert installs(second, f"{PIP} cay-other") == (False, {"pypi.org"})
        last = second.client.call("GET", f"/cay/v1/sandboxes/{second.id}/denials").json["denials"][-1]
        assert "/simple/cay-other/" in last["reason"], last


# -- languages ---------------------------------------------------------------------------------------

def test_node_fetch(one):
    needs("node")
    for scheme in ("http", "https"):
        out = ok(one, f"node -e 'fetch(\"{scheme}://web.example.com/n\", {{method: \"POST\", body: \"hello\"}})"
                      ".then((r) => r.text()).then(console.log)'")
        assert json.loads(out)["body"] == "hello"


def test_requests(one):
    """The copy that pip has: the library itself may not be installed inside."""
    needs_pip()
    out = python(one, """
        from pip._vendor import requests
        s = requests.Session()
        for scheme in ("http", "https"):
            for n in range(3):
                r = s.post(scheme + "://web.example.com/r", data="x" * 100000)
                assert r.status_code == 200 and len(r.json()["body"]) == 100000, r.text
        print("fine")
        """, env={"REQUESTS_CA_BUNDLE": BUNDLE})
    assert out == "fine\n"


def test_httpx(one, libraries):
    out = python(one, """
        import httpx
        with httpx.Client() as c:
            for scheme in ("http", "https"):
                for n in range(3):
                    assert c.get(scheme + "://web.example.com/h").json()["path"] == "/h"
        """ + f"""
        with httpx.Client(proxy="http://{PROXY}") as c:
            assert c.get("https://web.example.com/h").json()["tls"]
            assert c.get("http://web.example.com/h").json()["path"] == "/h"
        print("fine")
        """, env=libraries)
    assert out == "fine\n"


# -- streams -----------------------------------------------------------------------------------------

WEBSOCKET = """
    import base64, os, socket, ssl, struct, sys
    tls, proxied = sys.argv[1:]
    s = socket.create_connection(("127.0.0.1", 3128) if proxied == "1" else ("web.example.com", 443 if tls == "1" else 80), 30)
    if proxied == "1":
        s.sendall(f"CONNECT web.example.com:{443 if tls == '1' else 80} HTTP/1.1\\r\\n\\r\\n".encode())
        head = b""
        while not head.endswith(b"\\r\\n\\r\\n"):
            head += s.recv(1)
        assert b" 200 " in head, head
    if tls == "1":
        s = ssl.create_default_context(cafile="/etc/ssl/certs/ca-certificates.crt").wrap_socket(s, server_hostname="web.example.com")
    key = base64.b64encode(os.urandom(16)).decode()
    s.sendall(f"GET /websocket HTTP/1.1\\r\\nHost: web.example.com\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
              f"Sec-WebSocket-Key: {key}\\r\\nSec-WebSocket-Version: 13\\r\\n\\r\\n".encode())
    f = s.makefile("rb")
    assert b" 101 " in f.readline()
    while f.readline() != b"\\r\\n":
        pass
    def send(op, data):
        n = bytes([0x80 | len(data)]) if len(data) < 126 else b"\\xfe" + struct.pack(">H", len(data))
        s.sendall(bytes([0x80 | op]) + n + b"\\0\\0\\0\\0" + data)
    def receive():
        op, n = f.read(2)
        n = struct.unpack(">H", f.read(2))[0] if n == 126 else n
        return op & 15, f.read(n)
    for data in (b"hello", b"x" * 125, b"y" * 60000, b""):
        send(2, data)
        assert receive() == (2, data)
    send(8, b"\\x03\\xe8")
    assert receive() == (8, b"\\x03\\xe8") and f.read(1) == b""
    print("fine")
    """


@pytest.mark.parametrize("tls", ["0", "1"], ids=["ws", "wss"])
@pytest.mark.parametrize("proxied", ["0", "1"], ids=["plainly", "CONNECT"])
def test_websocket(one, tls, proxied):
    assert python(one, WEBSOCKET, tls, proxied) == "fine\n"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_server_sent_events_are_not_held_back(one, scheme):
    """The server sends the next event only after this client has said that it saw the one before."""
    out = python(one, """
        import sys, urllib.request
        base = sys.argv[1] + "://web.example.com"
        urllib.request.urlopen(base + "/seen/0").read()
        seen = []
        for line in urllib.request.urlopen(base + "/events", timeout=30):
            if line.startswith(b"data: "):
                seen.append(int(line[6:]))
                urllib.request.urlopen(base + f"/seen/{seen[-1]}", timeout=30).read()
        print(seen)
        """, scheme, env={"SSL_CERT_FILE": BUNDLE})
    assert out == "[1, 2, 3, 4]\n"


@pytest.fixture
def grpc(home, stack, outside):
    needs("node")
    p = outside("node", pathlib.Path(internet.__file__).with_name("grpc.cjs"), GRPC_PORT, stack.networks.cert,
                stack.networks.key, stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "ready\n"


MESSAGE = b"\0\0\0\0\5\x0a\3cay"  # a gRPC frame


def test_grpc_by_curl(one, grpc):
    if "HTTP2" not in subprocess.run(["curl", "--version"], capture_output=True, text=True).stdout:
        pytest.skip("curl was built without HTTP/2")
    assert one.write("/tmp/message", MESSAGE).status == 200
    out = ok(one, "curl -sS --http2 --max-time 30 -D /tmp/head -H 'Content-Type: application/grpc' -H 'TE: trailers' "
                  f"--data-binary @/tmp/message https://web.example.com:{GRPC_PORT}/cay.Test/Call | base64; cat /tmp/head")
    assert out.startswith(base64.b64encode(MESSAGE).decode()) and "HTTP/2 200" in out
    assert "x-path: /cay.Test/Call" in out and "grpc-status: 0" in out


def test_http2_by_httpx(one, grpc, libraries):
    out = python(one, f"""
        import httpx
        with httpx.Client(http2=True) as c:
            for n in range(20):
                r = c.post("https://web.example.com:{GRPC_PORT}/cay.Test/Call", content=b"x" * 10000 * n)
                assert r.http_version == "HTTP/2" and r.content == b"x" * 10000 * n
        print("fine")
        """, env=libraries)
    assert out == "fine\n"
