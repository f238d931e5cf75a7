"""cay-seal, as what holds the key will start it: an image goes into one file and comes back, and a changed one does not."""

import fcntl
import os
import subprocess

import pytest

from conftest import BUILD

SEAL = BUILD / "src/seal/cay-seal"
UID = int(os.environ.get("CAY_TEST_UID_BASE", 0xb0000000)) + 7 * 65536
KEY, LABEL = bytes(range(32)), b"whose memory".ljust(128, b"\0")
HEADER, PIECE = 208, 65536 + 16

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def start(what, directory, file, secret=KEY + LABEL, most=1 << 30, uid=UID):
    """cay-seal's answer: exit status and what it wrote."""
    read_end, write_end = os.pipe()
    os.write(write_end, secret)
    os.close(write_end)
    flags = os.O_RDWR | os.O_CREAT if what == "seal" else os.O_RDONLY
    given = [read_end, os.open(directory, os.O_RDONLY), os.open(file, flags, 0o600)]
    # Free numbers beyond those that they get: theirs may be among these.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 50) for fd in given]
    moves = " ".join(f"{3 + i}<&{fd}" for i, fd in enumerate(high))

    try:
        done = subprocess.run(["bash", "-c", f'exec "$0" "$@" {moves}', SEAL, what, str(uid), str(most)],
                              capture_output=True, text=True, pass_fds=high, cwd="/")
    finally:
        for fd in given + high:
            os.close(fd)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def image(tmp_path):
    """A directory of the sandbox's first id with an image's files, an empty one, and the sealed file of the first."""
    for name in ("from", "to"):
        (tmp_path / name).mkdir(mode=0o700)
        os.chown(tmp_path / name, UID, UID)
    for name, content in (("pages-1.img", os.urandom(600_000)), ("core-1.img", b"a word of the tenant's"), ("empty.img", b"")):
        (tmp_path / "from" / name).write_bytes(content)
        os.chown(tmp_path / "from" / name, UID, UID)
    assert start("seal", tmp_path / "from", tmp_path / "sealed") == (0, "")
    return tmp_path


def files(directory):
    return {p.name: p.read_bytes() for p in directory.iterdir()}


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def test_an_image_comes_back_and_belongs_to_the_sandbox(image):
    assert start("open", image / "to", image / "sealed") == (0, "")
    assert files(image / "to") == files(image / "from")
    for p in (image / "to").iterdir():
        assert (p.stat().st_uid, p.stat().st_mode & 0o7777) == (UID, 0o600)
    assert b"a word of the tenant's" not in (image / "sealed").read_bytes()
    assert b"a word of the tenant's" in (image / "from/core-1.img").read_bytes()


@pytest.mark.parametrize("at, told", [(0, "its header"), (HEADER - 1, "its header"), (HEADER, "piece 0, from byte 208 on"),
                                      (HEADER + PIECE, f"piece 1, from byte {HEADER + PIECE} on"),
                                      (HEADER + 3 * PIECE - 1, f"piece 2, from byte {HEADER + 2 * PIECE} on"),
                                      (HEADER + 7 * PIECE, f"piece 7, from byte {HEADER + 7 * PIECE} on"),
                                      (-1, f"piece 9, from byte {HEADER + 9 * PIECE} on")])
def test_a_flipped_bit_is_refused_with_its_place(image, at, told):
    flip(image / "sealed", at)
    assert start("open", image / "to", image / "sealed") == (1, f"E 74 the image is damaged: {told}\n")
    assert files(image / "to") == {}
    flip(image / "sealed", at)
    assert start("open", image / "to", image / "sealed") == (0, "")


def test_a_bit_in_each_4_kib_is_found(image):
    """Another one in each, and none of the pieces comes back."""
    sealed = image / "sealed"
    size = sealed.stat().st_size
    for start_at in range(0, size, 4096):
        at = min(start_at + start_at // 4096 * 131 % 4096, size - 1)
        place = "its header" if at < HEADER else f"piece {(at - HEADER) // PIECE}, from byte {HEADER + (at - HEADER) // PIECE * PIECE} on"
        flip(sealed, at)
        assert start("open", image / "to", sealed) == (1, f"E 74 the image is damaged: {place}\n"), at
        assert files(image / "to") == {}, at
        flip(sealed, at)
    assert start("open", image / "to", sealed) == (0, "")


def test_an_image_of_another_sandbox_or_key_is_refused(image):
    status, told = start("open", image / "to", image / "sealed", KEY + LABEL.replace(b"whose", b"other"))
    assert (status, told) == (1, "E 116 the image is not of this sandbox, kernel and template\n")
    status, told = start("open", image / "to", image / "sealed", bytes(32) + LABEL)
    assert (status, told) == (1, "E 74 the image is damaged: its header\n")
    assert files(image / "to") == {}


def test_it_has_the_sandboxs_rights_alone(image):
    """A file of root's in the directory is not its to read; nor is a directory of root's its to write to."""
    secret = image / "from/secret.img"
    secret.write_bytes(b"of the host")
    secret.chmod(0o600)
    assert start("seal", image / "from", image / "again") == (1, "E 13 opening secret.img: Permission denied\n")
    os.chown(secret, UID, UID)
    assert start("seal", image / "from", image / "again") == (0, "")
    os.chown(image / "to", 0, 0)
    status, told = start("open", image / "to", image / "again")
    assert status == 1 and told.startswith("E 13 ")


def test_no_link_leads_out_of_the_directory(image):
    (image / "from/link.img").symlink_to("/etc/passwd")
    status, told = start("seal", image / "from", image / "again")
    assert status == 1 and told.startswith("E 40 opening link.img")


def test_a_disk_that_is_full_leaves_nothing(image):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=128k,uid={UID},mode=0700", "none", image / "to"], check=True)
    try:
        status, told = start("open", image / "to", image / "sealed")
        assert status == 1 and told == "E 28 writing pages-1.img: No space left on device\n"
        assert files(image / "to") == {}
    finally:
        subprocess.run(["umount", image / "to"], check=True)


def test_what_is_larger_than_it_may_be_is_refused(image):
    assert start("seal", image / "from", image / "again", most=200_000) == (1, "E 27 the image would be larger than it may be\n")
    assert (image / "again").stat().st_size <= 200_000


@pytest.mark.parametrize("words", [[], ["seal"], ["look", "5", "5"], ["seal", "0", "5"], ["seal", "root", "5"], ["seal", "5", "-1"],
                                   ["open", "4294967295", "5"], ["open", "5", "5", "5"]])
def test_other_words_are_refused(words):
    done = subprocess.run([SEAL, *words], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: cay-seal")


def test_a_short_secret_is_refused(image):
    assert start("open", image / "to", image / "sealed", KEY)[0] == 1
