"""A bucket's server that answers as it likes: each answer is refused with a reason, within a time and little memory; the sandbox stays
paused, with the archive that it had, and nothing is left of the try. The control: the same server, once it answers as it should."""

import datetime
import errno
import gzip
import os
import pathlib
import re
import shutil
import tempfile
import threading
import time

import pytest

from s3lib import Stub, again_and_again, answer, reset
from test_archive import archive, children, disk, end_all, why, with_template
from test_archive_bucket import FETCH, fetch, has_all, is_away, keep_some, layer
from test_kept import create_on, kept_body, kepts
from waitlib import until

MEMORY_KIB = 48 << 10  # of curl, and of cay-job; it has less than 16 MiB while all goes well
AWAY = ["archive", "bucket", "root", "root.work", "usr", "usr.work"]
HEAD = b"HTTP/1.1 200 OK\r\n"
ENDLESS = b"x" * 65536


def chunked(connection, *parts):
    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(parts))


def endless_chunks(connection, request, stored):
    chunked(connection)
    again_and_again(connection, b"10000\r\n" + ENDLESS + b"\r\n")


def endless(connection, request, stored):
    connection.sendall(HEAD + b"\r\n")
    again_and_again(connection, ENDLESS)


def endless_lines(connection, request, stored):
    connection.sendall(HEAD)
    again_and_again(connection, b"X-More: " + b"y" * 1000 + b"\r\n")


def endless_line(connection, request, stored):
    connection.sendall(HEAD + b"X-Long: ")
    again_and_again(connection, ENDLESS)


def endless_beginning(connection, request, stored):
    again_and_again(connection, ENDLESS)


def endless_1xx(connection, request, stored):
    again_and_again(connection, b"HTTP/1.1 103 Early Hints\r\nLink: <" + b"z" * 1000 + b">\r\n\r\n", pause=0.005)


def endless_continue(connection, request, stored):
    again_and_again(connection, b"HTTP/1.1 100 Continue\r\n\r\n" * 100, pause=0.01)


def endless_extension(connection, request, stored):
    chunked(connection, b"1;a=")
    again_and_again(connection, b"x" * 2000, pause=0.01)


def endless_trailers(connection, request, stored):
    chunked(connection, b"1\r\nx\r\n0\r\n")
    again_and_again(connection, b"X-Trailer: " + b"y" * 1000 + b"\r\n", pause=0.005)


def too_long_said(connection, request, stored):
    connection.sendall(HEAD + b"Content-Length: 18446744073709551615\r\n\r\n")
    again_and_again(connection, ENDLESS)


