"""The agent's files: filesystem service, watchers, HTTP files. cay-init alone, in namespaces that the tests
make. The process service is tested in test_agent.py."""

import concurrent.futures
import ctypes
import gzip
import hashlib
import http.client
import json
import os
import pathlib
import random
import socket
import struct
import threading
import time

import pytest

import agentlib
from conftest import BUILD
from waitlib import until

BINARY = BUILD / "src/agent/cay-init"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of the tests' own need root")

OCTETS = {"Content-Type": "application/octet-stream"}
CHILD_CAPS = 0x00000000A80425FB  # what containers usually have


class Files:
    """The tests' requests to one agent, and a look at its files from outside."""

    def __init__(self, agent):
        self.agent = agent
        self.root = pathlib.Path(f"/proc/{agent.pid}/root")

    def rpc(self, method, user=None, headers=None, **request):
        status, data, _ = self.agent.raw("POST", f"/filesystem.Filesystem/{method}",
                                         json.dumps(request).encode(),
                                         {"Content-Type": "application/json", **(headers or {})}, user, 60)
        return status, json.loads(data)

    def good(self, method, **request):
        status, answer = self.rpc(method, **request)
        assert status == 200, answer
        return answer

    def bad(self, method, **request):
        status, answer = self.rpc(method, **request)
        assert status != 200, answer
        return answer["code"]

    def watch(self, headers=None, **request):
        text = json.dumps(request).encode()
        connection = agentlib.Connection(self.agent, 20)
        connection.request("POST", "/filesystem.Filesystem/WatchDir", struct.pack(">BI", 0, len(text)) + text,
                           self.agent._headers({"Content-Type": "application/connect+json", **(headers or {})}, None))
        return agentlib.Stream(connection, connection.getresponse())

    def get(self, path, method="GET", query="", **headers):
        return self.agent.raw(method, f"/files?path={path}{query}", None,
                              {k.replace("_", "-"): v for k, v in headers.items()}, None, 60)

    def put(self, path, body=b"", query="", **headers):
        status, data, _ = self.agent.raw("POST", f"/files?path={path}{query}", body,
                                         {**OCTETS, **{k.replace("_", "-"): v for k, v in headers.items()}}, None, 60)
        return status, json.loads(data)

    def form(self, parts, query="", headers=None):
        """parts: (form name, file name or None, bytes)."""
        body = b""
        for name, filename, data in parts:
            body += b'--b\r\nContent-Disposition: form-data; name="' + name.encode() + b'"'
            if filename is not None:
                body += b'; filename="' + filename.encode() + b'"'
            body += b"\r\nContent-Type: application/octet-stream\r\n\r\n" + data + b"\r\n"
        body += b"--b--\r\n"
        status, data, _ = self.agent.raw("POST", f"/files{query}", body,
                                         {"Content-Type": "multipart/form-data; boundary=b", **(headers or {})})
        return status, json.loads(data)

    def inside(self, path):
        """The host's path of an absolute path without links."""
        return self.root / path.lstrip("/")

    def sh(self, script, user="root"):
        result = self.agent.sh(script, user=user)
        assert result.end and result.end.get("exitCode", 0) == 0, (result.end, result.text("stderr"))
        return result.text()


@pytest.fixture(scope="module", params=["plain", "booted"])
def files(request, tmp_path_factory):
    """Both ways to run: as root in development mode, and under its own uid with capabilities."""
    if request.param == "plain":
        agent = agentlib.start_plain(BINARY)
    else:
        cgroup = tmp_path_factory.mktemp("cgroup") / "tasks"
        cgroup.write_text("")
        agent, said = agentlib.start_booted(BINARY, CHILD_CAPS, cgroup)
        assert said == b"R", said
    yield Files(agent)
    agent.stop()


@pytest.fixture
def home(files, request):
    """An empty directory of the user's own; its name relative to the home."""
    name = "t-" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    files.good("Remove", path=name)
    files.good("MakeDir", path=name)
    yield name
    files.good("Remove", path=name)


# -- Stat, MakeDir, Move ------------------------------------------------------------------------------


def test_stat_of_a_file(files, home):
    files.put(f"{home}/a.txt", b"12345")
    entry = files.good("Stat", path=f"{home}/a.txt")["entry"]
    assert entry["name"] == "a.txt" and entry["type"] == "FILE_TYPE_FILE"
    assert entry["path"] == f"/home/user/{home}/a.txt" and entry["size"] == "5"
    assert entry["permissions"] == "-rw-r--r--" and entry["mode"] == 0o644
    assert entry["owner"] == "user" and entry["group"] == "user"
    assert entry["modifiedTime"].endswith("Z") and "symlinkTarget" not in entry and "metadata" not in entry


def test_stat_of_links(files, home):
    files.put(f"{home}/a.txt", b"12345")
    files.sh(f"cd /home/user/{home}; ln -s a.txt good; ln -s none bad; ln -s loop loop", user="user")
    good = files.good("Stat", path=f"{home}/good")["entry"]
    assert good["type"] == "FILE_TYPE_FILE" and good["permissions"] == "Lrwxrwxrwx"
    assert good["symlinkTarget"] == f"/home/user/{home}/a.txt" and good["mode"] == 0o644
    for name in "bad", "loop":
        entry = files.good("Stat", path=f"{home}/{name}")["entry"]
        assert "type" not in entry and entry["symlinkTarget"] == f"/home/user/{home}/{name}"


