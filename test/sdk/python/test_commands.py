import pytest
from e2b import CommandExitException, InvalidArgumentException, TimeoutException


def test_output_error_and_code(sandbox):
    result = sandbox.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 0)


def test_failure_carries_everything(sandbox):
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run("echo so far; echo why >&2; exit 7")
    assert (caught.value.exit_code, caught.value.stdout, caught.value.stderr) == (7, "so far\n", "why\n")


def test_special_characters(sandbox):
    text = "'\"$`\\ ü 漢字 😀 \t|;&<>"
    assert sandbox.commands.run('printf %s "$TEXT"', envs={"TEXT": text}).stdout == text


def test_streamed_output(sandbox):
    seen = []
    sandbox.commands.run("for i in 1 2 3; do echo $i; sleep 0.2; done", on_stdout=seen.append)
    assert "".join(seen) == "1\n2\n3\n"
    assert len(seen) > 1, "all of it came at once"


def test_environment(sandbox):
    assert sandbox.commands.run("echo $GLOBAL-$OWN", envs={"OWN": "o"}).stdout == "g-o\n"
    assert sandbox.commands.run("echo $GLOBAL-$OWN", envs={"GLOBAL": "x"}).stdout == "x-\n"


def test_user_and_directory(sandbox):
    assert sandbox.commands.run("id -un; pwd").stdout == "user\n/home/user\n"
    assert sandbox.commands.run("id -u; pwd", user="root", cwd="/tmp").stdout == "0\n/tmp\n"
    with pytest.raises(InvalidArgumentException):
        sandbox.commands.run("true", cwd="/nowhere")


def test_timeout(sandbox):
    with pytest.raises(TimeoutException):
        sandbox.commands.run("sleep 60", timeout=1)


def test_background_list_kill(sandbox):
    handle = sandbox.commands.run("sleep 3600", background=True)
    assert any(p.pid == handle.pid for p in sandbox.commands.list())
    assert sandbox.commands.kill(handle.pid) is True
    with pytest.raises(CommandExitException):
        handle.wait()
    with pytest.raises(CommandExitException):
        sandbox.commands.run(f"kill -0 {handle.pid}")
    assert sandbox.commands.kill(handle.pid) is False


def test_standard_input(sandbox):
    handle = sandbox.commands.run("read a; read b; echo $b$a", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "one\n")
    sandbox.commands.send_stdin(handle.pid, "zwei ü\n")
    assert handle.wait().stdout == "zwei üone\n"


def test_connect(sandbox):
    handle = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
    handle.disconnect()
    again = sandbox.commands.connect(handle.pid)
    sandbox.commands.send_stdin(handle.pid, "it\n")
    assert again.wait().stdout == "got it\n"


def test_sandbox_killed_during_a_command(factory):
    sandbox = factory()
    handle = sandbox.commands.run("sleep 3600", background=True)
    sandbox.kill()
    with pytest.raises(TimeoutException):
        handle.wait()