def cut(connection, request, stored):
    connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(stored) + stored[:len(stored) // 2])


def cut_and_reset(connection, request, stored):
    cut(connection, request, stored)
    reset(connection)


def cut_in_the_head(connection, request, stored):
    connection.sendall(b"HTTP/1.1 200 O")


def closed(connection, request, stored):
    reset(connection)


def shorter_said(connection, request, stored):
    connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n" + stored)


def two_lengths(connection, request, stored):
    connection.sendall(HEAD + b"Content-Length: %d\r\nContent-Length: 100\r\n\r\n" % len(stored) + stored)


def length_and_chunks(connection, request, stored):
    connection.sendall(HEAD + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n" % len(stored) + stored)


def negative_chunk(connection, request, stored):
    chunked(connection, b"-1\r\n", stored)


def huge_chunk(connection, request, stored):
    chunked(connection, b"ffffffffffffffffff\r\n", stored)


def no_chunk(connection, request, stored):
    chunked(connection, stored)


def elsewhere(connection, request, stored):
    answer(connection, "307 Temporary Redirect", b"", f"Location: {request.path}?again")


def to_a_file(connection, request, stored):
    answer(connection, "302 Found", stored, "Location: file:///etc/passwd")


def changed(connection, request, stored):
    answer(connection, "200 OK", stored[:-1] + bytes([stored[-1] ^ 1]))


def nothing(connection, request, stored):
    answer(connection, "204 No Content")


def a_part(connection, request, stored):
    answer(connection, "206 Partial Content", stored[100:])


def bomb_of_transfer(connection, request, stored):
    bomb = gzip.compress(bytes(BOMB))
    connection.sendall(HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n%x\r\n" % len(bomb) + bomb + b"\r\n0\r\n\r\n")


def bomb_of_content(connection, request, stored):
    answer(connection, "200 OK", gzip.compress(bytes(BOMB)), "Content-Encoding: gzip")


def old_http(connection, request, stored):
    connection.sendall(stored)


def another_protocol(connection, request, stored):
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100))


def says_good_in_an_error(connection, request, stored):
    answer(connection, "500 Broken", b"\nstatus 200 999999999\ncurl: (0) all is well\n")


def says_much_in_an_error(connection, request, stored):
    answer(connection, "403 Forbidden", b"<Error><Code>Word\nE 2 forged\n" + b"A\x1b[31m\n" * 300 + b"</Code></Error>")


BOMB = 32 << 20

GETS = [(endless, "longer"), (endless_chunks, "longer"), (too_long_said, ""), (endless_lines, ""), (endless_line, ""), (endless_beginning, ""),
        (cut, "curl: (18)"), (cut_and_reset, "curl: ("),
        (cut_in_the_head, ""), (closed, "does not answer"), (shorter_said, "has 100 bytes"), (two_lengths, ""), (length_and_chunks, ""),
        (negative_chunk, ""), (huge_chunk, ""), (no_chunk, ""), (elsewhere, "answered 307"), (to_a_file, "answered 302"), (changed, "SHA-256 differs"),
        (nothing, "0 bytes"), (a_part, "bytes, and"), (bomb_of_transfer, ""), (bomb_of_content, "bytes, and"), (old_http, ""), (another_protocol, ""),
        (says_good_in_an_error, "answered 500"), (says_much_in_an_error, "answered 403 Word")]


@pytest.fixture(scope="module")
def stub():
    s = Stub()
    yield s
    s.stop()


@pytest.fixture(scope="module")
def server(stub):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-bucket-", dir="/var/tmp"))
    (folder / "keys").write_text("aws_access_key_id = k\naws_secret_access_key = s\n")
    (folder / "keys").chmod(0o600)
    yield from with_template(**stub.options(folder / "keys"))
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def privd(server, stub):
    yield server
    stub.misbehave = {}
    end_all(server)
    server.crash()  # a start looks for what was not removed
    server.start()
    until(lambda: stub.objects == {}, seconds=90, what=lambda: f"objects without a sandbox are removed: {list(stub.objects)} {stub.seen}")


def keys(p):
    return os.listdir(disk(p) / "bucket")


class Watch:
    """The most memory of a cay-job or curl while it is open, and the time."""

    def __init__(self, p):
        self.privd, self.peak, self.over = p, 0, threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.over.wait(0.02):
            for pid in children(self.privd, "cay-job") + children(self.privd, "curl"):
                try:
                    peak = re.search(r"VmHWM:\s+([0-9]+)", pathlib.Path(f"/proc/{pid}/status").read_text())
                except OSError:
                    continue
                self.peak = max(self.peak, int(peak[1]) if peak else 0)

    def __enter__(self):
        self.begun = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.seconds = time.monotonic() - self.begun
        self.over.set()
        self.thread.join()


def stays_away(p, c, r, said, number=7):
    assert r.status < 0 and said in why(r) and why(r).isprintable(), (r.status, why(r))
    assert is_away(p, number) and number in kepts(c)
    assert sorted(os.listdir(layer(p, number))) == AWAY
    assert create_on(c, "inever", number).status == -errno.ENODATA
    until(lambda: children(p, "curl") == children(p, "cay-job") == [], 10, "the job ends when it has answered")


def send(p, c, number=7):
    keep_some(p, c, number)
    r = archive(c, number)
    assert r.status == 0 and why(r) == "" and is_away(p, number), why(r)


def skip_but_on(day, seconds):
    """Most of these only wait for a server. day: of two, or of three."""
    if datetime.date.today().toordinal() % day[1] != day[0] and os.environ.get("CAY_BUCKET_HOSTILE") != "full":
        pytest.skip(f"not each day, as it takes {seconds} s; CAY_BUCKET_HOSTILE=full has all")


def test_what_comes_is_not_the_object(privd, stub):
    skip_but_on((0, 2), 60)
    c = privd.channel(timeout=100)
    send(privd, c)
    peaks = {}
    for get, said in GETS:
        stub.misbehave, stub.seen = {"GET": get}, []
        with Watch(privd) as watch:
            r = fetch(c, 7)
        print(f"{get.__name__:24} {watch.seconds:5.1f} s {watch.peak / 1024:5.1f} MiB {len(stub.seen)} {r.status} {why(r)}")
        peaks[get.__name__] = watch.peak
        stays_away(privd, c, r, said)
        assert watch.seconds < 60, get.__name__
        assert len(stub.seen) <= 3 and not any("again" in path for _, path in stub.seen)
    assert max(peaks.values()) < MEMORY_KIB, peaks
    stub.misbehave = {}
    assert fetch(c, 7).status == 0
    has_all(privd, c, "ithere")


def test_an_archive_of_before_is_not_taken_for_that_of_now(privd, stub):
    """It was signed with the same key for the same sandbox: its hash alone is another."""
    c = privd.channel()
    send(privd, c)
    (before,) = stub.objects.values()
    assert fetch(c, 7).status == 0
    s = has_all(privd, c, "iwoken")
    assert c.kill(s).status == 0
    end_all(privd)
    c = privd.channel()  # in place of end_all's own
    send(privd, c)
    stub.misbehave = {"GET": lambda connection, request, stored: answer(connection, "200 OK", before[:len(stored)].ljust(len(stored), b"\0"))}
    stays_away(privd, c, fetch(c, 7), "SHA-256 differs")
    stub.misbehave = {}
    assert fetch(c, 7).status == 0
    has_all(privd, c, "inow")


def drip(connection, request, stored):
    connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(stored))
    again_and_again(connection, b"x", pause=1)