@pytest.mark.parametrize("path, user, want", [
    ("", None, "/home/user"), ("~", None, "/home/user"), ("~/", "root", "/root"), (".", "root", "/root"),
    ("../../etc/./", None, "/etc"), ("/tmp//", None, "/tmp"),
])
def test_paths_of_users(files, path, user, want):
    status, answer = files.rpc("Stat", user=user, path=path)
    assert status == 200 and answer["entry"]["path"] == want


@pytest.mark.parametrize("request_, code", [
    ({"path": "none"}, "not_found"), ({"path": "~root"}, "invalid_argument"),
    ({"path": "x" * 5000}, "invalid_argument"), ({"path": 5}, "invalid_argument"),
    ({"path": "a\0b"}, "invalid_argument"), ({"path": "/etc/passwd/x"}, "invalid_argument"),
])
def test_stat_refused(files, request_, code):
    assert files.bad("Stat", **request_) == code


def test_unknown_user(files):
    status, answer = files.rpc("Stat", user="nobody-here", path="/")
    assert status == 401 and answer["code"] == "unauthenticated"


def test_make_dir(files, home):
    entry = files.good("MakeDir", path=f"{home}/a/b")["entry"]
    assert entry["type"] == "FILE_TYPE_DIRECTORY" and entry["permissions"] == "drwxr-xr-x"
    for name in "a", "a/b":
        st = files.inside(f"/home/user/{home}/{name}").stat()
        assert (st.st_uid, st.st_gid, st.st_mode & 0o7777) == (1000, 1000, 0o755)
    assert files.bad("MakeDir", path=f"{home}/a/b") == "already_exists"
    files.put(f"{home}/file")
    assert files.bad("MakeDir", path=f"{home}/file") == "invalid_argument"
    assert files.bad("MakeDir", path=f"{home}/file/x") == "invalid_argument"


def test_move(files, home):
    files.put(f"{home}/a", b"1")
    entry = files.good("Move", source=f"{home}/a", destination=f"{home}/new/dir/b")["entry"]
    assert entry["path"] == f"/home/user/{home}/new/dir/b" and entry["size"] == "1"
    assert files.inside(f"/home/user/{home}/new/dir").stat().st_uid == 1000
    assert files.bad("Move", source=f"{home}/a", destination=f"{home}/c") == "not_found"
    files.good("MakeDir", path=f"{home}/d")
    assert files.bad("Move", source=f"{home}/new", destination=f"{home}/d") == "already_exists"
    assert files.bad("Move", source=f"{home}/new", destination=f"{home}/new/dir/in") == "invalid_argument"


def test_move_between_file_systems(files, home):
    """/home and /tmp are two tmpfs here; to a client they are one disk."""
    files.sh(f"""cd /home/user/{home}; mkdir -p tree/sub/deep; echo text > tree/sub/f; chmod 751 tree/sub
             ln -s ../nowhere tree/link; mkfifo tree/pipe; chown 0:0 tree/sub/f; chmod 4755 tree/sub/f
             head -c 3000000 /dev/urandom > tree/big; touch -d 2001-02-03 tree/sub/deep tree/big""")
    files.sh(f"rm -rf /tmp/{home}")
    digest = hashlib.sha256(files.inside(f"/home/user/{home}/tree/big").read_bytes()).hexdigest()
    entry = files.good("Move", source=f"{home}/tree", destination=f"/tmp/{home}/moved")["entry"]
    assert entry["type"] == "FILE_TYPE_DIRECTORY"
    moved = files.inside(f"/tmp/{home}/moved")
    assert hashlib.sha256((moved / "big").read_bytes()).hexdigest() == digest
    assert os.readlink(moved / "link") == "../nowhere" and (moved / "pipe").is_fifo()
    assert (moved / "sub").stat().st_mode & 0o7777 == 0o751
    st = (moved / "sub/f").stat()
    assert (st.st_uid, st.st_mode & 0o7777) == (0, 0o4755) and (moved / "sub/f").read_text() == "text\n"
    assert int((moved / "sub/deep").stat().st_mtime) == int((moved / "big").stat().st_mtime) < 10**9
    assert files.bad("Stat", path=f"{home}/tree") == "not_found"
    assert os.listdir(moved.parent) == ["moved"]
    files.good("Move", source=f"/tmp/{home}/moved/big", destination=f"{home}/big")
    assert files.inside(f"/home/user/{home}/big").stat().st_size == 3000000
    files.good("Remove", path=f"/tmp/{home}")


# -- ListDir ------------------------------------------------------------------------------------------


def names(answer):
    return [entry["path"].split("/", 4)[4] for entry in answer["entries"]]


