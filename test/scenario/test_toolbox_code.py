"""The toolbox's interpreter: Python that keeps its variables, as the SDKs' code_interpreter asks for it, over a WebSocket
of this test's own. The unmodified SDKs are in test/sdk."""

import base64
import json
import os
import select
import socket
import struct
import urllib.parse

import pytest
from test_toolbox import Box
from waitlib import until

CONTEXTS_MAX = 16
TIMEOUT, POLICY, NORMAL, FAILED = 4008, 1008, 1000, 1011
CONTEXT = "/process/interpreter/context"
FALSE_CONTEXT = b"""import os, socket
s = socket.socket(socket.AF_UNIX)
s.bind(f"\\0cay-interpreter-{os.getuid()}-taken")
s.listen()
print("listens", flush=True)
dense, sparse = (b'{"type":"stdout","text":"%s","more":[' % text + b",".join([b"[]"] * n) + b"]}"
                 for text, n in ((b"", 250000), (b"few", 1000)))
for said in b"no message", b'{"type": 1}', b"x" * (1 << 21), dense, sparse:
    with s.accept()[0] as c:
        c.recv(65536)
        try:
            c.sendall(said + b"\\n")
        except OSError:
            pass
"""


@pytest.fixture(scope="module")
def box(cay):
    reply = cay.call("POST", "/api/sandbox", {"snapshot": "host", "autoStopInterval": 60})
    assert reply.status == 200, reply.body
    yield Box(cay, reply.json["id"])
    cay.call("DELETE", f"/sandboxes/{reply.json['id']}")


class Execution:
    """A WebSocket to process/interpreter/execute: sent frames are masked, received ones are not and are never in fragments."""

    def __init__(self, box, **request):
        url = urllib.parse.urlsplit(box.cay.url)
        self.s = socket.create_connection((url.hostname, url.port), timeout=60)
        self.s.sendall((f"GET /api/toolbox/{box.id}/process/interpreter/execute HTTP/1.1\r\nHost: {url.netloc}\r\n"
                        f"Authorization: Bearer {box.key}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n\r\n").encode())
        self.f = self.s.makefile("rb")
        assert b" 101 " in self.f.readline()
        while self.f.readline() != b"\r\n":
            pass
        self.send(json.dumps(request))

    def send(self, text):
        data = text.encode()
        self.s.sendall(b"\x81" + struct.pack(">BQ", 0x80 | 127, len(data)) + b"\0\0\0\0" + data)

    def frame(self):
        first, length = self.f.read(2)
        if length > 125:
            length = struct.unpack(">H" if length == 126 else ">Q", self.f.read(2 if length == 126 else 8))[0]
        data = self.f.read(length)
        if first & 15 == 8:
            self.s.close()
            return struct.unpack(">H", data[:2])[0], data[2:].decode()
        assert first == 0x81
        return json.loads(data)

    def end(self):
        """stdout, stderr, the error, what was said last, and how it was closed."""
        said, error, control = {"stdout": "", "stderr": ""}, None, None
        while isinstance(one := self.frame(), dict):
            if one["type"] in said:
                said[one["type"]] += one["text"]
            elif one["type"] == "error":
                error = one
            else:
                control = one["text"]
        return said["stdout"], said["stderr"], error, control, *one

    def drop(self):
        self.f.close()
        self.s.close()


def run(box, code, **more):
    return Execution(box, code=code, **more).end()


def out(box, code, **more):
    stdout, stderr, error, control, status, _ = run(box, code, **more)
    assert (stderr, error, control, status) == ("", None, "completed", NORMAL), (stderr, error, control, status)
    return stdout


def test_variables_stay_and_outputs_are_told_apart(box):
    assert out(box, "x = 41\ndef f(): return x + 1") == ""
    assert out(box, "print(f())") == "42\n"
    assert run(box, "import os, sys\nos.system('echo below; echo failed >&2')\nprint('é\\0', end='')")[:2] == ("below\né\0", "failed\n")
    assert out(box, "import getpass; print(getpass.getuser(), os.getcwd())") == "daytona /home/daytona\n"
    assert out(box, "print(os.environ['Q'])", envs={"Q": "r s"}) == "r s\n"
    assert out(box, "print('Q' in os.environ)") == "False\n"
    assert out(box, f"s = '{'a' * 300000}'\nprint(len(s))") == "300000\n"
    assert len(out(box, "print('y' * 3_000_000)")) == 3_000_001


