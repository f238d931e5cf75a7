"""Daytona's Python SDK, unmodified, and LangChain's deepagents above it: the example of examples/python, as it is."""

import os
import pathlib
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest
from daytona import CreateSandboxFromSnapshotParams, Daytona, DaytonaConfig, DaytonaNotFoundError, DaytonaTimeoutError, DaytonaValidationError, Resources, SessionExecuteRequest, VolumeMount

URL, KEY = f"https://{os.environ['E2B_DOMAIN']}/api", os.environ["E2B_API_KEY"]
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples/python"


@pytest.fixture(scope="module")
def daytona():
    return Daytona(DaytonaConfig(api_key=KEY, api_url=URL))


@pytest.fixture(scope="module")
def sandbox(daytona):
    made = daytona.create(CreateSandboxFromSnapshotParams(snapshot="host", env_vars={"MADE": "yes"}))
    yield made
    made.delete()


def test_a_command(sandbox):
    done = sandbox.process.exec("echo $A $MADE; id -un; exit 3", env={"A": "b"})
    assert (done.exit_code, done.result) == (3, "b yes\ndaytona\n")


def test_a_session(sandbox):
    sandbox.process.create_session("s")
    run = lambda command: sandbox.process.execute_session_command("s", SessionExecuteRequest(command=command))  # noqa: E731
    run("cd /tmp; export B=1")
    done = run("echo $PWD $B; echo err >&2")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "/tmp 1\n", "err\n")
    sandbox.process.delete_session("s")
    with pytest.raises(DaytonaNotFoundError):
        sandbox.process.get_session("s")


