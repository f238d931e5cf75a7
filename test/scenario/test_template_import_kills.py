"""SIGKILL of each program during `cay template import`, at several points: nothing stays but a template that is whole, and the same
command begins anew. Two imports of one name, and a template that is removed while it is used."""

import os
import signal
import subprocess
import tarfile
import time

import leftovers
import pytest
from conftest import BUILD
from imagelib import layout, tar
from importerlib import cli, entry, left, shell, templates  # noqa: F401 - cli is a fixture
from registrylib import Liar
from test_template_registry import answers
from waitlib import kill_all, stop_one, until, wait_replaced

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="images are imported by root")
SLOW = tarfile.TarInfo("again").tobuf(), 20_000  # a file of no bytes that is made anew so many times


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """An image whose unpacking takes long enough to be found under way."""
    where = tmp_path_factory.mktemp("image") / "layout"
    header, times = SLOW
    layout(where, [shell(), header * times + tar(("etc", "dir"), ("etc/last", "file", {"data": b"whole\n"}))])
    return where


@pytest.fixture
def begun(server, cli):  # noqa: F811 - cli cleans up, too
    """Starts an import, which goes on beside the test."""
    running = []

    def begin(source, *more):
        running.append(subprocess.Popen([BUILD / "src/cli/cay", "template", "import", f"--state-dir={server.own.state}", "made", source, *more],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                        env={**os.environ, "CAY_URL": server.url, "E2B_API_KEY": server.key}))
        return running[-1]
    yield begin
    for one in running:
        one.kill()
        one.wait()


