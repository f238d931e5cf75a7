"""Text that others chose, at a terminal: no command lets a control or directional character of it through. Every command of the
program is either in the table here or among those that print nothing of a server's. The server is the real one with a proxy before it,
which puts such characters at the end of each text in its answers; and a sandbox whose files, programs and metadata have them."""

import http.client
import http.server
import json
import os
import pty
import re
import select
import subprocess
import threading
import time
import urllib.parse

import pytest

from conftest import CAY

# ESC, BEL, DEL, the C1 forms of CSI and OSC, separators of lines, and characters that turn the direction of text: each is obeyed by some
# terminal. Ended by a title that would be seen.
CONTROLS = "\x1b[2J\x1b]0;title\x07\x08\x7f\u0085\u009b31m\u009d0;x\u009c\u2028\u061c\u200e\u200f\u202e\u2066\u2069"
MARK = "title"
SECONDS = 60
# Fields by which the program finds what it asks about next. In the second round they are changed as well, and most commands end there.
NAMES = re.compile(r"id|.*ID|.*Id|name|tenant|state|status|url|type|event|time|.*At|kind|verdict|token|.*Token", re.ASCII)

# Commands that print what a server, a sandbox or another tenant's program said, with what they are given. BOX stands for the sandbox.
SHOWN = [
    "status", "env --urls", "debug BOX", "create host", "exec BOX -- /bin/no-such-program", "run --template=host -- true",
    "cp BOX:/etc/hostname OUT",
    "cp BOX:/no-such-file OUT", "cp OUT BOX:/no/such/place", "ls", "ls --json", "kill NONE", "pause NONE", "archive NONE", "resume NONE",
    "fork NONE", "resize BOX --memory=1", "rollback BOX no-such-snapshot", "snapshot create NONE", "snapshot ls", "snapshot rm no-such-snapshot",
    "snapshot export NONE OUT", "snapshot import OUT",
    "volume create bad/name", "volume ls", "volume rm no-such-volume", "logs BOX", "logs BOX --json", "top --once", "top --json", "policy show BOX",
    "policy set BOX public", "policy check POLICY", "policy explain BOX a.example GET /x", "policy learned BOX", "policy ask BOX",
    "denials BOX", "denials BOX --json", "secret set NEW --domain=a.example", "secret ls", "secret rm no-such-secret", "audit", "audit --json",
    "audit verify", "events", "events --json", "webhook create http://127.0.0.1:1/", "webhook ls", "webhook deliveries no-such-hook",
    "webhook ping no-such-hook", "webhook retry no-such-hook", "webhook rm no-such-hook", "template ls", "template limits no-such-template",
    "template publish no-such-template", "template push no-such-template 127.0.0.1:1/x", "template rm no-such-template",
    "template export no-such-template OUT", "template import no-such docker-archive:OUT", "template build no-such",
    "key create --label=x", "key ls", "key revoke no-such-key",
    "tenant ls", "tenant ceiling default", "tenant quota default", "tenant usage default"]
# That print nothing, or nothing of an answer.
NO_TEXT = {"policy set BOX public", "template import no-such docker-archive:OUT", "cp OUT BOX:/no/such/place", "cp BOX:/etc/hostname OUT"}
# Of the machine, or of the program itself; and mcp, whose output is a protocol.
OWN = {"up", "down", "doctor", "completion", "help", "version", "mcp"}


def spoiled(value, everything, key=""):
    if isinstance(value, dict):
        return {name: spoiled(one, everything, name) for name, one in value.items()}
    if isinstance(value, list):
        return [spoiled(one, everything, key) for one in value]
    return value + CONTROLS if isinstance(value, str) and (everything or not NAMES.fullmatch(key)) else value


class Proxy(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, to):
        self.to, self.everything, self.changed = urllib.parse.urlsplit(to), False, 0
        super().__init__(("127.0.0.1", 0), Relay)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def spoil(self, body):
        """JSON, or lines of it; anything else (a program's output, a file) as it is."""
        try:
            lines = [json.loads(line) for line in ([body] if body[:1] in b"[{" and b"\n{" not in body else body.splitlines())]
        except ValueError:
            return body
        self.changed += 1
        return b"\n".join(json.dumps(spoiled(line, self.everything), ensure_ascii=False).encode() for line in lines)


