"""Templates that begin with an image of a registry (`fromImage`): skopeo fetches it in a sandbox of the tenant's, which reaches
what the operator allows and nothing else; the image is one tenant's, is unpacked once, and goes with the last that stands on
it. Debian's docker-registry and a registry that lies, in the stand-in internet."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import uuid

import pytest
from client import Client
from egresslib import ZONE, Stack, internet
from imagelib import configuration, digest, layout, tar
from importerlib import shell
from registrylib import PASSWORD
from test_template_builder import answers, ended, request, run, start, status
from waitlib import until

ALLOWED, LOCKED, LYING = "registry.example.com:5000", "locked.example.com:5001", "lying.example.com:5443"
NAMES = {name.split(":")[0]: {"a": [[internet.OTHER]]} for name in (ALLOWED, LOCKED, LYING, "refused.example.com", "cdn.example.com")}
NAMES["private.example.com"] = {"a": [[internet.PRIVATE]]}
NAMES["elsewhere.example.com"] = {"a": [["172.16.0.9"]]}
LOW = tar(("etc", "dir"), ("etc/first", "file", {"data": b"low\n"}))
TYPE = "application/vnd.oci.image.manifest.v1+json"
PRIVATE = "private.example.com:5000"
JS = pathlib.Path(__file__).resolve().parents[1] / "sdk/js"
LIAR = pathlib.Path(__file__).with_name("lying_registry.py")
SECRET = "secret"  # alice's, in registrylib


class Registries:
    """docker-registry at these (name, has accounts, address), and the liar, in the internet of the stack."""

    def __init__(self, stack, base, registries):
        self.net, self.base, self.processes = stack.networks.net, base, []
        for name, accounts, address in registries:
            settings = {"version": "0.1", "log": {"level": "error", "accesslog": {"disabled": True}},
                        "storage": {"filesystem": {"rootdirectory": str(base / name.split(".")[0])}},
                        "http": {"addr": f"{address}:{name.split(':')[1]}",
                                 "tls": {"certificate": str(stack.networks.cert), "key": str(stack.networks.key)}}}
            if accounts:
                (base / "accounts").write_text(f"alice:{PASSWORD}\n")
                settings["auth"] = {"htpasswd": {"realm": "here", "path": str(base / "accounts")}}
            (base / f"{name}.yml").write_text(json.dumps(settings))
            self.begin("docker-registry", "serve", base / f"{name}.yml")
        self.answers, self.asked = base / "answers.json", base / "asked.log"
        self.answers.write_text("{}")
        self.asked.write_text("")
        self.begin(sys.executable, LIAR, internet.OTHER, "5443", stack.networks.cert, stack.networks.key, self.answers, self.asked)

    def begin(self, *command):
        self.processes.append(subprocess.Popen(["ip", "netns", "exec", self.net, *map(str, command)], stdin=subprocess.DEVNULL,
                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def push(self, where, name, *more, address=internet.OTHER):
        def try_it():
            return subprocess.run(["ip", "netns", "exec", self.net, "skopeo", "copy", "--quiet", "--dest-tls-verify=false", *more,
                                   f"oci:{where}", f"docker://{address}:{name}"], capture_output=True, text=True,
                                  check=False).returncode == 0
        until(try_it, 30, "the registry takes the image")

    def lie(self, **paths):
        """The liar's answers from now on to GET /v2/tools/PATH ("_" in a name is "/"), beside its first word, that it is one."""
        answers = {"/v2/": [200, {}, "{}"], **{f"/v2/tools/{path.replace('_', '/')}": answer for path, answer in paths.items()}}
        self.answers.with_suffix(".new").write_text(json.dumps(answers))
        self.answers.with_suffix(".new").rename(self.answers)

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def stack_with(base, registries, *cayd_args):
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    for program in ("docker-registry", "skopeo"):
        if not shutil.which(program):
            pytest.fail(f"{program} is not there: scripts/deps test installs it")
    stack = Stack(zone={**ZONE, **NAMES}, cayd_args=cayd_args)
    stack.registries = None
    try:
        stack.registries = Registries(stack, base, registries)
        stack.layout = base / "layout"
        stack.digest = layout(stack.layout, [shell(), LOW], {"Env": ["GREETING=hello"], "WorkingDir": "/etc"})
        yield stack
    finally:
        if stack.registries:
            stack.registries.close()
        stack.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with stack_with(tmp_path_factory.mktemp("registries"), ((ALLOWED, False, internet.OTHER), (LOCKED, True, internet.OTHER)),
                    f"--images-registries={ALLOWED}/team, {LOCKED}, {LYING}, private.example.com:5000") as stack:
        stack.registries.push(stack.layout, "5000/team/tools:v1")
        stack.registries.push(stack.layout, "5001/own/tools:v1", "--dest-creds=alice:secret")
        yield stack


