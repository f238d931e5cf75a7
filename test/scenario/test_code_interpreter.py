"""cay-kernels in a sandbox, with a real Python kernel (Debian's, of the machine's /usr): what the SDKs of a code interpreter
send and read, over the gateway."""

import contextlib
import json
import pathlib
import re
import socket
import subprocess
import time

import pytest
from conftest import BUILD
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from test_snapshot import delete, snapshot
from waitlib import until

PORT = 49999
ROOT = pathlib.Path(__file__).resolve().parents[2]
START = {"cmd": "exec /opt/cay/cay-kernels --kernels=/opt/cay/kernels --log=/var/log/cay-kernels.log", "cwd": "/home/user", "port": PORT}
SPEC = {"argv": ["/usr/bin/python3", "-m", "cay_kernel", "-f", "{connection_file}"], "env": {"PYTHONPATH": "/opt/cay/python"}}


@pytest.fixture(scope="module")
def template(cay):
    if subprocess.run(["/usr/bin/python3", "-c", "import ipykernel"], capture_output=True).returncode:
        pytest.skip("the machine has no python3-ipykernel (scripts/deps test)")
    with cay.create() as box:
        assert box.run("mkdir -p /opt/cay/kernels/{python3,deno,mine} /opt/cay/python/cay_kernel /etc/cay; chown -R user /opt/cay /etc/cay",
                       user="root").exit_code == 0
        files = {"/opt/cay/cay-kernels": (BUILD / "src/kernels/cay-kernels").read_bytes(),
                 "/opt/cay/kernels/python3/kernel.json": json.dumps(SPEC).encode(),
                 "/opt/cay/kernels/deno/kernel.json": json.dumps(SPEC).encode(),  # Python's in the place of JavaScript's
                 "/opt/cay/kernels/mine/kernel.json": json.dumps(SPEC).encode(),
                 "/etc/cay/start.json": json.dumps(START).encode()}
        for path in (ROOT / "src/kernels/python/cay_kernel").glob("*.py"):
            files[f"/opt/cay/python/cay_kernel/{path.name}"] = path.read_bytes()
        for path, data in files.items():
            assert box.write(path, data).status == 200
        assert box.run("chmod 0755 /opt/cay/cay-kernels").exit_code == 0
        made = snapshot(cay, box)["snapshotID"]
    yield made
    delete(cay, made)


@pytest.fixture(scope="module")
def box(cay, template):
    with cay.create(template=template, timeout_s=600, envVars={"GIVEN": "of the sandbox"}) as box:
        until(lambda: ask(box, "GET", "/health").status == 200, what="the interpreter listens")  # the create waits for 8 s alone
        yield box


def ask(box, method, path, body=None):
    return box.request(method, path, body, port=PORT)


def execute(box, code, **more):
    answer = ask(box, "POST", "/execute", {"code": code, **more})
    assert answer.status == 200, answer.body
    lines = [json.loads(line) for line in answer.body.decode("ascii").splitlines()]
    assert lines[-1] == {"type": "end_of_execution"}
    return [line for line in lines[:-1] if line["type"] != "keepalive"]  # after 5 s without another


def of(lines, kind):
    return [line for line in lines if line["type"] == kind]


def text(box, code, **more):
    (line,) = of(execute(box, code, **more), "result")
    assert line["is_main_result"] and line["extra"] == {}
    return line["text"]


def test_it_is_ready_with_the_sandbox(box):
    assert ask(box, "GET", "/health").json == "OK"
    assert text(box, "1 + 1") == "2"
    contexts = ask(box, "GET", "/contexts").json
    assert [(c["language"], c["cwd"]) for c in contexts] == [("python", "/home/user"), ("javascript", "/home/user")]