def test_list_depths_and_order(files, home):
    for name in "b/y/z", "b/x", "a", "b.c":
        files.put(f"{home}/{name}")
    assert names(files.good("ListDir", path=home)) == ["a", "b", "b.c"]
    assert names(files.good("ListDir", path=home, depth=0)) == ["a", "b", "b.c"]
    assert names(files.good("ListDir", path=home, depth=2)) == ["a", "b", "b/x", "b/y", "b.c"]
    assert names(files.good("ListDir", path=home, depth=9)) == ["a", "b", "b/x", "b/y", "b/y/z", "b.c"]


def test_list_follows_only_the_directory_asked_for(files, home):
    files.put(f"{home}/d/f")
    files.sh(f"cd /home/user/{home}; ln -s d link; ln -s link chain; ln -s loop loop")
    assert names(files.good("ListDir", path=f"{home}/chain")) == ["chain/f"]
    assert names(files.good("ListDir", path=home, depth=5)) == ["chain", "d", "d/f", "link", "loop"]
    assert files.bad("ListDir", path=f"{home}/loop") == "failed_precondition"
    assert files.bad("ListDir", path=f"{home}/d/f") == "invalid_argument"
    assert files.bad("ListDir", path=f"{home}/none") == "not_found"
    assert files.bad("ListDir", path=home, depth=-1) == "invalid_argument"


def test_list_of_names_that_are_no_text(files, home):
    directory = files.inside(f"/home/user/{home}")
    (directory / os.fsdecode(b"\xff\xfe")).touch()
    (directory / 'q"uo\\te\n').touch()
    assert [e["name"] for e in files.good("ListDir", path=home)["entries"]] == ['q"uo\\te\n', "\ufffd\ufffd"]


def test_list_of_very_many(files, home):
    """Large answers are streamed; over the maximum it is an error, not half an answer."""
    directory = files.inside(f"/home/user/{home}")
    want = [f"file-{i:06}" for i in range(30000)]
    fd = os.open(directory, os.O_RDONLY)
    for name in random.sample(want, len(want)):
        os.mknod(name, 0o600, dir_fd=fd)
    assert [e["name"] for e in files.good("ListDir", path=home)["entries"]] == want
    for i in range(70001):
        os.mknod(f"more-{i}", 0o600, dir_fd=fd)
    os.close(fd)
    status, answer = files.rpc("ListDir", path=home)
    assert (status, answer["code"]) == (429, "resource_exhausted") and "100000" in answer["message"]


# -- Remove -------------------------------------------------------------------------------------------


def test_remove(files, home):
    files.put(f"{home}/keep/f")
    files.sh(f"cd /home/user/{home}; mkdir -p t/a; ln -s ../../keep t/a/link; touch t/f; chmod 0 t/a t/f", user="user")
    assert files.good("Remove", path=f"{home}/t") == {}
    assert names(files.good("ListDir", path=home, depth=3)) == ["keep", "keep/f"]
    assert files.good("Remove", path=f"{home}/t") == {}
    assert files.bad("Remove", path="/") != ""
    assert files.bad("Remove", path="/proc/self") != ""


def test_remove_of_very_many_does_not_hold_others_up(files, home):
    directory = files.inside(f"/home/user/{home}/many")
    directory.mkdir()
    for d in range(40):
        (directory / str(d)).mkdir()
        fd = os.open(directory / str(d), os.O_RDONLY)
        for i in range(2000):
            os.mknod(str(i), 0o600, dir_fd=fd)
        os.close(fd)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        removal = pool.submit(files.good, "Remove", path=f"{home}/many")
        slowest = 0.0
        while not removal.done():
            start = time.monotonic()
            files.good("Stat", path="/")
            slowest = max(slowest, time.monotonic() - start)
        assert removal.result() == {}
    assert not directory.exists() and slowest < 0.5


# -- GET /files ---------------------------------------------------------------------------------------


def test_get(files, home):
    files.put(f"{home}/a.txt", b"hello")
    status, data, headers = files.get(f"{home}/a.txt")
    assert (status, data) == (200, b"hello") and headers["Content-Length"] == "5"
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["Content-Disposition"] == "inline; filename=a.txt"
    status, data, headers = files.get(f"{home}/a.txt", method="HEAD")
    assert (status, data, headers["Content-Length"]) == (200, b"", "5")


@pytest.mark.parametrize("name, want", [
    ("my%20document.pdf", 'inline; filename="my document.pdf"'), ('file%22name', 'inline; filename="file\\"name"'),
    ("%E6%96%87.pdf", "inline; filename*=utf-8''%E6%96%87.pdf"), (".env", "inline; filename=.env"),
    ("new%0Aline", "inline; filename*=utf-8''new%0Aline"),
])
def test_content_disposition(files, home, name, want):
    files.put(f"{home}/{name}", b"x")
    assert files.get(f"{home}/{name}")[2]["Content-Disposition"] == want


@pytest.mark.parametrize("path, status", [
    ("/none", 404), ("/etc", 400), ("/etc/passwd/x", 404), ("~root", 400), ("/dev/zero", 400), ("/dev/tty", 400),
    ("%00", 400), ("%zz", 400), ("/etc/passwd&username=nobody-here", 401), ("/" + "x" * 5000, 400), ("", 400),
])
def test_get_refused(files, path, status):
    got, data, headers = files.get(path)
    error = json.loads(data)
    assert (got, error["code"]) == (status, status) and error["message"]
    assert headers["Content-Type"] == "application/json"


