"""Sandboxes that are made to stop what keeps their memory: each dump is done or refused with a reason within its time, the host and its
other sandboxes are untouched, and nothing of it is left."""

import errno

import pytest

from privdlib import MIB, STAT
from test_checkpoint import goes_on
from test_dump import Box, dump, image_groups, needs, privd, programs_at_work, restored, server  # noqa: F401 (fixtures)
from test_kept import kepts, pid_of
from waitlib import until

# Areas of a page each that the kernel cannot make one of; a process has 65,530 at most (vm.max_map_count).
AREAS = ("python3 -c \"import mmap, time\n"
         "held = []\n"
         "try:\n"
         "    for n in range({each}): held.append(mmap.mmap(-1, 4096, prot=mmap.PROT_READ | (mmap.PROT_WRITE if n % 2 else 0)))\n"
         "except OSError: pass\n"
         "open('/tmp/areas.{n}', 'w').write(str(len(held)))\n"
         "time.sleep(10 ** 6)\" > /dev/null 2>&1 &\n")
AREAS_EACH = 50000
# Each lives for a moment, so that there are always some that are being made.
FORKS = "setsid sh -c 'while :; do (sleep 0.01 &); (sleep 0.01 &); done' > /dev/null 2>&1 < /dev/null &\n"
# A process that leaves its group and comes again under another number, for ever.
FLEES = ("setsid python3 -c \"import os\n"
         "while True:\n"
         "    if os.fork(): os._exit(0)\n"
         "    os.setsid()\" > /dev/null 2>&1 < /dev/null &\n")


def is_untouched(p, c, other):
    """cay-privd answers, the other sandbox runs, and no program of the dump is left."""
    goes_on(other.pid)
    assert c.ask(STAT, slot=other.slot, gen=other.gen).status == 0
    until(lambda: programs_at_work(p) == [] and image_groups(p) == [], what="the end of what worked on it")


def last_number(box):
    """Of the last process that was made in it."""
    return int(box.agent.sh("cut -d' ' -f5 /proc/loadavg", user="root").text())


def is_kept_or_goes_on(p, c, box, other, number):
    """The outcome of the dump: memory that is kept, or the reason why the sandbox goes on."""
    box.agent.prepare()
    r = dump(c, box, number)
    is_untouched(p, c, other)
    if r.status == 0:
        assert kepts(c) == {number}
        return ""
    if r.status in (-errno.ETIMEDOUT, -errno.ECHILD):  # it could not go on, and its files are kept
        assert kepts(c) == {number} and box.gen not in {s.gen for s in c.list().values() if s.slot == box.slot}
        return "ended"
    reason = r.text(0, 192)
    assert len(reason) > 10 and reason.isprintable() and kepts(c) == set()
    return reason


def test_a_hundred_thousand_areas_of_memory(privd):  # noqa: F811
    c = privd.channel()
    box, other = Box(privd, c, "iareas"), Box(privd, c, "iother")
    for n in (1, 2):
        box.agent.sh(AREAS.format(each=AREAS_EACH, n=n), user="root")
    until(lambda: len(box.agent.sh("cat /tmp/areas.* 2>/dev/null; echo", user="root").text().strip()) >= 10, 60, what="they are there")
    assert box.agent.sh("cat /tmp/areas.1; echo; cat /tmp/areas.2", user="root").text().split() == [str(AREAS_EACH)] * 2
    reason = is_kept_or_goes_on(privd, c, box, other, 7)
    if reason == "":
        goes_on(pid_of(privd, restored(privd, c, "iagain", 7)))


@pytest.mark.parametrize("what", ["forks", "flees"])
def test_processes_that_come_and_go_while_they_are_stopped(privd, what):  # noqa: F811
    c = privd.channel()
    box, other = Box(privd, c, f"i{what}"), Box(privd, c, f"i{what}other")
    box.agent.sh({"forks": FORKS, "flees": FLEES}[what], user="root")
    begun = last_number(box)
    until(lambda: last_number(box) > begun + 200, what="they come and go")  # the control
    if is_kept_or_goes_on(privd, c, box, other, 7) == "":
        restored(privd, c, f"i{what}again", 7)
        is_untouched(privd, c, other)
