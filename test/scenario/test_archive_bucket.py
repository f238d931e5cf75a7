"""Archives in a bucket of S3, by cay-privd alone: there and back, objects that are not what was stored, a server that is away or refuses, and
what is left where a program is killed in between. The server is moto, which checks the signatures."""

import contextlib
import errno
import os
import signal

import pytest

from bucketlib import bucket, credentials  # noqa: F401 (fixtures)
from test_archive import ARCHIVE, ARCHIVE_STOP, HAS, STAGE_ARCHIVE, archive, children, disk, disk_names, end_all, keep_full, show, why, with_template
from test_kept import OTHER, copy, create_copy, create_on, drop, inside, keep, kept_body, kepts
from waitlib import until

FETCH = 25
MIB = 1 << 20
SOME = 'import os; open("/root/random", "wb").write(os.urandom(%d << 20)); open("/root/last", "w").write("there")'


@pytest.fixture(scope="module")
def server(bucket, credentials):  # noqa: F811
    for p in with_template(**bucket.options(credentials)):
        p.credentials = credentials
        yield p


@pytest.fixture
def privd(server, bucket):
    bucket.write_credentials(server.credentials)
    yield server
    bucket.gate.error = None
    bucket.gate.release()
    bucket.write_credentials(server.credentials)
    end_all(server)
    until(lambda: bucket.keys() == [], seconds=90, what="objects without a sandbox are removed")


def fetch(c, number, *owner):
    return c.ask(FETCH, kept_body(number, *owner))


def layer(p, number=7):
    return disk(p) / f"kept/{number}"


def is_away(p, number=7):
    return (layer(p, number) / "bucket").exists() and (layer(p, number) / "archive").stat().st_size == 0


def keep_some(p, c, number=7, mib=2):
    keep_full(p, c, number, SOME % mib, name=f"isource{number}")


def has_all(p, c, name, number=7, mib=2):
    s = create_on(c, name, number)
    assert s.status == 0
    assert inside(p, s, HAS).split() == [str(mib << 20), "there"]
    return s


def send(p, c, bucket, number=7):
    """A sandbox with files whose archive is in the bucket; the object's key."""
    before = set(bucket.keys())
    keep_some(p, c, number)
    r = archive(c, number)
    assert r.status == 0 and why(r) == "", why(r)
    assert is_away(p, number)
    (key,) = set(bucket.keys()) - before
    return key


def test_there_and_back(privd, bucket):
    c = privd.channel()
    before = keep_full(privd, c, 7)
    r = archive(c, 7)
    assert r.status == 0 and why(r) == "", why(r)
    assert is_away(privd) and kepts(c) == {7} and len(bucket.keys()) == 1 and disk_names(privd, "archiving") == []
    assert archive(c, 7).status == 0 and len(bucket.keys()) == 1  # it was done before
    assert fetch(c, 7, OTHER).status == -errno.EPERM and fetch(c, 9).status == -errno.ENOENT
    for r in (create_on(c, "itoosoon", 7), create_copy(c, "itoosoon", 7)):
        assert (r.status, r.stage) == (-errno.ENODATA, STAGE_ARCHIVE)
    assert is_away(privd)
    r = fetch(c, 7)
    assert r.status == 0, why(r)
    assert sorted(os.listdir(layer(privd))) == ["archive", "root", "root.work", "usr", "usr.work"]
    assert (layer(privd) / "archive").stat().st_mode & 0o777 == 0o600
    assert fetch(c, 7).status == 0  # it is here
    until(lambda: bucket.keys() == [], what="the object is removed")
    assert "once more" not in privd.log.read_text()  # its name waits here for a minute, and that is no fault
    s = create_on(c, "iwoken", 7)
    assert s.status == 0 and show(privd, s) == before
    # Its new files lie above the archive, which stays here from now on; a copy has both.
    inside(privd, s, "echo changed > /root/t/text")
    assert keep(c, s, 7).status == 0
    r = archive(c, 7)
    assert r.status == -errno.EALREADY and "archived before" in why(r)
    assert bucket.keys() == []
    s = create_on(c, "iagain", 7)
    assert s.status == 0 and copy(c, s, 8).status == 0
    t = create_copy(c, "icopy", 8)
    assert t.status == 0 and inside(privd, t, "cat /root/t/text /root/t/many2") == "changed\n2"


