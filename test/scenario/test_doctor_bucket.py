"""`cay doctor` says whether archives can go to the operator's bucket, and for each failure what is wrong and what to do."""

import email.utils
import json
import os
import socket
import ssl
import subprocess
import time

import pytest

import tlslib
from bucketlib import Bucket, bucket, credentials  # noqa: F401 (fixtures)
from conftest import BUILD
from s3lib import Stub, again_and_again, answer

NAMES = ["bucket keys", "bucket server", "bucket objects", "bucket clock"]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root reads the keys")


def doctor(tmp_path, options, **more):
    """Its rows of the bucket: name to level and text. options: as cay-privd's."""
    settings = {name.removeprefix("bucket_"): value for name, value in {**options, **more}.items()}
    (tmp_path / "cay.conf").write_text("[archive]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    environ = {**os.environ, "CAY_CONFIG": str(tmp_path / "cay.conf"), "https_proxy": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"}
    done = subprocess.run([BUILD / "src/cli/cay", "doctor", "--json"], capture_output=True, text=True, env=environ, timeout=60)
    rows = {c["check"]: (c["level"], c["text"]) for c in json.loads(done.stdout) if c["check"].startswith("bucket")}
    assert not any(c["needed"] for c in json.loads(done.stdout) if c["check"].startswith("bucket"))
    return rows


def levels(rows):
    return [rows[name][0] for name in NAMES]


@pytest.fixture
def stub(tmp_path):
    s = Stub()
    s.keys = tmp_path / "keys"
    s.keys.write_text("aws_access_key_id = k\naws_secret_access_key = s\n")
    s.keys.chmod(0o600)
    yield s
    s.stop()


def test_without_one(tmp_path):
    (tmp_path / "cay.conf").write_text("")
    done = subprocess.run([BUILD / "src/cli/cay", "doctor", "--json"], capture_output=True, text=True,
                          env={**os.environ, "CAY_CONFIG": str(tmp_path / "cay.conf")})
    rows = [c for c in json.loads(done.stdout) if c["check"].startswith("bucket")]
    assert [(c["check"], c["level"]) for c in rows] == [("bucket", "skipped")]


def test_all_is_well(bucket, credentials, tmp_path):  # noqa: F811
    rows = doctor(tmp_path, bucket.options(credentials))
    assert levels(rows) == ["ok"] * 4, rows
    assert bucket.keys() == [] and {"PUT", "GET", "DELETE"} <= set(bucket.gate.seen)


@pytest.mark.parametrize("change, told", [
    (lambda keys: keys.unlink(), "No such file"), (lambda keys: keys.chmod(0o640), "chmod it to 600"), (lambda keys: os.chown(keys, 1, 0), "chown it to root"),
    (lambda keys: keys.write_text("key\n"), "aws_access_key_id"), (lambda keys: keys.unlink() or keys.mkdir(), "it is no file"),
    (lambda keys: (keys.parent / "there").mkdir() or keys.rename(keys.parent / "there/keys") and (keys.parent / "here").mkdir() or
        keys.symlink_to("there/keys"), None),
    (lambda keys: keys.rename("/var/tmp/cay-test-keys") and keys.symlink_to("/var/tmp/cay-test-keys"), "not a link")])
def test_the_file_with_the_keys(stub, tmp_path, change, told):
    try:
        change(stub.keys)
        rows = doctor(tmp_path, stub.options(stub.keys))
    finally:
        if os.path.exists("/var/tmp/cay-test-keys"):
            os.unlink("/var/tmp/cay-test-keys")
    if not told:
        assert levels(rows)[:3] == ["ok"] * 3, rows
        return
    assert levels(rows) == ["limited"] + ["skipped"] * 3 and told in rows["bucket keys"][1] and stub.seen == [], rows


def test_the_secret_and_the_bucket(bucket, credentials, tmp_path):  # noqa: F811
    bucket.write_credentials(credentials, secret="x" * 40)
    rows = doctor(tmp_path, bucket.options(credentials))
    bucket.write_credentials(credentials)
    assert rows["bucket objects"][0] == "limited" and "403 SignatureDoesNotMatch: the keys in" in rows["bucket objects"][1]
    assert levels(rows)[:2] == ["ok", "ok"]
    rows = doctor(tmp_path, bucket.options(credentials), bucket="cay-nowhere")
    assert rows["bucket objects"][0] == "limited" and "NoSuchBucket: make bucket cay-nowhere" in rows["bucket objects"][1]


def error(status, code, *lines):
    return lambda connection, request, stored: answer(connection, status, f"<Error><Code>{code}</Code></Error>".encode(), *lines)


