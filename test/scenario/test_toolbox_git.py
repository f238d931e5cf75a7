"""Daytona's toolbox, further: code, Git and ports."""

import pathlib

import pytest
from test_toolbox import Box, box  # noqa: F401: a fixture
from waitlib import until

AUTHOR = {"author": "A \"B\" C", "email": "a@example.org"}


# -- code -------------------------------------------------------------------------------------------------


def code(box, text, language="python", **more):
    done = box.good("POST", "/process/code-run", {"code": text, "language": language, **more})
    return done["exitCode"], done["result"]


def test_code_runs_in_its_language(box):
    text = "import os, sys\nprint('a', flush=True)\nprint('b', file=sys.stderr)\nprint(sys.argv[1:], os.getcwd(), os.environ['V'])\nsys.exit(4)"
    assert code(box, text, argv=["x y", "$HOME"], envs={"V": "1 2"}) == (4, "a\nb\n['x y', '$HOME'] /home/daytona 1 2\n")
    text = "console.log(process.argv.slice(1)); process.exit(5)"  # as upstream: as of `node -e`
    assert code(box, text, "javascript", argv=["it's"]) == (5, "[ \"it's\" ]\n")
    assert code(box, "raise ValueError('no')")[0] == 1
    assert code(box, "") == (0, "")
    # Beyond what an argument may have: by a file, which is gone.
    assert code(box, "x = '" + "y" * 300000 + "'\nprint(len(x))") == (0, "300000\n")
    assert box.run("ls -a /tmp | grep -c '^.command'")["result"] == "0\n"


def test_typescript_runs_by_ts_node(box):
    """As upstream: by npx, which is to find ts-node; here one that shows what it was given."""
    box.put([("bin/npx", b"#!/bin/sh\ncat \"$7\"; shift 7; printf ' <%s>' \"$@\"; exit 6\n")])
    box.run("chmod +x bin/npx")
    path = f"/home/daytona/bin:{box.run('printf %s $PATH')['result']}"
    assert code(box, "let a: number = 1", "typescript", argv=["q r"], envs={"PATH": path}) == (6, "let a: number = 1 <q r>")


@pytest.mark.parametrize("body, why", [
    ({"language": "python"}, "code"), ({"code": "1"}, "language"), ({"code": "1", "language": "perl"}, "not 'perl'"),
    ({"code": "1", "language": "python", "argv": [1]}, "argv[0]"), ({"code": "1", "language": "python", "argv": ["x"] * 65}, "at most 64"),
    ({"code": "1", "language": "python", "timeout": -1}, "timeout")])
def test_bad_code(box, body, why):
    box.refused(400, "POST", "/process/code-run", body, why=why)


def test_code_that_is_over_its_time_is_killed(box):
    box.refused(408, "POST", "/process/code-run", {"code": "import time; time.sleep(7003)", "language": "python", "timeout": 1},
                "PROCESS_EXECUTION_TIMEOUT")


# -- Git --------------------------------------------------------------------------------------------------


def git(box, method, call, status=200, **fields):
    if method == "GET":
        return box.good("GET", f"/git/{call}", None, status, query=fields)
    return box.good(method, f"/git/{call}", fields, status)


@pytest.fixture
def repository(box):
    box.run("rm -rf o.git w w2 z; git init -q --bare -b main o.git; git init -q -b main w; git -C w remote add origin ~/o.git")
    yield "w"


