"""Writes docs/reports/security-tests.md from the results of run.py. Nothing in it is written by hand but this text."""

import platform
import re
import subprocess
import sys

CLASSES = {"file": 2, "upload": 4, "proc": 5, "sys": 5, "dev": 5, "cgroup": 5, "mount": 6, "ns": 6, "kernel": 7,
           "net": 7, "id": 8, "init": 8, "agent": 8, "ipc": 9, "load": 15, "pool": 15, "share": 16}
TITLES = {2: "Reading what is denied", 4: "The file API", 5: "/proc, /sys, /dev and control groups",
          6: "Namespaces and mounts", 7: "Kernel surface and sockets",
          8: "Identity, capabilities, descriptors, PID 1", 9: "IPC and terminals", 15: "Exhaustion", 16: "Shared by sandboxes"}

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


# Attempts that need more than a sandbox and a switch: each is part of `make test`, with its control in the test itself.
ELSEWHERE = (
    ("stop what is to become a command sandbox, so that no other sandbox gets one",
     "test/scenario/test_stopped_command_sandboxes.py", "test_stopped_command_sandboxes", "what is stopped is ended by its deadline, and said so"),
    ("have cay-privd wait for a process of its own that cannot be killed",
     "test/unit/test_privd_levels.c", "a_task_that_cannot_be_killed_holds_up_no_other", "the process does hang, until it is answered"),
    ("fill the log by connecting again and again", "test/unit/test_base.c", "log_rates",
     "lines are written until the rate is used up, and again after its time"),
    ("have the end of a sandbox kill a process that has got the number of one of its own", "test/unit/test_cgroup_kill.c",
     "test_a_number_that_came_again_before_it_is_held", "a kill by that number ends it"),
    ("by a taken-over cayd: let a sandbox run while its files are copied", "test/unit/test_privd.c",
     "a_layer_that_is_copied_stands_still", "the same requests are done while it is only frozen"),
    ("read, change, run or reach through a directory of the host more than all its users may read", "test/scenario/test_host_dirs.py",
     "test_no_program_of_the_host_is_reached", "a socket, a queue and a lock are reached through a read-only mount without the overlay"),
    ("leave a directory of the host by links, `..` or a directory that is moved away", "test/scenario/test_host_dirs.py",
     "test_no_way_out_of_it", "root of the machine reads the file by the same names"),
)
LATER = "Run again by themselves since: "
MEASURED = "in the scene"  # a comparison within the case itself, where there is no one defence to switch off


def class_of(case):
    return CLASSES[case.split(".")[0]]


def cell(text):
    text = re.sub(r"cay-escapes-[a-z0-9_]{8}", "cay-escapes", str(text))  # the name of a run says nothing,
    text = re.sub(r"/proc/[0-9]{2,}/", "/proc/PID/", text)  # nor does a process of the host's
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


def line(row, unshown):
    by, then = control(row, unshown)
    parts = (f"`{row['case']}`", row["about"], verdict(row["user"]), verdict(row["root"]), row["root"][1], by, then)
    return "| " + " | ".join(cell(p) for p in parts) + " |"


def section(number, lines):
    return [f"\n## {TITLES[number]} (class {number})\n",
            "| case | what is tried | user | root | what root was told | defended by | with that off |",
            "|---|---|---|---|---|---|---|", *lines]


def commit_of(root):
    return subprocess.run(["git", "-C", root, "rev-parse", "--short=12", "HEAD"], capture_output=True,
                          text=True).stdout.strip()


def columns(text):
    """Of one line of the table."""
    return [part.strip() for part in re.split(r"(?<!\\)\|", text)[1:-1]]


def compose(lines, commit, later):
    """The document of {case: (class, line)}. Its figures are counted from the lines, whatever run they are of."""
    rows = [columns(text) for _, text in lines.values()]
    ends = [row[6].partition(".")[0].partition(":")[0] for row in rows]
    head = HEAD.format(kernel=platform.release(), commit=commit, cases=len(rows),
                       refused=sum(row[2] == row[3] == "refused" for row in rows),
                       open=sum("**OPEN**" in (row[2], row[3]) for row in rows), shown=ends.count("open"),
                       measured=ends.count("compared"), unshown=ends.count("not shown"))
    out = [head]
    if later:
        out.append(LATER + ", ".join(f"`{case}` at {at}" for case, at in later.items()) + ".\n")
    for number in TITLES:
        chosen = [text for of, text in lines.values() if of == number]
        if chosen:
            out += section(number, chosen)
    out += ["\n## By other tests\n", "Not counted above; all are part of `make test`.\n", "| what is tried | test | its control |",
            "|---|---|---|", *(f"| {about} | `{name}` ({path}) | {control} |" for about, path, name, control in ELSEWHERE)]
    return "\n".join(out) + "\n"


def document(rows, unshown, root):
    return compose({r["case"]: (r["class"], line(r, unshown)) for r in rows}, commit_of(root), {})


# -- a part of it that was run by itself ---------------------------------------------------------------


def parsed(text):
    """Its lines by case, its commit, and what was run by itself since."""
    lines, number = {}, None
    for one in text.splitlines():
        if title := re.fullmatch(r"## .* \(class (\d+)\)", one):
            number = int(title[1])
        elif case := re.match(r"\| `([^`]+)` \|", one):
            lines[case[1]] = number, one
    commit = re.search(r"commit (\w+)", text)
    later = re.search(f"^{re.escape(LATER)}(.*)\\.$", text, re.M)
    return lines, commit and commit[1], dict(re.findall(r"`([^`]+)` at (\w+)", later[1])) if later else {}


def check_mergeable(path):
    """A part of a run goes only into a table that is whole, and of this kernel: its verdicts are the kernel's, too."""
    text = path.read_text() if path.exists() else ""
    lines, commit, _ = parsed(text)
    if not lines or not commit:
        sys.exit(f"{path}: no table to put these cases into: run without --only")
    if f"Kernel {platform.release()}," not in text:
        sys.exit(f"{path}: it is of another kernel than {platform.release()}: run without --only")


def merged(text, rows, unshown, root):
    lines, commit, later = parsed(text)
    for row in rows:
        lines[row["case"]] = row["class"], line(row, unshown)
        later[row["case"]] = commit_of(root)
    return compose(lines, commit, later)
