"""`cay template import docker://...`: from Debian's docker-registry on loopback, and from one that lies, stalls or answers
rubbish. skopeo fetches; a fault is said, and leaves neither a name nor a file."""

import base64
import json
import os
import pathlib
import urllib.request

import pytest
from imagelib import digest, layout, tar
from importerlib import cli, entry, left, shell  # noqa: F401 - cli is a fixture
from registrylib import Liar, Registry, free_port

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="images are imported by root")
LOW = tar(("etc", "dir"), ("etc/first", "file", {"data": b"low\n"}))
TYPE = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    made = Registry(tmp_path_factory.mktemp("registry") / "here")
    yield made
    made.close()


@pytest.fixture
def liar():
    made = []

    def make(answer):
        made.append(Liar(answer))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def refused(cli, server, cay):  # noqa: F811 - the fixture
    def run(source, *said, options=("--plain-http",), status=1, **environment):
        done = cli.imported(source, *options, **environment)
        assert done.returncode == status, done.stdout + done.stderr
        assert all(text in done.stderr for text in said), done.stderr
        assert left(server, cay) == []
        return done.stderr
    return run


def test_by_tag_and_by_digest(cli, cay, registry, tmp_path):  # noqa: F811
    of_image = layout(tmp_path / "layout", [shell(), LOW], {"Env": ["GREETING=hello"]})
    tagged = registry.push(tmp_path / "layout", "team/tools:v1")
    for source in (tagged, f"docker://{registry.host}/team/tools@{of_image}"):
        made = cli.imported(source, "--plain-http")
        assert made.returncode == 0, made.stderr
        assert f"made is ready: 2 layers of {of_image}" in made.stdout
        assert (entry(cay)["source"], entry(cay)["digest"]) == (source, of_image)
        with cay.create(template="made") as box:
            assert box.run("read x < /etc/first; echo $x $GREETING").out == "low hello\n"
        assert cli("template", "rm", "made").returncode == 0


def test_docker_s_own_form_keeps_its_digest(cli, cay, registry, tmp_path):  # noqa: F811
    """A manifest as Docker writes it is not made another one on the way, so that its digest is the registry's."""
    layout(tmp_path / "layout", [shell(), LOW])
    source = registry.push(tmp_path / "layout", "docker:1", "--format=v2s2")
    blobs = registry.files / "docker/registry/v2/repositories/docker/_manifests/tags/1/current/link"
    made = cli.imported(source, "--plain-http")
    assert made.returncode == 0, made.stderr
    assert entry(cay)["digest"] == blobs.read_text()


def test_one_of_several_architectures(cli, cay, registry, refused, tmp_path):  # noqa: F811
    for name in ("amd64", "arm64"):
        layout(tmp_path / name, [shell(), LOW], architecture=name)
        registry.push(tmp_path / name, f"many:{name}")
    refused(f"docker://{registry.host}/many:arm64", "the image is for linux/arm64")
    one = index(registry, tmp_path, "arm64")
    refused(f"docker://{registry.host}/many@{one}", "no image found in image index for architecture amd64")
    both = index(registry, tmp_path, "arm64", "amd64")
    made = cli.imported(f"docker://{registry.host}/many@{both}", "--plain-http")
    assert made.returncode == 0, made.stderr
    assert entry(cay)["digest"] == manifest_of(tmp_path / "amd64")["digest"]


def manifest_of(where):
    return json.loads((where / "index.json").read_text())["manifests"][0]


def index(registry, base, *names):
    """Puts an index of these into the registry; its digest."""
    entries = [{**{k: v for k, v in manifest_of(base / name).items() if k != "annotations"},
                "platform": {"os": "linux", "architecture": name}} for name in names]
    kind = "application/vnd.oci.image.index.v1+json"
    text = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode()
    urllib.request.urlopen(urllib.request.Request(f"http://{registry.host}/v2/many/manifests/{digest(text)}", data=text, method="PUT",
                                                  headers={"Content-Type": kind}), timeout=30).close()
    return digest(text)


def test_credentials(cli, refused, tmp_path):  # noqa: F811
    closed = Registry(tmp_path / "registry", accounts=True)
    try:
        layout(tmp_path / "layout", [shell(), LOW])
        source = closed.push(tmp_path / "layout", "own:1")
        keys = tmp_path / "keys.json"
        nothing = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
        for said in (refused(source, "skopeo login", **nothing), wrong(refused, source, keys, closed, nothing)):
            assert "unauthorized" in said or "authentication" in said
        keys.write_text(auths(closed, "alice:secret"))
        made = cli.imported(source, "--plain-http", f"--authfile={keys}", **nothing)
        assert made.returncode == 0, made.stderr
        assert cli("template", "rm", "made").returncode == 0
        # where skopeo looks for them by itself
        (tmp_path / ".docker").mkdir()
        (tmp_path / ".docker/config.json").write_text(auths(closed, "alice:secret"))
        assert cli.imported(source, "--plain-http", **nothing).returncode == 0
        assert "secret" not in made.stdout + made.stderr
    finally:
        closed.close()


def auths(registry, who):
    return json.dumps({"auths": {registry.host: {"auth": base64.b64encode(who.encode()).decode()}}})


def wrong(refused, source, keys, registry, environment):
    keys.write_text(auths(registry, "alice:guess"))
    return refused(source, options=("--plain-http", f"--authfile={keys}"), **environment)