@pytest.fixture
def cay(world):
    return world.cay


@pytest.fixture
def sdk(world):
    """Runs lines of Python with E2B's SDK, `image` and `name` in them, and returns what they print. In a process of their own:
    the SDK's threads live as long as their process and keep the network namespace in which they began, another file's, say."""
    at = {"E2B_API_KEY": world.server.key(), "E2B_API_URL": world.server.url, "E2B_SANDBOX_URL": world.server.url}

    def run_lines(lines, image, name):
        done = subprocess.run([sys.executable, "-c", f"from e2b import Sandbox, Template\nimage, name = {image!r}, {name!r}\n{lines}"],
                              env={**os.environ, **at}, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run_lines.environment = at
    return run_lines


def images(cay):
    return [t for t in cay.call("GET", "/cay/v1/templates").json if t["id"].startswith("image-")]


@pytest.fixture
def name(world, cay):
    """A template's name for the test; when it has gone, all that it stood on goes."""
    one = "i-" + uuid.uuid4().hex[:12]
    yield one
    until(lambda: cay.call("DELETE", f"/templates/{one}").status in (204, 404), what="the template is deleted")
    until(lambda: images(cay) == [], 60, lambda: f"the images are gone {images(cay)}")
    assert list((world.server.state / "images").iterdir()) == []
    assert [box for box in cay.call("GET", "/v2/sandboxes").json if "cay.build" in (box.get("metadata") or {})] == []


def build(client, one, image, *steps, **more):
    made = request(client, one)
    assert start(client, made, fromTemplate=None, fromImage=image, steps=list(steps), **more).status == 202
    said = ended(client, made)
    said["lines"] = [line["message"] for line in said["logEntries"]]
    return said


def built(*args, **more):
    said = build(*args, **more)
    assert said["status"] == "ready", said
    return said["lines"]


def failed(*args, **more):
    said = build(*args, **more)
    assert said["status"] == "error" and said["reason"]["step"] == "base", said
    return said["reason"]["message"], said["lines"]


def test_the_sdk_builds_from_an_image_of_a_registry(sdk, world, cay, name):
    image = f"{ALLOWED}/team/tools:v1"
    lines = sdk("""
Template.build(Template().from_image(image).run_cmd("read x < /etc/first; echo $x > /tmp/made"), name,
               on_build_logs=lambda entry: print(entry.message))
""", image, name).splitlines()
    assert f"docker://{ALLOWED}/team/tools@{world.digest}" in lines
    assert [(t["digest"], t["tenant"] != "") for t in images(cay)] == [(world.digest, True)]
    assert sdk("""
with Sandbox.create(name) as box:
    print(box.commands.run("read x < /tmp/made; echo $x $GREETING").stdout, end="")
""", image, name) == "low hello\n"
    # the same image by another name of it is not fetched again
    unpacked = images(cay)
    for again in (image, f"{ALLOWED}/team/tools@{world.digest}"):
        lines = built(cay, name, again, run("echo 2 > /tmp/made"))
        assert f"CACHED {world.digest}" in lines and not any(line.startswith("layer ") for line in lines)
        assert [t["id"] for t in images(cay)] == [t["id"] for t in unpacked]


def test_the_sdk_of_javascript(sdk, world, cay):
    node = JS / "node_modules/node/bin/node"
    if not node.exists():
        pytest.skip("the SDK's packages are not there: test/run --only=sdk installs them")
    done = subprocess.run([node, "--test", "--test-reporter=tap", "--test-name-pattern=image of a registry", "template.test.mjs"], cwd=JS,
                          env={**os.environ, **sdk.environment, "CAY_TEST_IMAGE": f"{ALLOWED}/team/tools:v1"}, capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=180)
    assert done.returncode == 0 and "# pass 1" in done.stdout, done.stdout + done.stderr
    until(lambda: images(cay) == [], 60, "the image is gone")


# -- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("image, said", [
    ("debian:12", "takes no images from docker.io/library/debian"),
    ("refused.example.com/team/tools", "takes no images from refused.example.com/team/tools"),
    (f"{ALLOWED}/other/tools", "takes no images from registry.example.com:5000/other/tools"),
    (f"{ALLOWED}/teams/tools", "takes no images from"),
    (f"{ALLOWED}/../team/tools", "is no name of an image"),
    ("registry.example.com:5001/team/tools", "takes no images from"),
    ("registry.example.com.evil.net/team/tools", "takes no images from"),
    ("127.0.0.1:5000/team/tools", "is no name of an image"),
    ("[::1]:5000/team/tools", "is no name of an image"),
    ("localhost:5000/team/tools", "takes no images from"),
    (f"user@{ALLOWED}/team/tools", "is no name of an image"),
    (f"{ALLOWED}/team/tools:v1@sha256:12", "no SHA-256 digest"),
    (f"{ALLOWED}/team/tools --dest-creds=a:b", "is no name of an image"),
    ("oci:/etc", "is no name of an image"),
    ("docker://debian", "is no name of an image")])
