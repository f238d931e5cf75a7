"""`cay template build NAME DIR`: the steps of a build file in a sandbox, kept under a name; a fault of one is said with its line,
its output and its status, and leaves no sandbox and no template. Without a network: what the steps need is copied."""

import json
import os
import signal
import subprocess

import pytest
from conftest import BUILD
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from test_snapshot import delete
from waitlib import until

PORT = 8124
GOOD = """FROM host
ENV GREETING="hello you" PATH=/opt/tools:$PATH
COPY --chown=user --chmod=0750 tools /opt/tools
COPY one.txt two.txt /srv/files/
RUN tool > /srv/files/said && \\
    id -un >> /srv/files/said
WORKDIR /srv/files
USER user
EXPOSE 8124
CMD ["python3", "-m", "http.server", "--bind", "127.0.0.1", "8124"]
"""


@pytest.fixture
def build(server, cay, tmp_path):
    """Builds what it is given, in tmp_path, and says how that went."""
    def run(text, name="built", wait=True, json_too=False, command=None, **files):
        (tmp_path / "Dockerfile").write_text(text)
        (tmp_path / "tools").mkdir(exist_ok=True)
        for path, data in {"one.txt": "1\n", "two.txt": "2\n", "tools/tool": '#!/bin/sh\necho "$GREETING"\n', **files}.items():
            (tmp_path / path).write_text(data)
        operands = command or (name, tmp_path)
        command = [BUILD / "src/cli/cay", *(["--json"] if json_too else []), "template", "build", *operands]
        env = {**os.environ, "CAY_URL": server.url, "E2B_API_KEY": server.key}
        child = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
                                 stdin=subprocess.DEVNULL, cwd=tmp_path)
        if not wait:
            return child
        out, err = child.communicate(timeout=100)
        return subprocess.CompletedProcess(command, child.returncode, out, err)

    yield run
    for one in named(cay, "built"):
        delete(cay, one)


def builds(cay):
    return [box for box in cay.call("GET", "/v2/sandboxes").json if "cay.build" in (box.get("metadata") or {})]


def named(cay, name):
    return [one["snapshotID"] for one in cay.call("GET", f"/snapshots?name={name}").json]


def test_a_template_has_what_its_steps_made(cay, build):
    made = build(GOOD)
    assert made.returncode == 0, made.stderr
    assert "[5/9] RUN tool > /srv/files/said" in made.stderr and made.stdout.startswith("built is ready: 9 steps in ")
    (first,) = named(cay, "built")
    with cay.create(template="built") as box:
        assert box.request("GET", "/said", port=PORT).body == b"hello you\nroot\n"  # its CMD, in its WORKDIR
        assert box.run("tool; pgrep -u user -fc '[h]ttp.server'").out == "hello you\n1\n"  # ENV is for clients' commands too
        assert box.run("stat -c '%U %a' /opt/tools /opt/tools/tool /srv/files/one.txt", user="root").out == \
            "user 750\nuser 750\nroot 644\n"
        # on top of it: ENV and CMD go on to hold, the name moves, and the one that had it is gone
        again = build('FROM built\nUSER 0\nENV MORE=$GREETING!\nRUN echo "$MORE" > /srv/files/said\n')
        assert again.returncode == 0, again.stderr
        assert named(cay, "built") != [first] and len(named(cay, "built")) == 1
        assert cay.call("DELETE", f"/templates/{first}").status == 404
        assert box.run("cat /srv/files/said").out == "hello you\nroot\n"
    with cay.create(template="built") as box:
        assert box.request("GET", "/said", port=PORT).body == b"hello you!\n"
        assert box.run("echo $GREETING $MORE").out == "hello you hello you!\n"
    assert builds(cay) == []


