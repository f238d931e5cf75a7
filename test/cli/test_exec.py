"""exec and run: pipes, terminals, exit statuses, signals."""

import fcntl
import hashlib
import json
import os
import pty
import select
import signal
import struct
import termios
import time

import pytest

from conftest import CAY


def test_output_and_status(cay, box):
    done = cay("exec", box, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


@pytest.mark.parametrize("command, status", [
    (["nosuchprogram"], 127),
    (["/etc/passwd"], 126),
    (["sh", "-c", "kill -9 $$"], 128 + 9),
    (["sh", "-c", "kill -TERM $$"], 128 + 15),
    (["true"], 0),
])
def test_statuses(cay, box, command, status):
    assert cay("exec", box, *command).returncode == status


def test_input_is_passed_on_to_its_end(cay, box):
    data = os.urandom(3_000_000)
    done = cay("exec", box, "sha256sum", stdin=data)
    assert done.stdout.split()[0] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("given", ["", "a line\n", "no end"])
def test_a_terminal_has_the_end_of_input_too(cay, box, given):
    done = cay("exec", "-t", box, "cat", stdin=given.encode())
    assert done.returncode == 0 and given.strip() in done.stdout


def test_output_is_passed_on_whole(cay, box):
    done = cay("exec", "-n", box, "head", "-c", 5_000_000, "/dev/zero", text=False)
    assert done.stdout == bytes(5_000_000)


def test_user_directory_environment(cay, box):
    done = cay("exec", "-u", "root", "-w", "/tmp", "-e", "A=b c", box, "sh", "-c", 'id -u; pwd; echo "$A"')
    assert done.stdout == "0\n/tmp\nb c\n"


def test_timeout(cay, box):
    done = cay("exec", "--timeout=300ms", box, "sleep", 60)
    assert done.returncode == 124
    assert "did not end within 300 ms" in done.stderr


def test_options_after_the_command_are_its_own(cay, box):
    assert cay("exec", box, "echo", "--json", "-u", "x").stdout == "--json -u x\n"


def test_json(cay, box):
    done = cay("exec", "--json", box, "sh", "-c", "echo a; echo b >&2; exit 3")
    assert done.returncode == 3
    shown = json.loads(done.stdout)
    assert (shown["stdout"], shown["stderr"], shown["exitCode"]) == ("a\n", "b\n", 3)


def test_a_closed_pipe_ends_the_command(cay, box):
    running = cay.start("exec", box, "yes")
    assert running.stdout.read(4) == b"y\ny\n"
    running.stdout.close()
    assert running.wait(30) == 128 + signal.SIGPIPE
    assert "yes" not in cay("exec", box, "sh", "-c", "cat /proc/[0-9]*/comm").stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_command(cay, box, number):
    running = cay.start("exec", box, "sh", "-c", "echo ready; exec sleep 3600")
    assert running.stdout.readline() == b"ready\n"
    running.send_signal(number)
    assert running.wait(30) == 128 + number
    assert "sleep" not in cay("exec", box, "sh", "-c", "cat /proc/[0-9]*/comm").stdout


def test_a_second_signal_kills(cay, box):
    running = cay.start("exec", box, "sh", "-c", "trap 'echo no' TERM; echo ready; while :; do sleep 0.1; done")
    assert running.stdout.readline() == b"ready\n"
    running.send_signal(signal.SIGINT)
    assert running.stdout.readline() == b"no\n"
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 128 + signal.SIGKILL


def test_a_killed_sandbox_is_said_so(cay):
    other = cay("create", "host", "-q").stdout.strip()
    running = cay.start("exec", other, "sh", "-c", "echo ready; exec sleep 3600")
    assert running.stdout.readline() == b"ready\n"
    assert cay("kill", other).returncode == 0
    assert running.wait(30) == 125
    assert b"ended while the command ran" in running.stderr.read()


@pytest.mark.parametrize("option, goes_on", [((), b"lets it go on"), (("--files",), b"run the command again")])
def test_a_paused_sandbox_is_said_so(cay, option, goes_on):
    """And how to go on; the command of one that is frozen does."""
    other = cay("create", "host", "-q").stdout.strip()
    running = cay.start("exec", other, "sh", "-c", "echo ready; exec sleep 3600")
    assert running.stdout.readline() == b"ready\n"
    paused = cay("pause", *option, other)
    if option and "btrfs" in paused.stderr:
        cay("kill", other)
        running.wait(30)
        pytest.skip(paused.stderr)
    assert paused.returncode == 0, paused.stderr
    assert running.wait(30) == 125
    said = running.stderr.read()
    assert b"was paused while the command ran" in said and goes_on in said and f"`cay resume {other}`".encode() in said
    assert cay("resume", other).returncode == 0
    assert ("sleep" in cay("exec", other, "sh", "-c", "cat /proc/[0-9]*/comm").stdout) == (not option)
    assert cay("kill", other).returncode == 0


def ids(cay):
    return set(cay("ls", "-q").stdout.split())


def test_run_leaves_nothing(cay):
    before = ids(cay)
    done = cay("run", "-q", "--template=host", "sh", "-c", "echo $E2B_SANDBOX; exit 5")
    assert (done.returncode, done.stdout) == (5, "true\n")
    assert cay("run", "-q", "--template=host", "nosuchprogram").returncode == 127
    assert ids(cay) == before


def test_run_leaves_nothing_after_a_signal(cay):
    before = ids(cay)
    running = cay.start("run", "-q", "--template=host", "sh", "-c", "echo ready; exec sleep 3600")
    assert running.stdout.readline() == b"ready\n"
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 128 + signal.SIGTERM
    assert ids(cay) == before


class Terminal:
    """cay at a terminal of this test."""

    def __init__(self, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(CAY, [CAY, *arguments])
        self.text = b""
        self.resize(30, 100)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def sees(self, text, seconds=20):
        end = time.monotonic() + seconds
        while text not in self.text:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {text!r} in {self.text!r}"
            self.text += os.read(self.fd, 65536)

    def type(self, text):
        os.write(self.fd, text)

    def status(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_shell_at_a_terminal(cay, box):
    terminal = Terminal("exec", box)
    terminal.sees(b"$ ")
    terminal.type(b"stty size; echo $((40+2))-$TERM\r")
    terminal.sees(b"30 100")
    terminal.sees(b"42-")
    terminal.resize(41, 133)
    terminal.type(b"sleep 0.3; stty size\r")
    terminal.sees(b"41 133")
    terminal.type(b"sleep 3600\r")
    terminal.sees(b"sleep 3600")
    time.sleep(0.5)
    terminal.type(b"\x03")
    terminal.type(b"echo still $((40+3)); exit 9\r")
    terminal.sees(b"still 43")
    assert terminal.status() == 9
