"""Writes docs/reports/security-tests.md from the results of run.py. Nothing in it is written by hand but this text."""

import platform
import re
import subprocess

CLASSES = {"file": 2, "upload": 4, "proc": 5, "sys": 5, "dev": 5, "cgroup": 5, "mount": 6, "ns": 6, "kernel": 7,
           "net": 7, "id": 8, "init": 8, "agent": 8, "ipc": 9, "load": 15, "pool": 15, "share": 16}
TITLES = {2: "Reading what is denied", 4: "The file API", 5: "/proc, /sys, /dev and control groups",
          6: "Namespaces and mounts", 7: "Kernel surface and sockets",
          8: "Identity, capabilities, descriptors, PID 1", 9: "IPC and terminals", 15: "Exhaustion", 16: "What sandboxes share"}

HEAD = """# Security tests

Written by `make escapes`; do not edit. Kernel {kernel}, commit {commit}, {cases} cases: {refused} refused as the
sandbox's user and as its root, {open} open; {shown} with their positive control; {measured} have no
single defence that could be switched off, and say what they are compared with; {unshown} have no control here, each
with the reason.

Every case is one attempt, made by the static program `test/probe` or by a scene of `test/escapes`, in a
sandbox with all defences: that is the verdict. Its control is the same attempt with the named defences switched
off, and there it succeeded: so the attempt is a real one, and the defence is what stops it. Where several
defences are named, each of them alone is enough; all had to go before the way was open. *host* means that
switching off every defence that can be switched off was not enough, since the user or mount namespace itself
stands in the way: then the control is the machine's root outside of any sandbox (processes of the test stand
for PID 1, and all is in namespaces of the test's own, so that nothing can be hurt and no packet can leave).

The switches are in builds with `-Dtest_switches=true` only (`src/base/test_bypass.h`).
"""


MEASURED = "in the scene"  # a comparison within the case itself, where there is no one defence to switch off


def class_of(case):
    return CLASSES[case.split(".")[0]]


def cell(text):
    text = re.sub(r"cay-escapes-[a-z0-9_]{8}", "cay-escapes", str(text))  # the name of a run says nothing
    return text.replace("|", "\\|").replace("\n", " ")


def verdict(pair):
    return "refused" if pair[0] == "refused" else f"**{pair[0]}**" if pair[0] == "OPEN" else f"{pair[0]}: {pair[1]}"


def control(row, unshown):
    c = row["control"]
    if c and c["without"] == [MEASURED]:
        return "(no switch)", f"compared: {c['why']}"
    if c and c["without"]:
        return ", ".join(c["without"]), f"open. {c['why']}"
    reason = unshown.get(row["case"], "no reason is known")
    return "", f"not shown: {reason} ({c['why'] if c else 'not run'})"


def section(number, rows, unshown):
    out = [f"\n## {TITLES[number]} (class {number})\n",
           "| case | what is tried | user | root | what root was told | defended by | with that off |",
           "|---|---|---|---|---|---|---|"]
    for row in rows:
        by, then = control(row, unshown)
        parts = (f"`{row['case']}`", row["about"], verdict(row["user"]), verdict(row["root"]), row["root"][1], by,
                 then)
        out.append("| " + " | ".join(cell(p) for p in parts) + " |")
    return out


def document(rows, unshown, root):
    commit = subprocess.run(["git", "-C", root, "rev-parse", "--short=12", "HEAD"], capture_output=True,
                            text=True).stdout.strip()
    opened = sum(1 for r in rows if "OPEN" in (r["user"][0], r["root"][0]))
    measured = sum(1 for r in rows if r["control"] and r["control"]["without"] == [MEASURED])
    shown = sum(1 for r in rows if r["control"] and r["control"]["without"]) - measured
    refused = sum(1 for r in rows if r["user"][0] == r["root"][0] == "refused")
    lines = [HEAD.format(kernel=platform.release(), commit=commit, cases=len(rows), refused=refused, open=opened,
                         shown=shown, measured=measured, unshown=len(rows) - shown - measured)]
    for number in TITLES:
        chosen = [r for r in rows if r["class"] == number]
        if chosen:
            lines += section(number, chosen, unshown)
    return "\n".join(lines) + "\n"