@pytest.mark.parametrize("method, act, told", [
    ("PUT", error("403 Forbidden", "AccessDenied"), "PUT: 403 AccessDenied: the key needs the right PutObject on cay/*"),
    ("GET", error("403 Forbidden", "AccessDenied"), "GET: 403 AccessDenied: the key needs the right GetObject"),
    ("DELETE", error("403 Forbidden", "AccessDenied"), "the right DeleteObject"),
    ("PUT", error("403 Forbidden", "RequestTimeTooSkewed"), "clock"), ("PUT", error("301 Moved", "PermanentRedirect", "Location: http://127.0.0.1:1/"), "region"),
    ("PUT", error("400 Bad Request", "AuthorizationHeaderMalformed"), "region"), ("PUT", error("503 Slow Down", "SlowDown"), "503 SlowDown"),
    ("GET", lambda connection, request, stored: answer(connection, "200 OK", stored[::-1]), "not what was put there"),
    ("GET", lambda connection, request, stored: again_and_again(connection, b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 65536), "GET: "),
    ("PUT", lambda connection, request, stored: answer(connection, "403 Forbidden", b"<Code>\x1b[31m\n</Code>"), "403 ?[31m?")])
def test_what_is_refused(stub, tmp_path, method, act, told):
    stub.misbehave = {method: act}
    rows = doctor(tmp_path, stub.options(stub.keys))
    level, text = rows["bucket objects"]
    assert level == "limited" and told in text, rows
    assert rows["bucket server"][0] == "ok"
    assert {method for method, _ in stub.seen} >= {"PUT", "DELETE"}  # whatever it said, nothing is left
    assert stub.objects == {} or method == "DELETE"


def silent(connection, request, stored):
    time.sleep(12)


def test_servers_that_do_not_answer(stub, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    options = stub.options(stub.keys)
    for endpoint, told in ((f"http://127.0.0.1:{port}", "firewalls"), ("https://nowhere.invalid", "DNS"), (stub.url.replace("http:", "https:"), "SSL")):
        rows = doctor(tmp_path, options, bucket_endpoint=endpoint)
        assert levels(rows) == ["ok", "limited", "skipped", "skipped"] and told in rows["bucket server"][1], rows
    stub.misbehave = {"PUT": silent}
    begun = time.monotonic()
    rows = doctor(tmp_path, options)
    assert levels(rows)[1] == "limited" and time.monotonic() - begun < 25, rows
    assert "DELETE" in {method for method, _ in stub.seen}


@pytest.mark.parametrize("ahead, level", [(0, "ok"), (-240, "ok"), (400, "limited"), (-3600, "limited"), (None, "skipped")])
def test_the_clock(stub, tmp_path, ahead, level):
    """As the server's answers tell it, of what kind ever they are."""
    date = [] if ahead is None else [f"Date: {email.utils.formatdate(time.time() - ahead, usegmt=True)}"]
    stub.misbehave = {"PUT": error("403 Forbidden", "RequestTimeTooSkewed", *date)}
    rows = doctor(tmp_path, stub.options(stub.keys))
    assert rows["bucket clock"][0] == level, rows
    if level == "limited":
        assert "NTP" in rows["bucket clock"][1] and ("ahead of" if ahead > 0 else "behind") in rows["bucket clock"][1]


def test_tls(tmp_path):
    tlslib.make_authority(tmp_path)
    tlslib.make_certificate(tmp_path, "good")
    tlslib.make_certificate(tmp_path, "old", "20200101000000Z", "20200201000000Z")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "good.pem", tmp_path / "good.key")
    b = Bucket(context)
    try:
        b.write_credentials(tmp_path / "keys")
        options = {**b.options(tmp_path / "keys"), "bucket_ca_file": tmp_path / "ca.pem"}
        assert levels(doctor(tmp_path, options)) == ["ok"] * 4
        for more, told in (({"bucket_ca_file": tmp_path / "nope"}, "PEM"), ({"bucket_ca_file": "/etc/ssl/certs/ca-certificates.crt"}, "ca_file"),
                           ({"bucket_endpoint": b.url.replace("127.0.0.1", "localhost")}, "a name of its certificate")):
            rows = doctor(tmp_path, options, **more)
            assert levels(rows) == ["ok", "limited", "skipped", "skipped"] and told in rows["bucket server"][1], rows
        context.load_cert_chain(tmp_path / "old.pem", tmp_path / "old.key")
        rows = doctor(tmp_path, options)
        assert levels(rows)[1] == "limited" and "expired" in rows["bucket server"][1], rows
    finally:
        b.stop()