def drip_of_a_head(connection, request, stored):
    connection.sendall(HEAD + b"X-Slow: ")
    again_and_again(connection, b"x", pause=1)


def silence(connection, request, stored):
    again_and_again(connection, b"", pause=1)


NO_ENDS = [(drip, drip_of_a_head, silence), (endless_1xx, endless_continue, endless_trailers), (endless_extension,)]


@pytest.mark.parametrize("gets", NO_ENDS, ids=lambda gets: "-".join(get.__name__ for get in gets))
def test_a_server_that_comes_to_no_end(privd, stub, gets):
    """A byte a second, in the body and in the head, and nothing at all; and much that is no body. Three sandboxes at a time."""
    skip_but_on((NO_ENDS.index(gets), len(NO_ENDS)), 30)
    c = privd.channel(timeout=200)
    gets = dict(zip((1, 2, 3), gets))
    by_path = {}
    for number, get in gets.items():
        before = set(stub.objects)
        send(privd, c, number)
        (path,) = set(stub.objects) - before
        by_path[path] = get
    stub.misbehave = {"GET": lambda connection, request, stored: by_path[request.path](connection, request, stored)}
    with Watch(privd) as watch:
        seqs = {number: c.send(FETCH, kept_body(number, account=number)) for number in gets}
        answers = {number: c.wait(seq) for number, seq in seqs.items()}
    print(f"{watch.seconds:.1f} s, {watch.peak / 1024:.1f} MiB, {[why(r) for r in answers.values()]}")
    assert watch.seconds < 130 and watch.peak < MEMORY_KIB
    for number, r in answers.items():
        stays_away(privd, c, r, "curl: (", number)
    stub.misbehave = {}
    for number in gets:
        assert fetch(c, number).status == 0
        has_all(privd, c, f"islow{number}", number)


def takes_nothing(connection, request, stored):
    answer(connection, "200 OK")


def takes_nothing_and_stays(connection, request, stored):
    connection.sendall(HEAD + b"Content-Length: 0\r\n\r\n")
    time.sleep(3)