def test_a_change_from_status_to_push(box, repository):
    box.put([("w/a b\n\"c\".txt", b"1\n"), ("w/sub/d", b"2\n"), ("w/-n", b"3\n")])
    shown = git(box, "GET", "status", path="w")
    assert sorted((f["name"], f["staging"], f["worktree"]) for f in shown["fileStatus"]) == [
        (n, "Untracked", "Untracked") for n in ("-n", "a b\n\"c\".txt", "sub/d")]
    assert (shown["currentBranch"], shown["branchPublished"], shown["ahead"], shown["behind"]) == ("main", False, 0, 0)
    assert git(box, "GET", "history", path="w") == []
    git(box, "POST", "add", path="w", files=["a b\n\"c\".txt", "-n"])
    message = "one\n\n$(id) 'q' \"r\"\n"
    first = git(box, "POST", "commit", path="w", message=message, **AUTHOR)["hash"]
    git(box, "POST", "add", path="w", files=["."])
    second = git(box, "POST", "commit", path="w", message="two", **AUTHOR)["hash"]
    history = git(box, "GET", "history", path="w")
    assert [(c["hash"], c["message"].strip(), c["author"], c["email"]) for c in history] == [
        (second, "two", *AUTHOR.values()), (first, message.strip(), *AUTHOR.values())]
    assert history[0]["timestamp"][10] == "T"
    box.refused(409, "POST", "/git/commit", {"path": "w", "message": "none", **AUTHOR})
    assert git(box, "POST", "commit", path="w", message="empty", allow_empty=True, **AUTHOR)["hash"] not in (first, second)
    git(box, "POST", "push", path="w", set_upstream=True)
    box.run("cd w && git mv sub/d moved && rm ./-n")
    shown = git(box, "GET", "status", path="w")
    assert sorted((f["name"], f["staging"], f["worktree"], f["extra"]) for f in shown["fileStatus"]) == [
        ("-n", "Unmodified", "Deleted", ""), ("moved", "Renamed", "Unmodified", "sub/d")]
    assert shown["branchPublished"] and shown["upstream"] == "origin/main" and (shown["ahead"], shown["behind"]) == (0, 0)


def test_branches_a_clone_and_a_pull(box, repository):
    first = git(box, "POST", "commit", path="w", message="one", allow_empty=True, **AUTHOR)["hash"]
    git(box, "POST", "branches", 201, path="w", name="feature/x")
    assert git(box, "GET", "branches", path="w") == {"branches": ["feature/x", "main"], "current": "feature/x"}
    box.refused(409, "POST", "/git/branches", {"path": "w", "name": "main"}, "GIT_BRANCH_EXISTS")
    git(box, "POST", "checkout", path="w", branch="main")
    git(box, "POST", "push", path="w")
    git(box, "POST", "push", path="w", branch="feature/x")
    git(box, "POST", "clone", url="/home/daytona/o.git", path="z", branch="feature/x")
    assert git(box, "GET", "status", path="z")["currentBranch"] == "feature/x"
    box.refused(409, "POST", "/git/clone", {"url": "/home/daytona/o.git", "path": "z"}, "CONFLICT")
    git(box, "DELETE", "branches", 204, path="w", name="feature/x")
    box.refused(404, "DELETE", "/git/branches", {"path": "w", "name": "feature/x"}, "GIT_BRANCH_NOT_FOUND")
    box.refused(404, "POST", "/git/checkout", {"path": "w", "branch": "nosuch"}, "GIT_BRANCH_NOT_FOUND")
    second = git(box, "POST", "commit", path="w", message="two", allow_empty=True, **AUTHOR)["hash"]
    git(box, "POST", "push", path="w")
    git(box, "POST", "checkout", path="z", branch="main")
    git(box, "POST", "pull", path="z")
    assert [c["hash"] for c in git(box, "GET", "history", path="z")] == [second, first]
    git(box, "POST", "clone", url="/home/daytona/o.git", path="w2", commit_id=first)
    shown = git(box, "GET", "status", path="w2")
    assert shown["detached"] and shown["currentBranch"] == "HEAD"
    box.refused(404, "POST", "/git/push", {"path": "w2"}, "GIT_BRANCH_NOT_FOUND")
    git(box, "POST", "commit", path="z", message="other", allow_empty=True, **AUTHOR)
    git(box, "POST", "commit", path="w", message="three", allow_empty=True, **AUTHOR)
    git(box, "POST", "push", path="w")
    box.refused(409, "POST", "/git/push", {"path": "z"}, "GIT_PUSH_REJECTED")
    box.refused(409, "POST", "/git/pull", {"path": "z"}, "GIT_MERGE_CONFLICT")
    box.run("rm -rf z w2")


