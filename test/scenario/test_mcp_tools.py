"""The tools of the Model Context Protocol, each against a real sandbox, and what an agent is told when one fails."""

import base64
import concurrent.futures
import json
import socket

import pytest

from mcplib import PREFIX, STATELESS, Mcp, events
from waitlib import until

TOOLS = ["create", "run", "read", "write", "list", "edit", "search", "expose", "pause", "resume", "kill"]
SHOWN, KEPT = 32768, 1 << 20


@pytest.fixture(scope="module")
def mcp(cay):
    """A single session, and so one sandbox, for what does not spoil it."""
    with Mcp(cay) as session:
        yield session


@pytest.fixture
def fresh(cay):
    with Mcp(cay) as session:
        yield session


def text_of(answer):
    return answer.result["content"][-1]["text"]


# -- what is shown -----------------------------------------------------------------------------------


def test_each_tool_says_what_it_takes_and_gives(mcp):
    tools = mcp.request("tools/list").result["tools"]
    assert [tool["name"] for tool in tools] == TOOLS
    for tool in tools:
        assert tool["title"] and len(tool["description"]) > 20
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            assert schema["type"] == "object" and schema["additionalProperties"] is False
            assert set(schema["required"]) <= set(schema["properties"])
            assert all(member["description"] for member in schema["properties"].values())
        assert set(tool["annotations"]) == {"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    hints = {tool["name"]: tool["annotations"] for tool in tools}
    assert [name for name in TOOLS if hints[name]["readOnlyHint"]] == ["read", "list", "search", "expose"]
    assert [name for name in TOOLS if hints[name]["destructiveHint"]] == ["run", "write", "edit", "kill"]


def test_without_sessions_a_sandbox_has_to_be_named(cay, mcp):
    named = {tool["name"]: "sandbox" in tool["inputSchema"]["required"]
             for tool in Mcp(cay, STATELESS).request("tools/list").result["tools"]}
    assert named == {name: name != "create" for name in TOOLS}
    assert not any("sandbox" in tool["inputSchema"]["required"] for tool in mcp.request("tools/list").result["tools"])


@pytest.mark.parametrize("name, arguments, word", [
    ("run", {}, "command"), ("run", {"command": 7}, "command"), ("run", {"command": "true", "time_out": 1}, "time_out"),
    ("run", {"command": "true", "timeout": 0}, "timeout"), ("run", {"command": "true", "timeout": 3601}, "timeout"),
    ("run", {"command": "true", "env": {"A": 1}}, "env"), ("run", {"command": "true", "env": ["A"]}, "env"),
    ("run", {"command": "x" * 131073}, "command"), ("read", {"path": "x", "offset": -1}, "offset"),
    ("read", {"path": "x", "max_bytes": 262145}, "max_bytes"), ("read", {"path": "x", "encoding": "latin1"}, "encoding"),
    ("write", {"path": "x"}, "content"), ("search", {"by": "size", "pattern": "x"}, "by"),
    ("expose", {"port": 65536}, "port"), ("list", {"depth": 33}, "depth"), ("create", {"network": "all"}, "network"),
    ("edit", {"path": "x", "old": "", "new": ""}, "old"), ("kill", {"sandbox": 7}, "sandbox"),
])
def test_arguments_that_are_wrong(mcp, name, arguments, word):
    """The model is told, so that it can correct itself: a result, not an error of the protocol."""
    assert f'"{word}"' in mcp.refused(name, **arguments)


def test_an_unknown_argument_is_answered_with_those_there_are(mcp):
    said = mcp.refused("run", cmd="true")
    assert '"cmd" here; there are: ' in said and " command, " in said, said


# -- run ---------------------------------------------------------------------------------------------


def test_run(mcp):
    got = mcp.tool("run", command="echo out; echo err >&2; exit 42")
    assert got | {"duration_ms": 0} == {
        "sandbox": got["sandbox"], "exit_code": 42, "signal": None, "reason": None, "timed_out": False, "duration_ms": 0, "stdout": "out\n",
        "stderr": "err\n", "stdout_bytes": 4, "stderr_bytes": 4, "truncated": False, "denied": []}


def test_the_text_says_the_same(mcp):
    assert text_of(mcp.call("run", command="echo out; echo err >&2; exit 42")) == (
        "exit code 42\n--- stdout ---\nout\n--- stderr ---\nerr\n")


def test_run_with_all_that_it_takes(mcp):
    got = mcp.tool("run", command='echo "$A $(whoami) $(pwd)"; cat', user="root", cwd="/tmp", env={"A": "b c"}, stdin="text \u00fc")
    assert got["stdout"] == "b c root /tmp\ntext \u00fc"


def test_files_are_touched_with_the_rights_of_a_command(fresh):
    """Whatever leads to it: a link that a program laid does not open what is root's. The controls: root reads it, and the
    user's own are read and written."""
    fresh.tool("run", command="echo mine > /root/secret; chmod 600 /root/secret; chmod 755 /root; mkdir -m 700 /root/closed", user="root")
    fresh.tool("run", command="ln -s /root/secret link; ln -s /root/closed folder; ln -s /etc/profile.d/made.sh to-be")
    hint = '"run", with "user"'
    for path in "/root/secret", "link", "/etc/shadow":
        assert hint in fresh.refused("read", path=path), path
        assert hint in fresh.refused("edit", path=path, old="mine", new="yours"), path
        assert hint in fresh.refused("write", path=path, content="yours"), path
    for path in "to-be", "/etc/made", "folder/made":
        assert hint in fresh.refused("write", path=path, content="yours"), path
    for path in "/root/closed", "folder":
        assert hint in fresh.refused("list", path=path), path
    sandbox = fresh.tool("list")["sandbox"]
    refused = fresh.request("resources/read", {"uri": f"cay://{sandbox}/root/secret"})
    assert "may not read it" in refused.error["message"]
    assert fresh.tool("run", command="cat /root/secret; ls /etc/profile.d/made.sh /etc/made; ls /root/closed", user="root")["stdout"] == "mine\n"
    fresh.tool("write", path="own", content="a")
    fresh.tool("edit", path="own", old="a", new="b")
    assert fresh.tool("read", path="own")["content"] == "b"
    assert fresh.tool("run", command="id -un; stat -c %U own")["stdout"] == "user\nuser\n"


def test_a_long_output_goes_where_the_commands_user_may_write(fresh):
    """A folder of root's in its place takes none; the result says that it is not kept."""
    fresh.tool("run", command="rm -rf /tmp/cay-output; mkdir -m 700 /root/out; ln -s /root/out /tmp/cay-output", user="root")
    assert "stdout_file" not in fresh.tool("run", command="seq 100000")
    assert fresh.tool("run", command="ls /root/out", user="root")["stdout"] == ""


def test_files_stay_and_variables_do_not(mcp):
    mcp.tool("run", command="A=1; cd /tmp; echo kept > ~/kept")
    assert mcp.tool("run", command='echo "[$A] $(pwd)"; cat kept')["stdout"] == "[] /home/user\nkept\n"


def test_a_command_that_takes_too_long(mcp):
    got = mcp.tool("run", command="sleep 300", timeout=1)
    assert got["timed_out"] and got["exit_code"] is None
    assert "timeout" in text_of(mcp.call("run", command="sleep 300", timeout=1))


def test_a_command_that_is_killed(mcp):
    got = mcp.tool("run", command="kill -KILL $$")
    assert got["signal"] == "SIGKILL" and got["exit_code"] is None


def test_a_user_and_a_directory_that_are_not_there(mcp):
    assert "nosuch" in mcp.refused("run", command="true", user="nosuch")
    assert "/no/such" in mcp.refused("run", command="true", cwd="/no/such")


def test_output_that_is_no_text(mcp):
    got = mcp.tool("run", command=r"printf '\xff\xfe\0x'")
    assert got["stdout"] == "\ufffd\ufffd\0x" and got["stdout_bytes"] == 4


def test_a_long_output_is_read_on_from_its_file(mcp):
    got = mcp.tool("run", command="seq 100000; seq 9 >&2")
    whole = "".join(f"{n}\n" for n in range(1, 100001))
    assert got["stdout"] == whole[:SHOWN] and got["stdout_bytes"] == len(whole) and not got["truncated"]
    assert "stderr_file" not in got
    text, offset = got["stdout"], got["stdout_next_offset"]
    while offset is not None:
        piece = mcp.tool("read", path=got["stdout_file"], offset=offset, max_bytes=262144)
        text, offset = text + piece["content"], piece.get("next_offset")
    assert text == whole


def test_an_output_is_not_cut_within_a_character(mcp):
    got = mcp.tool("run", command="printf '\u00e4%.0s' $(seq 100)", max_bytes=33)
    assert got["stdout"] == "\u00e4" * 16 and got["stdout_next_offset"] == 32


def test_more_output_than_is_kept(mcp):
    got = mcp.tool("run", command=f"head -c {2 * KEPT} /dev/zero | tr '\\0' x", max_bytes=10)
    assert got["truncated"] and got["stdout"] == "x" * 10 and got["stdout_bytes"] == 2 * KEPT
    assert mcp.tool("read", path=got["stdout_file"], offset=KEPT - 1)["content"] == "x"
    assert "next_offset" not in mcp.tool("read", path=got["stdout_file"], offset=KEPT - 1)


@pytest.mark.parametrize("byte", ["\\000", "\\001", "\\377", '"', "x"])
def test_the_longest_outputs_of_any_bytes_are_answered(mcp, byte):
    """Both of as many bytes as can be asked for: encoded, they have to fit into the answer, and all of them can be read."""
    one = f"head -c 262144 /dev/zero | tr '\\000' '{byte}'"
    got = mcp.tool("run", command=f"{one}; {{ {one}; }} >&2", max_bytes=262144)
    shown = 131072 if byte in ("\\000", "\\001") else 262144
    text = {"\\000": "\0", "\\001": "\1", "\\377": "\ufffd"}.get(byte, byte)
    for name in ("stdout", "stderr"):
        assert got[name] == text * shown and got[f"{name}_bytes"] == 262144
        assert got.get(f"{name}_next_offset") == (None if shown == 262144 else shown)
        if shown < 262144:
            rest = mcp.tool("read", path=got[f"{name}_file"], offset=shown, max_bytes=262144)
            assert rest["bytes"] == 262144 - shown and rest["size"] == 262144


# -- progress and cancellation -----------------------------------------------------------------------


def test_progress(mcp):
    answer = mcp.call("run", {"progressToken": "t\u00f6"}, command="for i in 1 2 3 4; do echo line $i; sleep 0.3; done")
    told = [m["params"] for m in answer.messages[:-1]]
    assert len(told) >= 3 and all(p["progressToken"] == "t\u00f6" for p in told)
    numbers = [p["progress"] for p in told]
    assert numbers == sorted(set(numbers)) and any(p["message"].startswith("line") for p in told)
    assert answer.result["structuredContent"]["stdout"].count("line") == 4


def test_a_token_of_progress_is_a_short_text_or_a_whole_number(mcp):
    for token in ("t" * 256, "", 7, -1, None):
        assert mcp.call("run", {"progressToken": token}, command="echo a").result["structuredContent"]["stdout"] == "a\n"
    for token in ("t" * 257, "t" * 900_000, 1.5, True, [], {"a": 1}):
        answer = mcp.call("run", {"progressToken": token}, command="touch ran")
        assert answer.error["code"] == -32602 and "progressToken" in answer.error["message"], answer.last
    assert "ran" not in mcp.tool("run", command="ls")["stdout"].split()


def test_a_client_that_is_slow_has_its_answer(mcp):
    """It does not read while progress is told. Progress may be left out, the answer, of 3 MiB, is not."""
    mark = "done-slow"
    zeros = "head -c 262144 /dev/zero"
    command = f"for i in $(seq 12); do echo line $i; sleep 0.3; done; {zeros}; {zeros} >&2; touch {mark}"
    params = {"name": "run", "arguments": {"command": command, "max_bytes": 262144}}
    message = mcp.body("tools/call", params, 79, {"progressToken": "t" * 256})
    connection = mcp.client.connect()
    connection.connect()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.request("POST", "/mcp", json.dumps(message).encode(), {"X-API-Key": mcp.client.key, **mcp.headers()})
    answer = connection.getresponse()
    until(lambda: mark in mcp.tool("run", command="ls")["stdout"].split(), patient=True)
    last = events(answer.read())[-1]
    connection.close()
    got = last["result"]["structuredContent"]
    assert last["id"] == 79 and got["stdout"].count("line") == 12 and got["stderr"] == "\0" * 131072


def test_without_a_token_there_is_no_progress(mcp):
    assert len(mcp.call("run", command="echo a; sleep 0.4; echo b").messages) == 1


def test_a_client_that_takes_no_stream(mcp):
    headers = {**mcp.headers(), "Accept": "application/json"}
    answer = mcp.send(mcp.body("tools/call", {"name": "run", "arguments": {"command": "echo a"}}, 1), headers)
    assert answer.headers["Content-Type"] == "application/json" and answer.result["structuredContent"]["stdout"] == "a\n"


def running(mcp, mark, sandbox):
    """Is a process of that mark there? Asked in another call."""
    return mcp.tool("run", command=f"pgrep -f '[{mark[0]}]{mark[1:]}' || true", sandbox=sandbox)["stdout"] != ""


@pytest.mark.parametrize("revision, how", [("2025-06-18", "notification"), ("2025-06-18", "close"), (STATELESS, "close")])
def test_a_cancelled_command_is_killed(cay, revision, how):
    """With all that it started. A control: while it is not cancelled it runs."""
    client, watcher = Mcp(cay, revision), Mcp(cay, STATELESS)
    box = client.tool("create")["sandbox"]
    try:
        mark = f"marker-{how}"
        command = f"(setsid bash -c 'exec -a {mark} sleep 300' &) ; bash -c 'exec -a {mark} sleep 300'; true"
        connection, answer = client.begin("tools/call", {"name": "run", "arguments": {"command": command, "sandbox": box}}, 77)
        until(lambda: running(watcher, mark, box))
        if how == "close":
            answer.close()
            connection.close()
        else:
            assert client.notify("notifications/cancelled", {"requestId": 77}).status == 202
            assert b"result" not in answer.read()
        until(lambda: not running(watcher, mark, box))
    finally:
        watcher.tool("kill", sandbox=box)
        client.close()


def test_only_the_request_that_is_named_is_cancelled(mcp):
    connection, answer = mcp.begin("tools/call", {"name": "run", "arguments": {"command": "sleep 1; echo done"}}, 78)
    for id in ("78", 79, None, {}):
        mcp.notify("notifications/cancelled", {"requestId": id})
    assert b"done" in answer.read()
    connection.close()


# -- files -------------------------------------------------------------------------------------------

NAMES = ["plain.txt", "with space.txt", "quote'\".txt", "new\nline.txt", "\u00fcml\u00e4ut.txt", "100%25.txt", "a+b&c=d?#.txt", "-rf"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_files(mcp, name):
    path = f"names/{name}"
    assert mcp.tool("write", path=path, content="one\ntwo\n")["size"] == 8
    assert mcp.tool("read", path=path)["content"] == "one\ntwo\n"
    assert mcp.tool("edit", path=path, old="two", new="three")["replaced"] == 1
    assert mcp.tool("run", command='cat -- "$P"', env={"P": path})["stdout"] == "one\nthree\n"
    assert f"/home/user/{path}" in [e["path"] for e in mcp.tool("list", path="names")["entries"]]


def test_bytes(mcp):
    data = bytes(range(256))
    sent = base64.b64encode(data).decode()
    assert mcp.tool("write", path="bytes", content=sent, encoding="base64")["size"] == 256
    got = mcp.tool("read", path="bytes")
    assert got["encoding"] == "base64" and base64.b64decode(got["content"]) == data
    assert "base64" in mcp.refused("write", path="bytes", content="###", encoding="base64")


def test_a_file_in_pieces(mcp):
    text = "\u00e4b\n" * 20000
    mcp.tool("write", path="long", content=text)
    got, offset, pieces = "", 0, 0
    while offset is not None:
        piece = mcp.tool("read", path="long", offset=offset, max_bytes=7777)
        assert piece["size"] == 80000 and piece["offset"] == offset and piece["bytes"] <= 7777
        got, offset, pieces = got + piece["content"], piece.get("next_offset"), pieces + 1
    assert got == text and pieces == 11
    assert mcp.tool("read", path="long", offset=80000)["content"] == ""
    assert mcp.tool("read", path="long", offset=10 ** 12)["content"] == ""


def test_a_file_whose_size_is_not_known(mcp):
    got = mcp.tool("read", path="/proc/meminfo")
    assert "MemTotal:" in got["content"] and got["size"] == got["bytes"]


def test_an_image_is_shown_as_one(mcp):
    png = b"\x89PNG\r\n\x1a\n" + bytes(100)
    mcp.tool("write", path="a.png", content=base64.b64encode(png).decode(), encoding="base64")
    image = mcp.call("read", path="a.png").result["content"][0]
    assert image["type"] == "image" and image["mimeType"] == "image/png" and base64.b64decode(image["data"]) == png


def test_an_empty_file(mcp):
    mcp.tool("write", path="empty", content="")
    assert mcp.tool("read", path="empty")["content"] == "" and mcp.tool("read", path="empty")["size"] == 0
    assert "does not stand" in mcp.refused("edit", path="empty", old="a", new="b")


def test_files_that_cannot_be_read_or_written(mcp):
    assert "nothing" in mcp.refused("read", path="nothing")
    assert "directory" in mcp.refused("read", path="/etc")
    assert "/proc/x" in mcp.refused("write", path="/proc/x", content="a")
    assert "/no" in mcp.refused("list", path="/no")
    assert "no file" in mcp.refused("edit", path="/etc", old="a", new="b")


def test_edit(mcp):
    mcp.tool("write", path="edit", content="aXbXc")
    mcp.tool("run", command="chmod 750 edit")
    assert "2 times" in mcp.refused("edit", path="edit", old="X", new="Y")
    assert "does not stand" in mcp.refused("edit", path="edit", old="x", new="Y")
    assert mcp.tool("edit", path="edit", old="X", new="--", all=True) | {"sandbox": ""} == {
        "sandbox": "", "path": "edit", "replaced": 2, "size": 7}
    assert mcp.tool("edit", path="edit", old="a--", new="")["size"] == 4
    assert mcp.tool("run", command="cat edit; stat -c ' %a' edit")["stdout"] == "b--c 750\n"


def test_an_edit_of_bytes_that_are_no_text(mcp):
    mcp.tool("run", command=r"printf 'a\xffb\0c' > binary")
    mcp.tool("edit", path="binary", old="b", new="BB")
    assert mcp.tool("run", command="od -An -tx1 binary")["stdout"].split() == ["61", "ff", "42", "42", "00", "63"]


def test_an_edit_that_is_too_large(mcp):
    mcp.tool("run", command=f"head -c {KEPT + 1} /dev/zero > large; yes | head -c 300000 > ys")
    assert "1048576" in mcp.refused("edit", path="large", old="a", new="b")
    assert "1048576" in mcp.refused("edit", path="ys", old="y", new="y" * 100, all=True)


def test_list_in_pages(mcp):
    mcp.tool("run", command="mkdir -p pages/sub && cd pages && touch $(seq -f f%04g 450) && ln -s f0001 sub/link && mkfifo sub/pipe")
    names, offset, sizes = [], 0, []
    while offset is not None:
        page = mcp.tool("list", path="pages", offset=offset)
        names += [entry["path"].rpartition("/")[2] for entry in page["entries"]]
        sizes.append(len(page["entries"]))
        offset = page.get("next_offset")
    assert sizes == [200, 200, 51] and names == [f"f{n:04}" for n in range(1, 451)] + ["sub"]
    kinds = {e["path"].rpartition("/")[2]: e["type"] for e in mcp.tool("list", path="pages", depth=2, offset=450)["entries"]}
    assert kinds == {"sub": "directory", "link": "symlink", "pipe": "other"}
    assert mcp.tool("list", path="pages", offset=10 ** 6)["entries"] == []


def test_search(mcp):
    mcp.tool("run", command=r"""mkdir -p s/a s/sys && cd s && printf 'Alpha\nbeta 1\n' > a/x.c && printf 'alpha.\n' > y.py &&
        printf 'alpha\0' > bin && printf 'gamma\n' > sys/z.c && printf 'alpha\n' > $'new\nline'""")
    def found(**arguments):
        return sorted((m["path"], m.get("line"), m.get("text")) for m in mcp.tool("search", path="s", **arguments)["matches"])
    assert found(by="content", pattern="alpha") == [("s/new\nline", 1, "alpha"), ("s/y.py", 1, "alpha.")]
    assert ("s/a/x.c", 1, "Alpha") in found(by="content", pattern="ALPHA", ignore_case=True)
    assert found(by="content", pattern=r"^beta [0-9]$") == [("s/a/x.c", 2, "beta 1")]
    assert found(by="content", pattern="a.", literal=True) == [("s/y.py", 1, "alpha.")]
    assert found(by="content", pattern="a", include="*.c", literal=True) == [
        ("s/a/x.c", 1, "Alpha"), ("s/a/x.c", 2, "beta 1"), ("s/sys/z.c", 1, "gamma")]
    assert found(by="name", pattern="*.c") == [("s/a/x.c", None, None), ("s/sys/z.c", None, None)]
    assert found(by="name", pattern="X.C", ignore_case=True) == [("s/a/x.c", None, None)]
    assert found(by="content", pattern="nothing at all") == [] and found(by="name", pattern="nothing") == []


def test_search_in_pages(mcp):
    mcp.tool("run", command="mkdir -p many && cd many && seq 500 > numbers")
    first = mcp.tool("search", by="content", pattern="[0-9]", path="many", limit=300)
    rest = mcp.tool("search", by="content", pattern="[0-9]", path="many", limit=300, offset=first["next_offset"])
    assert [m["line"] for m in first["matches"] + rest["matches"]] == list(range(1, 501))
    assert first["total"] == rest["total"] == 500 and "next_offset" not in rest


@pytest.mark.parametrize("pattern", ["--help", "-f/etc/passwd", "$(touch /tmp/was-run)", "; touch /tmp/was-run"])
def test_a_pattern_is_no_command(mcp, pattern):
    for by in ("content", "name"):
        assert mcp.tool("search", by=by, pattern=pattern, path="names")["matches"] == []
    assert "was-run" not in mcp.tool("run", command="ls /tmp")["stdout"]


def test_searches_that_cannot_be(mcp):
    assert "grep" in mcp.refused("search", by="content", pattern="(")
    assert "No such" in mcp.refused("search", by="content", pattern="x", path="/no/such")
    assert "No such" in mcp.refused("search", by="name", pattern="x", path="-delete")


# -- sandboxes ---------------------------------------------------------------------------------------


def test_a_session_has_one_sandbox(fresh):
    box = fresh.tool("run", command="echo 1 > f")["sandbox"]
    assert fresh.tool("read", path="f")["sandbox"] == fresh.tool("list")["sandbox"] == box
    with Mcp(fresh.client) as other:
        assert "f" in other.refused("read", path="f") and other.tool("run", command="true")["sandbox"] != box


def test_first_calls_at_once_have_the_same(fresh):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        boxes = {got["sandbox"] for got in pool.map(lambda n: fresh.tool("run", command=f"echo {n}"), range(8))}
    assert len(boxes) == 1


def test_a_session_whose_sandbox_has_ended_is_told(fresh, cay):
    first = fresh.tool("run", command="true")["sandbox"]
    assert cay.call("DELETE", f"/sandboxes/{first}").status == 204
    answer = fresh.call("run", command="true")
    assert "had ended" in answer.result["content"][0]["text"] and answer.result["structuredContent"]["sandbox"] != first


def test_pause_and_resume(fresh, cay):
    def state(box):
        return cay.call("GET", f"/sandboxes/{box}").json["state"]
    box = fresh.tool("run", command="(sleep 300 >/dev/null 2>&1 &); echo $! > f")["sandbox"]
    assert fresh.tool("pause") == {"sandbox": box, "state": "paused"} and state(box) == "paused"
    assert fresh.tool("pause")["state"] == "paused"
    assert fresh.tool("resume") == {"sandbox": box, "state": "running"} and state(box) == "running"
    assert fresh.tool("resume")["state"] == "running"
    fresh.tool("pause")
    assert fresh.tool("run", command="pgrep -c sleep")["stdout"] == "1\n" and state(box) == "running"
    fresh.tool("pause")
    assert fresh.tool("read", path="f")["sandbox"] == box


def test_kill(fresh, cay):
    box = fresh.tool("run", command="true")["sandbox"]
    assert fresh.tool("kill") == {"sandbox": box, "state": "killed"}
    assert cay.call("GET", f"/sandboxes/{box}").status == 404
    assert "no sandbox" in fresh.refused("kill", sandbox=box)
    assert "no sandbox yet" in fresh.refused("pause")


def test_create_in_a_session(fresh):
    first = fresh.tool("create", env={"A": "of the sandbox"})
    assert first["network"] == "deny" and first["template"]
    assert fresh.tool("run", command="echo $A") | {"duration_ms": 0} | first == fresh.tool("run", command="echo $A") | {"duration_ms": 0} | first
    assert fresh.tool("run", command="echo $A")["stdout"] == "of the sandbox\n"
    assert "nosuch" in fresh.refused("create", template="nosuch")


def test_without_sessions(cay):
    client = Mcp(cay, STATELESS)
    assert "create" in client.refused("run", command="true")
    box = client.tool("create")["sandbox"]
    assert client.tool("run", command="echo 1", sandbox=box)["stdout"] == "1\n"
    result = client.call("kill", sandbox=box).result
    assert result["resultType"] == "complete" and result["_meta"][PREFIX + "serverInfo"]["name"] == "cay"
    assert "ended" in client.refused("run", command="true", sandbox=box)


def test_the_sandbox_of_another_tenant(mcp, other_tenant):
    box = mcp.tool("run", command="true")["sandbox"]
    with Mcp(other_tenant) as theirs:
        for name, more in (("run", {"command": "true"}), ("read", {"path": "/etc/passwd"}), ("write", {"path": "x", "content": ""}),
                           ("list", {}), ("edit", {"path": "x", "old": "a", "new": "b"}), ("search", {"by": "name", "pattern": "x"}),
                           ("expose", {"port": 1}), ("pause", {}), ("resume", {}), ("kill", {})):
            assert f'no sandbox "{box}"' in theirs.refused(name, sandbox=box, **more)
        assert theirs.request("resources/read", {"uri": f"cay://{box}/etc/passwd"}).error["code"] == -32602
        assert box not in json.dumps(theirs.request("resources/list").result)
    assert mcp.tool("run", command="echo alive")["stdout"] == "alive\n"


def test_expose(mcp, cay):
    mcp.tool("run", command="mkdir -p www; cd www; echo served > index.html; "
                            "nohup python3 -m http.server 8123 --bind 127.0.0.1 >/tmp/log 2>&1 &")
    url = mcp.tool("expose", port=8123)["url"]
    host = url.split("//")[1]
    assert host.startswith("8123-" + mcp.tool("run", command="true")["sandbox"] + ".")
    until(lambda: cay.call("GET", "/", headers={"Host": host}, key=False).body == b"served\n")


# -- what the owner of a connection sets -------------------------------------------------------------


def test_rights(cay):
    reader = Mcp(cay, STATELESS, {"X-Cay-Rights": "read, manage"})
    listed = reader.request("tools/list").result
    assert [t["name"] for t in listed["tools"]] == ["create", "read", "list", "search", "pause", "resume", "kill"]
    assert listed["cacheScope"] == "private"
    box = reader.tool("create")["sandbox"]
    assert "no right" in reader.refused("run", command="true", sandbox=box)
    assert "no right" in reader.refused("write", path="x", content="", sandbox=box)
    assert reader.tool("list", sandbox=box)["entries"]
    executor = Mcp(cay, STATELESS, {"X-Cay-Rights": "execute"})
    assert executor.request("resources/list").error["code"] == -32600
    assert executor.tool("run", command="true", sandbox=box)["exit_code"] == 0
    assert Mcp(cay, STATELESS, {"X-Cay-Rights": ""}).request("tools/list").result["tools"] == []
    reader.tool("kill", sandbox=box)


def test_the_network_that_a_sandbox_may_have(cay):
    """An agent can ask for less than its owner set, and not for more."""
    def policy(owner, asked=None):
        with Mcp(cay, headers={"X-Cay-Policy": owner} if owner else {}) as client:
            made = client.tool("create", **({"network": asked} if asked else {}))
            stored = cay.call("GET", f"/cay/v1/sandboxes/{made['sandbox']}/policy").json
            assert stored["default"] == made["network"]
            return made["network"]
    assert policy(None) == policy("deny") == policy(None, "public") == policy("deny", "allow") == "deny"
    assert policy("public") == policy("public", "allow") == policy("allow", "public") == "public"
    assert policy("public", "deny") == "deny"


@pytest.mark.parametrize("revision", [None, STATELESS])
def test_a_model_leaves_through_no_other_connections_sandbox(cay, revision):
    """Where the owner has said what its sandboxes may reach. The controls: without X-Cay-Policy each can be named, with it those
    that reach no more."""
    def connect(policy):
        headers = {"X-Cay-Policy": policy} if policy else {}
        return Mcp(cay, revision, headers) if revision else Mcp(cay, headers=headers)

    def sees(client, box):
        reply = client.request("tools/call", {"name": "run", "arguments": {"sandbox": box, "command": "echo here"}}).result
        listed = {r["uri"] for r in client.request("resources/list").result["resources"]}
        read = "result" in client.request("resources/read", {"uri": f"cay://{box}/etc/hostname"}).last
        assert (not reply.get("isError")) == (f"cay://{box}/" in listed) == read, (reply, listed, read)
        return read

    with connect("public") as wide, connect("deny") as narrow, connect(None) as free, connect("allow") as widest:
        open_one, closed_one = (client.tool("create")["sandbox"] for client in (wide, narrow))
        assert not sees(narrow, open_one) and sees(narrow, closed_one)
        assert sees(wide, open_one) and sees(wide, closed_one) and sees(free, open_one) and sees(widest, open_one)
        kill = narrow.request("tools/call", {"name": "kill", "arguments": {"sandbox": open_one}}).result
        assert kill["isError"] and "that reaches no more" in kill["content"][0]["text"]
        for box in (open_one, closed_one):
            free.tool("kill", sandbox=box)


def test_a_model_starts_from_no_other_template(cay):
    with Mcp(cay, headers={"X-Cay-Template": "host"}) as client:
        reply = client.request("tools/call", {"name": "create", "arguments": {"template": "base"}}).result
        assert reply["isError"] and "X-Cay-Template" in reply["content"][0]["text"]
        assert client.tool("create", template="host")["template"] == "host"


# -- resources ---------------------------------------------------------------------------------------


def test_resources(mcp):
    box = mcp.tool("write", path="res ource.txt", content="text \u00fc")["sandbox"]
    listed = {r["uri"]: r for r in mcp.request("resources/list").result["resources"]}
    assert listed[f"cay://{box}/"]["mimeType"] == "inode/directory"
    uri = f"cay://{box}/home/user/res%20ource.txt"
    assert listed[uri]["name"] == "res ource.txt" and listed[uri]["size"] == 7
    (content,) = mcp.request("resources/read", {"uri": uri}).result["contents"]
    assert content == {"uri": uri, "mimeType": "text/plain", "text": "text \u00fc"}
    mcp.tool("run", command=r"printf '\xff\0' > blob")
    (content,) = mcp.request("resources/read", {"uri": f"cay://{box}/home/user/blob"}).result["contents"]
    assert base64.b64decode(content["blob"]) == b"\xff\0" and "text" not in content
    (content,) = mcp.request("resources/read", {"uri": f"cay://{box}/etc"}).result["contents"]
    assert "/etc/passwd" in content["text"].splitlines() and "/etc/ssl/" in content["text"].splitlines()
    (template,) = mcp.request("resources/templates/list").result["resourceTemplates"]
    assert template["uriTemplate"] == "cay://{sandbox}/{+path}"


@pytest.mark.parametrize("uri", ["cay://BOX", "cay://BOX/nothing", "cay://BOX/%00", "cay://BOX/%zz",
                                 "cay://BOX/x?y", "cay:///etc/passwd", "cay://" + "x" * 5000 + "/", "", "http://BOX/etc/passwd",
                                 "cay://BOX/home/user/large-resource"])
def test_resources_that_are_none(mcp, uri):
    box = mcp.tool("run", command=f"head -c {KEPT + 1} /dev/zero > large-resource")["sandbox"]
    answer = mcp.request("resources/read", {"uri": uri.replace("BOX", box)})
    assert (answer.status, answer.error["code"]) == (200, -32602)


def test_resources_without_sessions(cay):
    client = Mcp(cay, STATELESS)
    box = client.tool("create")["sandbox"]
    result = client.request("resources/list").result
    assert f"cay://{box}/" in [r["uri"] for r in result["resources"]] and result["cacheScope"] == "private"
    client.tool("pause", sandbox=box)
    read = client.request("resources/read", {"uri": f"cay://{box}/etc/passwd"}).result
    assert "root:" in read["contents"][0]["text"] and read["cacheScope"] == "private" and read["ttlMs"] == 0
    client.tool("kill", sandbox=box)