def test_the_kernel_of_javascript_begins_with_its_first_use(cay, template):
    """Its context is there before, and requests while it starts wait for it. A kernel that cannot start says so."""
    kernels = "pgrep -fc '[-]m cay_kernel'"
    with cay.create(template=template) as box:
        until(lambda: ask(box, "GET", "/health").status == 200, what="the interpreter listens")
        assert box.run(kernels, user="root").out == "1\n"
        context = ask(box, "GET", "/contexts").json[1]
        assert text(box, "import os; os.getcwd()", context_id=context["id"]) == "/home/user"
        assert box.run(kernels, user="root").out == "2\n"
        assert text(box, "2 + 2", language="javascript") == "4" and box.run(kernels, user="root").out == "2\n"
        assert ask(box, "GET", "/contexts").json[1] == context
    with cay.create(template=template) as box:
        until(lambda: ask(box, "GET", "/health").status == 200, what="the interpreter listens")
        context = ask(box, "GET", "/contexts").json[1]["id"]
        assert box.run("mv /usr/bin/python3 /usr/bin/python3-away", user="root").exit_code == 0
        (error,) = of(execute(box, "1", context_id=context), "error")
        assert error["name"] == "ContextUnavailable", error
        assert ask(box, "DELETE", f"/contexts/{context}").status == 200


def test_output_results_and_errors(box):
    lines = execute(box, "import sys\nprint('é', 1)\nprint(2, file=sys.stderr)\nx = 5\nx")
    assert [line["type"] for line in lines] == ["number_of_executions", "stdout", "stderr", "result"]
    assert [line.get("text") for line in lines[1:]] == ["é 1\n", "2\n", "5"]
    assert all("T" in line["timestamp"] for line in lines[1:3])
    (error,) = of(execute(box, "1/0"), "error")
    assert (error["name"], error["value"]) == ("ZeroDivisionError", "division by zero") and "\x1b" not in error["traceback"]
    assert text(box, "x + 1") == "6"
    assert text(box, "{'a': [1, 2.5], 3: None}") == "{'a': [1, 2.5], 3: None}"
    assert of(execute(box, "{'a': [1, 2.5], 3: None}"), "result")[0]["json"] == {"a": [1, 2.5], "3": None}
    assert text(box, "  y = 1\n  y") == "1"
    assert text(box, "'a' * 10_000_000") == "a" * 10_000_000


def test_output_that_is_no_text_is_shown_with_replacements(box):
    """Bytes that Python could not decode, and halves of surrogate pairs, in each way that output has."""
    for code, kind, shown in (
            (r"print('a\udcffb')", "stdout", "a\ufffdb\n"), (r"print('half \ud800')", "stdout", "half \ufffd\n"),
            (r"import sys; print('\udcff\ud800', file=sys.stderr)", "stderr", "\ufffd\ufffd\n"),
            (r"!printf 'of a shell \377'", "stdout", "of a shell \ufffd"),
            (r"display({'text/html': '<\ud800>'}, raw=True)", "result", "<\ufffd>")):
        lines = execute(box, code)[1:]
        assert {one["type"] for one in lines} == {kind}, (code, lines)
        assert "".join(one.get("html", one.get("text")) for one in lines) == shown, (code, lines)  # a kernel may send it in pieces
    (error,) = of(execute(box, r"raise ValueError('\ud800')"), "error")
    assert error["name"] == "ValueError" and error["value"] == "\ufffd"


def test_output_of_descriptors_is_of_the_execution_that_wrote_it(box):
    """Which has ended a moment after the last byte: output on its way then is waited for, whatever thread of the kernel has it."""
    for code, kind, shown in (
            (r"import os; _ = os.write(1, b'last')", "stdout", "last"), (r"_ = os.write(2, b'last')", "stderr", "last"),
            (r"for i in range(3000): _ = os.write(1, b'%5d' % i)", "stdout", "".join(f"{i:5}" for i in range(3000))),
            (r"import subprocess; _ = subprocess.run(['printf', 'of a program'])", "stdout", "of a program"),
            (r"for part in (b'cut \xc3', b'\xa9 here'): _ = os.write(1, part)", "stdout", "cut \u00e9 here"),
            (r"_ = os.write(1, b'half \xc3')", "stdout", "half \ufffd"), (r"_ = os.write(1, b'no text \xff')", "stdout", "no text \ufffd"),
            (r"_ = os.write(1, b'afterwards')", "stdout", "afterwards"),
            (r"import io, sys; was, sys.stdout = sys.stdout, io.StringIO(); _ = os.write(1, b'beside')", "stdout", "beside")):
        lines = execute(box, code)[1:]
        assert {one["type"] for one in lines} == {kind}, (code, lines)
        assert "".join(one["text"] for one in lines) == shown, (code, lines)
    execute(box, "sys.stdout = was")  # the kernel says from the next on that it is that one's