def test_a_repository_is_made_and_changes_are_taken_back(box):
    box.run("rm -rf n; mkdir n")
    git(box, "POST", "init", 201, path="n/w", initial_branch="trunk")
    git(box, "POST", "init", 201, path="/home/daytona/n/o.git", bare=True, initial_branch=None)
    assert box.run("git -C n/o.git rev-parse --is-bare-repository")["result"] == "true\n"
    assert git(box, "GET", "status", path="n/w")["currentBranch"] == "trunk"
    box.put([("n/w/a b\n\"c\"", b"1\n"), ("n/w/-d", b"1\n")])
    git(box, "POST", "add", path="n/w", files=["."])
    first = git(box, "POST", "commit", path="n/w", message="one", **AUTHOR)["hash"]

    def change():
        box.put([("n/w/a b\n\"c\"", b"2\n"), ("n/w/-d", b"2\n")])
        git(box, "POST", "add", path="n/w", files=["."])

    def state():
        return {f["name"]: (f["staging"], f["worktree"]) for f in git(box, "GET", "status", path="n/w")["fileStatus"]}

    staged, changed = ("Modified", "Unmodified"), ("Unmodified", "Modified")
    change()
    git(box, "POST", "reset", path="n/w", files=["a b\n\"c\""], mode=None, target=None)
    assert state() == {"a b\n\"c\"": changed, "-d": staged}
    git(box, "POST", "reset", path="n/w")
    assert state() == {"a b\n\"c\"": changed, "-d": changed}
    git(box, "POST", "restore", path="n/w", files=["-d"])
    assert state() == {"a b\n\"c\"": changed} and box.take("/home/daytona/n/w/-d").body == b"1\n"
    change()
    git(box, "POST", "restore", path="n/w", files=["-d"], staged=True)
    assert state() == {"a b\n\"c\"": staged, "-d": changed}
    git(box, "POST", "restore", path="n/w", files=["."], staged=True, worktree=True, source="HEAD")
    assert state() == {}
    change()
    second = git(box, "POST", "commit", path="n/w", message="two", **AUTHOR)["hash"]
    git(box, "POST", "reset", path="n/w", mode="soft", target=first)
    assert state() == {"a b\n\"c\"": staged, "-d": staged}
    git(box, "POST", "reset", path="n/w", mode="hard", target=second)
    assert state() == {} and git(box, "GET", "history", path="n/w")[0]["hash"] == second
    git(box, "POST", "reset", path="n/w", mode="hard", target="HEAD~1", files=[])
    assert box.take("/home/daytona/n/w/-d").body == b"1\n"
    box.put([("n/w/-d", b"3\n")])
    box.refused(409, "POST", "/git/reset", {"path": "n/w", "mode": "keep", "target": second}, "GIT_DIRTY_WORKTREE")


def test_remotes(box, repository):
    assert git(box, "GET", "remotes", path="w") == {"remotes": [{"name": "origin", "url": "/home/daytona/o.git"}]}
    box.refused(409, "POST", "/git/remotes", {"path": "w", "name": "origin", "url": "/x"}, "CONFLICT")
    git(box, "POST", "remotes", 201, path="w", name="origin", url="/x y", overwrite=True)
    git(box, "POST", "remotes", 201, path="w", name="other", url="--upload-pack=id")
    git(box, "POST", "remotes", 201, path="w", name="new", url="/new", overwrite=True)
    assert git(box, "GET", "remotes", path="w")["remotes"] == [
        {"name": "origin", "url": "/x y"}, {"name": "other", "url": "--upload-pack=id"}, {"name": "new", "url": "/new"}]
    git(box, "POST", "commit", path="w", message="one", allow_empty=True, **AUTHOR)
    box.run("git -C w push -q ~/o.git main; git init -q z")
    git(box, "POST", "remotes", 201, path="z", name="origin", url="/home/daytona/o.git", fetch=True)
    assert box.run("git -C z branch -r")["result"] == "  origin/main\n"
    box.refused(404, "POST", "/git/remotes", {"path": "z", "name": "gone", "url": "/nowhere", "fetch": True}, "GIT_REPO_NOT_FOUND")
    assert git(box, "GET", "remotes", path="z")["remotes"][1]["name"] == "gone"
    box.run("rm -rf z")