def test_an_object_that_is_not_what_was_stored(privd, bucket):
    """Missing, changed, cut, longer, another's: refused with the reason, and kept there. The control: with the object as it was it starts."""
    c = privd.channel()
    key, other = send(privd, c, bucket), send(privd, c, bucket, 8)
    whole, of_other = bucket.read(key), bucket.read(other)
    for contents, status, text in ((whole[:99] + bytes([whole[99] ^ 1]) + whole[100:], errno.EBADMSG, "SHA-256 differs"),
                                   (whole[:-1], errno.EBADMSG, f"{len(whole) - 1} bytes, and {len(whole)} were stored"),
                                   (b"", errno.EBADMSG, "0 bytes"), (whole + b"x", errno.EBADMSG, "longer"),
                                   (of_other, errno.EBADMSG, ""), (None, errno.ENODATA, "no such object")):
        if contents is None:
            bucket.client.delete_object(Bucket=bucket.name, Key=key)
        else:
            bucket.write(key, contents)
        r = fetch(c, 7)
        assert r.status == -status and text in why(r), (status, r.status, why(r))
        assert is_away(privd) and kepts(c) == {7, 8}
        assert create_on(c, "inever", 7).status == -errno.ENODATA
        assert not (layer(privd) / "archive.new").exists()
    bucket.write(key, whole)
    assert fetch(c, 7).status == 0
    has_all(privd, c, "iwhole")


@pytest.mark.parametrize("what", ["refuses", "fails", "away", "keys", "open"])
def test_a_bucket_that_does_not_take_it(privd, bucket, what):
    """The archive stays on the state disk, and starts; the next ARCHIVE sends it, once the bucket takes it."""
    c = privd.channel()
    keep_some(privd, c)
    said = {"refuses": "403", "fails": "503", "away": "does not answer", "keys": "403 SignatureDoesNotMatch", "open": "chmod it to 600"}[what]
    if what in ("refuses", "fails"):
        bucket.gate.error = {"refuses": "403 Forbidden", "fails": "503 Slow Down"}[what]
    elif what == "away":
        privd.crash()
        privd.command = [part.replace(bucket.url, "http://127.0.0.1:9") for part in privd.command]
        privd.start()
        c = privd.channel()
    elif what == "keys":
        bucket.write_credentials(privd.credentials, secret="x" * 40)
    else:
        bucket.write_credentials(privd.credentials, mode=0o644)
    r = archive(c, 7)
    assert r.status == 0 and said in why(r), why(r)
    assert kepts(c) == {7} and (layer(privd) / "archive").stat().st_size > 2 * MIB and not (layer(privd) / "bucket").exists()
    if what == "away":
        privd.crash()
        privd.command = [part.replace("http://127.0.0.1:9", bucket.url) for part in privd.command]
        privd.start()
        c = privd.channel()
    assert bucket.keys() == []
    bucket.gate.error = None
    bucket.write_credentials(privd.credentials)
    assert archive(c, 7).status == 0 and is_away(privd) and len(bucket.keys()) == 1
    if what == "fails":  # the way back: some tries, and then the reason
        bucket.gate.error = "500 Broken"
        r = fetch(c, 7)
        assert r.status == -errno.EIO and "500" in why(r) and is_away(privd)
        bucket.gate.error = None
    assert fetch(c, 7).status == 0
    has_all(privd, c, "istill")


def held(bucket, method, after=False):
    bucket.gate.hold(method, after)
    return lambda: until(bucket.gate.reached.is_set, what=f"{method} reaches the server")