def test_the_template_has_all_files_of_the_python_part():
    files = {path.name for path in (ROOT / "src/kernels/python/cay_kernel").glob("*.py")}
    folder = ROOT / "packaging/templates/code-interpreter"
    (line,) = re.findall(r"^COPY (.*) /opt/cay/python/cay_kernel/$", (folder / "Dockerfile").read_text(), re.MULTILINE)
    assert set(line.split()) == files
    assert set(re.findall(r"python \+ '(.*?)'", (folder / "meson.build").read_text())) == files


# The part of pandas that results are read by: the machine's Python need not have it.
PANDAS = """
class DataFrame:
    def __init__(self, columns):
        self.columns, self.iloc = [name for name, _ in columns], self
        self.kept = [values for _, values in columns]
    def __getitem__(self, at):
        return Column(self.kept[at[1]])
    def __repr__(self):
        return "a frame"
class Column:
    def __init__(self, values):
        self.values = values
    def tolist(self):
        return self.values
class NaTType:
    def isoformat(self):
        return "NaT"
"""


def test_figures_of_plotly_can_be_shown():
    """Its figures are an error in Jupyter without nbformat, which is no requirement of its, nor of any other package here."""
    lines = (ROOT / "packaging/templates/code-interpreter/requirements.txt").read_text().splitlines()
    assert {"plotly", "nbformat"} <= {line.partition("==")[0] for line in lines}


def test_a_data_frame_of_all_kinds_of_values_is_shown(box):
    box.write("/home/user/pandas.py", PANDAS.encode())
    execute(box, "import pandas, datetime, decimal\nclass Bad:\n    def __str__(self): raise ValueError\nitself = []; itself += [itself, itself]")
    (line,) = of(execute(box, """pandas.DataFrame([
        ('money', [decimal.Decimal('1.10'), decimal.Decimal('NaN')]), ('when', [datetime.date(2026, 1, 2), pandas.NaTType()]),
        ('time', [datetime.datetime(2026, 1, 2, 3, 4), datetime.timedelta(days=1)]), ('number', [float('nan'), float('inf')]),
        ('nested', [{'a': [1, {2: decimal.Decimal(3)}]}, [(1, 2)]]), (('two', 'levels'), [b'bytes', 1 + 2j]), (7, [Bad(), None]),
        ('set', [{1}, itself])])"""), "result")
    assert line["text"] == "a frame" and line["data"] == {
        "money": ["1.10", "NaN"], "when": ["2026-01-02", None], "time": ["2026-01-02T03:04:00", "1 day, 0:00:00"], "number": [None, None],
        "nested": [{"a": [1, {"2": "3"}]}, [[1, 2]]], "('two', 'levels')": ["b'bytes'", "(1+2j)"], "7": ["<Bad>", None],
        "set": ["{1}", ["[[...], [...]]", "[[...], [...]]"]]}
    assert not of(execute(box, "pandas.DataFrame([('money', [decimal.Decimal('1.10')])])"), "stderr")


def test_output_that_is_too_long_is_cut_which_is_said(box):
    (line,) = of(execute(box, "import sys; _ = sys.stdout.write('x' * (50 << 20))"), "stdout")  # print writes in two pieces
    assert line["text"].startswith("x" * 1000) and len(line["text"]) > 10 << 20
    assert line["text"].endswith(f" of {50 << 20} characters are shown]\n")
    assert text(box, "'y' * (50 << 20)").endswith(f" of {(50 << 20) + 2} characters are shown]\n")
    (line,) = of(execute(box, "display({'text/plain': 'a picture', 'text/html': '<b>', 'image/png': 'x' * (50 << 20)}, raw=True)"), "result")
    assert line["text"] == "a picture\n[image/png of 50 MiB is not shown]" and line["html"] == "<b>" and "png" not in line
    assert text(box, "'of all there is'") == "of all there is"