def of_import(server, name):
    """Processes of that name that work for this server: its state directory stands in their arguments."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"/" + name.encode()) or words[0] == name.encode():
            if any(str(server.own.state).encode() in word for word in words):
                found.append(int(pid))
    return found


def wait_settled(server, cay):
    """The daemons are there, and no job is."""
    until(lambda: cay.call("GET", "/cay/v1/status").json.get("ready") is True, what="the server is ready again", patient=True)
    until(lambda: not of_import(server, "cay-job"), 60, "no job runs")


def unfinished(server):
    return [name for name in templates(server) if name.startswith(".")]


def check_whole_or_not_there(server, cay, cli, image):  # noqa: F811
    wait_settled(server, cay)
    until(lambda: not (there := entry(cay)) or not there.get("building"), what="what became of it is known")
    if (there := entry(cay)) and there["ready"]:
        with cay.create(template="made") as box:
            assert box.run("read x < /etc/last; echo $x").out == "whole\n"
        assert cli("template", "rm", "made").returncode == 0
    made = cli.imported(f"oci:{image}")
    assert made.returncode == 0, made.stderr
    with cay.create(template="made") as box:
        assert box.run("read x < /etc/last; echo $x").out == "whole\n"
    assert cli("template", "rm", "made").returncode == 0
    until(lambda: left(server, cay) == [] and unfinished(server) == [], what=lambda: f"{left(server, cay)} {unfinished(server)}")


def kill(server, victim, command):
    if victim == "cay":
        command.kill()
    elif victim in ("cayd", "cay-privd"):
        def pids():
            return leftovers.children(server.own.keep_pid, victim)
        wait_replaced(pids, kill_all(pids))
    else:
        kill_all(lambda: of_import(server, victim))


@pytest.mark.parametrize("victim", ["cay", "cayd", "cay-privd", "cay-job", "cay-unpack"])
def test_killed_while_it_is_unpacked(server, cay, cli, begun, image, victim):  # noqa: F811
    command = begun(f"oci:{image}")
    held = stop_one(lambda: of_import(server, "cay-unpack"), what="it is being unpacked")
    kill(server, victim, command)
    if victim in ("cay", "cayd"):  # who ask for the job are not those who do it
        os.kill(held, signal.SIGCONT)
    command.communicate(timeout=100)
    assert command.returncode != 0
    until(lambda: not of_import(server, "cay-unpack"), 60)
    check_whole_or_not_there(server, cay, cli, image)


@pytest.mark.parametrize("victim", ["cay", "cayd", "cay-privd"])
def test_killed_while_layers_are_given(server, cay, cli, begun, image, victim):  # noqa: F811
    spool = server.own.state / "privd/import"
    command = begun(f"oci:{image}")
    until(lambda: spool.exists() and any(spool.iterdir()), every=0.001, what="a layer is given")
    command.send_signal(signal.SIGSTOP)
    kill(server, victim, command)
    command.send_signal(signal.SIGCONT)
    command.communicate(timeout=100)
    check_whole_or_not_there(server, cay, cli, image)


@pytest.mark.parametrize("victim", ["cay", "skopeo"])
def test_killed_while_it_is_fetched(server, cay, cli, begun, image, victim):  # noqa: F811
    tells = answers(image)
    liar = Liar(lambda path: None if "/blobs/" in path else tells(path))
    try:
        command = begun(f"docker://{liar.host}/x:1", "--plain-http")
        until(lambda: any("/blobs/" in path for path in liar.asked))
        assert of_import(server, "skopeo")
        kill(server, victim, command)
        command.communicate(timeout=100)
        assert command.returncode != 0
        until(lambda: not of_import(server, "skopeo"))
        check_whole_or_not_there(server, cay, cli, image)
    finally:
        liar.close()


def test_killed_at_any_time(server, cay, cli, begun, image):  # noqa: F811
    """The command alone, at moments that are spread over its whole way."""
    for number in range(6):
        command = begun(f"oci:{image}")
        time.sleep(0.02 * 2 ** number)
        command.kill()
        command.communicate()
        until(lambda: not of_import(server, "cay-job"), 60, "no job runs")
        cay.call("DELETE", "/cay/v1/templates/made")
    check_whole_or_not_there(server, cay, cli, image)


def test_two_commands_for_one_name(server, cay, cli, begun, image, tmp_path):  # noqa: F811
    """The second, while the first still gives its layers, changes nothing: neither name nor layers nor what is told of them."""
    other = layout(tmp_path / "other", [shell()])
    spool = server.own.state / "privd/import"
    first = begun(f"oci:{image}")
    until(lambda: spool.exists() and any(p.name.isdigit() for p in spool.iterdir()), every=0.001, what="a layer is given")
    first.send_signal(signal.SIGSTOP)
    second = cli.imported(f"oci:{tmp_path}/other")
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 1 and "another command imports made now" in second.stderr
    said = first.communicate(timeout=100)[1]
    assert first.returncode == 0, said
    assert entry(cay)["source"] == f"oci:{image}" and entry(cay)["digest"] != other
    check_whole_or_not_there(server, cay, cli, image)


def test_two_of_one_name(server, cay, cli, begun, image):  # noqa: F811
    first = begun(f"oci:{image}")
    held = stop_one(lambda: of_import(server, "cay-unpack"), what="it is being unpacked")
    second = cli.imported(f"oci:{image}")
    removed = cli("template", "rm", "made")
    again = cay.call("POST", "/cay/v1/templates/made/import", {"source": "x", "digest": "sha256:" + "0" * 64})
    os.kill(held, signal.SIGCONT)
    assert second.returncode == 1 and "another command imports made now" in second.stderr
    assert again.status == 409 and "template made is being made already" in again.json["message"]
    assert removed.returncode == 1 and "is being built already" in removed.stderr
    said = first.communicate(timeout=100)[1]
    assert first.returncode == 0, said
    with cay.create(template="made") as box:
        assert box.run("read x < /etc/last; echo $x").out == "whole\n"
        used = cli("template", "rm", "made")
        assert used.returncode == 1 and "1 sandboxes use template made: end them first" in used.stderr
        assert box.run("read x < /etc/last; echo $x").out == "whole\n"
    check_whole_or_not_there(server, cay, cli, image)
