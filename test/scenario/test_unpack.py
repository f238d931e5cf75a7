"""cay-unpack against archives of each hostile class, and what it has to do with those that are none. A control shows that the
same archive does harm where it is unpacked by GNU tar with -P, or by a program that follows links."""

import gzip
import os
import pathlib
import shutil
import stat
import subprocess
import tarfile

import pytest
from conftest import BUILD
from imagelib import tar

UNPACK = BUILD / "src/job/cay-unpack"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="owners and mounts need root")


def call(spool, root, first, n, said=""):
    """The counts that an earlier call has said are handed on. Its status, and what both said."""
    counts = said.rsplit("\nC ", 1)[1].strip() if "\nC " in said else ""
    done = subprocess.run([UNPACK, spool, root, str(first), str(n), counts], stdout=subprocess.PIPE, text=True, timeout=300, errors="replace")
    return done.returncode, said + done.stdout


class Tree:
    def __init__(self, base):
        self.base, self.root = base, base / "tree"
        self.outside = base / "outside"
        self.outside.mkdir()
        (self.outside / "kept").write_text("as it was")

    def unpack(self, *layers):
        """Layers over each other in a new tree: (status, what was said)."""
        spool = self.base / "spool"
        for one in (spool, self.root):
            shutil.rmtree(one, ignore_errors=True)
            one.mkdir()
        for number, data in enumerate(layers):
            (spool / str(number)).write_bytes(data)
        for name in ("start.json", "image.json"):
            (spool / name).write_text("{}")
        status, said = call(spool, self.root, 0, len(layers))
        return call(spool, self.root, 0, 0, said) if status == 0 else (status, said)

    def refused(self, *layers):
        status, said = self.unpack(*layers)
        assert status == 1 and "\nE " in said, said
        assert sorted(p.name for p in self.outside.iterdir()) == ["kept"] and self.kept() == "as it was"
        assert not [p for p in self.base.iterdir() if p.name not in ("tree", "outside", "spool", "control")]
        return said.split("\nE ")[1]

    def taken(self, *layers):
        status, said = self.unpack(*layers)
        assert status == 0, said
        return said

    def kept(self):
        return (self.outside / "kept").read_text()

    def control(self, layer):
        """By a program without these defences."""
        where = self.base / "control"
        where.mkdir()
        (self.base / "control.tar").write_bytes(layer)
        subprocess.run(["tar", "-xPf", self.base / "control.tar", "-C", where], check=False, stderr=subprocess.DEVNULL)
        (self.base / "control.tar").unlink()
        return where

    def has(self, name):
        return os.path.lexists(self.root / name)

    def text(self, name):
        return (self.root / name).read_text()


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_names_that_lead_out(tree):
    for name, why in ((f"{tree.outside}/new", "is absolute"), ("../outside/new", "leads upwards"),
                      ("a/../../outside/new", "leads upwards"), ("./..", "leads upwards")):
        assert why in tree.refused(tar(("a", "dir"), (name, "file", {"data": b"harm"})))
    tree.control(tar((f"{tree.outside}/new", "file", {"data": b"harm"}), ("../outside/up", "file", {"data": b"harm"})))
    assert (tree.outside / "new").read_text() == (tree.outside / "up").read_text() == "harm"


def test_links_on_the_way(tree):
    layer = tar(("way", "link", {"to": str(tree.outside)}), ("way/new", "file", {"data": b"harm"}))
    assert "goes through what is no folder but a link" in tree.refused(layer)
    assert "goes through" in tree.refused(tar(("up", "link", {"to": ".."}), ("up/outside/new", "file", {"data": b"harm"})))
    assert "goes through" in tree.refused(tar(("way", "link", {"to": str(tree.outside)})), tar(("way/deep/new", "dir")))
    tree.control(layer)
    assert (tree.outside / "new").read_text() == "harm"


def test_a_link_in_a_files_place_is_replaced(tree):
    layer = tar(("kept", "link", {"to": str(tree.outside / "kept")}), ("kept", "file", {"data": b"harm"}))
    tree.taken(layer)
    assert tree.kept() == "as it was" and tree.text("kept") == "harm"
    where = tree.base / "control"
    where.mkdir()
    os.symlink(tree.outside / "kept", where / "kept")
    (where / "kept").write_text("harm")  # by a program that follows what is there
    assert tree.kept() == "harm"