def test_what_another_kernel_sends_too_long_is_said(box):
    """As of a kernel that does not cut: one message over the limit, and one whose line is over it when it is escaped."""
    one = ask(box, "POST", "/contexts", {}).json["id"]
    execute(box, "import json; get_ipython().kernel.session.pack = lambda c: json.dumps(c, ensure_ascii=False, default=str).encode()", context_id=one)
    for code, shown in (("import sys; _ = sys.stdout.write('x' * (50 << 20))", "stderr"), ("'\u00e9' * (20 << 20)", "stderr"), ("'fine'", "result")):
        lines = [line for line in execute(box, code, context_id=one) if line["type"] != "number_of_executions"]
        assert [line["type"] for line in lines] == [shown], lines
        assert lines[0]["text"] == ("fine" if shown == "result" else "[output is not shown: it has over 48 MiB]\n")
    assert ask(box, "DELETE", f"/contexts/{one}").status == 200


def test_variables_of_an_execution(box):
    value = "q\"'\\\n\u00e9\U0001f600"
    assert text(box, "import os, json; json.dumps([os.environ['MINE'], os.environ['GIVEN']])",
                env_vars={"MINE": value, "GIVEN": "other"}) == json.dumps([value, "other"]).replace("\\", "\\\\").replace("'", "\\'")
    assert text(box, "os.environ.get('MINE'), os.environ['GIVEN']") == "(None, 'of the sandbox')"
    before = int(text(box, "len(In)"))
    execute(box, "pass", env_vars={"MINE": "x"})
    assert int(text(box, "len(In)")) == before + 2


def test_variables_of_a_language_that_is_not_known(box):
    """Of a kernel that was put there by hand: how it sets them could only be guessed."""
    assert text(box, "6 * 7", language="mine") == "42"
    refused = ask(box, "POST", "/execute", {"code": "1", "language": "mine", "env_vars": {"MINE": "x"}})
    assert refused.status == 422 and "give them to the sandbox's create" in refused.json["detail"]
    assert text(box, "import os; os.environ['GIVEN']", language="mine") == "of the sandbox"


def test_contexts_are_apart(box):
    made = ask(box, "POST", "/contexts", {"language": "Python", "cwd": "/tmp"})
    assert made.status == 200 and made.json["cwd"] == "/tmp"
    one = made.json["id"]
    assert text(box, "import os; z = 1; os.getcwd()", context_id=one) == "/tmp"
    assert of(execute(box, "z"), "error")[0]["name"] == "NameError"
    assert ask(box, "POST", f"/contexts/{one}/restart").json is None
    assert of(execute(box, "z", context_id=one), "error")[0]["name"] == "NameError"
    assert ask(box, "DELETE", f"/contexts/{one}").status == 200
    for answer in (ask(box, "DELETE", f"/contexts/{one}"), ask(box, "POST", "/execute", {"code": "1", "context_id": one})):
        assert (answer.status, answer.body) == (404, f"Context {one} not found".encode())


@contextlib.contextmanager
def begun(box, code):
    """An execution whose client reads its first line and goes away."""
    connection = box.client.connect(60)
    connection.request("POST", "/execute", json.dumps({"code": code}), box.headers(port=PORT))
    answer = connection.getresponse()
    assert json.loads(answer.readline())["type"] == "number_of_executions"

    def go():
        connection.sock.shutdown(socket.SHUT_RDWR)

    yield go
    answer.close()
    connection.close()


def test_a_client_that_goes_interrupts(box):
    execute(box, "kept = 1")
    with begun(box, "import time\nwhile True:\n    time.sleep(0.1)") as go:
        go()
    assert text(box, "kept") == "1"


