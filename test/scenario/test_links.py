"""Nothing that runs as root contains an HTTP or JSON parser: read from the programs themselves, both what
is linked in and what is loaded, and from the linker's maps, where all that may be linked in is a list."""

import pathlib
import re
import subprocess

import pytest

import agentlib
from conftest import BUILD

ROOT_PROGRAMS = {"cay-keep": "src/keep/cay-keep", "cay-privd": "src/privd/cay-privd", "cay-job": "src/job/cay-job"}
# Which of our libraries, and which of others', each may be linked with; a program that is no library is its own source.
ALLOWED = {"cay-keep": {"libbase", "libsys"}, "cay-job": {"libbase", "libcontract", "libjob", "libsys"},
           "cay-privd": {"libbase", "libsys", "libruntime", "libtask", "libcontract", "libprivd", "libprivd_core",
                        "libprivsep_server", "libprivsep_proto"}}
ALLOWED_SYSTEM = re.compile(r"^(libmnl|libseccomp|libgcc|libgcc_s|libc|libc_nonshared|libm|libasan|libubsan|ld-linux-x86-64|"
                            r"ld-linux-aarch64|Scrt1|crti|crtn|crtbeginS|crtendS|libasan_preinit)\.(a|o|so[.\d]*)$")
FORBIDDEN = re.compile(r"\b(llhttp_|json_(loads|object|array|parse)|http_(server|exchange|relay|client)_|uv_loop_|"
                       r"multipart_|connect_read|SSL_|EVP_|sqlite3_|curl_|inflate)")
FORBIDDEN_LIBRARIES = re.compile(r"lib(jansson|uv|llhttp|ssl|crypto|sqlite3|curl|archive|nghttp2|z)\.so")


def symbols(path):
    return subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout


def needs_a_loader(path):
    headers = subprocess.run(["readelf", "--program-headers", "--wide", str(path)], capture_output=True, text=True, check=True)
    return "INTERP" in headers.stdout


def libraries(path):
    return subprocess.run(["ldd", str(path)], capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", ROOT_PROGRAMS)
def test_no_parser_runs_as_root(name):
    path = BUILD / ROOT_PROGRAMS[name]
    assert not FORBIDDEN.search(symbols(path))
    assert not FORBIDDEN_LIBRARIES.search(libraries(path))


def beyond_list(name, text):
    """The files that a linker's map has read that are not on the program's list."""
    found = set()
    for line in re.findall(r"^LOAD (.*)$", text, re.M):
        path = pathlib.PurePosixPath(line)
        ours = not path.is_absolute() or path.is_relative_to(BUILD)
        own = ours and path.suffix == ".o" and path.parent.name == f"{name}.p"
        library = ours and path.suffix == ".a" and path.stem in ALLOWED[name]
        if not own and not library and (ours or not ALLOWED_SYSTEM.match(path.name)):
            found.add(line)
    return found


@pytest.mark.parametrize("name", ROOT_PROGRAMS)
def test_only_what_is_listed_is_linked(name):
    text = (BUILD / f"{ROOT_PROGRAMS[name]}.map").read_text()
    assert f"{name}.p/main.c.o" in text and "libbase.a" in text
    assert beyond_list(name, text) == set()


def test_control_of_maps():
    text = (BUILD / f"{ROOT_PROGRAMS['cay-keep']}.map").read_text()
    for line in ("src/http/libhttp.a", "src/privsep/libprivsep_client.a", "/usr/lib/x86_64-linux-gnu/libjansson.so",
                 "src/http/http.p/gate.c.o"):
        assert beyond_list("cay-keep", f"{text}\nLOAD {line}\n") == {line}


def test_control():
    """The same search finds the parsers where they belong."""
    assert FORBIDDEN.search(symbols(BUILD / "src/cayd/cayd"))
    assert FORBIDDEN_LIBRARIES.search(libraries(BUILD / "src/cayd/cayd"))


def test_agent_has_no_openssl():
    agentlib.need_plain_build()
    path = BUILD / "src/agent/cay-init"
    assert not re.search(r"\b(SSL_|EVP_)", symbols(path))
    assert not needs_a_loader(path) and needs_a_loader(BUILD / "src/cayd/cayd")
