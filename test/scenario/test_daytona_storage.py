"""Local files of images: the part of S3's protocol that Daytona's SDKs send them by, as npm's and PyPI's libraries do, and who
may."""

import hashlib
import io
import re
import tarfile

import pytest
from test_daytona_from_image import begin, ended
from test_daytona_snapshot import Account, account, mine  # noqa: F401 (fixtures)
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from waitlib import until

PART = 5 * 1024 * 1024


def archive(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


class Storage:
    def __init__(self, account):  # noqa: F811
        self.cay = account.cay
        self.access = account.good("GET", "object-storage/push-access")
        self.tenant = self.access["organizationId"]
        assert self.access["storageUrl"].startswith("http://") and self.access["storageUrl"].endswith("/api/object-storage/s3")

    def call(self, method, path, body=b"", token=None, **headers):
        sent = {"x-amz-security-token": token or self.access["sessionToken"], "x-amz-content-sha256": hashlib.sha256(body).hexdigest(), **headers}
        if token == "":
            del sent["x-amz-security-token"]
        return self.cay.call(method, "/api/object-storage/s3/builds" + path, body if method in ("PUT", "POST") else None, sent, key=False)

    def name(self, md5, tenant=None):
        return f"/{tenant or self.tenant}/{md5}/context.tar"

    def list(self, md5):
        reply = self.call("GET", f"/?list-type=2&max-keys=1&prefix={self.tenant}%2F{md5}%2F")
        assert reply.status == 200 and reply.headers["Content-Type"] == "application/xml", reply.body
        return int(re.search(rb"<KeyCount>(\d)</KeyCount>", reply.body)[1]), reply.body.count(b"<Contents>")

    def begin(self, md5):
        reply = self.call("POST", self.name(md5) + "?uploads=")
        assert reply.status == 200, reply.body
        return re.search(rb"<UploadId>(\w+)</UploadId>", reply.body)[1].decode()

    def part(self, md5, upload, number, body):
        return self.call("PUT", f"{self.name(md5)}?partNumber={number}&uploadId={upload}&x-id=UploadPart", body)

    def complete(self, md5, upload):
        return self.call("POST", f"{self.name(md5)}?uploadId={upload}", b"<CompleteMultipartUpload></CompleteMultipartUpload>")


@pytest.fixture
def storage(mine):  # noqa: F811
    return Storage(mine)


def md5(n):
    return f"{n:032x}"


def refused(reply, status, code):
    assert reply.status == status and f"<Code>{code}</Code>".encode() in reply.body, (reply.status, reply.body)


def test_files_of_an_image(storage, mine):  # noqa: F811
    one, two = archive({"work/a.txt": b"one\n"}), archive({"work/dir/b": b"two\n", "work/dir/c/d": b"three\n"})
    assert storage.list(md5(1)) == (0, 0) and storage.call("HEAD", storage.name(md5(1))).status == 404
    put = storage.call("PUT", storage.name(md5(1)) + "?x-id=PutObject", one)
    assert put.status == 200 and put.headers["ETag"]
    assert storage.list(md5(1)) == (1, 1)
    head = storage.call("HEAD", storage.name(md5(1)))
    assert (head.status, head.headers["Content-Length"], head.body) == (200, str(len(one)), b"")
    upload = storage.begin(md5(2))
    part = storage.part(md5(2), upload, 1, two)
    assert part.status == 200 and part.headers["ETag"]
    assert storage.complete(md5(2), upload).status == 200
    made = mine.kept(mine.good("POST", "sandbox", {"buildInfo": {"dockerfileContent": "FROM host\nCOPY work/a.txt /in/a.txt\nCOPY work/dir /in/dir\n",
                                                                 "contextHashes": [md5(1), md5(2)]}}))
    ended(mine, made)
    assert mine.run(made, "cd /in; cat a.txt dir/b dir/c/d; stat -c %U a.txt") == "one\ntwo\nthree\nroot\n"


def test_parts_in_any_order(storage, mine):  # noqa: F811
    whole = archive({"big": bytes(range(256)) * (11 * 4096)})
    parts = [whole[i:i + PART] for i in range(0, len(whole), PART)]
    upload = storage.begin(md5(3))
    refused(storage.complete(md5(3), upload), 409, "InvalidPart")
    for i in (2, 0):
        assert storage.part(md5(3), upload, i + 1, parts[i]).status == 200
    refused(storage.complete(md5(3), upload), 409, "InvalidPart")
    assert storage.part(md5(3), upload, 2, b"too short").status == 200
    refused(storage.complete(md5(3), upload), 409, "InvalidPart")
    refused(storage.part(md5(3), upload, 1, parts[0] + b"x"), 413, "EntityTooLarge")
    assert [storage.part(md5(3), upload, i, parts[i - 1]).status for i in (1, 2)] == [200, 200]
    assert storage.list(md5(3)) == (0, 0)
    assert storage.complete(md5(3), upload).status == 200
    assert storage.call("HEAD", storage.name(md5(3))).headers["Content-Length"] == str(len(whole))
    refused(storage.complete(md5(3), upload), 404, "NoSuchKey")
    made = mine.kept(mine.good("POST", "sandbox", {"buildInfo": {"dockerfileContent": "FROM host\nCOPY big /big\n", "contextHashes": [md5(3)]}}))
    ended(mine, made)
    assert mine.run(made, "sha256sum < /big").split()[0] == hashlib.sha256(bytes(range(256)) * (11 * 4096)).hexdigest()


def test_a_part_that_is_sent_anew_with_less_leaves_nothing(storage, own_server):
    """Three whole parts, of which the last are sent again, one byte and none: what they had is not on the disk any more."""
    upload = storage.begin(md5(33))
    assert [storage.part(md5(33), upload, i, bytes(PART)).status for i in (1, 2, 3)] == [200] * 3
    assert [storage.part(md5(33), upload, i, body).status for i, body in ((2, b"x"), (3, b""))] == [200] * 2
    assert storage.complete(md5(33), upload).status == 200
    assert storage.call("HEAD", storage.name(md5(33))).headers["Content-Length"] == str(PART + 1)
    if own_server:
        kept = [one.stat().st_size for one in (own_server.state / "cayd/builds").iterdir() if one.name.endswith(md5(33))]
        assert kept == [PART + 1]


def open_part(storage, digits, upload, number):
    """A part whose client sends one byte and no more."""
    one = storage.cay.connect()
    one.putrequest("PUT", f"/api/object-storage/s3/builds{storage.name(digits)}?partNumber={number}&uploadId={upload}&x-id=UploadPart")
    for name, value in {"x-amz-security-token": storage.access["sessionToken"], "x-amz-content-sha256": hashlib.sha256(b"").hexdigest(),
                        "Content-Length": "1000"}.items():
        one.putheader(name, value)
    one.endheaders(b"x")
    return one


def give_up(storage, digits, upload):
    return storage.call("DELETE", f"{storage.name(digits)}?uploadId={upload}").status


def test_parts_of_an_upload_that_was_given_up_count_until_they_end(storage):
    """Their bytes are on the disk: as many as a tenant may receive, all given up, leave no place for another."""
    uploads, begun = [storage.begin(md5(34)) for _ in range(4)], []
    try:
        for upload in uploads:
            begun.append(open_part(storage, md5(34), upload, 1))
            until(lambda: b"still being received" in storage.complete(md5(34), upload).body, 60, "the part is being received")
            assert give_up(storage, md5(34), upload) == 204
            refused(storage.part(md5(34), upload, 2, b"x"), 404, "NoSuchKey")
        assert storage.call("POST", storage.name(md5(35)) + "?uploads=").status in (429, 503)
        begun[0].send(b"x")
        reply = begun[0].getresponse()
        assert reply.status == 404 and b"given up" in reply.read()
        upload = until(lambda: (r := storage.call("POST", storage.name(md5(35)) + "?uploads=")).status == 200 and r, 60, "a place is free").body
        assert give_up(storage, md5(35), re.search(rb"<UploadId>(\w+)</UploadId>", upload)[1].decode()) == 204
    finally:
        for one in begun:
            one.close()


def test_parts_that_are_open_are_bounded(storage):
    """Sixteen parts whose clients send no more; a part is taken again when one of these has gone."""
    upload, begun = storage.begin(md5(30)), []
    try:
        for n in range(1, 17):
            begun.append(open_part(storage, md5(30), upload, n))
        over = until(lambda: (r := storage.part(md5(30), upload, 17, b"x")).status != 200 and r, 60, "sixteen are received")
        assert over.status in (429, 503) and b"16 parts are being received" in over.body, (over.status, over.body)
        begun.pop().close()
        until(lambda: storage.part(md5(30), upload, 17, b"x").status == 200, 60, "the part of one that has gone is free")
    finally:
        for one in begun:
            one.close()
    until(lambda: storage.call("DELETE", f"{storage.name(md5(30))}?uploadId={upload}").status == 204, 60, "it is given up")


def test_an_upload_that_is_given_up(storage):
    upload = storage.begin(md5(4))
    assert storage.call("DELETE", f"{storage.name(md5(4))}?uploadId={upload}").status == 204
    refused(storage.part(md5(4), upload, 1, b"x"), 404, "NoSuchKey")
    left = [storage.begin(md5(5)) for _ in range(6)]  # of clients that are gone: the oldest gives way
    assert storage.part(md5(5), left[-1], 1, b"x").status == 200
    refused(storage.part(md5(5), left[0], 1, b"x"), 404, "NoSuchKey")
    for one in left[2:]:
        assert storage.call("DELETE", f"{storage.name(md5(5))}?uploadId={one}").status == 204


def test_who_may(storage, account, mine, new_key, cay):  # noqa: F811
    other = Storage(account())
    assert storage.call("PUT", storage.name(md5(6)), b"mine").status == 200
    for method, query in (("HEAD", ""), ("PUT", ""), ("POST", "?uploads"), ("PUT", "?partNumber=1&uploadId=" + "0" * 16), ("POST", "?uploadId=" + "0" * 16),
                          ("DELETE", "?uploadId=" + "0" * 16)):
        for token, status in ((other.access["sessionToken"], 404), ("", 403), ("x", 403), (storage.access["sessionToken"][:-1] + "g", 403)):
            assert storage.call(method, storage.name(md5(6)) + query, b"x", token).status == status, (method, query, token)
    assert other.list(md5(6)) == (0, 0)
    assert storage.call("HEAD", storage.name(md5(6))).headers["Content-Length"] == "4"
    made = cay.call("POST", "/cay/v1/keys", {"tenant": storage.tenant, "label": "r", "role": "read-only"}).json
    Account(cay, made["key"]).refused(403, "GET", "object-storage/push-access", why="read-only")
    made = cay.call("POST", "/cay/v1/keys", {"tenant": storage.tenant, "label": "w", "role": "owner"}).json
    second = Storage(Account(cay, made["key"]))
    assert second.call("HEAD", second.name(md5(6))).status == 200
    keys = cay.call("GET", f"/cay/v1/keys?tenant={storage.tenant}").json
    id = [one for one in keys if one["label"] == "w"][0]["id"]
    assert cay.call("DELETE", f"/cay/v1/keys/{id}").status == 204
    assert second.call("HEAD", second.name(md5(6))).status == 403  # the token ends with its key


@pytest.mark.parametrize("method, path, status, headers", [
    ("GET", "", 400, {}), ("GET", "/?list-type=1&prefix=a", 400, {}), ("GET", "/?list-type=2&prefix=a/b/", 400, {}), ("PUT", "/", 405, {}),
    ("GET", "NAME", 405, {}), ("PUT", "/a/b/context.tar", 404, {}), ("PUT", "/a", 404, {}), ("PUT", "x", 404, {}), ("PUT", "NAME?partNumber=1", 400, {}),
    ("PUT", "NAME?partNumber=0&uploadId=0000000000000000", 404, {}), ("PUT", "NAME?partNumber=x&uploadId=0000000000000000", 400, {}),
    ("PUT", "NAME?uploadId=../../../../../x", 404, {}), ("POST", "NAME", 400, {}), ("DELETE", "NAME", 405, {}), ("PATCH", "NAME", 405, {}),
    ("PUT", "NAME", 501, {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER"}), ("PUT", "NAME", 501, {"Content-Encoding": "aws-chunked"})])
def test_what_is_no_such_call(storage, method, path, status, headers):
    reply = storage.call(method, path.replace("NAME", storage.name(md5(7))), b"x", **headers)
    assert reply.status == status and reply.body.startswith(b"<?xml"), (reply.status, reply.body)