def test_what_the_operator_does_not_allow(world, cay, name, image, said):
    message, _ = failed(cay, name, image)
    assert said in message, message
    if "takes no images" in said:
        assert "`registries` of [images]" in message and "cay template import" in message
    assert images(cay) == []


def manifest(config, layers, **more):
    return json.dumps({"schemaVersion": 2, "mediaType": TYPE, "config": blob(config, "application/vnd.oci.image.config.v1+json"),
                       "layers": [blob(one, "application/vnd.oci.image.layer.v1.tar") for one in layers], **more})


def blob(data, kind):
    return {"mediaType": kind, "digest": digest(data), "size": len(data)}


CONFIG = configuration([LOW])
BLOBS = {f"blobs_{digest(one)}": [200, {}, one.decode("latin-1")] for one in (CONFIG, LOW)}
GOOD = {"manifests_v1": [200, {"Content-Type": TYPE}, manifest(CONFIG, [LOW])],
        f"manifests_{digest(manifest(CONFIG, [LOW]).encode())}": [200, {"Content-Type": TYPE}, manifest(CONFIG, [LOW])], **BLOBS}
LAYER = f"blobs_{digest(LOW)}"


def test_a_registry_of_the_test_is_one(world, cay, name):
    """The positive control of those below: what they change is all that is wrong with them."""
    world.registries.lie(**GOOD)
    built(cay, name, f"{LYING}/tools:v1")
    assert [t["digest"] for t in images(cay)] == [digest(manifest(CONFIG, [LOW]).encode())]


def elsewhere(where):
    return [307, {"Location": where}, ""]


