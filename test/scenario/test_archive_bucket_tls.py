"""Archives in a bucket whose server speaks TLS with an authority of its own ([archive] ca_file): there, back and removed; and each certificate
that must not be taken, with the reason. Nothing is sent to such a server but the handshake."""

import errno
import pathlib
import shutil
import ssl
import tempfile

import pytest

import tlslib
from bucketlib import Bucket
from test_archive import archive, end_all, why, with_template
from test_archive_bucket import fetch, has_all, is_away, keep_some, layer
from waitlib import until


@pytest.fixture(scope="module")
def folder():
    """ca.pem with certificates good, old, named (for another name); other/ca.pem of the same name."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-bucket-", dir="/var/tmp"))
    (path / "other").mkdir()
    for place in (path, path / "other"):
        tlslib.make_authority(place)
    tlslib.make_certificate(path / "other", "good")
    tlslib.make_certificate(path, "good")
    tlslib.make_certificate(path, "old", "20200101000000Z", "20200201000000Z")
    tlslib.make_certificate(path, "early", "20400101000000Z", "20400201000000Z")
    conf = path / "ca.conf"
    conf.write_text(conf.read_text().replace(",IP:127.0.0.1", ",IP:127.0.0.2"))
    tlslib.make_certificate(path, "named")
    shutil.copy(path / "ca.pem", path / "authorities.pem")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def shows(context, folder, name):
    """New connections to the server see that certificate."""
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")


@pytest.fixture(scope="module")
def bucket(folder):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shows(context, folder, "good")
    b = Bucket(context)
    b.context = context
    yield b
    b.stop()


@pytest.fixture(scope="module")
def server(bucket, folder):
    bucket.write_credentials(folder / "keys")
    yield from with_template(**bucket.options(folder / "keys"), bucket_ca_file=folder / "authorities.pem")


@pytest.fixture
def privd(server, bucket, folder):
    yield server
    shows(bucket.context, folder, "good")
    shutil.copy(folder / "ca.pem", folder / "authorities.pem")
    end_all(server)
    until(lambda: bucket.keys() == [], seconds=90, what="objects without a sandbox are removed")


def test_there_back_and_removed(privd, bucket):
    c = privd.channel()
    keep_some(privd, c)
    assert bucket.url.startswith("https:")
    r = archive(c, 7)
    assert r.status == 0 and why(r) == "" and is_away(privd) and len(bucket.keys()) == 1, why(r)
    assert fetch(c, 7).status == 0
    has_all(privd, c, "isafe")
    until(lambda: bucket.keys() == [], what="the object is removed")


def refusals(folder, bucket):
    """Sets up a server that must not be spoken to; the reason."""
    def authority(path):
        return lambda: shutil.copy(path, folder / "authorities.pem")

    return {"another authority": (authority(folder / "other/ca.pem"), "is not trusted"),
            "signed by another authority": (lambda: shows(bucket.context, folder / "other", "good"), "is not trusted"),
            "expired": (lambda: shows(bucket.context, folder, "old"), "expired"),
            "not valid yet": (lambda: shows(bucket.context, folder, "early"), "not yet valid"),
            "another name": (lambda: shows(bucket.context, folder, "named"), "127.0.0.1"),
            "no certificates": (lambda: (folder / "authorities.pem").write_text("none\n"), "(77)"),
            "no file": (lambda: (folder / "authorities.pem").unlink(), "authorities.pem cannot be read: No such file")}


@pytest.mark.parametrize("what", refusals(pathlib.Path(), None))
def test_refused_with_the_reason(privd, bucket, folder, what):
    c = privd.channel()
    keep_some(privd, c)
    set_up, said = refusals(folder, bucket)[what]
    set_up()
    bucket.gate.seen.clear()
    r = archive(c, 7)
    print(why(r))
    assert r.status == 0 and said in why(r) and why(r) and not is_away(privd), why(r)
    assert (layer(privd) / "archive").stat().st_size > 2 << 20 and "PUT" not in bucket.gate.seen
    shows(bucket.context, folder, "good")
    shutil.copy(folder / "ca.pem", folder / "authorities.pem")
    assert archive(c, 7).status == 0 and is_away(privd)
    set_up()
    bucket.gate.seen.clear()
    r = fetch(c, 7)
    assert r.status in (-errno.EIO, -errno.EACCES) and said in why(r) and is_away(privd), (r.status, why(r))
    assert "GET" not in bucket.gate.seen  # DELETE may be, of an object of before, by a connection of before
    assert sorted(name for name in (p.name for p in layer(privd).iterdir()) if name.startswith("archive")) == ["archive"]
    shows(bucket.context, folder, "good")
    shutil.copy(folder / "ca.pem", folder / "authorities.pem")
    assert fetch(c, 7).status == 0
    has_all(privd, c, "iafter")