def test_what_the_policy_refuses(cli, refused, registry, tmp_path):  # noqa: F811
    layout(tmp_path / "layout", [shell(), LOW])
    source = registry.push(tmp_path / "layout", "policy:1")
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"default": [{"type": "reject"}]}))
    options = ("--plain-http", f"--signature-policy={policy}")
    refused(source, "rejected by policy", options=options)
    refused(source, "skopeo could not fetch", options=("--plain-http", f"--signature-policy={tmp_path}/none"))
    policy.write_text(json.dumps({"default": [{"type": "reject"}],
                                  "transports": {"docker": {f"{registry.host}/policy": [{"type": "insecureAcceptAnything"}]}}}))
    assert cli.imported(source, *options).returncode == 0


def test_what_a_registry_does_not_have(refused, registry, tmp_path):
    layout(tmp_path / "layout", [shell(), LOW])
    registry.push(tmp_path / "layout", "there:1")
    here = f"docker://{registry.host}"
    refused(f"{here}/there:2", "manifest unknown")
    refused(f"{here}/nowhere:1", "manifest unknown")
    refused(f"{here}/there@sha256:{'0' * 64}", "manifest unknown")
    refused(f"{here}/there:1", "server gave HTTP response to HTTPS client", options=())
    refused(f"docker://127.0.0.1:{free_port()}/there:1", "connection refused")
    for source in ("docker://", "docker:///x", "docker://a b", "docker://UPPER/x:y:z", f"docker://alice:secret@{registry.host}/there:1"):
        refused(source, "skopeo could not fetch")
    refused(f"{here}/there:1", "is not a time", options=("--plain-http", "--timeout=soon"), status=2)


def answers(where, change=None):
    """The answers of a registry that has the layout's image; change(path, bytes) makes the reply another one."""
    blobs = pathlib.Path(where) / "blobs/sha256"
    first = manifest_of(pathlib.Path(where))["digest"][7:]

    def answer(path):
        if path == "/v2/":
            return 200, {}, b"{}"
        name = first if "/manifests/" in path else path.rsplit(":", 1)[-1]
        data = (blobs / name).read_bytes()
        kind = TYPE if "/manifests/" in path else "application/octet-stream"
        reply = 200, {"Content-Type": kind}, data
        return change(path, reply) if change else reply
    return answer


def biggest(where):
    return max((where / "blobs/sha256").iterdir(), key=lambda p: p.stat().st_size).name


def test_a_registry_that_lies(cli, refused, liar, tmp_path):  # noqa: F811
    where = tmp_path / "layout"
    of_image = layout(where, [shell(), LOW])
    layer = biggest(where)

    def source(change=None):
        return f"docker://{liar(answers(where, change)).host}/x:1"

    def of_layer(make):
        return source(lambda path, reply: make(*reply) if layer in path else reply)

    # the control: it tells the truth
    assert cli.imported(source(), "--plain-http").returncode == 0
    assert cli("template", "rm", "made").returncode == 0
    refused(of_layer(lambda s, h, body: (s, h, bytes(len(body)))), "igest")  # another one's contents
    refused(of_layer(lambda s, h, body: (s, h, body[:1000])), "skopeo could not fetch")  # cut, and said to be so long
    refused(of_layer(lambda s, h, body: (s, {**h, "Content-Length": str(len(body))}, body[:1000])), "skopeo could not fetch")
    refused(of_layer(lambda s, h, body: (s, h, body + b"more")), "skopeo could not fetch")
    refused(of_layer(lambda *_: (404, {}, b"")), "skopeo could not fetch")
    other = source(lambda path, reply: (200, reply[1], reply[2] + b" ") if "/manifests/" in path else reply)
    refused(f"{other[:-2]}@{of_image}", "does not match")


def test_a_registry_that_answers_rubbish(refused, liar):
    rubbish = b"\x1b]0;owned\x07<html>" + bytes(range(256)) * 20
    for status, kind, body in ((200, TYPE, rubbish), (200, "text/html", b"<html>hello</html>"), (200, TYPE, b"{}"), (200, TYPE, b"null"),
                               (200, TYPE, b"[" * 100_000), (500, TYPE, rubbish), (302, TYPE, b""), (200, TYPE, b" " * (5 << 20)),
                               (200, TYPE, b'{"schemaVersion":2,"config":{"digest":"sha256:../../x","size":1},"layers":[]}')):
        def answer(path, reply=(status, {"Content-Type": kind}, body)):
            return (200, {}, b"{}") if path == "/v2/" else reply
        said = refused(f"docker://{liar(answer).host}/x:1", "cay: ")
        assert "\x1b" not in said and "\x07" not in said and len(said) < 2000, said


@pytest.mark.parametrize("where", ["/v2/", "/manifests/", "/blobs/"])
def test_a_registry_that_stalls(refused, liar, tmp_path, where):
    layout(tmp_path / "layout", [shell(), LOW])
    tells = answers(tmp_path / "layout")
    silent = liar(lambda path: None if where in path and (where != "/v2/" or path == where) else tells(path))
    refused(f"docker://{silent.host}/x:1", "did not send the whole image in time", "--timeout=TIME",
            options=("--plain-http", "--timeout=2s"))
    assert any(where in path for path in silent.asked)
