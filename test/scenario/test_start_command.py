"""The start command of a sandbox's files: it runs before the create is answered, in every sandbox made of a snapshot, and
again when files that were kept boot; a fault of it is said, and costs the sandbox nothing."""

import json

import pytest
from test_pause_files import needs_a_disk, pause_files, resume  # noqa: F401 (a fixture)
from test_snapshot import delete, snapshot
from waitlib import until

FILE = "/etc/cay/start.json"
PORT = 8123
SERVER = "exec python3 -m http.server --bind 127.0.0.1 --directory /srv 8123"


def put(box, text):
    assert box.run("mkdir -p /etc/cay /srv; chown -R user /etc/cay /srv", user="root").exit_code == 0
    assert box.write(FILE, text if isinstance(text, bytes) else json.dumps(text).encode()).status == 200


@pytest.fixture
def template(cay):
    """A snapshot with what put() was given, by the name that it returns."""
    made = []

    def make(text, prepare=""):
        with cay.create() as box:
            put(box, text)
            assert box.run(prepare or "true", user="root").exit_code == 0
            made.append(snapshot(cay, box)["snapshotID"])
        return made[-1]

    yield make
    for one in made:
        delete(cay, one)


def says(cay, box):
    lines = cay.call("GET", f"/v2/sandboxes/{box.id}/logs").json["logs"]
    return [line["message"] for line in lines if FILE in line["message"]]


def test_it_listens_when_the_create_is_answered(cay, template):
    name = template({"cmd": f'echo "$A $USER $PWD" > /srv/said; {SERVER}', "user": "user", "cwd": "/srv", "port": PORT})
    for value in ("one", "two"):
        with cay.create(template=name, envVars={"A": value}) as box:
            answer = box.request("GET", "/said", port=PORT)
            assert (answer.status, answer.body) == (200, f"{value} user /srv\n".encode())
            assert says(cay, box) == []
            assert box.run("pgrep -fc '[h]ttp.server'").out == "1\n"
            assert cay.call("POST", f"/sandboxes/{box.id}/pause", {"memory": True}).status == 204
            assert resume(cay, box).status == 201
            assert box.run("pgrep -fc '[h]ttp.server'").out == "1\n"  # its memory was kept: the same goes on


def test_it_runs_again_when_kept_files_boot(cay, template):
    with cay.create(template=template({"cmd": SERVER, "port": PORT}, "echo here > /srv/file")) as box:
        for _ in range(2):
            assert box.request("GET", "/file", port=PORT).body == b"here\n"
            assert pause_files(cay, box) == 204
            assert resume(cay, box).status == 201
        assert box.request("GET", "/file", port=PORT).body == b"here\n"


@pytest.mark.parametrize(("text", "prepare", "said"), [
    (b"{", "", "JSON"),
    (b"[]", "", "object"),
    ({"cmd": 7}, "", "cmd"),
    ({"port": 80}, "", "cmd"),
    ({"cmd": "true", "port": 65536}, "", "port"),
    ({"cmd": "true", "user": "nobody-here"}, "", "nobody-here"),
    ({"cmd": "true", "cwd": "tmp"}, "", "cwd"),
    (b"x" * 65537, "", "not a file"),
    (b"", f"rm {FILE}; mkfifo {FILE}", "not a file"),
    (b"", f"rm {FILE}; ln -s /dev/zero {FILE}", "not a file"),
    (b"", f"rm {FILE}; mkdir {FILE}", "not a file"),
], ids=["cut", "list", "no-text", "no-cmd", "port", "user", "cwd", "long", "fifo", "link", "folder"])
def test_what_is_broken_is_said(cay, template, text, prepare, said):
    with cay.create(template=template(text, prepare)) as box:
        assert box.run("echo here").out == "here\n"
        (line,) = says(cay, box)
        assert said in line


def test_a_command_without_a_port_is_not_waited_for(cay, template):
    with cay.create(template=template({"cmd": "sleep 1000"})) as box:
        until(lambda: box.run("pgrep -fc '^sleep [1]000'").out == "1\n", what="it runs")
        assert says(cay, box) == []


@pytest.mark.parametrize(("cmd", "more", "said"), [
    ("for n in $(seq 200); do echo \"line $n\"; done; printf 'caf\\303\\251: no libuv\\n' >&2; exit 127", {},
     f"it ended (exit status 127) before its port {PORT} listened: "),
    ("kill -9 $$", {}, f"it ended (signal: killed) before its port {PORT} listened"),
    ("exit 0", {}, f"it ended (exit status 0) before its port {PORT} listened"),
    (SERVER, {"cwd": "/nonexistent"}, "it could not be started: No such file or directory"),
], ids=["status", "signal", "nothing-left", "cwd"])
def test_a_command_that_ends_refuses_the_create(cay, template, cmd, more, said):
    name = template({"cmd": cmd, "port": PORT, **more})
    before = {one["sandboxID"] for one in cay.call("GET", "/v2/sandboxes").json}
    answer = cay.call("POST", "/sandboxes", {"templateID": name})
    assert answer.status == 409 and said in answer.json["message"]
    assert "127" not in said or answer.json["message"].count("line 200 caf\u00e9: no libuv") == 1
    assert {one["sandboxID"] for one in cay.call("GET", "/v2/sandboxes").json} <= before


def test_a_command_that_leaves_a_daemon_is_waited_for(cay, template):
    daemon = f"(sleep 0.3; {SERVER}) >/dev/null 2>&1 & exit 0"
    with cay.create(template=template({"cmd": daemon, "port": PORT}, "echo here > /srv/file")) as box:
        assert box.request("GET", "/file", port=PORT).body == b"here\n"


def test_a_resume_is_not_refused_for_it(cay, template):
    """Its files are the sandbox's own: they would be out of reach."""
    with cay.create(template=template({"cmd": SERVER, "port": PORT})) as box:
        put(box, {"cmd": "echo broken; exit 3", "port": PORT})
        assert pause_files(cay, box) == 204
        assert resume(cay, box).status == 201
        assert box.run("echo here").out == "here\n"
        (line,) = says(cay, box)
        assert "exit status 3" in line and "broken" in line


def test_a_port_that_stays_closed_is_said(cay, template):
    with cay.create(template=template({"cmd": "sleep 1000", "port": PORT})) as box:
        assert box.run("echo here").out == "here\n"
        (line,) = says(cay, box)
        assert "does not listen" in line