def test_settings_of_git(box, repository):
    try:
        box.run("rm -f .gitconfig .git-credentials")
        assert git(box, "GET", "config", key="user.name") == {}
        git(box, "POST", "config/user", name="A \"B\"", email="a@example.org")
        assert git(box, "GET", "config", key="user.name", scope="global") == {"value": "A \"B\""}
        git(box, "POST", "config", key="user.name", value="-l", scope="local", path="w")
        assert git(box, "GET", "config", key="user.name", scope="local", path="w") == {"value": "-l"}
        assert git(box, "GET", "config", key="user.email") == {"value": "a@example.org"}
        assert git(box, "GET", "config", key="user.email", scope="local", path="w") == {}
        git(box, "POST", "config", key="a.b c.d", value="")
        assert git(box, "GET", "config", key="a.b c.d") == {"value": ""} and git(box, "GET", "config", key="a.b", scope="system") == {}
        box.refused(403, "POST", "/git/config", {"key": "a.b", "value": "1", "scope": "system"}, why="ermission")
        git(box, "POST", "credentials", username="me", password="p w'\"", host="git.example.org", protocol=None)
        assert box.run("printf 'protocol=https\\nhost=git.example.org\\n\\n' | git credential fill; stat -c %a .git-credentials")["result"] \
            == "protocol=https\nhost=git.example.org\nusername=me\npassword=p w'\"\n600\n"
    finally:
        box.run("rm -f .gitconfig .git-credentials")


@pytest.mark.parametrize("method, call, fields, status, code", [
    ("GET", "status", {}, 400, None), ("GET", "status", {"path": "none"}, 404, "FILE_NOT_FOUND"),
    ("GET", "status", {"path": "/tmp"}, 404, "GIT_REPO_NOT_FOUND"), ("GET", "history", {"path": "-"}, 404, "FILE_NOT_FOUND"),
    ("POST", "clone", {"path": "q"}, 400, None), ("POST", "clone", {"path": "q", "url": "/nowhere"}, 404, "GIT_REPO_NOT_FOUND"),
    ("POST", "clone", {"path": "q", "url": "http://127.0.0.1:1/x"}, 400, "GIT_TRANSPORT_FAILED"),
    ("POST", "clone", {"path": "q", "url": "--upload-pack=id"}, 404, "GIT_REPO_NOT_FOUND"),
    ("POST", "clone", {"path": "q", "url": "/x", "branch": "-x"}, 400, None), ("POST", "clone", {"path": "q", "url": "ext::sh -c id"}, 400, None),
    ("POST", "clone", {"path": "q", "url": "/x", "password": "a\nhost=b"}, 400, None),
    ("POST", "clone", {"path": "q", "url": "/x", "depth": -1}, 400, None),
    ("POST", "add", {"path": "w", "files": []}, 400, None), ("POST", "add", {"path": "w", "files": [1]}, 400, None),
    ("POST", "add", {"path": "w", "files": ["none"]}, 400, None), ("POST", "add", {"path": "w", "files": ["x"] * 1001}, 400, None),
    ("POST", "commit", {"path": "w", "message": "m"}, 400, None), ("POST", "checkout", {"path": "w", "branch": "--orphan=x"}, 400, None),
    ("POST", "push", {"path": "w", "remote": "--receive-pack=id"}, 400, None), ("POST", "pull", {"path": "w", "remote": "nosuch"}, 404, None),
    ("POST", "init", {}, 400, None), ("POST", "init", {"path": "q", "initial_branch": "--bare"}, 400, None),
    ("POST", "init", {"path": "q", "initial_branch": "a..b"}, 400, None), ("POST", "init", {"path": "q", "bare": "yes"}, 400, None),
    ("POST", "reset", {"path": "w", "mode": "exec"}, 400, None), ("POST", "reset", {"path": "w", "target": "nosuch"}, 404, "GIT_BRANCH_NOT_FOUND"),
    ("POST", "reset", {"path": "w", "mode": "hard", "files": ["a"]}, 400, None), ("POST", "reset", {"path": "w", "mode": "hard", "files": "a"}, 400, None),
    ("POST", "reset", {"path": "w", "target": "--hard"}, 400, None), ("POST", "restore", {"path": "w"}, 400, None),
    ("POST", "restore", {"path": "w", "files": []}, 400, None), ("POST", "restore", {"path": "w", "files": ["none"]}, 400, None),
    ("POST", "restore", {"path": "w", "files": ["."], "source": "nosuch"}, 404, "GIT_BRANCH_NOT_FOUND"),
    ("POST", "restore", {"path": "w", "files": ["."], "worktree": False}, 400, None), ("POST", "restore", {"path": "/tmp", "files": ["."]}, 404, "GIT_REPO_NOT_FOUND"),
    ("GET", "remotes", {}, 400, None), ("GET", "remotes", {"path": "none"}, 404, "FILE_NOT_FOUND"),
    ("POST", "remotes", {"path": "w", "name": "x"}, 400, None), ("POST", "remotes", {"path": "w", "name": "a b", "url": "/x"}, 400, None),
    ("POST", "remotes", {"path": "w", "name": "--mirror=push", "url": "/x"}, 400, None),
    ("POST", "remotes", {"path": "w", "name": "ext", "url": "ext::sh -c id", "fetch": True}, 400, None),
    ("GET", "config", {}, 400, None), ("GET", "config", {"key": "user"}, 400, None), ("GET", "config", {"key": "--list.x"}, 400, None),
    ("GET", "config", {"key": "user.name", "scope": "worktree"}, 400, None), ("GET", "config", {"key": "user.name", "scope": "local"}, 400, None),
    ("POST", "config", {"key": "a.b"}, 400, None), ("POST", "config", {"key": "a.b\nc.d", "value": "1"}, 400, None),
    ("POST", "config", {"key": "a.b", "value": "1", "scope": "local"}, 400, None), ("POST", "config", {"key": "a.b", "value": "1", "scope": "file=/x"}, 400, None),
    ("POST", "config/user", {"name": "a"}, 400, None), ("POST", "credentials", {"username": "a"}, 400, None),
    ("POST", "credentials", {"username": "a", "password": "b", "host": "x\npath=y"}, 400, None),
    ("POST", "credentials", {"username": "a\nhost=b", "password": "b"}, 400, None)])
