"""`cay template push`: what `cay template export` writes, in a registry: Debian's docker-registry on loopback, with accounts
and without, and registries that are not there, stall or refuse."""

import json
import os
import signal
import subprocess

import pytest
from conftest import BUILD
from importerlib import cli, entry  # noqa: F401 - cli is a fixture
from registrylib import Liar, Registry, free_port
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from test_template_export import START, made, none_is_left  # noqa: F401 (a fixture)
from test_template_registry import auths, registry  # noqa: F401 (a fixture)
from waitlib import until

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="images are imported by root"), pytest.mark.usefixtures("needs_a_disk")]


@pytest.fixture
def push(cli, tmp_path):
    """Runs it with a folder of its own for temporary files, in which nothing may be left."""
    folder = tmp_path / "files"
    folder.mkdir()

    def run(name, to, *options, **environment):
        done = cli("template", "push", name, to, *options, TMPDIR=str(folder), **environment)
        assert list(folder.iterdir()) == []
        return done

    run.folder = folder
    return run


def inspected(registry, name, *options):
    done = subprocess.run(["skopeo", "inspect", "--tls-verify=false", *options, f"docker://{registry.host}/{name}"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_push_is_imported_again(cli, cay, push, made, registry):
    done = push(made, f"{registry.host}/team/tools:v1", "--plain-http", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    none_is_left(cay)
    assert told["digest"] == inspected(registry, "team/tools:v1")["Digest"]
    assert told["image"] == f"docker://{registry.host}/team/tools:v1" and told["template"] == made
    assert inspected(registry, "team/tools:v1", "--config")["config"]["Cmd"] == ["/bin/sh", "-c", START["cmd"]]
    assert cli.imported(told["image"], "--plain-http", "--start", name="again").returncode == 0
    try:
        assert entry(cay, "again")["digest"] == told["digest"]
        with cay.create(template="again") as box:
            until(lambda: box.read("/srv/started", "root").body == b"ran\n", what="its command has run")
            assert box.read("/srv/two", "root").body == b"linked\n"
    finally:
        until(lambda: cli("template", "rm", "again").returncode == 0, what="the image is removed")


def test_a_tag_moves(push, made, registry):
    """The same files are the same layer: pushed anew under the tag, and under another one."""
    first = push("made", f"docker://{registry.host}/moves:1", "--plain-http", "--json")
    assert first.returncode == 0, first.stderr
    before = inspected(registry, "moves:1")
    assert push(made, f"{registry.host}/moves:1", "--plain-http").returncode == 0
    after = inspected(registry, "moves:1")
    assert json.loads(first.stdout)["digest"] == before["Digest"] != after["Digest"]


def test_credentials(push, made, tmp_path):
    closed = Registry(tmp_path / "registry", accounts=True)
    try:
        keys, home = tmp_path / "keys.json", {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
        keys.write_text(auths(closed, "alice:guess"))
        for options in ((), (f"--authfile={keys}",)):
            done = push(made, f"{closed.host}/own:1", "--plain-http", *options, **home)
            assert done.returncode == 1 and "skopeo login" in done.stderr, done.stderr
        keys.write_text(auths(closed, "alice:secret"))
        done = push(made, f"{closed.host}/own:1", "--plain-http", f"--authfile={keys}", **home)
        assert done.returncode == 0, done.stderr
        assert inspected(closed, "own:1", "--creds=alice:secret")["Digest"] in done.stdout
        assert "secret" not in done.stdout + done.stderr
    finally:
        closed.close()


def test_what_is_no_place(cay, push, made, registry):
    """Before a sandbox is made of the template."""
    for to in ("tools:v1", "team/tools:v1", "", "/x:1", f"{registry.host}/a b:1", f"{registry.host}/",
               f"alice:secret@{registry.host}/x:1", f"{registry.host}/x@sha256:{'0' * 64}", "oci:/tmp/x", f"{registry.host}/{'x' * 600}"):
        done = push(made, to, "--plain-http")
        assert done.returncode == 1 and "REGISTRY/REPOSITORY:TAG" in done.stderr, (to, done.stderr)
    done = push(made, f"{registry.host}/x:1", "--timeout=soon")
    assert done.returncode == 2 and "is not a time" in done.stderr
    assert cay.call("GET", "/v2/sandboxes").json == []


def test_registries_that_do_not_take_it(cay, push, made, registry):
    refusing, silent = Liar(lambda path: (403, {}, b"{}")), Liar(lambda path: None)
    try:
        for to, said, *options in ((f"127.0.0.1:{free_port()}/x:1", "connection refused", "--plain-http"),
                                   (f"{registry.host}/x:1", "--plain-http is for a registry without TLS"),
                                   (f"{registry.host}/UPPER:1", "skopeo could not send it", "--plain-http"),
                                   (f"{refusing.host}/x:1", "skopeo could not send it", "--plain-http"),
                                   (f"{silent.host}/x:1", "did not take the whole image in time", "--plain-http", "--timeout=2s")):
            done = push(made, to, *options)
            assert done.returncode == 1 and said in done.stderr, done.stderr
    finally:
        refusing.close()
        silent.close()
    none_is_left(cay)
    assert push("no-such", f"{registry.host}/x:1").stderr.count("there is no template 'no-such'") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_one_that_is_ended_leaves_nothing(server, cay, push, made, number):
    """While the registry does not answer: skopeo ends with the command, and no file is left."""
    silent = Liar(lambda path: None)
    environment = {**os.environ, "CAY_URL": server.url, "E2B_API_KEY": server.key, "TMPDIR": str(push.folder)}
    command = subprocess.Popen([BUILD / "src/cli/cay", "template", "push", made, f"{silent.host}/x:1", "--plain-http"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        until(lambda: silent.asked, what="skopeo asks the registry")
        children = [int(pid) for pid in open(f"/proc/{command.pid}/task/{command.pid}/children").read().split()]
        command.send_signal(number)
        assert command.wait(30) == -number and len(children) == 1
        until(lambda: not os.path.exists(f"/proc/{children[0]}"), what="skopeo is gone")
        assert list(push.folder.iterdir()) == []
        none_is_left(cay)
    finally:
        silent.close()
        if command.poll() is None:
            command.kill()
            command.wait()
