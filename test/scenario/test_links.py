"""Nothing that runs as root contains an HTTP or JSON parser: read from the programs themselves, both what
is linked in and what is loaded."""

import re
import subprocess

import pytest

from conftest import BUILD

ROOT_PROGRAMS = {"cay-keep": "src/keep/cay-keep", "cay-privd": "src/privd/cay-privd", "cay-job": "src/job/cay-job"}
FORBIDDEN = re.compile(r"\b(llhttp_|json_(loads|object|array|parse)|http_(server|exchange|relay|client)_|uv_loop_|"
                       r"multipart_|connect_read|SSL_|EVP_|sqlite3_|curl_|inflate)")
FORBIDDEN_LIBRARIES = re.compile(r"lib(jansson|uv|llhttp|ssl|crypto|sqlite3|curl|archive|nghttp2|z)\.so")


def symbols(path):
    return subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout


def libraries(path):
    return subprocess.run(["ldd", str(path)], capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", ROOT_PROGRAMS)
def test_no_parser_runs_as_root(name):
    path = BUILD / ROOT_PROGRAMS[name]
    assert not FORBIDDEN.search(symbols(path))
    assert not FORBIDDEN_LIBRARIES.search(libraries(path))


def test_control():
    """The same search finds the parsers where they belong."""
    assert FORBIDDEN.search(symbols(BUILD / "src/cayd/cayd"))
    assert FORBIDDEN_LIBRARIES.search(libraries(BUILD / "src/cayd/cayd"))


def test_agent_has_no_openssl():
    path = BUILD / "src/agent/cay-init"
    assert not re.search(r"\b(SSL_|EVP_)", symbols(path))
    assert "statically linked" in libraries(path) + subprocess.run(
        ["file", "-b", str(path)], capture_output=True, text=True).stdout or "not a dynamic" in subprocess.run(
        ["ldd", str(path)], capture_output=True, text=True).stderr
