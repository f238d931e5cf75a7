"""deepagents' tools above langchain-daytona, unmodified, with what agents meet: ten thousand files, a file of 100 MiB, names of
all kinds, long commands, and output that is no text. backend.test.mjs is the same in JavaScript."""

import hashlib
import os

import pytest
from daytona import CreateSandboxFromSnapshotParams, Daytona, DaytonaConfig
from langchain_daytona import DaytonaSandbox

URL, KEY = f"https://{os.environ['E2B_DOMAIN']}/api", os.environ["E2B_API_KEY"]
HOME = "/home/daytona"
MANY, COUNT = f"{HOME}/many", 10000
MAKE_MANY = f"""mkdir {MANY} && cd {MANY} && python3 - <<'EOF'
for i in range({COUNT}):
    with open(f"{{i:05}}.{{'py' if i % 2 else 'txt'}}", "w") as f:
        f.write(f"number {{i}}\\n" + ("needle\\n" if i % 100 == 0 else ""))
EOF"""
PATHS = [f"{MANY}/{i:05}.{'py' if i % 2 else 'txt'}" for i in range(COUNT)]
NAMES = ["with blank", "qu\"o'te\\s", "ümläut ☃", "new\nline", "-dash", "tab\t", "(1) [2]", "%41&=+", "$HOME `id`"]


def digest(contents):
    return hashlib.sha256(contents).hexdigest()


@pytest.fixture(scope="module")
def backend():
    made = Daytona(DaytonaConfig(api_key=KEY, api_url=URL)).create(CreateSandboxFromSnapshotParams(snapshot="host"))
    yield DaytonaSandbox(sandbox=made)
    made.delete()


def search(backend, pattern):
    """Its script gives up after five seconds of its own, which a machine with other work may need."""
    for _ in range(5):
        found = backend.glob(pattern, MANY)
        if found.truncation_reason != "budget":
            break
    assert (found.error, found.truncated) == (None, False)
    return sorted(m["path"] for m in found.matches)


def test_ten_thousand_files(backend):
    assert backend.execute(MAKE_MANY).exit_code == 0
    assert sorted(entry["path"] for entry in backend.ls(MANY).entries) == PATHS
    assert search(backend, "*") == PATHS
    assert search(backend, "*.py") == PATHS[1::2]
    found = backend.grep("needle", MANY)
    assert sorted((m["path"], m["line"]) for m in found.matches) == [(path, 2) for path in PATHS[::100]]
    assert sorted(m["path"] for m in backend.grep("number", MANY).matches) == PATHS
    assert [m["path"] for m in backend.grep("number 42", MANY, "0004*.txt").matches] == [PATHS[42]]
    assert backend.delete(MANY).error is None and backend.ls(MANY).entries in (None, [])


def test_a_hundred_mebibytes(backend):
    path, contents = f"{HOME}/large", os.urandom(100 << 20)
    assert [r.error for r in backend.upload_files([(path, contents)])] == [None]
    assert backend.execute(f"sha256sum <{path}").output.split()[0] == digest(contents)
    (got,) = backend.download_files([path])
    assert got.error is None and digest(got.content) == digest(contents)
    assert backend.delete(path).error is None


@pytest.mark.parametrize("name", NAMES)
def test_a_name(backend, name):
    folder, contents = f"{HOME}/names", bytes(range(256))
    path, text = f"{folder}/{name}", f"{folder}/{name}.txt"
    assert [r.error for r in backend.upload_files([(path, contents)])] == [None]
    assert [r.content for r in backend.download_files([path])] == [contents]
    assert backend.write(text, "one\ntwo\n").error is None
    assert backend.edit(text, "two", "zwei ☃").occurrences == 1
    assert backend.read(text).file_data["content"].rstrip("\n") == "one\nzwei ☃"
    assert sorted(entry["path"] for entry in backend.ls(folder).entries) == [path, text]
    assert [m["path"] for m in backend.glob("*.txt", folder).matches] == [text.replace("\\", "/")]  # as it writes them
    if "\n" not in name:  # it reads lines
        assert [(m["path"], m["text"]) for m in backend.grep("zwei", folder).matches] == [(text, "zwei ☃")]
    assert backend.delete(folder).error is None


def test_commands(backend):
    done = backend.execute("echo out; echo err >&2; exit 42")
    assert (done.exit_code, done.output) == (42, "out\n\n<stderr>err</stderr>")
    long = "y" * (1 << 20)
    done = backend.execute(f"cat <<'EOF' | sha256sum\n{long}\nEOF\nexit 3")
    assert (done.exit_code, done.output.split()[0]) == (3, digest(f"{long}\n".encode()))
    assert backend.execute("printf 'a\\0b\\377'").output == "a\0b\ufffd"
    assert backend.execute("head -c 1000000 /dev/urandom; exit 4").exit_code == 4
    assert backend.execute("printf whole").output == "whole"


def test_a_server_in_the_background_ends_with_its_session(backend):
    """This client runs each command in a session of its own and deletes that; toolbox.test.mjs and test_toolbox.py have one that
    lives on."""
    done = backend.execute("echo served >/tmp/page; cd /tmp; python3 -m http.server 8765 >/dev/null 2>&1 &\n"
                           "for i in $(seq 600); do curl -s http://127.0.0.1:8765/page && break; sleep 0.1; done")
    assert (done.exit_code, done.output) == (0, "served\n")
    assert backend.execute("curl -s http://127.0.0.1:8765/page").exit_code == 7


def test_what_deepagents_assumes_of_its_computer(backend):
    """Programs that its tools call, the user with its home, and where results and messages go that are too long for the model."""
    done = backend.execute("id -un; pwd; printf aGk= | base64 -d; grep --version | head -n 1; python3 -c 'print(6 * 7)'")
    assert done.exit_code == 0 and done.output.startswith(f"daytona\n{HOME}\nhigrep (GNU grep) ") and done.output.endswith("\n42\n"), done
    for path in ("/large_tool_results/call_1", "/conversation_history/thread.md"):
        assert backend.write(path, "long").error is None
        assert backend.read(path).file_data["content"] == "long"