def test_hard_links(tree):
    for to in (str(tree.outside / "kept"), "../outside/kept", "nowhere", "."):
        tree.refused(tar(("a", "dir"), ("mine", "hard", {"to": to})))
    layer = tar(("way", "link", {"to": str(tree.outside)}), ("mine", "hard", {"to": "way/kept"}))
    assert "which is no file here" in tree.refused(layer)
    where = tree.control(layer)
    (where / "mine").write_text("harm")
    assert tree.kept() == "harm"
    (tree.outside / "kept").write_text("as it was")
    # within a layer, and to a lower one's; what replaces one of the names leaves the other as it was
    tree.taken(tar(("one", "file", {"data": b"1"}), ("two", "hard", {"to": "./one"})),
               tar(("three", "hard", {"to": "one"}), ("one", "file", {"data": b"new"})))
    assert (tree.text("one"), tree.text("two"), tree.text("three")) == ("new", "1", "1")
    assert os.stat(tree.root / "two").st_ino == os.stat(tree.root / "three").st_ino


def test_devices_fifos_and_set_id_bits(tree):
    layer = tar(("null", "char", {"device": (1, 3), "mode": 0o666}), ("pipe", "fifo"),
                ("su", "file", {"mode": 0o4755}), ("agents", "file", {"mode": 0o6755, "uid": 65533}),
                ("shared", "dir", {"mode": 0o6777, "gid": 50}))
    said = tree.taken(layer)
    assert "left out 2 devices, FIFOs and sockets" in said and "1 files lost their set-id bits" in said
    assert not tree.has("null") and not tree.has("pipe")
    modes = {name: stat.S_IMODE(os.stat(tree.root / name).st_mode) for name in ("su", "agents", "shared")}
    assert modes == {"su": 0o4755, "agents": 0o755, "shared": 0o2777}
    where = tree.control(layer)
    assert stat.S_ISCHR(os.stat(where / "null").st_mode) and os.stat(where / "agents").st_mode & stat.S_ISUID


def test_layers_in_calls_of_their_own_count_as_in_one(tree):
    layers = [tar(("a", "file", {"data": b"x" * 5000}), ("null", "char", {"device": (1, 3)})), tar((".wh.a", "file"), ("b", "file", {"mode": 0o4755, "uid": 65533}))]
    in_one = tree.taken(*layers).rsplit("\nC ", 1)[1]
    shutil.rmtree(tree.root)
    tree.root.mkdir()
    spool, said = tree.base / "spool", ""
    for first, n in ((0, 1), (1, 1), (0, 0)):
        status, said = call(spool, tree.root, first, n, said)
        assert status == 0, said
    assert said.rsplit("\nC ", 1)[1] == in_one and tree.has("b") and not tree.has("a")
    for counts in ("1", "1,2,3,4,5,6,7,8", "1,2,3,4,5,6,x", ",,,,,,"):
        status, said = call(spool, tree.root, 1, 1, f"\nC {counts}\n")
        assert status == 1 and "\nE " in said, said
    status, said = call(spool, tree.root, 1, 1, "\nC 999999,0,0,0,0,0,0\n")
    assert status == 1 and "over 1000000 entries" in said, said


def test_owners(tree):
    assert "belongs to 70000:0; ids go up to 65535" in tree.refused(tar(("big", "file", {"uid": 70000})))
    tree.taken(tar(("mine", "file", {"uid": 1000, "gid": 65534}), ("way", "link", {"to": "/etc/passwd", "uid": 7})))
    assert (os.stat(tree.root / "mine").st_uid, os.stat(tree.root / "mine").st_gid) == (1000, 65534)
    assert os.lstat(tree.root / "way").st_uid == 7 and os.stat("/etc/passwd").st_uid == 0


