"""Changes of test_crash_matrix.py around the programs that work beside cayd and cay-privd: a template that cay-job imports and
removes, and a program that has ended and that cay-keep starts again."""

import contextlib
import os
import signal
import subprocess
import types

import leftovers
from conftest import BUILD
from crash_changes import Beside, Frozen, take_away
from crash_points import is_gone
from imagelib import layout
from importerlib import entry, shell, templates
from test_recovery import daemons
from waitlib import until

NAME = "crashed"


def parts(server):
    """The parts that killed jobs have left: they are removed when no sandbox is there."""
    return [name for name in templates(types.SimpleNamespace(own=server)) if name.startswith(".") and not name.startswith(".layers")]


def remove(cay):
    return cay.call("DELETE", f"/cay/v1/templates/{NAME}").status


def give_back(cay):
    if entry(cay, NAME):
        assert remove(cay) == 204


class Templates(Beside):
    """Of an image with a shell alone, beside the sandbox. The template is whole and told of, or not there."""

    goes_on_s = 1  # the sweep that follows

    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        self.settle(cay)
        give_back(cay)

    def settle(self, cay):
        until(lambda: not (there := entry(cay, NAME)) or not there.get("building"), 60, "no job is at work on it", patient=True)

    def imported(self, cay):
        image = self.server.base / "image"
        if not image.exists():
            layout(image, [shell()])
        words = ["template", "import", f"--state-dir={self.server.state}", NAME, f"oci:{image}"]
        done = subprocess.run([BUILD / "src/cli/cay", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=100,
                              env={**os.environ, "CAY_URL": self.server.url, "E2B_API_KEY": cay.key})
        return 204 if done.returncode == 0 else 503

    def check(self, own_server, cay, box, status):
        self.settle(cay)
        there = entry(cay, NAME)
        self.told(cay, status, there)
        now = super().check(own_server, cay, box, status)
        take_away(cay, box)
        return now


class TemplateImport(Templates):
    def ask(self, cay, box):
        return self.imported(cay)

    def told(self, cay, status, there):
        assert there and there["ready"] or status != self.good
        if there and there["ready"]:
            with cay.create(template=NAME) as made:
                assert made.run("echo whole").out == "whole\n"


class TemplateRemove(TemplateImport):
    def bring(self, cay, box, wanted):
        super().bring(cay, box, wanted)
        assert self.imported(cay) == 204

    def ask(self, cay, box):
        return remove(cay)

    def told(self, cay, status, there):
        assert not there or status != self.good
        if there and there["ready"]:
            super().told(cay, None, there)


class Restart(Frozen):
    """A program ends, and cay-keep starts it again, or ends before it has."""

    def __init__(self, victim):
        self.victim, self.start, self.wanted, self.good = victim, "running", "running", 200

    def ask(self, cay, box):
        keep = self.server.keep_pid
        old = daemons(self.server, self.victim)
        for pid in old:
            with contextlib.suppress(ProcessLookupError):  # cay-keep was killed as it was told of the tracer
                os.kill(pid, signal.SIGKILL)
        until(lambda: is_gone(keep) or set(leftovers.children(keep, self.victim)) - set(old), 60, f"{self.victim} is started again")
        until(lambda: is_gone(keep) or cay.call("GET", "/cay/v1/status").json.get("ready"), 60, "the server is ready", patient=True)


CHANGES = {"template-import": TemplateImport(204), "template-remove": TemplateRemove(204),
           "restart-cayd": Restart("cayd"), "restart-privd": Restart("cay-privd"), "restart-egress": Restart("cay-egress")}