@pytest.mark.parametrize("lies, said, refused", [
    ({LAYER: [200, {}, LOW.decode("latin-1")[:-1] + "x"]}, "Digest did not match", None),
    ({LAYER: elsewhere("https://cdn.example.com/layer")}, "403 (Forbidden)", "cdn.example.com:443"),
    ({LAYER: elsewhere("https://lying.example.com:8443/layer")}, "403 (Forbidden)", "lying.example.com:8443"),
    ({LAYER: elsewhere("http://169.254.169.254/latest")}, "403 (Forbidden)", "169.254.169.254:80"),
    ({LAYER: elsewhere("https://10.0.0.5/layer")}, "403 (Forbidden)", "10.0.0.5:443"),
    ({LAYER: elsewhere("https://127.0.0.1:5443/layer")}, "127.0.0.1", None),
    ({LAYER: elsewhere("https://[::1]:5443/layer")}, "[::1]", None),
    ({LAYER: [404, {}, "{}"]}, "404", None)])
def test_lies_about_a_layer(world, cay, name, lies, said, refused):
    world.registries.lie(**{**GOOD, **lies})
    message, lines = failed(cay, name, f"{LYING}/tools:v1")
    assert said in message, message
    assert refused is None or any(line.startswith("refused by the policy") and refused in line for line in lines), lines
    assert images(cay) == []
    assert "/layer" not in world.registries.asked.read_text() + world.networks.requests()


def test_a_realm_of_tokens_that_is_elsewhere(world, cay, name):
    for realm, host in (("https://cdn.example.com/token", "cdn.example.com"), ("http://169.254.169.254/token", "169.254.169.254")):
        challenge = {"WWW-Authenticate": f'Bearer realm="{realm}",service="here",scope="repository:tools:pull"'}
        world.registries.answers.write_text(json.dumps({"/v2/": [401, challenge, "{}"]}))
        message, lines = failed(cay, name, f"{LYING}/tools:v1")
        assert "Requesting bearer token" in message, message
        assert any(line.startswith("refused by the policy") and host in line for line in lines), lines
    assert "/token" not in world.registries.asked.read_text() + world.networks.requests()


def test_a_registry_at_a_private_address(world, cay, name):
    message, lines = failed(cay, name, f"{PRIVATE}/tools:v1")
    assert "private.example.com" in message
    assert any(line.startswith("refused by the policy") for line in lines), lines


def test_a_private_address_that_the_operator_allows(tmp_path):
    """The control of the one above, and that the address alone opens no other: neither a name nor the range beside it."""
    registries = ((PRIVATE, False, internet.PRIVATE), ("elsewhere.example.com:5000", False, "172.16.0.9"))
    with stack_with(tmp_path, registries, f"--images-registries={PRIVATE}, elsewhere.example.com:5000", "--egress-ceiling=allow",
                    "--images-addresses=10.0.0.0/29") as world:
        world.registries.push(world.layout, "5000/tools:v1", address=internet.PRIVATE)
        world.registries.push(world.layout, "5000/tools:v1", address="172.16.0.9")
        built(world.cay, "inside", f"{PRIVATE}/tools:v1")
        _, lines = failed(world.cay, "outside", "elsewhere.example.com:5000/tools:v1")
        assert any(line.startswith("refused by the policy") and "elsewhere.example.com:5000" in line for line in lines), lines
        for one in ("inside", "outside"):
            assert world.cay.call("DELETE", f"/templates/{one}").status == 204


def test_what_is_no_image_for_this_server(world, cay, name, tmp_path):
    layout(tmp_path / "arm", [LOW], architecture="arm64")
    world.registries.push(tmp_path / "arm", "5000/team/arm:v1")
    assert "linux/arm64" in failed(cay, name, f"{ALLOWED}/team/arm:v1")[0].replace(" ", "/") or "arm64" in failed(
        cay, name, f"{ALLOWED}/team/arm:v1")[0]
    for unknown in (f"{ALLOWED}/team/none:v1", f"{ALLOWED}/team/tools:none", f"{ALLOWED}/team/tools@{digest(b'')}"):
        assert "unknown" in failed(cay, name, unknown)[0]
    layout(tmp_path / "hostile", [tar(("../../etc/shadow", "file", {"data": b"x"}))])
    world.registries.push(tmp_path / "hostile", "5000/team/hostile:v1")
    assert "layer 1" in failed(cay, name, f"{ALLOWED}/team/hostile:v1")[0]