def test_whiteouts_hide_lower_layers_alone(tree):
    low = tar(("d", "dir"), ("d/a", "file"), ("d/b", "file"), ("full", "dir"), ("full/old", "dir"), ("full/old/x", "file"),
              ("was", "file", {"data": b"file"}))
    tree.taken(low, tar(("d/.wh.a", "file"), ("d/c", "file"), ("full/new", "file"), ("full/.wh..wh..opq", "file"),
                        ("again", "file"), (".wh.again", "file"), ("was", "dir"), ("was/.wh..wh..opq", "file"), ("was/in", "file")))
    assert [tree.has(n) for n in ("d/a", "d/b", "d/c", "full/old", "full/new", "again", "was/in")] == \
        [False, True, True, False, True, True, True]
    assert not list(tree.root.rglob(".wh.*"))
    # the root's own, and marks that lead nowhere
    tree.taken(low, tar((".wh..wh..opq", "file"), ("only", "file"), ("gone/.wh.x", "file")))
    assert not tree.has("d") and tree.has("only")
    assert "no name" in tree.refused(low, tar(("d/.wh...", "file")))


def test_whiteouts_follow_no_link(tree):
    low = tar(("way", "link", {"to": str(tree.outside)}))
    for mark in ("way/.wh.kept", "way/.wh..wh..opq"):
        tree.taken(low, tar((mark, "file")))
        assert tree.kept() == "as it was"
    where = tree.control(low)
    (where / "way/kept").unlink()  # by a program that follows it
    assert not (tree.outside / "kept").exists()