def test_waits_end_by_an_event(sandbox, monkeypatch):
    """Nothing else can end them: polling beside the events is switched off."""
    def call(step):
        request = urllib.request.Request(f"{URL}/sandbox/{sandbox.id}/{step}", method="POST", headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 200

    monkeypatch.setattr(type(sandbox), "refresh_data", lambda self: None)
    for step, wait in (("stop", sandbox.wait_for_sandbox_stop), ("start", sandbox.wait_for_sandbox_start)):
        caller = threading.Timer(0.2, call, [step])
        caller.start()
        wait(timeout=30)
        caller.join()
        assert sandbox.state.value == {"stop": "stopped", "start": "started"}[step]


def test_the_interpreter(sandbox):
    seen, errors, python = [], [], sandbox.code_interpreter
    assert python.run_code("x = 41").error is None
    done = python.run_code("print(x + 1)\n1 / 0", on_stdout=lambda m: seen.append(m.output), on_error=errors.append)
    assert (done.stdout, "".join(seen), done.error.name, errors[0].value) == ("42\n", "42\n", "ZeroDivisionError", "division by zero")
    context = python.create_context(cwd="/tmp")
    assert [c.id for c in python.list_contexts()] == [context.id] and context.cwd == "/tmp"
    done = python.run_code("import os; print('x' in globals(), os.getcwd(), os.environ['A'])", context=context, envs={"A": "b"})
    assert done.stdout == "False /tmp b\n"
    python.delete_context(context)
    with pytest.raises(DaytonaTimeoutError):
        python.run_code("import time; time.sleep(600)", timeout=1)
    assert python.run_code("print(x)").stdout == "41\n"


def test_the_time_after_which_a_stopped_one_is_deleted(daytona):
    one = daytona.create(CreateSandboxFromSnapshotParams(snapshot="host", auto_delete_interval=15))
    assert one.auto_delete_interval == 15
    one.stop()
    for minutes in (30, -1):
        one.set_auto_delete_interval(minutes)
        one.refresh_data()
        assert (one.auto_delete_interval, one.state.value) == (minutes, "stopped")
    one.set_auto_delete_interval(0)
    with pytest.raises(DaytonaNotFoundError):
        daytona.get(one.id)


def test_a_fork_and_a_snapshot(daytona, sandbox):
    sandbox.fs.upload_file(b"one", "forked")
    fork = sandbox.fork(name="py-fork")
    try:
        assert (fork.name, fork.state.value, fork.fs.download_file("forked")) == ("py-fork", "started", b"one")
    finally:
        fork.delete()
    sandbox.create_snapshot("py-snapshot")
    shown = daytona.snapshot.get("py-snapshot")
    assert shown.state.value == "active" and "py-snapshot" in [one.name for one in daytona.snapshot.list().items]
    made = daytona.create(CreateSandboxFromSnapshotParams(snapshot="py-snapshot"))
    try:
        assert made.fs.download_file("forked") == b"one"
    finally:
        made.delete()
        daytona.snapshot.delete(shown)
    with pytest.raises(DaytonaNotFoundError):
        daytona.snapshot.get("py-snapshot")


def test_files(sandbox):
    sandbox.fs.create_folder("work", "755")
    sandbox.fs.upload_file(b"hello", "work/a b.txt")
    assert sandbox.fs.download_file("work/a b.txt") == b"hello"
    assert [(f.name, f.size, f.is_dir) for f in sandbox.fs.list_files("work")] == [("a b.txt", 5, False)]
    assert sandbox.fs.search_files("work", "*.txt").files == ["work/a b.txt"]


def test_signed_urls_of_files(sandbox):
    tls = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE"))
    follow = lambda url, body=None: urllib.request.urlopen(urllib.request.Request(url, body), context=tls).read()  # noqa: E731
    follow(sandbox.upload_url("signed é.txt"), b"hello")
    url = sandbox.download_url("signed é.txt", 60)
    assert follow(url) == follow(sandbox.download_url("signed é.txt", 0)) == b"hello"
    sandbox.rotate_signing_key()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        follow(url)
    assert follow(sandbox.download_url("signed é.txt")) == b"hello"


def test_a_stop_keeps_the_files(sandbox):
    sandbox.process.exec("echo kept >kept")
    sandbox.stop()
    sandbox.start()
    assert sandbox.process.exec("cat kept; echo $MADE").result == "kept\nyes\n"


def test_a_resize(sandbox):
    whole = sandbox.cpu
    sandbox.stop()
    sandbox.resize(Resources(cpu=1))
    assert (sandbox.cpu, sandbox.state.value) == (1, "stopped")
    sandbox.start()
    sandbox.resize(Resources(cpu=whole))
    assert (sandbox.cpu, sandbox.state.value) == (whole, "started")
    for less, why in ((Resources(cpu=1), "stopped state to decrease"), (Resources(disk=9), "stopped sandbox"), (Resources(cpu=1000), "at most")):
        with pytest.raises(DaytonaValidationError, match=why):
            sandbox.resize(less)
    assert sandbox.process.exec("echo on").result == "on\n"


def test_a_volume_outlives_its_sandboxes(daytona):
    volume = daytona.volume.get("daytona-py", create=True)
    try:
        assert volume.id in [one.id for one in daytona.volume.list()]
        for command, result in (("echo kept > /mnt/data/here", ""), ("cat /mnt/data/here", "kept\n")):
            made = daytona.create(CreateSandboxFromSnapshotParams(
                snapshot="host", volumes=[VolumeMount(volume_id=volume.id, mount_path="/mnt/data")]))
            try:
                assert made.process.exec(command).result == result
            finally:
                made.delete()
    finally:
        daytona.volume.delete(volume)
    with pytest.raises(DaytonaNotFoundError):
        daytona.volume.get("daytona-py")


def test_deepagents():
    env = {**os.environ, "DAYTONA_API_URL": URL, "DAYTONA_API_KEY": KEY, "MODEL": ""}
    done = subprocess.run([sys.executable, EXAMPLES / "deepagents_daytona.py"], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "tool: 285\n\n[Command succeeded with exit code 0]\nai: The script has run.\n" in done.stdout


def test_code_analysis(tmp_path):
    """The example of a graph whose tool runs in a sandbox: it is given code whose longest functions the test knows. The code of a
    virtual environment is not copied into the sandbox, though its function would be the longest."""
    def code(path, name, lines):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def {name}():\n" + "    pass\n" * (lines - 1))

    code(tmp_path / "long.py", "longest", 7)
    code(tmp_path / "parts/short.py", "second", 4)
    code(tmp_path / "v/lib/other.py", "foreign", 9)
    (tmp_path / "v/pyvenv.cfg").touch()
    env = {**os.environ, "DAYTONA_API_URL": URL, "DAYTONA_API_KEY": KEY, "MODEL": "", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, EXAMPLES / "code_analysis.py", tmp_path], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert " 7 ./long.py\n" in done.stdout and " 4 ./parts/short.py\n" in done.stdout and done.stdout.count("[exit status 0]") == 2
    assert "7 long.py:1 longest\n4 parts/short.py:1 second\n[exit" in done.stdout and "foreign" not in done.stdout
    assert done.stdout.endswith("ai: The longest functions are those above: look there first.\n")