# -- credentials -------------------------------------------------------------------------------------


def test_credentials_are_for_one_transport(sdk, world, cay, name):
    image = f"{LOCKED}/own/tools:v1"
    assert "unauthorized" in failed(cay, name, image)[0] or "authentication required" in failed(cay, name, image)[0]
    wrong = {"type": "registry", "username": "alice", "password": "not-it-4711"}
    assert build(cay, name, image, fromImageRegistry=wrong)["status"] == "error"
    sdk(f"""
Template.build(Template().from_image(image, username="alice", password={SECRET!r}).run_cmd("echo /dev/shm/* /run/* > /tmp/found"), name)
""", image, name)
    with cay.create(template=name) as box:
        assert "cay-auth" not in box.run("read x < /tmp/found; echo $x; echo /dev/shm/*").out
    kept = subprocess.run(["grep", "-rlaE", "--exclude=disk.img", "not-it-4711|YWxpY2U6", world.server.base], capture_output=True, text=True, check=False).stdout
    assert kept == ""
    other = {"type": "aws", "awsAccessKeyId": "a", "awsSecretAccessKey": "b", "awsRegion": "c"}
    assert start(cay, request(cay, name), fromTemplate=None, fromImage=image, fromImageRegistry=other).status == 501


# -- whose it is -------------------------------------------------------------------------------------


@pytest.fixture
def stranger(world):
    made = world.cay.call("POST", "/cay/v1/keys", {"tenant": "stranger"})
    return Client(world.server.url, made.json["key"])


def test_another_tenant_has_nothing_of_it(world, cay, stranger, name):
    image = f"{ALLOWED}/team/tools:v1"
    built(cay, name, image)
    own = images(cay)[0]["id"]
    for path in (f"/templates/{own}", f"/templates/aliases/{own}", f"/templates/{own}/tags"):
        assert stranger.call("GET", path).status == 404
    assert own not in stranger.call("GET", "/templates").body.decode() + stranger.call("GET", "/cay/v1/templates").body.decode()
    assert own not in cay.call("GET", "/templates").body.decode()
    assert stranger.call("POST", "/v2/sandboxes", {"templateID": own}).status == 404
    made = request(stranger, name)
    assert start(stranger, made, fromTemplate=own).status == 202
    said = ended(stranger, made)
    assert said["status"] == "error" and own in said["reason"]["message"] and "there is no template" in said["reason"]["message"]
    # its own import of the same image is another template
    lines = built(stranger, name, image)
    assert not any(line.startswith("CACHED sha256") for line in lines)
    assert len({t["id"] for t in images(cay)}) == 2 and {t["tenant"] for t in images(cay)} == {"default", "stranger"}
    assert stranger.call("DELETE", f"/templates/{name}").status == 204
    until(lambda: [t["id"] for t in images(cay)] == [own], 60, "the stranger's goes alone")


def test_the_quota_of_bytes(world, cay, stranger, name):
    def quota(most):
        reply = cay.call("PATCH", "/cay/v1/tenants/stranger/quota", {"templateBytes": most})
        assert reply.status == 200, reply.body
        return reply.json["used"]["templateBytes"]

    image = f"{ALLOWED}/team/tools:v1"
    quota(0)
    message, _ = failed(stranger, name, image)
    assert "the quota templateBytes of tenant stranger is 0" in message, message
    quota(4096)
    message, _ = failed(stranger, name, image)
    assert "the quota templateBytes of tenant stranger is 4096: with it" in message, message
    until(lambda: images(cay) == [], 60, "the image that is too big has gone")
    assert quota(None) == 0
    built(stranger, name, image)
    made = images(cay)[0]
    assert made["sizeBytes"] > 4096 and quota(made["sizeBytes"]) == made["sizeBytes"]
    assert "CACHED" in "".join(built(stranger, name, image, run("true")))  # that adds nothing
    hours = stranger.call("GET", "/cay/v1/tenants/stranger/usage?hours=2").json
    assert sum(hour["builds"] for hour in hours) >= 4
    assert stranger.call("DELETE", f"/templates/{name}").status == 204
    until(lambda: images(cay) == [], 60, "the image has gone")
    assert quota(None) == 0


