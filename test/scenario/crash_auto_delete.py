"""A change of test_crash_matrix.py without a request: a sandbox that was stopped is deleted when its autoDeleteInterval is over. Time is moved
for cayd alone (clocklib)."""

import clocklib
import leftovers
from conftest import BUILD, OwnServer
from crash_changes import MARK, Beside, others
from crash_points import is_gone
from crash_programs import KEEP_ARGS, PRIVD_ARGS, Outfit
from test_pause_files import kept_on_disk
from test_recovery import daemons
from waitlib import until

MINUTES = 5


class Clocked(Outfit):
    """Servers whose cayd has a clock of its own."""

    def __init__(self):
        super().__init__()
        self.clock = clocklib.Clock(self.home)

    def server(self):
        cayd = self.clock.program(BUILD / "src/cayd/cayd")
        server = OwnServer(privd_args=PRIVD_ARGS, keep_args=(*KEEP_ARGS, f"--cayd={cayd}"))
        server.clock = self.clock
        return server


class AutoDelete(Beside):
    """It is gone with all that it had, whichever program ends meanwhile: cayd goes on with it, or begins it again."""

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        reply = cay.call("POST", "/api/sandbox", {"snapshot": "host", "autoDeleteInterval": MINUTES})
        assert reply.status == 200, reply.body
        self.other = reply.json["id"]
        assert cay.call("POST", f"/api/sandbox/{self.other}/stop", b"").json["state"] == "stopped"
        assert len(kept_on_disk(self.server)) == 1

    def ask(self, cay, box):
        """A request has cayd look at the clock."""
        (cayd,) = daemons(self.server, "cayd")
        clock = self.server.clock
        clock.real_s += 60 * MINUTES
        clock.pass_by(60 * MINUTES)
        cay.call("GET", "/cay/v1/status")
        until(lambda: is_gone(cayd) or leftovers._rows(self.server) == 1, 60, "its row goes", patient=True)
        return self.good if leftovers._rows(self.server) == 1 else None

    def check(self, own_server, cay, box, status):
        until(lambda: others(cay, box) == [], what="it is deleted")
        until(lambda: kept_on_disk(own_server) == [], what="its files are gone")
        assert cay.call("GET", f"/sandboxes/{self.other}").status == 404
        assert box.read("/home/user/mark").body == MARK
        return super().check(own_server, cay, box, status)


CHANGES = {"auto-delete": AutoDelete(204)}
