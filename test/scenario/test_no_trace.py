"""Sandboxes that were created, used and ended leave no trace, in a row and many at once. `make no-trace` is
the full form (CAY_NO_TRACE=full: 1,000 in a row, 500 at once) and writes its result to CAY_NO_TRACE_REPORT."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

import pytest

import leftovers

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/soak"))
import load  # noqa: E402

pytestmark = pytest.mark.alone

FULL = os.environ.get("CAY_NO_TRACE") == "full"
IN_A_ROW, AT_ONCE = (1000, 500) if FULL else (60, 40)
CLIENTS = 4
MEMORY_KIB = 2048  # what a daemon may have taken for good: its heap's top, not so much for each sandbox
USED = ("run", "upload", "download", "terminal", "watch", "stdin", "signal")
results = {}


def use(worker, box, number):
    """Each sandbox by some operations, all of them in turn."""
    worker.op_run(box)
    for i in range(3):
        getattr(worker, "op_" + USED[(number + i) % len(USED)])(box)


def worker_of(server, number):
    return load.Worker(number, "no-trace", server.url, server.key, "no-trace")


@pytest.fixture(scope="module")
def warm(server, own_server):
    """Resources that a server takes once, it has taken: every operation, as many calls at a time as come later."""
    if not own_server:
        pytest.skip("leftovers are counted only beside a server of the tests' own")
    at_once(server, 2 * CLIENTS)
    in_a_row(server, 8)


def in_a_row(server, count):
    worker = worker_of(server, 0)
    for number in range(count):
        box = worker.create()
        use(worker, box, number)
        worker.end(box)


def at_once(server, count):
    """All of them alive at the same time before the first is ended."""
    workers = [worker_of(server, n) for n in range(CLIENTS)]

    def made(number):
        worker = workers[number % CLIENTS]
        box = worker.create()
        use(worker, box, number)
        return worker, box

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        boxes = list(pool.map(made, range(count)))
        alive = workers[0].call("GET", "/cay/v1/status").json["sandboxes"]
        assert alive >= count
        list(pool.map(lambda pair: pair[0].end(pair[1]), boxes))


@pytest.mark.parametrize("form,count", [(in_a_row, IN_A_ROW), (at_once, AT_ONCE)], ids=["in_a_row", "at_once"])
def test_no_trace(server, own_server, warm, form, count):
    before = leftovers.measure(own_server)
    form(server, count)
    # Slots are warmed for what is asked for; a create makes sure that all are as they were before.
    in_a_row(server, 1)
    after = leftovers.measure(own_server, seconds=120)
    # Slabs are the whole machine's: other work on it is told apart only from a leak of one for each of many.
    found = leftovers.differences(before, after, MEMORY_KIB, count * 4 // 5 if FULL else None)
    results[form.__name__] = (count, before, after, found)
    assert found == []


def rows(before, after):
    for part in ("exact", "descriptors", "memory", "slabs"):
        for kind in sorted(before[part]):
            yield f"| {kind} | {before[part][kind]} | {after[part].get(kind, 0)} |"


def test_the_report():
    path = os.environ.get("CAY_NO_TRACE_REPORT")
    if not path:
        pytest.skip("a report is written by `make no-trace`")
    assert len(results) == 2
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty=+", "--abbrev=12"],
                            capture_output=True, text=True).stdout.strip()
    lines = ["# No trace", "",
             "Written by `make no-trace` (test/scenario/test_no_trace.py), counted by test/scenario/leftovers.py. "
             f"Commit {commit}. Each sandbox runs commands, takes files, has a terminal or a watch, and is ended.", "",
             "Counts and descriptors must be equal, private memory of a daemon may grow by "
             f"{MEMORY_KIB} KiB. Slabs and dying control groups are the whole machine's, other work on it included: "
             "they may grow by less than one for each sandbox.", ""]
    for name, (count, before, after, found) in results.items():
        lines += [f"## {count} {name.replace('_', ' ')}", "", "; ".join(found) or "Nothing was left behind.", "",
                  "| what | before | after |", "|---|---|---|", *rows(before, after), ""]
    pathlib.Path(path).write_text("\n".join(lines))