def test_a_bad_call_of_git(box, repository, method, call, fields, status, code):
    git(box, "POST", "commit", path="w", message="one", allow_empty=True, **AUTHOR)
    more = {"query": fields} if method == "GET" else {"body": fields}
    box.refused(status, method, f"/git/{call}", code=code, **more)


SERVER = pathlib.Path(__file__).with_name("git_server.py")


@pytest.fixture
def remote(box, repository):
    """A server of ~/o.git on port 8200 that wants a password, and one on 8201 that the first sends to for /away.git."""
    git(box, "POST", "commit", path="w", message="one", allow_empty=True, **AUTHOR)
    git(box, "POST", "push", path="w")
    box.put([("git_server.py", SERVER.read_bytes())])
    box.run("rm -f seen; git -C o.git config http.receivepack true; cp -r o.git away.git; (python3 git_server.py >server.log 2>&1 &)")
    until(lambda: box.run("grep -c ready seen")["result"].strip() == "2")
    yield "http://127.0.0.1:8200/o.git"
    box.run("pkill -f 'git_serve[r].py'; rm -rf y away.git")
    until(lambda: not {8200, 8201} & {*box.good("GET", "/port")["ports"]})


def test_credentials_reach_the_remote_and_no_command_line(box, remote):
    known = {"username": "me", "password": "se cret\"'%"}
    box.refused(401, "POST", "/git/clone", {"url": remote, "path": "y"}, "GIT_AUTH_FAILED")
    refused = box.refused(401, "POST", "/git/clone", {"url": remote, "path": "y", **known, "password": "wrong"}, "GIT_AUTH_FAILED")
    assert "wrong" not in refused["message"]
    git(box, "POST", "clone", url=remote, path="y", **known)
    # A hook would see the variables: none is run with credentials, and where they are not used git does as ever.
    hook = "cat >y/.git/hooks/pre-push <<'E'\n#!/bin/sh\necho \"<$CAY_GIT_PASSWORD>\" >~/hooked\nE\nchmod +x y/.git/hooks/pre-push"
    box.run(f"rm -f hooked; {hook}; git -C y remote add near ~/o.git")
    git(box, "POST", "commit", path="y", message="by http", allow_empty=True, **AUTHOR)
    git(box, "POST", "push", path="y", **known)
    assert box.run("ls hooked")["exitCode"] != 0
    git(box, "POST", "push", path="y", remote="near", **known)
    assert box.run("cat hooked")["result"] == "<>\n"  # no remote of HTTP's: there are none
    git(box, "POST", "pull", path="y", **known)
    seen = box.run("cat seen")["result"].splitlines()
    assert "8200 right" in seen and "git seen" in seen  # the server has looked at command lines while git ran
    assert "password seen" not in seen
    assert box.run("grep -rl 'se cret' y/.git ~/.gitconfig ~/.git-credentials 2>/dev/null")["result"] == ""