def sparse(size):
    """A file of that size without contents, in the form of GNU tar: a header of type S."""
    block = bytearray(512)
    block[:4] = b"hole"
    block[100:108], block[108:116], block[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    block[124:136], block[136:148] = b"00000000000\0", b"00000000000\0"
    block[156:157], block[257:265] = b"S", b"ustar  \0"
    block[386:398] = block[483:495] = (0x80 << 88 | size).to_bytes(12, "big")  # where the only piece, of no bytes, begins; the end
    block[398:410] = b"%011o\0" % 0
    block[148:156] = b"%06o\0 " % (sum(block) - sum(block[148:156]) + 8 * 32)
    return bytes(block) + bytes(1024)


def test_sparse_bombs_and_cut_archives(tree):
    assert "the image has over 32 GiB" in tree.refused(sparse(1 << 40))
    tree.taken(sparse(1 << 20))
    assert os.stat(tree.root / "hole").st_size == 1 << 20 and os.stat(tree.root / "hole").st_blocks < 64
    where = tree.control(sparse(1 << 40))
    assert (where / "hole").stat().st_size == 1 << 40
    whole = gzip.compress(tar(("big", "file", {"data": os.urandom(200_000)})))
    for damaged in (whole[:100_000], b"no archive" * 100, b""):
        assert "cannot be read" in tree.refused(damaged)
    tree.taken(whole)


def promised(name, size):
    """The header of an entry with so many bytes of contents, which do not follow."""
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


def test_contents_that_are_passed_over_are_bounded_too(tree):
    """Nothing is kept of a white-out, but an archive can promise any number of bytes of it, and keep its promise in a few: gzip
    makes a thousandth of zeros."""
    low = tar(("a", "dir"))
    for name in ("a/.wh.b", "a/.wh..wh..opq", "a/.wh..wh.plnk"):
        assert "over 128 GiB of archives would have to be read" in tree.refused(low, promised(name, 1 << 40)), name
    # the control: as many as there are
    tree.taken(low, promised("a/.wh.b", 1 << 20) + bytes(1 << 20) + bytes(1024))


def test_compression_over_compression(tree):
    """Zeros become a thousandth by gzip, and a millionth by two: bytes read stay in no proportion to bytes sent."""
    layer = tar(("zeros", "file", {"data": bytes(8 << 20)}))
    once = gzip.compress(layer)
    for outer in ("gzip", "zstd"):
        twice = subprocess.run([outer, "-qc"], input=once, stdout=subprocess.PIPE, check=True).stdout
        assert len(twice) < 1000 and "is compressed more than once; once is allowed" in tree.refused(twice)
    tree.taken(once)  # the control


def pax(key, value):
    """A pax header of one record, which is of the entry behind it."""
    body, n = b" " + key + b"=" + value + b"\n", 0
    while n != len(str(n)) + len(body):
        n = len(str(n)) + len(body)
    info = tarfile.TarInfo("x")
    info.type, info.size = b"x", n
    return info.tobuf(tarfile.USTAR_FORMAT) + str(n).encode() + body + bytes(-n % 512)


def test_contents_beyond_a_files_size_are_counted(tree):
    """An entry that says it is empty can have any number of bytes in the archive, which are gone through."""
    hidden = pax(b"SCHILY.realsize", b"0") + promised("a/.wh.b", 16 << 20) + b"x" * (16 << 20) + bytes(1024)
    tree.taken(gzip.compress(hidden, 1))
    for left, status in ((8, 1), (20, 0)):  # MiB
        found, said = call(tree.base / "spool", tree.root, 0, 1, f"\nC 0,0,0,{(128 << 30) - (left << 20)},0,0,0\n")
        assert found == status and ("over 128 GiB of archives would have to be read" in said) == bool(status), said


def acls(n, first=0):
    return pax(b"SCHILY.acl.access", b",".join(b"user:%d:r" % i for i in range(first, first + n)))


def attributes(n):
    return b"".join(pax(b"SCHILY.xattr.user.%d" % i, b"x") for i in range(n))


def test_acls_and_extended_attributes_are_bounded(tree):
    """None is taken, but libarchive reads them; how long one ACL takes rises with their number."""
    entry = tarfile.TarInfo("a").tobuf() + bytes(1024)
    assert "a has 2003 ACLs and extended attributes, allowed are 1024" in tree.refused(acls(2000) + entry)
    tree.taken(acls(1000) + entry)
    assert os.listxattr(tree.root / "a") == []
    tree.taken(attributes(20) + entry)
    # 16 of them count as an entry more
    for entries, status in ((999_990, 1), (999_900, 0)):
        (tree.base / "spool/0").write_bytes(acls(1000) + entry)
        found, said = call(tree.base / "spool", tree.root, 0, 1, f"\nC {entries},0,0,0,0,0,0\n")
        assert found == status and ("over 1000000 entries" in said) == bool(status), said


def test_many_entries(tree):
    """An image with an entry too many is refused; none of them makes a file."""
    one = tarfile.TarInfo("a/.wh.x").tobuf()
    layer = gzip.compress(one * 1000, 1) * 1000
    assert "the image has over 1000000 entries" in tree.refused(layer + gzip.compress(one + bytes(1024)))
    tree.taken(layer[:len(layer) // 1000] + gzip.compress(one + bytes(1024)))


def pieces(blocks):
    """A sparse file whose list of pieces goes on for so many blocks of 21, compressed."""
    head = bytearray(sparse(1 << 20)[:512])
    head[482] = 1  # the list goes on
    head[148:156] = b"%06o\0 " % (sum(head) - sum(head[148:156]) + 8 * 32)
    piece = b"00000000001\0" + b"00000000000\0"
    block = piece * 21 + b"\1" + bytes(7)
    last = piece * 21 + bytes(8)
    return gzip.compress(bytes(head)) + gzip.compress(block * 1000) * (blocks // 1000) + gzip.compress(last + bytes(1024))


def test_the_memory_that_an_archive_costs(tree):
    """libarchive keeps the list in memory: 21 million pieces are 300 KiB of an archive, and over 600 MiB there."""
    tree.taken(pieces(1000))
    assert tree.refused(pieces(1_000_000)) == "12 reading the image takes over 512 MiB of memory\n"


def test_names_without_contents_take_room_too(tree):
    """On a small disk: paths of many folders, of which an archive has the last name alone, and files of no bytes."""
    small = tree.base / "small"
    small.mkdir()
    deep = tar(*((f"{i}/" + "d/" * 100 + "last", "file") for i in range(170)))
    many = tar(*((f"n{i}", "file") for i in range(17000)))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=17000,size=64m", "none", small], check=True)
    try:
        tree.root = small / "tree"
        for layer in (deep, many):
            status, said = tree.unpack(layer)
            assert status == 1 and "E 28 layer 1: the disk would be left with less than 5 % free" in said, said
            assert os.statvfs(small).f_favail > 0
        shutil.rmtree(tree.root)
        tree.root.mkdir()
        subprocess.run(["tar", "-xf", "-", "-C", tree.root], input=deep, stderr=subprocess.DEVNULL)  # the control
        assert os.statvfs(small).f_favail == 0
    finally:
        subprocess.run(["umount", small], check=True)


def test_an_image_that_has_taken_all_ids(tree):
    """The one that is left goes to the first user; each id that is tried costs no reading of the whole file."""
    taken = b"".join(b"::%d:::/:\n" % i for i in range(59998, 999, -1))
    said = tree.refused(tar(("etc/passwd", "file", {"data": taken})))
    assert said == "22 /etc/passwd and group leave no id from 1000 to 59999 to daytona\n"


def test_names_of_all_kinds(tree):
    deep = "/".join(["d" * 20] * 150)
    assert "folders deep" in tree.refused(tar((deep, "file"), form=tarfile.PAX_FORMAT))
    assert "has a part of over 255 bytes" in tree.refused(tar(("n" * 256, "file")))
    assert "over 3500 bytes" in tree.refused(tar(("/".join(["n" * 200] * 18), "file")))
    names = ["n" * 255, "/".join(["m" * 250] * 13), "caf\udce9", "na\u00efve \u65e5\u672c", "new\nline", "-rf", "a//./b"]
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        tree.taken(tar(*((name, "file", {"data": b"x"}) for name in names), form=form))
        assert all(tree.text(name) == "x" for name in names)


def test_many_layers(tree):
    """The most that an image may have, one of them with zstd."""
    layers = [tar((f"of/{i}", "file"), ("of/last", "file", {"data": b"%d" % i})) for i in range(127)]
    made = subprocess.run(["zstd", "-q"], input=tar(("packed", "file", {"data": b"z"})), stdout=subprocess.PIPE, check=True)
    said = tree.taken(*layers, made.stdout)
    assert "layer 128 of 128" in said and tree.text("of/last") == "126" and tree.text("packed") == "z"
    assert len(list((tree.root / "of").iterdir())) == 128


def program(name, text="#!/bin/sh\n"):
    return (name, "file", {"mode": 0o755, "data": text.encode()})


def test_what_is_added(tree):
    said = tree.taken(tar(program("bin/sh"), ("etc/passwd", "file", {"data": b"node:x:1000:1000::/n:/bin/sh"}),
                          ("etc/group", "file", {"data": b"node:x:1000:\nuser:x:3:\n"}), ("etc/shadow", "file", {"mode": 0o640}),
                          ("proc", "link", {"to": "etc"}), ("tmp", "dir", {"mode": 0o700}), ("var", "link", {"to": "etc"}),
                          ("etc/resolv.conf", "link", {"to": str(tree.outside / "kept")})))
    assert "added the user user (1001)" in said and "added /bin/bash, a script" in said and "there is no sudo" in said
    assert tree.text("etc/passwd").splitlines() == [
        "node:x:1000:1000::/n:/bin/sh", "root:x:0:0:root:/root:/bin/sh", "user:x:1001:1001::/home/user:/bin/sh",
        "daytona:x:1002:1002::/home/daytona:/bin/sh"]
    assert tree.text("etc/group").splitlines() == ["node:x:1000:", "user:x:3:", "root:x:0:", "daytona:x:1002:"]
    assert tree.text("etc/shadow").startswith("user:*:") and "nameserver" in tree.text("etc/resolv.conf")
    assert os.stat(tree.root / "home/user").st_uid == 1001 and stat.S_IMODE(os.stat(tree.root / "tmp").st_mode) == 0o700
    assert stat.S_ISDIR(os.lstat(tree.root / "proc").st_mode) and tree.kept() == "as it was"
    assert "there is no shell" in tree.taken(tar(program("app"))) and not tree.has("bin/bash")
    # its own stay
    said = tree.taken(tar(program("usr/bin/bash", "own"), program("usr/bin/sudo"), ("bin", "link", {"to": "usr/bin"}),
                          ("etc/passwd", "file", {"data": b"user:x:7:7::/:/bin/sh\ndaytona:x:8:8::/:/bin/sh\nroot:x:0:0::/:\n"})))
    assert "added" not in said and tree.text("usr/bin/bash") == "own" and "NOPASSWD" in tree.text("etc/sudoers.d/cay")
    # where /etc itself leads elsewhere there is nothing to be added to but a folder of its own
    tree.taken(tar(("etc", "link", {"to": str(tree.outside)})))
    assert "user" in tree.text("etc/passwd")
    assert sorted(p.name for p in pathlib.Path(tree.outside).iterdir()) == ["kept"]