def test_output_comes_as_it_is_made(box):
    one = Execution(box, code="import os, time\nprint('first')\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\nprint('last')")
    assert one.frame() == {"type": "stdout", "text": "first\n"}
    box.run("touch /tmp/go")
    assert one.end()[0] == "last\n"


def test_an_error_is_told_with_the_lines_of_the_code_alone(box):
    stdout, _, error, control, status, _ = run(box, "print(1)\ndef f():\n    raise ValueError('why')\nf()")
    assert (stdout, control, status) == ("1\n", "completed", NORMAL)
    assert (error["name"], error["value"]) == ("ValueError", "why")
    assert error["traceback"].splitlines() == [
        "Traceback (most recent call last):", '  File "<stdin>", line 4, in <module>', "    f()", '  File "<stdin>", line 3, in f',
        "    raise ValueError('why')", "ValueError: why"]
    assert run(box, "x =")[2]["name"] == "SyntaxError"
    assert run(box, "class E(Exception):\n  def __str__(self): 1/0\nraise E")[2]["name"] == "E"
    assert run(box, "import sys; sys.exit(3)")[2:5] == (None, "completed", NORMAL)
    assert run(box, "raise KeyboardInterrupt")[3] == "interrupted"


def test_time_that_is_up_interrupts_and_then_kills(box):
    assert out(box, "kept = 1") == ""
    assert run(box, "import time\nprint('a')\nwhile True: time.sleep(60)", timeout=1)[::4] == ("a\n", TIMEOUT)
    assert out(box, "print(kept)") == "1\n"
    assert run(box, "while True:\n  try: time.sleep(60)\n  except BaseException: pass", timeout=1)[4] == TIMEOUT
    assert run(box, "print(kept)")[2]["name"] == "NameError"


def test_a_python_that_ends_says_so_and_begins_anew(box):
    stdout, _, error, control, status, _ = run(box, "kept = 1\nimport os\nprint('before', flush=True)\nos._exit(3)")
    assert (stdout, error["name"], control, status) == ("before\n", "InterpreterEnded", "completed", NORMAL)
    assert "exit status 3" in error["value"]
    assert run(box, "print(kept)")[2]["name"] == "NameError"


def test_contexts_share_nothing_and_run_side_by_side(box):
    assert out(box, "x = 'default'") == ""
    a = box.good("POST", CONTEXT, {"cwd": "/tmp"})
    b = box.good("POST", CONTEXT, {})
    assert {*a} == {"id", "cwd", "createdAt", "active", "language"} and (a["cwd"], a["active"], a["language"]) == ("/tmp", True, "python")
    assert b["cwd"] == "/home/daytona"
    assert {c["id"] for c in box.good("GET", CONTEXT)["contexts"]} == {a["id"], b["id"]}
    assert out(box, "x = 1; import os; print(os.getcwd())", contextId=a["id"]) == "/tmp\n"
    assert run(box, "print(x)", contextId=b["id"])[2]["name"] == "NameError"
    # An execution waits in a, the next in a waits for it, and b does not.
    first = Execution(box, contextId=a["id"], code="import time\nprint('in')\nwhile not os.path.exists('/tmp/a-goes'): time.sleep(0.01)")
    assert first.frame()["text"] == "in\n"
    second = Execution(box, contextId=a["id"], code="print('second', os.path.exists('/tmp/a-goes'))")
    assert out(box, "open('/tmp/a-goes', 'w').close()", contextId=b["id"]) == ""
    assert first.end()[3] == "completed" and second.end()[0] == "second True\n"
    for made in (a, b):
        assert box.good("DELETE", f"{CONTEXT}/{made['id']}") == {"message": "Context deleted successfully"}
    assert box.good("GET", CONTEXT) == {"contexts": []}
    assert out(box, "print(x)") == "default\n"
    box.refused(404, "DELETE", f"{CONTEXT}/{a['id']}", why="context not found")
    assert run(box, "1", contextId=a["id"])[3:] == (None, POLICY, f"context not found: {a['id']}")


def test_a_client_that_goes_interrupts_its_code(box):
    one = Execution(box, code="import time\nprint('in')\ntry:\n  while True: time.sleep(60)\nfinally: left = True")
    assert one.frame()["text"] == "in\n"
    one.drop()
    assert out(box, "print(left)", timeout=60) == "True\n"