HOSTILE = r"""
import socket
listener = socket.create_server(("127.0.0.1", 8202))
print("ready", flush=True)
while True:
    client, _ = listener.accept()
    client.recv(65536)
    client.sendall(b"HTTP/1.1 403 Forbidden: \x1b]0;title\x07no \xc2\x9b1m" + b"x" * 4000 + b"\r\nX-A: b: HTTP/1.1 404 Not Found: a header\r\n"
                   b"X-B: <= Recv header: HTTP/1.1 404 Not Found: another\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    client.close()
"""


def test_a_servers_words_are_short_and_text(box, repository):
    """They may be any server's, and clients show them in a terminal."""
    box.put([("hostile_server.py", HOSTILE.encode())])
    box.run("(python3 hostile_server.py >hostile.log 2>&1 &)")
    until(lambda: box.run("cat hostile.log")["result"] == "ready\n")
    said = box.refused(403, "POST", "/git/clone", {"url": "http://127.0.0.1:8202/a.git", "path": "y"})["message"]
    box.run("pkill -f 'hostile_serve[r].py'")
    assert "returned error: 403\nreason: ]0;titleno 1mxxx" in said and len(said) < 600 and "header" not in said and "another" not in said, said
    until(lambda: 8202 not in box.good("GET", "/port")["ports"])


def test_a_hooks_words_are_text(box, repository):
    """Of the remote; git repeats them."""
    git(box, "POST", "commit", path="w", message="one", allow_empty=True, **AUTHOR)
    box.put([("o.git/hooks/pre-receive", "#!/bin/sh\nprintf 'n\\303\\266: \\033[2J\\033]0;title\\007\\302\\2331m\\342\\200\\256 \\377 no\\n' >&2; exit 1\n".encode())])
    box.run("chmod +x o.git/hooks/pre-receive")
    said = box.refused(409, "POST", "/git/push", {"path": "w"})["message"]
    assert "n\u00f6: ?[2J?]0;title??1m? ? no" in said and "pre-receive hook declined" in said, said
    assert not [c for c in said if c not in "\n\t" and not c.isprintable()], said


@pytest.mark.parametrize("program, status, says", [
    (r"printf '\0\0\0' >&2; exit 3", 400, "status 3"), ("kill -9 $$", 400, "Killed"),
    ("echo 'fatal: not a git repository (or any' >&2; exit 128", 404, "not a git repository: w")])
def test_a_git_without_words(box, repository, program, status, says):
    box.put([("lying/git", f"#!/bin/sh\n{program}\n".encode())])
    box.run("chmod +x lying/git && sudo ln -s ~/lying/git /usr/local/bin/git")
    try:
        assert says in box.refused(status, "GET", "/git/status", query={"path": "w"})["message"]
    finally:
        box.run("sudo rm /usr/local/bin/git")


def test_the_repository_of_another_user(box):
    """Git's own words, which say what to do; it was denied that there is one."""
    box.run("sudo git init -q /srv/roots")
    said = box.refused(400, "GET", "/git/status", query={"path": "/srv/roots"})["message"]
    assert "dubious ownership" in said and "git config --global --add safe.directory /srv/roots" in said, said
    box.run("sudo rm -r /srv/roots")


def test_credentials_do_not_go_along_to_another_server(box, remote):
    away = remote.replace("o.git", "away.git")
    box.refused(401, "POST", "/git/clone", {"url": away, "path": "y", "username": "me", "password": "se cret\"'%"}, "GIT_AUTH_FAILED")
    seen = box.run("cat seen")["result"].splitlines()
    assert "8201 none" in seen and "8201 right" not in seen
    # The second would have taken them: with its own address they are right.
    git(box, "POST", "clone", url=away.replace("8200", "8201"), path="y", username="me", password="se cret\"'%")


# -- ports ------------------------------------------------------------------------------------------------


def test_ports_that_are_listened_on(box):
    assert box.good("GET", "/port") == {"ports": []}
    box.run("(python3 -m http.server 8124 --bind 127.0.0.1 >/dev/null 2>&1 &)")
    until(lambda: box.good("GET", "/port/8124/in-use") == {"isInUse": True})
    assert box.good("GET", "/port") == {"ports": [8124]}
    assert box.good("GET", "/port/8125/in-use") == {"isInUse": False}
    box.run("pkill -f 'http.serve[r] 8124'")
    for port in ("2999", "10000", "x", "8124x"):
        box.refused(400, "GET", f"/port/{port}/in-use", why="3000 to 9999")
