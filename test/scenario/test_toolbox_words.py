"""Errors of Daytona's toolbox by their words, as its clients classify them: `@langchain/daytona` looks for "not found" first,
then for "permission", then for "directory", so that the system's "No such file or directory" would be a directory."""

import json

import pytest
from test_toolbox import Box, parts_of
from test_toolbox_answers import make  # noqa: F401 (fixture)

MISSING = ("none", "w/none", "none/none", "/none", "w/dangling", "w/dangling/x", "w/loop_of_none/none", "w/my directory/none", "w/No such file or directory",
           "w/gone\nline", "w/\u00e9")


def kind(message):
    """As the client does."""
    text = message.lower()
    return next((kind for word, kind in (("not found", "file_not_found"), ("enoent", "file_not_found"), ("permission", "permission_denied"),
                                         ("eacces", "permission_denied"), ("directory", "is_directory"), ("eisdir", "is_directory")) if word in text),
                "invalid_path")


@pytest.fixture(scope="module")
def box(make):  # noqa: F811
    box = make()
    done = box.run("mkdir -p 'w/my directory' && ln -s /nowhere/at/all w/dangling && ln -s none w/loop_of_none && echo x >w/file && git init -q w/git")
    assert done["exitCode"] == 0, done
    return box


def no_words(said):
    assert "no such file" not in json.dumps(said).lower(), said


CALLS = (("GET", "/files/download", "path"), ("GET", "/files/info", "path"), ("GET", "/files", "path"), ("DELETE", "/files", "path"),
         ("GET", "/files/find", "path"), ("GET", "/files/search", "path"), ("POST", "/files/permissions", "path"), ("POST", "/files/move", "source"))
ABOUT_THE_LINK = (("GET", "/files/info"), ("DELETE", "/files"), ("POST", "/files/move"))  # which is there


@pytest.mark.parametrize("method, call, name, path", [
    (*call, path) for call in CALLS for path in MISSING if path != "w/dangling" or call[:2] not in ABOUT_THE_LINK])
def test_a_call_about_what_is_not_there_says_not_found(box, method, call, name, path):
    reply = box.call(method, call, query={name: path, "pattern": "x", "mode": "600", "destination": "w/to"})
    assert reply.status == 404, (reply.status, reply.body)
    assert kind(reply.json["message"]) == "file_not_found", reply.json
    no_words(reply.json["message"])


@pytest.mark.parametrize("path", MISSING)
def test_parts_of_answers_about_many_files_say_it_too(box, path):
    (part,) = parts_of(box.call("POST", "/files/bulk-download", {"paths": [path]}))
    assert kind(json.loads(part[1])["message"]) == "file_not_found"
    no_words(json.loads(part[1])["message"])
    (one,) = box.good("POST", "/files/replace", {"files": [path], "pattern": "x", "newValue": "y"})
    assert kind(one["error"]) == "file_not_found" and "no such" not in one["error"].lower()


@pytest.mark.parametrize("method, call, body, query", [
    ("POST", "/files/move", None, {"source": "w/file", "destination": "none/to"}),
    ("POST", "/files/move", None, {"source": "w/file", "destination": "w/dangling/to"}),
    ("POST", "/files/folder", None, {"path": "w/file/x"}), ("GET", "/files", None, {"path": "w/file/x"}),
    ("GET", "/files/download", None, {"path": "w/file/x"}), ("GET", "/files/info", None, {"path": "w/file/x"}),
    ("DELETE", "/files", None, {"path": "w/file/x"}), ("POST", "/files/permissions", None, {"path": "w/file/x", "mode": "600"}),
    ("GET", "/files/find", None, {"path": "w/file/x", "pattern": "x"}), ("POST", "/process/execute", {"command": "true", "cwd": "none"}, None),
    ("POST", "/process/pty", {"id": "t", "cwd": "none"}, None), ("POST", "/process/interpreter/context", {"cwd": "/none"}, None),
    ("GET", "/git/status", None, {"path": "none"}), ("POST", "/git/add", {"path": "w/git", "files": ["none"]}, None),
    ("POST", "/git/clone", {"path": "w/file/x", "url": "/nowhere"}, None), ("POST", "/git/init", {"path": "w/file/x"}, None),
    ("POST", "/git/clone", {"path": "q", "url": "/w/No such file or directory"}, None)])
def test_no_refusal_has_the_words_of_the_system(box, method, call, body, query):
    reply = box.call(method, call, body, query=query)
    assert 400 <= reply.status < 500 and reply.json["message"], (reply.status, reply.body)
    no_words(reply.json["message"])


def test_an_upload_below_what_is_no_folder_has_no_such_words(box):
    for path in ("w/file/x", "w/dangling/x"):
        reply = box.put([(path, b"x")])
        no_words(reply.json)
