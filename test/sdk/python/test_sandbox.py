import json
import os
import urllib.request
import uuid

import pytest
from e2b import (AuthenticationException, NotFoundException, PtySize, Sandbox, SandboxException,
                 SandboxQuery)


def list_all(**options):
    paginator, found = Sandbox.list(**options), []
    while paginator.has_next:
        found += paginator.next_items()
    return found


def test_made_described_ended(factory):
    mark = str(uuid.uuid4())
    sandbox = factory(metadata={"mark": mark})
    info = sandbox.get_info()
    assert info.sandbox_id == sandbox.sandbox_id
    assert info.metadata == {"mark": mark}
    assert sandbox.is_running()
    assert sandbox.kill() is True
    assert sandbox.kill() is False
    assert not sandbox.is_running()


def test_listed_by_metadata_and_page(factory):
    mark = f"a b&c=ü {uuid.uuid4()}"
    made = [factory(metadata={"mark": mark}).sandbox_id for _ in range(3)]
    found = list_all(query=SandboxQuery(metadata={"mark": mark}), limit=2)
    assert [s.sandbox_id for s in found] == made[::-1]


def test_connected_by_id(factory):
    sandbox = factory()
    sandbox.files.write("here", "x")
    assert Sandbox.connect(sandbox.sandbox_id).files.read("here") == "x"
    with pytest.raises(NotFoundException):
        Sandbox.connect("i00000000000000000000")


def test_time_left_and_its_end(factory, until):
    sandbox = factory()
    sandbox.set_timeout(600)
    later = sandbox.get_info().end_at
    Sandbox.connect(sandbox.sandbox_id, timeout=1)
    assert sandbox.get_info().end_at == later
    sandbox.set_timeout(1)
    until(lambda: not sandbox.is_running(), "the end of its time")


def test_metrics(factory, until):
    sandbox = factory()
    metrics = until(sandbox.get_metrics, "metrics", 30)
    assert metrics[0].mem_total > 0 and metrics[0].cpu_count >= 1


def test_unknown_template():
    with pytest.raises(SandboxException, match="no-such-template"):
        Sandbox.create("no-such-template")


def test_wrong_key(template):
    with pytest.raises(AuthenticationException):
        Sandbox.create(template, api_key="e2b_" + "0" * 40)


def test_sandboxes_of_others(factory):
    request = urllib.request.Request(
        f"https://api.{os.environ['E2B_DOMAIN']}/cay/v1/keys", method="POST",
        data=json.dumps({"tenant": "sdk-python", "label": "test"}).encode(),
        headers={"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        other = json.load(answer)["key"]
    sandbox = factory()
    with pytest.raises(NotFoundException):
        Sandbox.connect(sandbox.sandbox_id, api_key=other)
    assert Sandbox.kill(sandbox.sandbox_id, api_key=other) is False
    assert list_all(api_key=other) == []
    assert sandbox.is_running()


def test_terminal(factory, until):
    sandbox = factory()
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80))
    text, output = b"", (data or b"" for _, _, data in terminal)
    while b"$ " not in text:  # readline sets back the size that it read, before each prompt
        text += next(output)
    sandbox.pty.resize(terminal.pid, PtySize(rows=41, cols=133))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; exit 3\n")
    text += b"".join(output)
    with pytest.raises(SandboxException) as caught:
        terminal.wait()
    assert caught.value.exit_code == 3
    assert b"41 133" in text


def test_git(factory):
    sandbox = factory()
    sandbox.git.init("repo")
    sandbox.files.write("repo/a", "x")
    sandbox.git.add("repo")
    sandbox.git.commit("repo", "first", author_name="a", author_email="a@example.org")
    assert sandbox.git.status("repo").is_clean