class Relay(http.server.BaseHTTPRequestHandler):
    def relay(self):
        upstream = http.client.HTTPConnection(self.server.to.hostname, self.server.to.port, timeout=SECONDS)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            upstream.request(self.command, self.path, body or None, {k: v for k, v in self.headers.items() if k.lower() != "connection"})
            answer = upstream.getresponse()
            sent = answer.read()
        except OSError:
            self.close_connection = True
            return
        finally:
            upstream.close()
        if "json" in (answer.getheader("Content-Type") or "") and "connect" not in answer.getheader("Content-Type"):
            sent = self.server.spoil(sent) if sent else sent
        self.send_response(answer.status)
        for name in ("Content-Type", "Retry-After"):
            if answer.getheader(name):
                self.send_header(name, answer.getheader(name))
        self.send_header("Content-Length", str(len(sent)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(sent)
        self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = relay

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module", autouse=True)
def nothing_left(cay):
    """Some of the commands make what other files' tests would find."""
    def there():
        return {(remove, one["id"] if "id" in one else one["sandboxID"]) for what, remove in
                (("ls", "kill"), ("key ls", "key revoke"), ("webhook ls", "webhook rm"))
                for one in json.loads(cay(*what.split(), "--json").stdout)}

    before = there()
    yield
    cay("secret", "rm", "NEW")
    for remove, one in there() - before:
        assert cay(*remove.split(), one).returncode == 0, (remove, one)


@pytest.fixture(scope="module")
def api(cay):
    """The server's URL, and a key of its operator's."""
    told = json.loads(cay("env", "--urls", "--json").stdout)
    return told["E2B_API_URL"], told["E2B_API_KEY"]


@pytest.fixture(scope="module")
def proxy(api):
    server = Proxy(api[0])
    yield server
    server.shutdown()


def at_terminal(*arguments, env=None):
    """All that cay writes to a terminal, on either of its outputs."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(CAY, [CAY, *arguments], {**os.environ, "TERM": "xterm", **(env or {})})
    text, end = b"", time.monotonic() + SECONDS
    try:
        while select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
            piece = os.read(fd, 65536)
            if not piece:
                break
            text += piece
            if text.endswith(b"value: "):
                os.write(fd, b"a-secret-value\n")
        else:
            raise AssertionError(f"{arguments}: does not end: {text!r}")
    except OSError:  # how a terminal of Linux says that its other side is closed
        pass
    finally:
        os.close(fd)
        os.waitpid(pid, 0)
    return text


def through(proxy):
    return {"CAY_URL": proxy.url, "E2B_API_URL": proxy.url}


OWN_SEQUENCES = (b"\r", b"\x1b[K", b"\x1b[H\x1b[J")  # of a transfer's bar, a build's newest line, and top


def obeyed(text):
    """A text that a terminal would obey, as UTF-8 and byte for byte; but line ends and tabs, and what the program itself says."""
    for own in OWN_SEQUENCES:
        text = text.replace(own, b"")
    decoded = text.decode("utf-8", "surrogateescape")
    others = "".join(c for c in CONTROLS if not c.isascii())
    return sorted({c for c in decoded if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f" or "\udc80" <= c <= "\udcff" or c in others})


def words(command, box, tmp_path):
    (tmp_path / "policy").write_text('{"rules": [{"action": "allow", "addresses": ["10.0.0.0/8"]}]}')
    (tmp_path / "out").write_text("text")
    given = {"BOX": box, "NONE": "i" + "q" * 20, "OUT": str(tmp_path / "out"), "POLICY": str(tmp_path / "policy")}
    return [re.sub("|".join(given), lambda found: given[found[0]], word) for word in command.split()]


def test_every_command_is_here():
    shown = subprocess.run([CAY, "help"], capture_output=True, text=True, check=True).stdout
    named = {line[2:21].strip() for line in shown.splitlines() if re.match(r"  [a-z]", line)}
    missing = {name for name in named - OWN if not any(f"{command} ".startswith(f"{name} ") for command in SHOWN)}
    assert len(named) > 50 and not missing, missing


def test_a_terminal_does_get_what_a_program_prints(box):
    """The control: of the harness, and of a terminal's use."""
    text = at_terminal("exec", box, "--", "printf", r"\033[2J\302\233\233title")
    assert {"\x1b", "\x9b", "\udc9b"} <= set(obeyed(text)) and MARK.encode() in text


@pytest.mark.parametrize("everything", [False, True], ids=["texts", "names too"])
@pytest.mark.parametrize("command", SHOWN)
def test_no_control_of_an_answer(proxy, box, tmp_path, command, everything):
    proxy.everything, before = everything, proxy.changed
    text = at_terminal(*words(command, box, tmp_path), env=through(proxy))
    assert not obeyed(text), text
    assert proxy.changed > before or command in NO_TEXT, text  # an answer was changed, so that there was something to show


def test_the_characters_are_shown_as_signs(proxy, box):
    """Nothing passes because nothing is printed."""
    proxy.everything = False
    for command in ("status", f"logs {box}", "secret rm none", "policy explain BOX a.example".replace("BOX", box), "template ls"):
        assert re.search(rb"\?\[2J\?\]0;title\?", at_terminal(*command.split(), env=through(proxy))), command


# -- a sandbox's own text ------------------------------------------------------------------------------

RAW = rb"\033]0;title\007\23331m\302\2332J\342\200\256"  # as printf(1) takes it; the bytes of CSI alone, too


@pytest.fixture(scope="module")
def spoiled_box(cay, api):
    body = json.dumps({"templateID": "host", "timeout": 600, "metadata": {"note": CONTROLS, CONTROLS[:8]: "x"}})
    made = subprocess.run(["curl", "-sS", "-X", "POST", "-H", f"X-API-Key: {api[1]}", "-H", "Content-Type: application/json",
                           "-d", "@-", f"{api[0]}/sandboxes"], input=body, capture_output=True, text=True, check=True)
    box = json.loads(made.stdout)["sandboxID"]
    shell = ('n="$(printf \'/tmp/x' + RAW.decode() + '\')"; mkdir "$n" && cp /bin/sleep "$n/p" && ("$n/p" 600 >/dev/null 2>&1 &) ; '
             'echo text > "$n/f"; "$n/p" 0; ln -s "$n/f" "/tmp/link"; true')
    assert cay("exec", box, "--", "sh", "-c", shell).returncode == 0
    yield box
    cay("kill", "-q", box)


@pytest.mark.parametrize("command", ["ls", "ls --json", "top --once", "top --json", "logs BOX", "logs BOX --json", "cp BOX:/tmp OUT",
                                     "events", "status", "denials BOX", "audit"])
def test_no_control_of_a_sandbox(spoiled_box, tmp_path, command):
    text = at_terminal(*(word.replace("BOX", spoiled_box).replace("OUT", str(tmp_path / "new")) for word in command.split()))
    assert not obeyed(text), text


@pytest.mark.parametrize("path", ["/tmp/no" + CONTROLS, "/tmp/no\udc9b31m"], ids=["UTF-8", "a byte"])
def test_no_control_of_an_operand(spoiled_box, tmp_path, path):
    for command in (["exec", spoiled_box, "--", path], ["cp", f"{spoiled_box}:{path}", str(tmp_path)],
                    ["cp", str(tmp_path / "none") + path, f"{spoiled_box}:/tmp"], ["kill", path], ["policy", "set", spoiled_box, path],
                    ["template", "rm", path], ["snapshot", "create", spoiled_box, path], [path], ["ls", "--" + path], ["help", path]):
        text = at_terminal(*command)
        assert text and not obeyed(text), (command, text)
