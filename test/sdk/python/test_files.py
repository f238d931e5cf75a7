import hashlib
import io

import pytest
from e2b import FileNotFoundException, FileType, FilesystemEventType, InvalidArgumentException
from e2b.sandbox.filesystem.filesystem import WriteEntry

BLOCK = hashlib.sha256(b"cay").digest()
TEN_MIB = b"".join(hashlib.sha256(i.to_bytes(4, "big")).digest() for i in range(10 * 1024 * 1024 // 32))


def test_text(sandbox):
    info = sandbox.files.write("a.txt", "Grüße\n")
    assert info.path == "/home/user/a.txt"
    assert sandbox.files.read("a.txt") == "Grüße\n"


def test_ten_mebibytes(sandbox):
    sandbox.files.write("/tmp/big.bin", io.BytesIO(TEN_MIB))
    assert bytes(sandbox.files.read("/tmp/big.bin", format="bytes")) == TEN_MIB
    sha = sandbox.commands.run("sha256sum /tmp/big.bin").stdout.split()[0]
    assert sha == hashlib.sha256(TEN_MIB).hexdigest()


def test_several_at_once(sandbox):
    written = sandbox.files.write_files([WriteEntry(path="many/one", data="1"),
                                         WriteEntry(path="/tmp/deep/ünï", data="2")])
    assert [f.path for f in written] == ["/home/user/many/one", "/tmp/deep/ünï"]
    assert sandbox.files.read("/tmp/deep/ünï") == "2"


def test_folders(sandbox):
    assert sandbox.files.make_dir("tree/a/b") is True
    assert sandbox.files.make_dir("tree/a/b") is False
    sandbox.files.write("tree/a/b/leaf", "x")
    assert [(e.name, e.type) for e in sandbox.files.list("tree")] == [("a", FileType.DIR)]
    assert [e.name for e in sandbox.files.list("tree", depth=3)] == ["a", "b", "leaf"]


def test_info_exists_rename_remove(sandbox):
    sandbox.files.write("old", "12345")
    info = sandbox.files.get_info("old")
    assert (info.size, info.owner, info.type) == (5, "user", FileType.FILE)
    assert sandbox.files.rename("old", "new").path == "/home/user/new"
    assert sandbox.files.exists("old") is False
    sandbox.files.remove("new")
    assert sandbox.files.exists("new") is False


def test_not_found_and_folders_for_files(sandbox):
    with pytest.raises(FileNotFoundException):
        sandbox.files.read("nowhere")
    with pytest.raises(FileNotFoundException):
        sandbox.files.list("nowhere")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.read("/tmp")


def test_watch(sandbox, until):
    sandbox.files.make_dir("watched")
    handle = sandbox.files.watch_dir("watched", recursive=True)
    sandbox.files.write("watched/file", "x")
    seen = []

    def written():
        seen.extend(handle.get_new_events())
        return any(e.type == FilesystemEventType.WRITE and e.name == "file" for e in seen)

    until(written, "a write")
    handle.stop()


def test_watch_of_nothing(sandbox):
    with pytest.raises(FileNotFoundException):
        sandbox.files.watch_dir("nowhere")
