"""The answers of Daytona's API and toolbox where a part is missing, and the calls that count as use: lists that are
not whole, codes of errors, terminals of a sandbox that does not run, and keys that may only read."""

import json
import time
import urllib.parse

import pytest
from test_toolbox import CONTROL, Box, Socket, parts_of

SESSIONS = "~/.daytona/sessions"


@pytest.fixture(scope="module")
def make(cay):
    made = []

    def one(**fields):
        reply = cay.call("POST", "/api/sandbox", {"snapshot": "host", **fields})
        assert reply.status == 200, reply.body
        made.append(reply.json["id"])
        return Box(cay, made[-1])

    yield one
    for id in made:
        cay.call("DELETE", f"/sandboxes/{id}")


@pytest.fixture(scope="module")
def box(make):
    return make()


# -- lists of sessions ----------------------------------------------------------------------------------


@pytest.fixture
def session(box):
    """A session whose folder the test fills; its list is whole before and after."""
    box.good("POST", "/process/session", {"sessionId": "lists"}, 201)
    assert [s["sessionId"] for s in box.good("GET", "/process/session")] == ["lists"]
    yield f"{SESSIONS}/lists"
    box.run(f"chmod -R u+rwx {SESSIONS}; rm -rf {SESSIONS}/lists/x")
    assert box.good("GET", "/process/session/lists")["commands"] == []
    box.good("DELETE", "/process/session/lists", status=204)


def test_a_list_of_sessions_that_is_over_its_time_is_no_list(box, session):
    assert box.run(f"mkdir {session}/x && echo true >{session}/x/cmd && mkfifo {session}/x/exit")["exitCode"] == 0
    for path, of in (("", "the sessions"), ("/lists", "the session's commands")):
        error = box.refused(408, "GET", f"/process/session{path}", code="REQUEST_TIMEOUT", why="took longer than 15 s")
        assert of in error["message"] and "delete sessions" in error["message"]


def test_a_list_of_sessions_that_is_cut_is_no_list(box, session):
    assert box.run(f"mkdir {session}/x && head -c 20000000 /dev/zero | tr '\\0' y >{session}/x/cmd")["exitCode"] == 0
    for path in ("", "/lists"):
        box.refused(413, "GET", f"/process/session{path}", why="longer than this server holds")


# -- codes of errors ------------------------------------------------------------------------------------


def test_a_folder_is_no_file_by_the_codes_of_either_contract(box):
    """INVALID_FILE_PATH is for the parts of an answer of many files. A whole answer has a code of the contract's list,
    and is JSON by its type too, which is what clients go by when they read an error."""
    box.run("mkdir -p folder; echo x >folder/file")
    error = box.refused(400, "GET", "/files/download", query={"path": "folder"}, code="BAD_REQUEST", why="points to a directory")
    assert error["path"].endswith("/files/download") and error["method"] == "GET"
    assert box.take("folder").headers["Content-Type"] == "application/json"
    assert box.take("folder/file").headers["Content-Type"] == "application/octet-stream"
    box.refused(400, "POST", "/files/bulk-download", {"paths": [""]}, code="BAD_REQUEST")
    parts = list(parts_of(box.call("POST", "/files/bulk-download", {"paths": ["folder", "folder/file"]})))
    assert json.loads(parts[0][1])["code"] == "INVALID_FILE_PATH" and parts[1][1] == b"x\n"


# -- terminals of what does not run ---------------------------------------------------------------------


def test_a_terminal_of_a_stopped_sandbox_says_why_and_what_to_do(cay, make):
    box = make()
    create = f"/api/toolbox/{box.id}/process/pty/create-connect?" + urllib.parse.urlencode({"id": "t"})
    connect = f"/api/toolbox/{box.id}/process/pty/t/connect"
    socket = Socket(cay, create, (CONTROL,))
    assert json.loads(socket.read())["status"] == "connected"
    for change, state in (("stop", "is stopped"), ("pause", "is paused")):
        assert cay.call("POST", f"/api/sandbox/{box.id}/{change}", b"").status == 200
        for path in (create, connect):
            socket = Socket(cay, path, (CONTROL,))
            assert socket.answer.status == 101 and socket.answer.headers["Sec-WebSocket-Protocol"] == CONTROL
            (message,), end = socket.rest()
            said = json.loads(message)
            assert said["type"] == "control" and said["status"] == "error"
            assert state in said["error"] and "start it first" in said["error"]
            assert end[0] == 1011 and "start it first" in end[1]  # Python's older SDK shows that alone
        box.refused(409, "GET", "/process/pty/create-connect?id=t", code="CONFLICT", why="start it first")
        box.refused(409, "POST", "/process/pty", {"id": "t"}, code="CONFLICT", why=state)
        assert cay.call("POST", f"/api/sandbox/{box.id}/start", b"").status == 200
    assert json.loads(Socket(cay, create, (CONTROL,)).read())["status"] == "connected"


def test_a_terminal_of_what_is_not_there_is_refused_by_its_status(cay, box, other_tenant):
    for id, key, status in ((box.id, other_tenant.key, 404), ("none", None, 404), (box.id, "e2b_" + "0" * 40, 401)):
        path = f"/api/toolbox/{id}/process/pty/create-connect?id=t"
        assert Socket(cay, path, (CONTROL,), key=key).answer.status == status


# -- use ------------------------------------------------------------------------------------------------


def test_who_may_only_read_keeps_no_sandbox_running(cay, make):
    """The end of one that stops when it is not used moves with each use, and is shown."""
    box = make(autoStopInterval=30)
    key = cay.call("POST", "/cay/v1/keys", {"tenant": "default", "label": "looks", "role": "read-only"}).json
    end = lambda: cay.call("GET", f"/sandboxes/{box.id}").json["endAt"]  # noqa: E731
    get = lambda key, path="": cay.call("GET", f"/api/sandbox/{box.id}{path}", None, {"Authorization": f"Bearer {key}"}, key=False)  # noqa: E731
    before = end()
    try:
        time.sleep(0.05)  # the end is shown in milliseconds
        for path in ("", "/toolbox-proxy-url", "/telemetry/metrics"):
            assert get(key["key"], path).status == 200, path
        assert end() == before
        assert get(cay.key).status == 200 and end() > before
    finally:
        cay.call("DELETE", f"/cay/v1/keys/{key['id']}")