def test_get_ranges(files, home):
    files.put(f"{home}/f", b"0123456789")
    for asked, want, content_range in [("bytes=2-4", b"234", "bytes 2-4/10"), ("bytes=7-", b"789", "bytes 7-9/10"),
                                       ("bytes=-3", b"789", "bytes 7-9/10"), ("bytes=8-99", b"89", "bytes 8-9/10")]:
        status, data, headers = files.get(f"{home}/f", Range=asked)
        assert (status, data, headers["Content-Range"]) == (206, want, content_range)
    status, _, headers = files.get(f"{home}/f", Range="bytes=10-")
    assert status == 416 and headers["Content-Range"] == "bytes */10"
    for asked in "bytes=4-2", "lines=1-2", "bytes=0-1,4-5":
        assert files.get(f"{home}/f", Range=asked)[:2] == (200, b"0123456789")
    assert files.get(f"{home}/f", Range="bytes=0-1", Accept_Encoding="gzip")[1] == b"01"
    assert files.get(f"{home}/f", Range="bytes=0-1", Accept_Encoding="gzip, identity;q=0")[0] == 406


def test_get_conditions(files, home):
    files.put(f"{home}/f", b"0123456789")
    modified = files.get(f"{home}/f")[2]["Last-Modified"]
    old = "Thu, 01 Jan 2015 00:00:00 GMT"
    assert files.get(f"{home}/f", If_Modified_Since=modified)[:2] == (304, b"")
    assert files.get(f"{home}/f", If_Modified_Since=old)[0] == 200
    assert files.get(f"{home}/f", If_Unmodified_Since=old)[0] == 412
    assert files.get(f"{home}/f", If_None_Match="*")[0] == 304
    assert files.get(f"{home}/f", If_None_Match='"x"', If_Modified_Since=modified)[0] == 200
    assert files.get(f"{home}/f", Range="bytes=0-1", If_Range=modified)[0] == 206
    assert files.get(f"{home}/f", Range="bytes=0-1", If_Range=old)[0] == 200


def test_get_gzip(files, home):
    text, noise = b"all work and no play\n" * 50000, os.urandom(1_000_000)
    files.put(f"{home}/text", text)
    files.put(f"{home}/noise", noise)
    status, data, headers = files.get(f"{home}/text", Accept_Encoding="gzip, deflate")
    assert headers["Content-Encoding"] == "gzip" and gzip.decompress(data) == text and len(data) < len(text) / 10
    status, data, headers = files.get(f"{home}/noise", Accept_Encoding="gzip")
    assert "Content-Encoding" not in headers and data == noise  # would only cost time
    assert files.get(f"{home}/text", Accept_Encoding="identity;q=0")[0] == 406
    assert files.get(f"{home}/text", Accept_Encoding="br")[1] == text


def test_get_of_proc_and_sys_whose_sizes_lie(files):
    for headers in {}, {"Accept_Encoding": "gzip"}:
        status, data, got = files.get("/proc/meminfo", **headers)
        data = gzip.decompress(data) if got["Content-Encoding"] == "gzip" else data
        assert status == 200 and data.startswith(b"MemTotal:") and data.endswith(b" kB\n")
    status, data, _ = files.get("/sys/devices/system/cpu/online")
    assert status == 200 and data.startswith(b"0") and data.endswith(b"\n")


@pytest.mark.parametrize("path", [
    "/proc/self/mem", "/proc/self/environ", "/proc/1/mem", "/proc/1/environ", "/proc/thread-self/mem",
    "/proc/1/task/1/maps", "/proc/self/fd/0", "/proc/1/root/etc/passwd", "/proc/1/cwd/etc/passwd", "/proc/1/exe",
    "/proc/1/oom_score_adj",
])
def test_the_agent_gives_nothing_of_itself(files, path):
    assert files.get(path)[0] in (400, 403)
    assert files.get(path, Range="bytes=4194304-4194404")[0] in (400, 403)
    assert files.put(path, b"0")[0] in (400, 403)
    files.good("Remove", path="/tmp/moved")
    files.bad("Move", source=path, destination="/tmp/moved")
    assert files.bad("Stat", path="/tmp/moved") == "not_found"
    assert files.agent.raw("POST", "/files/compose", json.dumps(
        {"source_paths": [path], "destination": "/tmp/moved"}).encode())[0] in (400, 403)
    link = "/tmp/link-to-proc"
    files.sh(f"ln -sfn {path} {link}", user="user")
    assert files.get(link)[0] in (400, 403)


def test_what_would_wait_is_refused(files, home):
    files.sh(f"cd /home/user/{home}; mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
             user="user")
    start = time.monotonic()
    for name in "pipe", "s":
        assert files.get(f"{home}/{name}")[0] == 400
        assert files.put(f"{home}/{name}", b"x")[0] == 400
    assert time.monotonic() - start < 5


