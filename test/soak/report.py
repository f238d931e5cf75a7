"""The outcome of a soak, in words and as JSON."""

import subprocess


def commit_of(root):
    """With a plus when the tree has changes that are not committed."""
    done = subprocess.run(["git", "-C", root, "describe", "--always", "--dirty=+", "--abbrev=12"], capture_output=True,
                          text=True)
    return done.stdout.strip() or "unknown"


def rows(soak):
    for name in sorted(soak.done):
        yield name, soak.done[name], soak.cut.get(name, 0), soak.slowest.get(name, 0)


def make(soak, root):
    quarters = [soak.quarter(n) for n in range(4)]
    data = {
        "commit": commit_of(root), "seed": soak.given.seed, "seconds": round(soak.elapsed),
        "operations": dict(soak.done), "cut": dict(soak.cut), "refused_full": soak.full,
        "kills": dict(soak.disturbances.counts), "restart_slowest_s": round(soak.restart_slowest, 2),
        "private_kib_by_quarter": quarters, "failures": soak.failures,
        "slabs": {"before": soak.before["slabs"], "after": soak.after["slabs"]},
    }
    kills = ", ".join(f"{n} × {kind}" for kind, n in sorted(data["kills"].items())) or "none"
    lines = [
        "# Soak", "",
        "Written by `make soak` (test/soak/soak.py says what must hold).", "",
        f"Commit {data['commit']}, seed {data['seed']}, {data['seconds']} s: {sum(soak.done.values())} operations, "
        f"{sum(soak.cut.values())} of them cut by a kill and tried again, {soak.full} creates refused because "
        f"as many sandboxes as allowed were there. Kills: {kills}; ready again within {soak.restart_slowest:.1f} s.", "",
        f"**{len(soak.failures)} failures.**" if soak.failures else
        "No lost or wrong answer, no call past its deadline, nothing left behind, memory flat.", "",
        *(f"- {text}" for text in soak.failures), *([""] if soak.failures else []),
        "| operation | done | cut and tried again | slowest, s |", "|---|---|---|---|",
        *(f"| {name} | {done} | {cut} | {slowest:.1f} |" for name, done, cut, slowest in rows(soak)), "",
        "Private memory of the daemons, KiB, median of each quarter (kills are in the second and third):", "",
        "| daemon | first | second | third | last |", "|---|---|---|---|---|",
        *(f"| {name} | " + " | ".join(str(q.get(name, "")) for q in quarters) + " |" for name in sorted(quarters[0])), "",
    ]
    return "\n".join(lines), data