def test_a_published_one_that_lies_on_an_image(world, cay, stranger, name):
    built(cay, name, f"{ALLOWED}/team/tools:v1", run("echo mine > /tmp/made"))
    assert cay.call("PATCH", f"/v2/templates/{name}", {"public": True}).status == 200
    with stranger.create(template=name) as box:
        assert box.run("read x < /tmp/made; echo $x").out == "mine\n"
        assert cay.call("DELETE", f"/templates/{name}").status == 204
        assert stranger.call("POST", "/v2/sandboxes", {"templateID": name}).status == 404
        time.sleep(7)  # longer than until the next look at what is needed
        assert len(images(cay)) == 1 and box.run("read x < /tmp/made; echo $x").out == "mine\n"
    until(lambda: images(cay) == [], 60, "the image has gone")


def test_it_goes_with_the_last_that_stands_on_it(world, cay, name):
    built(cay, name, f"{ALLOWED}/team/tools:v1", run("true"))
    box = cay.create(template=name)
    assert cay.call("DELETE", f"/templates/{name}").status == 204
    snapshot = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {})
    assert snapshot.status == 201, snapshot.body
    box.kill()
    time.sleep(12)  # two looks
    assert len(images(cay)) == 1
    with cay.create(template=snapshot.json["snapshotID"]) as again:
        assert again.run("read x < /etc/first; echo $x").out == "low\n"
    assert cay.call("DELETE", f"/templates/{snapshot.json['snapshotID']}").status == 204
    until(lambda: images(cay) == [], 60, "it has gone")


def test_two_builds_at_once_fetch_it_once(world, cay, name):
    image, both = f"{ALLOWED}/team/tools:v1", [name, name + "-2"]
    made = [request(cay, one) for one in both]
    for one in made:
        assert start(cay, one, fromTemplate=None, fromImage=image).status == 202
    said = [ended(cay, one) for one in made]
    assert [one["status"] for one in said] == ["ready", "ready"], said
    assert sorted(any(line["message"].startswith("CACHED sha256") for line in one["logEntries"]) for one in said) == [False, True]
    assert len(images(cay)) == 1
    assert cay.call("DELETE", f"/templates/{both[1]}").status == 204


@pytest.mark.parametrize("stalls,said", [("manifests_v1", "the registry did not answer within 60 s"),
                                         (LAYER, "the registry sent less than 1024 KiB in 60 s")])
def test_a_registry_that_stalls_is_waited_for_a_minute(world, cay, name, stalls, said):
    """Not for the twenty that a whole image may take: the place is another's then."""
    world.registries.lie(**{**GOOD, stalls: None})
    made = request(cay, name)
    assert start(cay, made, fromTemplate=None, fromImage=f"{LYING}/tools:v1").status == 202
    until(lambda: status(cay, made)["status"] == "error", 240, "the build has failed")
    assert said in status(cay, made)["reason"]["message"]
    world.registries.lie(**GOOD)


# -- interrupted -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stalls", ["manifests_v1", LAYER])
def test_cayd_is_killed_in_the_middle(world, cay, name, stalls):
    world.registries.asked.write_text("")
    world.registries.lie(**{**GOOD, stalls: None})
    made = request(cay, name)
    assert start(cay, made, fromTemplate=None, fromImage=f"{LYING}/tools:v1").status == 202
    until(lambda: stalls.replace("_", "/") in world.registries.asked.read_text(), 60, "the registry is asked")
    before = world.kill("cayd")
    world.wait_replaced("cayd", before)
    until(lambda: answers(cay), 60, "cayd answers")
    assert "started anew" in ended(cay, made)["reason"]["message"]
    world.registries.lie(**GOOD)
    built(cay, name, f"{LYING}/tools:v1")