def test_what_a_context_left_ends_with_it(box):
    made = box.good("POST", CONTEXT, {})
    assert out(box, "import subprocess; print(subprocess.Popen(['sleep', '4321'], start_new_session=True).pid > 0)", contextId=made["id"]) == "True\n"
    assert box.run("pgrep -fx 'sleep 4321'")["exitCode"] == 0
    box.good("DELETE", f"{CONTEXT}/{made['id']}")
    until(lambda: box.run("pgrep -fx 'sleep 4321'")["exitCode"] == 1, what="it ended with the context")


def test_there_are_only_so_many_contexts(box):
    made = [box.good("POST", CONTEXT, {})["id"] for _ in range(CONTEXTS_MAX)]
    try:
        box.refused(409, "POST", CONTEXT, {}, code="CONFLICT", why="delete one first")
    finally:
        for id in made:
            box.good("DELETE", f"{CONTEXT}/{id}")
    assert box.good("GET", CONTEXT) == {"contexts": []}


@pytest.mark.parametrize("request_, status, why", [
    ({}, POLICY, "code"), ({"code": ""}, POLICY, "code is required"), ({"code": 1}, POLICY, "code"),
    ({"code": "1", "timeout": -1}, POLICY, "timeout"), ({"code": "1", "timeout": "x"}, POLICY, "timeout"),
    ({"code": "1", "contextId": "../x"}, POLICY, "context not found"), ({"code": "1", "contextId": "none"}, POLICY, "context not found"),
    ({"code": "1", "envs": {"A=B": "c"}}, POLICY, "envs"), ({"code": "1", "envs": ["a"]}, POLICY, "envs")])
def test_a_bad_execution(box, request_, status, why):
    told = Execution(box, **request_).end()
    assert told[:3] == ("", "", None) and told[4] == status and why in told[5], told


def test_bad_calls_about_contexts(box):
    box.refused(400, "POST", CONTEXT, {"language": "ruby"}, code="BAD_REQUEST", why="only python")
    box.refused(400, "POST", CONTEXT, {"cwd": "/nowhere"}, why="/nowhere")
    box.refused(400, "POST", CONTEXT, {"cwd": 1})
    box.refused(400, "DELETE", f"{CONTEXT}/default", why="cannot delete default context")
    box.refused(404, "DELETE", f"{CONTEXT}/%20", why="context not found")
    box.refused(404, "POST", "/process/interpreter/execute")
    reply = box.call("GET", "/process/interpreter/execute")
    assert reply.status in (400, 426), reply.body  # no WebSocket


def test_what_the_sandbox_says_in_the_contexts_place_is_no_message(box):
    """Its processes can take the context's name: their lines are checked, and one that is no message ends the execution."""
    assert box.put([("/tmp/server.py", FALSE_CONTEXT)]).status == 200
    box.run("(python3 /tmp/server.py >/tmp/said 2>&1 &) ; until grep -q listens /tmp/said; do sleep 0.02; done", timeout=20)
    for why in ("cannot be read", "cannot be read", "at once", "cannot be read"):
        told = run(box, "1", contextId="taken")
        assert told[4] == FAILED and why in told[5], told
    assert run(box, "1", contextId="taken")[0] == "few"  # a control: a message with few values is passed on
    assert out(box, "print(1)") == "1\n"


# -- what clients make the server hold ------------------------------------------------------------------

LATER = 1013


class Half(Execution):
    """A message of which the first 9,000 bytes have come."""

    def send(self, text):
        self.s.sendall(b"\x81" + struct.pack(">BQ", 0x80 | 127, 100000) + bytes(4) + b" " * 9000)


def test_messages_that_do_not_end_take_places(box, cay, other_tenant):
    """They are shared out by tenant and sandbox; each is given back with its connection."""
    halves = [Half(box) for _ in range(40)]
    until(lambda: select.select([half.s for half in halves], [], [], 0)[0])
    refused = [half for half in halves if select.select([half.s], [], [], 0.2)[0]]
    assert 0 < len(refused) < 40 and {half.end()[-2] for half in refused} == {LATER}
    made = other_tenant.call("POST", "/api/sandbox", {"snapshot": "host", "autoStopInterval": 60}).json
    long = "print(5)#" + "x" * 20000
    assert out(Box(other_tenant, made["id"]), long) == "5\n"
    other_tenant.call("DELETE", f"/api/sandbox/{made['id']}")
    for half in halves:
        half.drop()
    until(lambda: run(box, long)[-2] == NORMAL, 30, "the places were given back")
