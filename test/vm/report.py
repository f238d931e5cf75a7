#!/usr/bin/env python3
"""The escape table and the fill of the kernel's filters in a machine with control groups of version 2 only
(run.py), written down: docs/reports/cgroup-v2.md.

    test/vm/report.py --build=DIR [--write=FILE] [--kernel=PACKAGE]

DIR is a build with -Dtest_switches=true. Exit status 77: this machine cannot run another (the line says why)."""

import argparse
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
RUNS = (
    ("The escape table, quick form",
     "Every case of the probe with all defences, as a sandbox's user, as its root and as root of a command with a policy "
     "of its own, every quick scene, and the controls that need one switch (`test/escapes/run.py --quick`). Cases "
     "that failed, if any, and the sum; then all of them:",
     "python3 test/escapes/run.py --build=build --quick --rows >/tmp/out 2>&1; status=$?; "
     "grep -E '^FAILED|^ROW|cases,|Error' /tmp/out; exit $status", 3600),
    ("The fill of the kernel's filters",
     "`test/vm/fill.py`: thousands of attempts by every way, from inside two sandboxes as user and as root, from one that "
     "may have filters, and by an ordinary user of the machine as the control.",
     "python3 test/vm/fill.py", 1200),
    ("Locks on ranges of files",
     "`test/vm/locks.py`: how much they take at most until who holds them is killed, without a bound of the storm's own "
     "(docs/kernel-pools.md, \"Locks on ranges of files\").",
     "python3 test/vm/locks.py", 1200),
    ("How fast filters may be freed",
     "`test/vm/frees.py`: filters of 4,096 instructions, freed by one processor at several rates, and how many of the kernel's "
     "workers waited at a time meanwhile (docs/privsep.md, \"Ending (kills in turn)\").",
     "python3 test/vm/frees.py", 1800),
)


def rows_of(lines):
    rows = [line.split("\t")[1:] for line in lines if line.startswith("ROW\t")]
    if not rows:
        return []
    return ["", "| case | user | root | root of a command sandbox |", "|---|---|---|---|",
            *(f"| `{row[0]}` | " + " | ".join(cell.replace("|", "\\|") for cell in row[1:]) + " |" for row in rows)]


def in_machine(options, command, seconds):
    """Exit status and lines. A machine that came to no line is booted once more: the emulator's processors sometimes meet code of
    the kernel while it is being changed, and its kernel then stops at its start."""
    status, lines = boot(options, command, seconds)
    return (status, lines) if len(lines) >= 3 or status == SKIPPED else boot(options, command, seconds)


def boot(options, command, seconds):
    done = subprocess.run([str(ROOT / "test/vm/run.py"), f"--build={options.build}", f"--kernel={options.kernel}",
                           f"--seconds={seconds}", "--", "uname -sr; cat commit; stat -fc %T /sys/fs/cgroup; " + command],
                          stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    return done.returncode, done.stdout.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--kernel", default="", help="as for run.py")
    options = parser.parse_args()
    begun, out, worst, told = time.monotonic(), [], 0, set()
    for title, about, command, seconds in RUNS:
        status, lines = in_machine(options, command, seconds)
        if status == SKIPPED:
            return SKIPPED
        kernel, commit, kind, *rest = lines
        told.add((kernel, commit, kind))
        worst = max(worst, status)
        out += [f"\n## {title}\n", about, "", "```", *(line for line in rest if not line.startswith("ROW\t")),
                f"exit status {status}", "```", *rows_of(rest)]
    if len(told) != 1:
        sys.exit(f"the runs were not of one commit: {told}")
    text = [f"# With control groups of version 2 only\n\nWritten by `make vm-escapes`; do not edit. {kernel}, commit {commit}, "
            f"/sys/fs/cgroup is {kind}, under QEMU's emulation; {time.monotonic() - begun:.0f} s.", *out]
    if options.write:
        options.write.parent.mkdir(exist_ok=True)
        options.write.write_text("\n".join(text) + "\n")
    return worst


if __name__ == "__main__":
    sys.exit(main())
