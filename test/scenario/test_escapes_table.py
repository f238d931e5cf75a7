"""The escape table keeps its promises: a case has a control or a written reason, a part that was run by itself goes into the
table instead of becoming it. The cases themselves are test/escapes/run.py's."""

import json
import pathlib
import platform
import re
import subprocess
import sys

import pytest

from conftest import BUILD

ESCAPES = pathlib.Path(__file__).resolve().parents[1] / "escapes"
DOCUMENT = ESCAPES.parents[1] / "docs/reports/security-tests.md"
sys.path.append(str(ESCAPES))
import egress  # noqa: E402
import run  # noqa: E402
import scenes  # noqa: E402
import escape_table  # noqa: E402

KNOWN = json.loads(run.CONTROLS.read_text())


def all_cases():
    listed = subprocess.run([BUILD / "test/probe/probe", "list"], capture_output=True, text=True, check=True).stdout
    return [line.split("\t")[0] for line in listed.splitlines()] + [s.name for s in scenes.ALL]


def row(case, control=None, verdict="refused"):
    return {"case": case, "about": "of | a test", "class": escape_table.class_of(case), "user": (verdict, "why"),
            "root": (verdict, "why"), "control": control}


def test_every_case_has_a_control_or_a_reason():
    cases = all_cases()
    assert len(cases) > 300 and len(set(cases)) == len(cases)
    assert [c for c in cases if run.without_control(c, KNOWN)] == []
    assert {*KNOWN, *run.UNSHOWN} - set(cases) == set(), "controls or reasons of cases that are gone"
    assert {escape_table.class_of(c) for c in cases} <= set(escape_table.TITLES)
    assert set(escape_table.parsed(DOCUMENT.read_text())[0]) == set(cases), "docs/reports/security-tests.md has not just these cases"


def test_one_without_either_fails_the_quick_run():
    """That is what `make test` runs. The controls: one that has a control, one with a reason."""
    reasoned = next(iter(run.UNSHOWN))
    assert run.failures([row("kernel.bpf"), row(reasoned)], True, KNOWN) == []
    (said,) = run.failures([row("kernel.of_a_test")], True, KNOWN)
    assert "kernel.of_a_test" in said and "controls.json" in said and "unshown.json" in said
    assert "kernel.bpf" in run.failures([row("kernel.bpf")], True, {**KNOWN, "kernel.bpf": {"without": []}})[0]
    assert run.failures([row("kernel.bpf", verdict="OPEN")], True, KNOWN)
    for control in (None, {"without": [], "why": "nothing opens it"}):
        assert run.failures([row("kernel.of_a_test", control)], False, KNOWN)


def test_what_other_tests_try_is_there():
    root = ESCAPES.parents[1]
    for about, path, name, control in escape_table.ELSEWHERE:
        assert re.search(rf"^(static void|def) {name}\(", (root / path).read_text(), re.M), (path, name)
        assert about and control and f"`{name}` ({path})" in DOCUMENT.read_text()


def test_every_way_past_cay_egress_has_a_control():
    assert [c.name for c in egress.CASES if not c.control.strip() or not c.about.strip() or not c.tests] == []
    assert len({c.name for c in egress.CASES}) == len(egress.CASES)


@pytest.fixture
def document(tmp_path):
    rows = [row("kernel.bpf", {"without": ["seccomp"], "why": "opened"}), row("net.tcp", {"without": [], "why": "not"}),
            row("load.fork", {"without": [escape_table.MEASURED], "why": "beside it"}), row("proc.kcore", None, "OPEN")]
    path = tmp_path / "tests.md"
    path.write_text(escape_table.document(rows, {"net.tcp": "a reason"}, ESCAPES))
    return path


def test_a_part_goes_into_the_table(document):
    """The control: a whole run takes its place."""
    before = document.read_text()
    assert "4 cases: 3 refused" in before and "1 open; 1 with their positive control" in before and escape_table.LATER not in before
    part = [row("proc.kcore", {"without": ["masks"], "why": "opened"}), row("ipc.new", {"without": ["seccomp"], "why": "opened"})]
    merged = escape_table.merged(before, part, {}, ESCAPES)
    lines, commit, later = escape_table.parsed(merged)
    assert set(lines) == {"kernel.bpf", "net.tcp", "load.fork", "proc.kcore", "ipc.new"}
    assert {k: v for k, v in lines.items() if k not in ("proc.kcore", "ipc.new")} == \
        {k: v for k, v in escape_table.parsed(before)[0].items() if k != "proc.kcore"}
    assert "5 cases: 5 refused" in merged and "0 open; 3 with their positive control" in merged
    assert set(later) == {"proc.kcore", "ipc.new"} and commit == escape_table.parsed(before)[1]
    again = escape_table.merged(merged, part[:1], {}, ESCAPES)  # it is the same however often
    assert again == merged
    assert set(escape_table.parsed(escape_table.document(part, {}, ESCAPES))[0]) == {"proc.kcore", "ipc.new"}


def test_a_table_that_cannot_take_a_part_is_refused(document, tmp_path):
    escape_table.check_mergeable(document)
    for text in ("", "# Security tests\n", document.read_text().replace(f"Kernel {platform.release()},", "Kernel 1.0,")):
        other = tmp_path / "other.md"
        other.write_text(text)
        with pytest.raises(SystemExit, match="without --only"):
            escape_table.check_mergeable(other)
    with pytest.raises(SystemExit, match="without --only"):
        escape_table.check_mergeable(tmp_path / "none.md")


def test_the_same_run_writes_the_same_page():
    """Names of runs and numbers of processes change from one to the next; the first process of a sandbox is what it is."""
    said = [escape_table.cell(f"/proc/{pid}/root/var/tmp/cay-escapes-{run}/x; /proc/1/exe") for pid, run in ((88778, "ab1_cd23"), (71, "zz9_yy88"))]
    assert said == ["/proc/PID/root/var/tmp/cay-escapes/x; /proc/1/exe"] * 2


def test_the_quick_form_writes_nothing(tmp_path):
    done = subprocess.run([sys.executable, ESCAPES / "run.py", f"--build={tmp_path}", "--quick", f"--write={tmp_path / 'x.md'}"],
                          capture_output=True, text=True)
    assert done.returncode == 2 and "--quick" in done.stderr and not (tmp_path / "x.md").exists()


def test_the_written_table_is_what_is_composed():
    """The document of the repository comes out of its own lines as it is: nothing in it is lost by merging."""
    text = DOCUMENT.read_text()
    lines, commit, later = escape_table.parsed(text)
    composed = escape_table.compose(lines, commit, later).splitlines()
    assert [one for one in composed if one.startswith("|")] == [one for one in text.splitlines() if one.startswith("|")]