def test_executions_wait_for_one_another(box):
    with begun(box, "import time\ntime.sleep(600)") as go:
        other = box.client.connect(60)
        other.request("POST", "/execute", json.dumps({"code": "'waited'"}), box.headers(port=PORT))
        answer = other.getresponse()  # its head is there at once
        assert answer.status == 200
        go()
        assert b"waited" in answer.read()
        other.close()


def test_a_kernel_that_ends(box):
    before = ask(box, "GET", "/contexts").json[0]["id"]
    (error,) = of(execute(box, "import os; os._exit(1)"), "error")
    assert error["name"] == "ContextRestarting"
    assert text(box, "'back'", context_id=before) == "back"


@pytest.mark.parametrize(("method", "path", "body", "status"), [
    ("POST", "/execute", {}, 422), ("POST", "/execute", {"code": 1}, 422), ("POST", "/execute", b"{", 422),
    ("POST", "/execute", {"code": "1", "env_vars": {"A": 1}}, 422), ("POST", "/execute", {"code": "1", "env_vars": {"A=B": "1"}}, 422),
    ("POST", "/execute", {"code": "1", "context_id": "a", "language": "b"}, 400),
    ("POST", "/execute", {"code": "1", "context_id": "../.."}, 404), ("POST", "/execute", {"code": "1", "language": "cobol"}, 500),
    ("POST", "/execute", {"code": "1", "language": "../python3"}, 500), ("POST", "/contexts", {"cwd": "/nonexistent"}, 500),
    ("POST", "/contexts", {"cwd": "relative"}, 500), ("POST", "/contexts/x/restart", None, 404), ("GET", "/nothing", None, 404),
    ("PUT", "/health", None, 405),
])
def test_bad_input(box, method, path, body, status):
    assert ask(box, method, path, body).status == status


@pytest.mark.parametrize("number", ["TERM", "INT"])
def test_a_signal_ends_its_kernels(cay, template, number):
    """With what they started, and the files that have their keys."""
    left = "pgrep -x cay-kernels; pgrep -f '[c]ay_kernel -f'; pgrep -f '[s]leep 76543'; ls -d /tmp/cay-kernels-*"
    with cay.create(template=template) as box:
        until(lambda: ask(box, "GET", "/health").status == 200, what="the interpreter listens")
        assert ask(box, "POST", "/contexts", {"cwd": "/tmp"}).status == 200
        execute(box, "import subprocess; child = subprocess.Popen(['sleep', '76543'])")
        assert len(box.run(left, user="root").out.split()) == 5  # it, two kernels, the child, the folder
        assert box.run(f"pkill -{number} -x cay-kernels", user="root").exit_code == 0
        until(lambda: box.run(left + " 2>/dev/null", user="root").out == "", what="nothing of it is left")


def test_what_stops_it_is_said_at_the_create(cay, template):
    """As of a template that lacks a library: the words of the loader, here of the shell."""
    with cay.create(template=template) as box:
        assert box.run("pkill -x cay-kernels; rm /opt/cay/cay-kernels", user="root").exit_code == 0
        broken = snapshot(cay, box)["snapshotID"]
    answer = cay.call("POST", "/sandboxes", {"templateID": broken})
    delete(cay, broken)
    assert answer.status == 409 and "exit status 127" in answer.json["message"]
    assert "/opt/cay/cay-kernels" in answer.json["message"]


def test_forged_messages_are_refused(box):
    """A program inside that does not know a kernel's key speaks to its sockets: nothing of it reaches a client."""
    code = ("import glob, json\nc = json.load(open(glob.glob('/tmp/cay-kernels-*/*.json')[0]))\n"
            "import zmq\ns = zmq.Context().socket(zmq.DEALER)\ns.connect('tcp://127.0.0.1:%d' % c['shell_port'])\n"
            "s.send_multipart([b'<IDS|MSG>', b'0' * 64, b'{}', b'{}', b'{}', b'{}'])\n'sent'")
    assert text(box, code) == "sent"
    time.sleep(0.2)
    assert text(box, "'fine'") == "fine"