def test_get_of_a_file_that_shrinks_is_cut_off(files, home):
    files.put(f"{home}/f", b"x" * 50_000_000)
    connection = agentlib.Connection(files.agent, 20)
    connection.request("GET", f"/files?path={home}/f", headers=files.agent._headers({}, None))
    response = connection.getresponse()
    response.read(1000)
    os.truncate(files.inside(f"/home/user/{home}/f"), 0)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        assert len(response.read()) == 50_000_000 - 1000
        raise http.client.IncompleteRead(b"")  # all of it was on its way already
    connection.close()
    files.good("Stat", path="/")


# -- POST /files --------------------------------------------------------------------------------------


def test_put_raw(files, home):
    status, answer = files.put(f"{home}/x/y/f.bin", b"\x00\xff" * 1000)
    assert (status, answer) == (200, [{"path": f"/home/user/{home}/x/y/f.bin", "name": "f.bin", "type": "file"}])
    file = files.inside(f"/home/user/{home}/x/y/f.bin")
    assert file.read_bytes() == b"\x00\xff" * 1000
    st, parent = file.stat(), file.parent.stat()
    assert (st.st_uid, st.st_gid, st.st_mode & 0o7777) == (1000, 1000, 0o644)
    assert (parent.st_uid, parent.st_mode & 0o7777) == (1000, 0o755)
    files.put(f"{home}/x/y/f.bin", b"short")
    assert file.read_bytes() == b"short"
    files.put(f"{home}/x/y/f.bin")
    assert file.read_bytes() == b""


def test_put_acts_for_the_user_anywhere(files, home):
    """As with upstream: the file API reaches every file of the sandbox, and what it makes is the user's."""
    files.sh(f"install -m 600 /dev/null /root/secret-{home}; rm -f /tmp/of-user /tmp/of-root; touch /tmp/of-root")
    files.sh("touch /tmp/of-user; ln -sfn of-user /tmp/link-of-user", user="user")
    for path in f"/root/secret-{home}", "/tmp/of-root", "/tmp/of-user", "/tmp/link-of-user", f"/root/new-{home}":
        assert files.put(path, b"text")[0] == 200, path
        assert files.get(path)[1] == b"text"
        assert files.inside(path.replace("link-of-user", "of-user")).stat().st_uid == 1000
    assert files.put("/tmp/of-user", b"root's", query="&username=root")[0] == 200
    assert files.inside("/tmp/of-user").stat().st_uid == 0
    assert files.get(f"/root/secret-{home}")[1] == b"text"  # root was asked for in between: nothing was lost by it
    for path in f"/root/secret-{home}", f"/root/new-{home}":
        files.good("Remove", path=path)


def test_put_onto_a_program_that_runs(files, home):
    """E2B's calls are refused as upstream refuses them, with the reason; with the user's own rights the name gets a new file."""
    path = f"/home/user/{home}/program"
    files.sh(f"cd {home}; cp $(readlink -f /bin/sleep) program; chmod 750 program; ln -s program link; setsid ./program 300 >/dev/null 2>&1 & "
             f"for i in $(seq 300); do [ \"$(readlink /proc/$!/exe)\" = {path} ] && break; sleep 0.1; done; echo $! >pid", user="user")
    before = files.inside(path).read_bytes()
    status, answer = files.put(path, b"new")
    assert status == 500 and f"text file busy: a program runs from '{path}'" in answer["message"], answer
    assert files.inside(path).read_bytes() == before
    status, answer = files.put(f"{home}/link", b"new", **{"X-Cay-Access": "user"})
    assert status == 200, answer
    st = files.inside(path).stat()
    assert files.inside(path).read_bytes() == b"new" and (st.st_uid, st.st_mode & 0o7777) == (1000, 0o750)
    assert files.sh(f"readlink /proc/$(cat {home}/pid)/exe; readlink {home}/link", user="user") == f"{path} (deleted)\nprogram\n"
    files.sh(f"cp $(readlink -f /bin/sleep) /root/{home}; chmod 755 /root /root/{home}; setsid /root/{home} 300 >/dev/null 2>&1 & echo $! >>/home/user/{home}/pid")
    status, answer = files.put(f"/root/{home}", b"new", **{"X-Cay-Access": "user"})
    assert status == 403, answer
    files.sh(f"kill $(cat /home/user/{home}/pid); chmod 700 /root; rm /root/{home}")


def test_put_form(files, home):
    status, answer = files.form([("file", f"{home}/one.txt", b"1"), ("other", "x", b"ignored"),
                                 ("file", f"/home/user/{home}/é \u2708.txt", b"22")])
    assert status == 200 and [e["path"] for e in answer] == [f"/home/user/{home}/one.txt",
                                                             f"/home/user/{home}/é \u2708.txt"]
    assert files.inside(f"/home/user/{home}/é \u2708.txt").read_bytes() == b"22"
    status, answer = files.form([("file", "ignored", b"333")], query=f"?path={home}/by-query")
    assert status == 200 and files.inside(f"/home/user/{home}/by-query").read_bytes() == b"333"
    many = [("file", f"{home}/many/{i}", str(i).encode() * i) for i in range(300)]
    assert len(files.form(many)[1]) == 300
    assert all(files.inside(f"/home/user/{home}/many/{i}").read_text() == str(i) * i for i in range(300))
    assert files.form([]) == (200, [])