def forgets(connection, request, stored):
    answer(connection, "200 OK")


def does_not_expect(connection, request, stored):
    answer(connection, "417 Expectation Failed")


def puts(stub):
    def keeps_a_part(connection, request, stored):
        stub.objects[request.path] = request.body[:-1]
        answer(connection, "200 OK")

    def keeps_another(connection, request, stored):
        stub.objects[request.path] = request.body[::-1]
        answer(connection, "200 OK")

    return [("PUT early", takes_nothing, ""), ("PUT early", takes_nothing_and_stays, ""), ("PUT early", does_not_expect, "417"), ("PUT early", closed, ""),
            ("PUT", forgets, "NoSuchKey"), ("PUT", keeps_a_part, "something else"), ("PUT", keeps_another, "something else"),
            ("PUT", endless, "longer"), ("PUT", endless_chunks, "longer"), ("PUT", endless_lines, ""), ("PUT early", endless_1xx, ""), ("PUT", elsewhere, "307"), ("PUT", says_good_in_an_error, "500"), ("PUT", says_much_in_an_error, "403 Word"),
            ("PUT", closed, ""), ("PUT", another_protocol, "")]


def test_what_is_sent_is_not_taken(privd, stub):
    skip_but_on((1, 2), 35)
    """The archive stays on the state disk until the bucket has it, and starts from there."""
    c = privd.channel(timeout=150)
    keep_some(privd, c, mib=24)  # more than sockets hold
    for when, put, said in puts(stub):
        stub.misbehave, stub.seen = {when: put}, []
        with Watch(privd) as watch:
            r = archive(c, 7)  # the first makes the archive, the others send it
        print(f"{put.__name__:24} {watch.seconds:5.1f} s {watch.peak / 1024:5.1f} MiB {len(stub.seen)} {r.status} {why(r)}")
        assert r.status == 0 and why(r) and said in why(r) and why(r).isprintable(), (put.__name__, why(r))
        assert not is_away(privd) and (layer(privd) / "archive").stat().st_size > 24 << 20
        assert sorted(os.listdir(layer(privd))) == [name for name in AWAY if name != "bucket"]
        assert watch.seconds < 120 and not any("again" in path for _, path in stub.seen)
    stub.misbehave = {}
    r = archive(c, 7)
    assert r.status == 0 and why(r) == "" and is_away(privd)
    assert fetch(c, 7).status == 0
    has_all(privd, c, "isent", mib=24)


@pytest.mark.parametrize("delete", [endless, endless_lines, says_good_in_an_error, elsewhere, closed], ids=lambda f: f.__name__)
def test_what_is_removed_is_not(privd, stub, delete):
    """Its name stays here until the bucket has said that it is gone."""
    c = privd.channel()
    send(privd, c)
    stub.misbehave = {"DELETE": delete}
    with Watch(privd) as watch:
        assert fetch(c, 7).status == 0
        until(lambda: any(method == "DELETE" for method, _ in stub.seen), what="the first try")
        until(lambda: children(privd, "cay-job") == [], seconds=90, what="the end of the tries")
    (path,) = stub.objects
    assert pathlib.PurePath(path).stem in keys(privd) and watch.peak < MEMORY_KIB
    stub.misbehave, stub.seen = {}, []
    has_all(privd, c, "ihere")


def test_a_bucket_that_removes_nothing_gets_no_more(privd, stub):
    """Each try to send has a name of its own, which stays until its object is gone."""
    c = privd.channel()
    keep_some(privd, c)
    folder = disk(privd) / "bucket"
    assert archive(c, 7).status == 0 and is_away(privd) and fetch(c, 7).status == 0
    stub.misbehave = {"DELETE": says_good_in_an_error}
    for n in range(2048):
        (folder / f"{n:032}").touch()
    keep_some(privd, c, 8)
    r = archive(c, 8)
    assert r.status == 0 and "2048 objects" in why(r) and not is_away(privd, 8)
    for n in range(2048):
        (folder / f"{n:032}").unlink(missing_ok=True)
    assert archive(c, 8).status == 0 and is_away(privd, 8)
