"""Changes of test_crash_matrix.py around archives: the kept files of another sandbox become one file, and it is woken from that. It has
its files at each moment, as a layer or as an archive, and nothing else is there of it."""

import os

from crash_changes import MARK, Kill, disk, others, take_away, tier
from test_pause import connect
from test_pause_files import kept_on_disk, pause_files
from waitlib import until


def archive(cay, box):
    return cay.call("POST", f"/cay/v1/sandboxes/{box.id}/archive", {}).status


class Archive(Kill):
    goes_on_s = 1

    def __init__(self):
        super().__init__("files")
        self.good = 200

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
        super().__init__()
        self.good = 201

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        assert archive(cay, self.other) == 200

    def ask(self, cay, box):
        return connect(cay, self.other).status

    def told(self, cay, status):
        """It runs, or is paused as it was."""
        now = tier(cay, self.other) or "running"
        assert now == "running" if status == self.good else now in ("running", "archive"), now


CHANGES = {"archive": Archive(), "archive-wake": Wake()}
