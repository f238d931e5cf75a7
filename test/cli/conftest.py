"""The command line against the server that CAY_CONFIG names; CAY is the program."""

import os
import subprocess

import pytest

CAY = os.environ["CAY"]


class Cay:
    def __call__(self, *arguments, stdin=b"", seconds=60, env=None, text=True):
        """Runs cay to its end with pipes on all sides."""
        done = subprocess.run([CAY, *map(str, arguments)], input=stdin, capture_output=True, timeout=seconds,
                              env={**os.environ, **(env or {})})
        if text:
            done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        return done

    def start(self, *arguments, **more):
        return subprocess.Popen([CAY, *map(str, arguments)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


@pytest.fixture(scope="session")
def cay():
    return Cay()


@pytest.fixture(scope="module")
def box(cay):
    """A single sandbox for a file's tests."""
    made = cay("create", "host", "--ttl=10m", "-q")
    assert made.returncode == 0, made.stderr
    yield made.stdout.strip()
    cay("kill", "-q", made.stdout.strip())
