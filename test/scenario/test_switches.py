"""The switches that take a defence away (src/base/test_bypass.h) are in test builds only."""

import pathlib
import subprocess

import pytest

from conftest import BUILD, REPOSITORY

PROGRAMS = ("privd/cay-privd", "agent/cay-init", "job/cay-job", "keep/cay-keep", "cayd/cayd")


def holds_switches(path):
    return b"TEST BUILD: the defence" in pathlib.Path(path).read_bytes()


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_switch_inside(program):
    assert not holds_switches(BUILD / "src" / program)


@pytest.mark.parametrize("name", ["seccomp", "capabilities", ""])
def test_the_option_is_unknown(name):
    done = subprocess.run([BUILD / "src/privd/cay-privd", f"--without={name}", "--agent=/x", "--job=/x",
                           "--peer-uid=1"], capture_output=True, text=True, timeout=10)
    assert done.returncode != 0 and f"unknown option --without={name}" in done.stderr


def test_control():
    """The search above finds the text where it is: in the test build, if it was made."""
    test_build = REPOSITORY / "build-escapes/src/privd/cay-privd"
    if not test_build.exists():
        pytest.skip(f"no test build at {test_build}")
    assert holds_switches(test_build)