def test_a_file_says_the_name(cay, build, tmp_path):
    """Without a name on the command line, where a folder is told from a template's name by its slash."""
    def told(*operands):
        done = build("", command=operands)
        return done.returncode, done.stdout + done.stderr

    (tmp_path / "other").mkdir()
    for text, status, said in (("FROM host\nLABEL cay.name=built\n", 0, "built is ready"), ("FROM host\n", 1, "has no LABEL cay.name"),
                               ("FROM host\nLABEL cay.name=base\n", 1, '"base" cannot be the name')):
        (tmp_path / "other/Dockerfile").write_text(text)
        got, output = told("./other")
        assert got == status and said in output, output
    assert len(named(cay, "built")) == 1
    assert "cay template build other ./other" in told("other")[1]  # a name: there is no such template
    assert told("Dockerfile")[0] == 1 and told("./nowhere")[0] == 1


CHOWN = """FROM host
COPY --chown=user one.txt /srv/a/b/name
COPY --chown=1000 one.txt /srv/number
COPY --chown=:user one.txt /srv/group
COPY --chown=user:root one.txt /srv/both
COPY --chown=4321 --chmod=4750 one.txt /srv/a/set
COPY --chown=user tools /srv/tree/below
COPY --chown=4321 --chmod=2711 tools /srv/modes
"""


def test_copied_files_get_their_owner(cay, build):
    """With its group, folders that are made for them, and set-id bits, which a change of the owner takes away."""
    made = build(CHOWN)
    assert made.returncode == 0, made.stderr
    with cay.create(template="built") as box:
        for path, wanted in {"a": "1000:1000 755", "a/b": "1000:1000 755", "a/b/name": "1000:1000 644", "number": "1000:1000 644",
                             "group": "0:1000 644", "both": "1000:0 644", "a/set": "4321:4321 4750", "tree": "1000:1000 755",
                             "tree/below": "1000:1000 755", "tree/below/tool": "1000:1000 644", "modes": "4321:4321 2711",
                             "modes/tool": "4321:4321 2711", ".": "0:0 755"}.items():
            assert box.run(f"stat -c '%u:%g %a' /srv/{path}", user="root").out == wanted + "\n", path
    failed = build("FROM host\nCOPY --chown=nobody-of-that-name one.txt /srv/x\n", json_too=True)
    assert failed.returncode == 1 and "nobody-of-that-name" in json.loads(failed.stdout)["error"]["output"]


def test_a_step_that_fails_is_said_and_leaves_nothing(cay, build):
    failed = build("FROM host\n\nRUN echo to see; printf '\\033[31mred' >&2; exit 7\n", json_too=True)
    error = json.loads(failed.stdout)["error"]
    assert (failed.returncode, error["line"], error["exitCode"]) == (1, 3, 7)
    assert "to see\n" in error["output"] and "ended with status 7" in error["message"]
    shown = build("FROM host\nRUN printf '\\033[31mred'; exit 7\n")
    assert "    | ?[31mred\n" in shown.stderr and "\x1b" not in shown.stderr
    assert builds(cay) == [] and named(cay, "built") == []


def test_nothing_from_outside_of_the_folder_is_copied(cay, build, tmp_path):
    """A name or a link that leaves it is refused before there is a sandbox; a link within a folder stays a link."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "link").symlink_to("/etc/hostname")
    (tmp_path / "tools/link").symlink_to("/etc/machine-id")
    for name in ("link", "../" + tmp_path.name + "/one.txt", "tools/../../x"):
        failed = build(f"FROM host\nCOPY {name} /srv/x\n")
        assert failed.returncode == 1 and "line 2, COPY" in failed.stderr and "leads out" in failed.stderr
        assert "[1/2]" not in failed.stderr
    made = build("FROM host\nCOPY tools /srv/x\nRUN readlink /srv/x/link && exit 9\n", json_too=True)
    assert json.loads(made.stdout)["error"]["output"] == "/etc/machine-id\n"


def test_a_signal_ends_the_build_and_its_sandbox(cay, build):
    child = build("FROM host\nRUN sleep 1000\n", wait=False)
    until(lambda: any("RUN sleep" in line for line in iter(child.stderr.readline, "")), what="the step begins")
    child.send_signal(signal.SIGINT)
    assert child.wait(60) in (1, -signal.SIGINT)  # while the step runs, or between two
    until(lambda: builds(cay) == [], what="its sandbox is gone")
    assert named(cay, "built") == []