@pytest.mark.parametrize("after", [False, True], ids=["before", "stored"])
def test_cay_privd_killed_while_it_is_sent(privd, bucket, after):
    """Whether the server has stored it or not: the archive is here, whole, and the object goes."""
    c = privd.channel()
    keep_some(privd, c, mib=24)  # more than sockets hold
    reached = held(bucket, "PUT", after)
    c.send(ARCHIVE, kept_body(7))
    reached()
    privd.crash()
    bucket.gate.release()
    privd.start()
    c = privd.channel()
    assert kepts(c) == {7} and not is_away(privd)
    until(lambda: bucket.keys() == [], seconds=90, what="the object without a sandbox is removed")
    has_all(privd, c, "iafter", mib=24)


@pytest.mark.parametrize("after", [False, True], ids=["before", "read"])
def test_cay_privd_killed_while_it_is_fetched(privd, bucket, after):
    c = privd.channel()
    key = send(privd, c, bucket)
    reached = held(bucket, "GET", after)
    c.send(FETCH, kept_body(7))
    reached()
    privd.crash()
    bucket.gate.release()
    privd.start()
    c = privd.channel()
    assert kepts(c) == {7} and is_away(privd) and bucket.keys() == [key]
    assert fetch(c, 7).status == 0
    has_all(privd, c, "iafter")


@pytest.mark.parametrize("name", ["cay-job", "curl"])
@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_another_program_killed(privd, bucket, name, method):
    """curl is tried again; a job that ends leaves all as it was."""
    c = privd.channel()
    if method == "GET":
        send(privd, c, bucket)
    else:
        keep_some(privd, c, mib=24)  # more than sockets hold
    reached = held(bucket, method)
    seq = c.send(FETCH if method == "GET" else ARCHIVE, kept_body(7))
    reached()
    killed = 0
    for pid in children(privd, name):
        with contextlib.suppress(ProcessLookupError):  # one of a request before
            os.kill(pid, signal.SIGKILL)
            killed += 1
    assert killed
    bucket.gate.release()
    r = c.wait(seq)
    assert kepts(c) == {7}
    if name == "curl":
        assert r.status == 0 and why(r) == "" and is_away(privd) == (method == "PUT")
    else:
        assert {"archive.new"} & set(os.listdir(layer(privd))) == set()
        assert is_away(privd) == (method == "GET") and (r.status, bool(why(r))) == (-errno.EIO if method == "GET" else 0, True)
    assert fetch(c, 7).status == 0
    has_all(privd, c, "iafter", mib=2 if method == "GET" else 24)


def test_a_start_and_an_end_come_first(privd, bucket):
    c = privd.channel()
    keep_some(privd, c, mib=24)
    reached = held(bucket, "PUT")
    seq = c.send(ARCHIVE, kept_body(7))
    reached()
    assert fetch(c, 7).status == -errno.EBUSY and c.ask(ARCHIVE_STOP, kept_body(7)).status == 0
    assert c.wait(seq).status == 0 and not is_away(privd)  # it is archived, here
    bucket.gate.release()
    s = has_all(privd, c, "ifirst", mib=24)
    assert keep(c, s, 7).status == 0
    # A number that is being fetched can be removed, and so can those that wait for their turn.
    for number in (1, 2, 3):
        send(privd, c, bucket, number)
    reached = held(bucket, "GET")
    seqs = [c.send(FETCH, kept_body(n)) for n in (1, 2, 3)]
    reached()
    for n in (3, 1):
        until(lambda: drop(c, n).status == 0, what="the removal")
    assert c.wait(seqs[2]).status == c.wait(seqs[0]).status == -errno.ECANCELED
    bucket.gate.release()
    assert c.wait(seqs[1]).status == 0 and kepts(c) == {2, 7}
    until(lambda: bucket.keys() == [], seconds=90, what="their objects are removed")


def test_a_server_without_the_bucket_says_so(privd, bucket):
    c = privd.channel()
    send(privd, c, bucket)
    with_it = privd.command
    privd.crash()
    privd.command = [part for part in with_it if "--bucket" not in part]
    privd.start()
    try:
        c = privd.channel()
        r = fetch(c, 7)
        assert r.status == -errno.EOPNOTSUPP and "[archive] bucket is not set" in why(r) and kepts(c) == {7}
    finally:
        privd.crash()
        privd.command = with_it
        privd.start()
    c = privd.channel()
    assert fetch(c, 7).status == 0
    has_all(privd, c, "iback")
