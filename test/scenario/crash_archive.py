"""Changes of test_crash_matrix.py around archives: the kept files of another sandbox become one file, and it is woken from that. It has
its files at each moment, as a layer or as an archive, here or in a bucket, and nothing else is there of it. A snapshot becomes a file for other servers, and
such a file a snapshot: it is there whole, or not there."""

import http.client
import os

from bucketlib import Bucket
from conftest import OwnServer
from crash_changes import MARK, Frozen, Kill, disk, others, take_away, tier
from crash_programs import KEEP_ARGS, PRIVD_ARGS, Outfit
from test_archive_bucket_server import away
from test_pause import connect
from test_pause_files import kept_on_disk, pause_files
from test_snapshot import all_ids
from waitlib import until


def archive(cay, box):
    return cay.call("POST", f"/cay/v1/sandboxes/{box.id}/archive", {}).status


class Archive(Kill):
    goes_on_s = 1

    def __init__(self, good=200):
        super().__init__("files", good)

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        self.looked = False

    def ask(self, cay, box):
        return archive(cay, self.other)

    def told(self, cay, status):
        """Paused, as a layer or as an archive."""
        now = tier(cay, self.other)
        assert now == "archive" if status == self.good else now in ("files", "archive"), now

    def check(self, own_server, cay, box, status):
        if self.other:
            assert others(cay, box) == [self.other.id]
            until(lambda: os.listdir(f"{disk(own_server)}/archiving") == [], what="the end of the archiving")
            if not self.looked:
                self.told(cay, status)
            self.looked = True
            assert connect(cay, self.other).status in (200, 201)
            assert self.other.read("/home/user/mark").body == MARK
            self.other = None
        take_away(cay, box)
        assert kept_on_disk(own_server) == []
        return super(Kill, self).check(own_server, cay, box, status)


class Wake(Archive):
    def __init__(self):
        super().__init__(201)

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        assert archive(cay, self.other) == 200

    def ask(self, cay, box):
        return connect(cay, self.other).status

    def told(self, cay, status):
        """It runs, or is paused as it was."""
        now = tier(cay, self.other) or "running"
        assert now == "running" if status == self.good else now in ("running", "archive"), now


class Bucketed(Outfit):
    """Servers whose archives are in a bucket."""

    def __init__(self):
        super().__init__()
        self.bucket = Bucket()
        self.bucket.write_credentials(self.home / "keys")

    def server(self):
        options = {name.replace("_", "-"): value for name, value in self.bucket.options(self.home / "keys").items()}
        return OwnServer(privd_args=(*PRIVD_ARGS, *(f"--{name}={value}" for name, value in options.items())), keep_args=KEEP_ARGS,
                         cayd_args=tuple(f"--archive-{name.removeprefix('bucket-')}={value}" for name, value in options.items()))

    def settled(self):
        until(lambda: self.bucket.keys() == [], 100, "no object is left in the bucket")

    def remove(self):
        self.bucket.stop()
        super().remove()


class ToBucket(Archive):
    """An archive that an answer of success tells of is there, and no more here; where its cay-job was killed it stays here until cayd's next
    start."""

    def told(self, cay, status):
        super().told(cay, status)
        if status == self.good and self.killed != "cay-job":
            until(lambda: len(away(self.server)) == 1, 60, "it is in the bucket", patient=True)


class FromBucket(Wake):
    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        until(lambda: len(away(self.server)) == 1, 60, "it is in the bucket", patient=True)


def export(cay, id_):
    try:
        return cay.call("GET", f"/cay/v1/snapshots/{id_}/export")
    except http.client.HTTPException as e:  # it ended in the midst of the file
        raise OSError from e


class Export(Frozen):
    """The snapshot stays."""

    goes_on_s = 1

    def __init__(self):
        self.start, self.wanted, self.good = "running", "running", 200

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        self.id, self.looked = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"], False

    def ask(self, cay, box):
        r = export(cay, self.id)
        assert r.status != 200 or len(r.body) == int(r.headers["Content-Length"]) > 1000
        return r.status

    def check(self, own_server, cay, box, status):
        assert self.looked or self.id in all_ids(cay)
        self.looked = True
        until(lambda: os.listdir(f"{disk(own_server)}/archiving") == [], what="the end of the export")
        take_away(cay, box)
        assert kept_on_disk(own_server) == []
        return super().check(own_server, cay, box, status)


class Import(Frozen):
    goes_on_s = 1

    def __init__(self):
        self.start, self.wanted, self.good = "running", "running", 201
        self.file, self.made_by = None, None

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        self.looked = False
        if self.made_by is self.server:
            return
        id_ = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"]
        self.file, self.made_by = export(cay, id_).body, self.server
        take_away(cay, box)

    def ask(self, cay, box):
        return cay.call("POST", "/cay/v1/snapshots/import", self.file).status

    def check(self, own_server, cay, box, status):
        ids = all_ids(cay)
        assert self.looked or (len(ids) == 1 if status == self.good else len(ids) <= 1)
        for one in ids:
            with cay.create(template=one) as made:
                assert made.read("/home/user/mark").body == MARK
        self.looked = True
        take_away(cay, box)
        until(lambda: os.listdir(f"{disk(own_server)}/archiving") == [], what="the end of the import")
        until(lambda: os.listdir(own_server.state / "images") == [], what="the end of the file that was sent")
        assert kept_on_disk(own_server) == []
        return super().check(own_server, cay, box, status)


AWAY = {"archive-bucket": ToBucket(), "archive-bucket-wake": FromBucket()}
CHANGES = {"archive": Archive(), "archive-wake": Wake(), "snapshot-export": Export(), "snapshot-import": Import(), **AWAY}