def test_put_twice_to_one_path(files, home):
    status, answer = files.form([("file", f"{home}/a", b"1"), ("file", f"/home/user/{home}/./a", b"2")])
    assert (status, answer["code"]) == (400, 400) and "only the first" in answer["message"]
    assert files.inside(f"/home/user/{home}/a").read_bytes() == b"1"


@pytest.mark.parametrize("headers, body, query, status", [
    ({"Content-Type": "text/plain"}, b"x", "?path=/tmp/x", 400),
    ({}, b"x", "?path=/tmp/x", 400),
    (OCTETS, b"x", "", 400),
    (OCTETS, b"x", "?path=/tmp", 400),
    (OCTETS, b"x", "?path=/etc/passwd/x", 400),
    (OCTETS, b"x", "?path=/tmp/x&username=nobody-here", 401),
    ({**OCTETS, "Content-Encoding": "br"}, b"x", "?path=/tmp/x", 400),
    ({**OCTETS, "Content-Encoding": "gzip"}, b"not gzip", "?path=/tmp/x", 400),
    ({**OCTETS, "Content-Encoding": "gzip"}, gzip.compress(b"x" * 9999, mtime=0)[:-9], "?path=/tmp/x", 400),
    ({"Content-Type": "multipart/form-data"}, b"x", "", 400),
    ({"Content-Type": "multipart/form-data; boundary=b"}, b"nonsense", "", 400),
    ({"Content-Type": "multipart/form-data; boundary=b"},
     b'--b\r\nContent-Disposition: form-data; name="file"; filename="/tmp/x"\r\n\r\ncut', "", 400),
    ({"Content-Type": "multipart/form-data; boundary=b"},
     b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--', "", 400),
    ({**OCTETS, "X-Metadata-k": "v" * 5000}, b"x", "?path=/tmp/x", 400),
    ({**OCTETS, "X-Metadata-" + "k" * 247: "v"}, b"x", "?path=/tmp/x", 400),
])
def test_put_refused(files, headers, body, query, status):
    got, data, _ = files.agent.raw("POST", "/files" + query, body, headers)
    assert (got, json.loads(data)["code"]) == (status, status), data


def test_put_gzip(files, home):
    data = b"line of text\n" * 100000
    assert files.put(f"{home}/raw", gzip.compress(data), Content_Encoding="gzip")[0] == 200
    assert files.inside(f"/home/user/{home}/raw").read_bytes() == data
    form = (b'--b\r\nContent-Disposition: form-data; name="file"; filename="' + f"{home}/form".encode() +
            b'"\r\n\r\n' + data + b"\r\n--b--\r\n")
    status, _, _ = files.agent.raw("POST", "/files", gzip.compress(form), {
        "Content-Type": "multipart/form-data; boundary=b", "Content-Encoding": "gzip"})
    assert status == 200 and files.inside(f"/home/user/{home}/form").read_bytes() == data


def test_metadata(files, home):
    """Needs a file system with user attributes: those of the tests' own tmpfs depend on the kernel."""
    status, answer = files.put(f"{home}/f", b"x", X_Metadata_Author="me", X_Metadata_purpose="a test")
    if "metadata" not in answer[0]:
        pytest.skip("this tmpfs keeps no user attributes")
    assert status == 200 and answer[0]["metadata"] == {"author": "me", "purpose": "a test"}
    assert files.good("Stat", path=f"{home}/f")["entry"]["metadata"] == answer[0]["metadata"]
    status, answer = files.put(f"{home}/f", b"x", X_Metadata_author="you")
    assert answer[0]["metadata"] == {"author": "you"}
    assert "metadata" not in files.put(f"{home}/f", b"x")[1][0]
    status, answer = files.form([("file", f"{home}/a", b""), ("file", f"{home}/b", b"")],
                                headers={"X-Metadata-k": "v"})
    assert [e["metadata"] for e in answer] == [{"k": "v"}] * 2


def test_full_disk(files, home):
    files.sh(f"mkdir -p /home/user/{home}/small")
    in_mounts(files.agent.pid, lambda libc: libc.mount(b"small", f"/home/user/{home}/small".encode(), b"tmpfs", 0,
                                                       b"size=1m"))
    try:
        status, answer = files.put(f"{home}/small/f", os.urandom(3_000_000))
        assert (status, answer["code"]) == (507, 507) and "3000000 bytes" in answer["message"]
        status, answer = files.form([("file", f"{home}/small/g", os.urandom(3_000_000))])
        assert status == 507
        assert files.put(f"{home}/fits", b"x")[0] == 200
    finally:
        in_mounts(files.agent.pid, lambda libc: libc.umount2(f"/home/user/{home}/small".encode(), 2))


def in_mounts(pid, work):
    """Calls work(libc) in the mount namespace of pid, from a process of its own."""
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
        os._exit(1 if libc.setns(fd, 0x20000) or work(libc) else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_upload_that_breaks_off(files, home):
    """Bytes that had arrived stay, as with upstream, and the agent goes on."""
    connection = agentlib.Connection(files.agent, 20)
    connection.putrequest("POST", f"/files?path={home}/part")
    for name, value in files.agent._headers({**OCTETS, "Content-Length": "5000000"}, None).items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(b"x" * 2_000_000)
    until(lambda: files.inside(f"/home/user/{home}/part").exists(), what="the first of it is written")
    connection.close()
    until(lambda: files.inside(f"/home/user/{home}/part").stat().st_size <= 2_000_000)
    assert files.put(f"{home}/next", b"x")[0] == 200


def test_many_transfers_at_once(files, home):
    """Twelve clients with files of their own: no byte of one ends up with another."""
    def one(seed):
        data = random.Random(seed).randbytes(3_000_000 + seed * 1111)
        for turn in range(3):
            if turn % 2:
                assert files.form([("file", f"{home}/f{seed}", data)])[0] == 200
            else:
                assert files.put(f"{home}/f{seed}", data)[0] == 200
            assert files.get(f"{home}/f{seed}")[1] == data
        return True

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert all(pool.map(one, range(12)))


def test_compose(files, home):
    parts = [os.urandom(1_000_000), b"", b"end"]
    for i, data in enumerate(parts):
        files.put(f"{home}/part{i}", data)
    files.put(f"{home}/all", b"old")

    def compose(sources, destination, **more):
        status, data, _ = files.agent.raw("POST", "/files/compose", json.dumps(
            {"source_paths": sources, "destination": destination, **more}).encode(),
            {"Content-Type": "application/json"})
        return status, json.loads(data)

    sources = [f"{home}/part{i}" for i in range(3)]
    assert compose(sources + [f"{home}/none"], f"{home}/all")[0] == 404
    assert compose([], f"{home}/all")[0] == 400 and compose(sources, "")[0] == 400
    assert compose([f"{home}/all"], f"{home}/all")[0] == 400 and compose([home], f"{home}/all")[0] == 400
    assert compose(sources, f"{home}/all", username="nobody-here")[0] == 401
    assert compose([5], f"{home}/all")[0] == 400
    assert files.inside(f"/home/user/{home}/all").read_bytes() == b"old"
    status, answer = compose(sources, f"{home}/all")
    assert (status, answer) == (200, {"path": f"/home/user/{home}/all", "name": "all", "type": "file"})
    assert files.inside(f"/home/user/{home}/all").read_bytes() == b"".join(parts)
    assert names(files.good("ListDir", path=home)) == ["all"]
    assert files.inside(f"/home/user/{home}/all").stat().st_uid == 1000


# -- watchers -----------------------------------------------------------------------------------------


class Watch:
    """A WatchDir stream, read by a thread."""

    def __init__(self, files, headers=None, **request):
        self.stream, self.events, self.keepalives, self.error = files.watch(headers, **request), [], 0, None
        first = self.stream.next()
        assert first == (0, {"start": {}}), first
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        try:
            for flags, message in self.stream:
                if flags == 2:
                    self.error = message.get("error")
                elif "filesystem" in message:
                    self.events.append(message["filesystem"])
                else:
                    assert message == {"keepalive": {}}
                    self.keepalives += 1
        except (OSError, ValueError, http.client.HTTPException):
            pass

    def short(self):
        return [(e["type"].removeprefix("EVENT_TYPE_").lower(), e["name"]) for e in self.events]

    def expect(self, *want):
        until(lambda: len(self.events) >= len(want), what=lambda: f"{want}; there is only {self.short()}")
        time.sleep(0.1)
        assert self.short() == list(want)
        self.events.clear()

    def close(self):
        try:
            self.stream.response.fp.raw._sock.shutdown(socket.SHUT_RDWR)  # frees the thread that reads
        except (OSError, AttributeError):
            pass
        self.thread.join(10)
        self.stream.close()


@pytest.fixture
def watch(files):
    opened = []

    def make(headers=None, **request):
        opened.append(Watch(files, headers, **request))
        return opened[-1]

    yield make
    for w in opened:
        w.close()


def test_watch_tells_what_happens(files, home, watch):
    files.put(f"{home}/sub/f")
    w = watch(path=home)
    files.put(f"{home}/a", b"1")
    until(lambda: ("write", "a") in w.short())
    assert w.short()[0] == ("create", "a")
    w.events.clear()
    files.sh(f"cd /home/user/{home}; mv a b; chmod 600 b; rm b; echo x > sub/f")
    w.expect(("rename", "a"), ("create", "b"), ("chmod", "b"), ("remove", "b"))


def test_watch_of_a_tree(files, home, watch):
    files.put(f"{home}/sub/f")
    w = watch(path=home, recursive=True)
    files.sh(f"cd /home/user/{home}; echo x >> sub/f")
    w.expect(("write", "sub/f"))
    files.sh(f"cd /home/user/{home}; mkdir -p n/a/b; echo x > n/a/b/c; ")
    w.expect(("create", "n"), ("create", "n/a"), ("create", "n/a/b"), ("create", "n/a/b/c"), ("write", "n/a/b/c"))
    files.sh(f"cd /home/user/{home}; mv n m; echo y >> m/a/b/c; rm -r m")
    w.expect(("rename", "n"), ("create", "m"), ("write", "m/a/b/c"), ("remove", "m/a/b/c"), ("remove", "m/a/b"),
             ("remove", "m/a"), ("remove", "m"))
    files.sh(f"cd /home/user/{home}; mv sub ../gone-{home}; sleep 0.4; touch ../gone-{home}/x; rm -r ../gone-{home}")
    w.expect(("rename", "sub"))


def test_watch_finds_what_was_there_before_it_looked(files, home, watch):
    """Directories are filled as fast as can be: nothing is missed, and nothing is told twice."""
    w = watch(path=home, recursive=True)
    files.sh(f"cd /home/user/{home}; for i in 1 2 3 4 5 6 7 8 9; do mkdir -p d$i/x/y; : > d$i/f; : > d$i/x/y/g; done")
    want = {("create", f"d{i}{rest}") for i in range(1, 10) for rest in ("", "/x", "/x/y", "/f", "/x/y/g")}
    until(lambda: want <= set(w.short()), what=lambda: f"{want - set(w.short())}")
    time.sleep(0.2)
    told = [e for e in w.short() if e[0] == "create"]
    assert len(told) == len(set(told)) == len(want)


def test_watch_with_entries(files, home, watch):
    w = watch(path=home, includeEntry=True)
    files.put(f"{home}/a", b"123")
    until(lambda: ("write", "a") in w.short())
    written = [e for e in w.events if e["type"] == "EVENT_TYPE_WRITE"][-1]
    assert written["entry"]["path"] == f"/home/user/{home}/a" and written["entry"]["size"] == "3"
    w.events.clear()
    files.good("Remove", path=f"{home}/a")
    w.expect(("remove", "a"))


def test_watch_ends_with_its_client_and_by_its_time(files, home, watch):
    w = watch(path=home, headers={"Connect-Timeout-Ms": "300"})
    until(lambda: w.error, what="its end")
    assert w.error["code"] == "deadline_exceeded"
    for _ in range(200):  # more than may be open at once
        watch(path=home).close()
    w = watch(path=home, headers={"Keepalive-Ping-Interval": "1"})
    until(lambda: w.keepalives >= 2, what="two keepalives")


@pytest.mark.parametrize("request_, code", [
    ({"path": "/none"}, "not_found"), ({"path": "/etc/passwd"}, "invalid_argument"),
    ({"path": "/", "recursive": "yes"}, "invalid_argument"), ({"path": "~x"}, "invalid_argument"),
])
def test_watch_refused(files, request_, code):
    flags, message = files.watch(**request_).next()
    assert flags == 2 and message["error"]["code"] == code
    assert files.bad("CreateWatcher", **request_) == code


def test_polled_watcher(files, home):
    watcher = files.good("CreateWatcher", path=home, recursive=True)
    assert watcher["watcherId"].startswith("w")
    assert files.good("GetWatcherEvents", **watcher)["events"] == []
    files.put(f"{home}/a", b"1")
    events = files.good("GetWatcherEvents", **watcher)["events"]  # at once: a client asks after its own change
    assert {"name": "a", "type": "EVENT_TYPE_WRITE"} in events
    assert files.good("GetWatcherEvents", **watcher)["events"] == []
    assert files.good("RemoveWatcher", **watcher) == {}
    assert files.bad("RemoveWatcher", **watcher) == "not_found"
    assert files.bad("GetWatcherEvents", **watcher) == "not_found"


def test_watchers_are_bounded(files, home):
    made = []
    while (answer := files.rpc("CreateWatcher", path=home))[0] == 200:
        made.append(answer[1]["watcherId"])
        assert len(made) <= 64
    assert answer[1]["code"] == "resource_exhausted" and len(made) > 8
    for watcher in made:
        files.good("RemoveWatcher", watcherId=watcher)


def test_events_of_a_watcher_that_nobody_polls_are_bounded(files, home):
    watcher = files.good("CreateWatcher", path=home)
    files.sh(f"cd /home/user/{home}; for i in $(seq 4000); do : > f$i; rm f$i; echo > g$i; done")
    events = files.good("GetWatcherEvents", **watcher)["events"]
    assert len(events) <= 10000 and events[0]["overflowed"] and not any("overflowed" in e for e in events[1:])
    assert events[-1] == {"name": "g4000", "type": "EVENT_TYPE_WRITE"}
    files.good("RemoveWatcher", **watcher)


# -- the agent itself ---------------------------------------------------------------------------------


def test_idle_without_a_thread_and_small(files):
    status = lambda: dict(line.split(":", 1) for line in
                          pathlib.Path(f"/proc/{files.agent.pid}/status").read_text().splitlines())
    until(lambda: status()["Threads"].strip() == "1", 10, "the file worker goes")
    assert len(os.listdir(f"/proc/{files.agent.pid}/fd")) < 20
