#!/usr/bin/env python3
"""The escape table: every case of the probe and every scene, refused with all defences, and its way shown to be
open when the defence that stands in it is switched off.

    test/escapes/run.py --build=DIR [--quick] [--write=docs/reports/security-tests.md] [--only=TEXT] [--rows]

DIR is a build with -Dtest_switches=true. The controls are searched for: first each defence alone, then all of
them, from which those are taken back that the case does not need; an attempt still refused then is made by the machine's root
outside of any sandbox. --quick runs all cases with all defences, and of the controls that
controls.json holds those that need a single defence; a case that has neither a control there nor a reason in
unshown.json is a failure then, too. --only with --write takes what was run into the table that is there. As root; all in
namespaces of its own (world.py)."""

import argparse
import base64
import gzip
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import scenes  # noqa: E402
import escape_table  # noqa: E402
import world  # noqa: E402
from client import Sandbox  # noqa: E402

USERS = ("user", "root")
COMMAND_SECONDS = 600
# A command sandbox is there for a policy, so cay-egress listens in it, takes each connection and question and answers by the policy. The probe
# sees that it is taken; whether something gets out is what the table of ways out is for.
COMMAND_TAKEN = ("net.tcp_public", "net.tcp_metadata", "net.tcp_private", "net.tcp6_public", "net.tcp6_metadata", "net.tcp_mapped",
              "net.udp_dns", "net.udp6")
BY_POLICY = "not-applicable", "cay-egress takes it and answers by policy: docs/reports/egress-security-tests.md"
INNER = ("seccomp", "seccomp-arguments", "capabilities", "superset", "agent-uid", "agent-key", "undumpable",
         "unreadable", "descriptors", "masks", "read-only", "devices", "own-nodes", "userns-limit", "rlimits", "login-uid")
# Some defences hide others' cases: a mask that is not there cannot be taken away.
BASES = (INNER, tuple(n for n in INNER if n not in ("masks", "read-only", "agent-uid")))
SINGLE = (*INNER, "network-rules", "network-namespace", "ipc-namespace", "cgroup-namespace",
          "network-bounds", "lock-watch")
CONTROLS = pathlib.Path(__file__).resolve().parent / "controls.json"

# Cases that no control opens, with the reason. Anything else without a control is a failure.
UNSHOWN = json.loads((pathlib.Path(__file__).resolve().parent / "unshown.json").read_text())


class Runs:
    """Results of the probe under sets of switched-off defences; each set is run once."""

    def __init__(self, options, base, bait):
        self.options, self.base, self.bait, self.done = options, base, bait, {}
        self.program = (options.build / "test/probe/probe").read_bytes()

    def under(self, without=()):
        key = frozenset(without)
        if key not in self.done:
            self.done[key] = self.measure(sorted(key))
        return self.done[key]

    def in_command_sandbox(self):
        """As root of a command sandbox (a command with a policy of its own), all defences there."""
        with world.stamps(allowed=False), world.Server(self.options.build, self.base, egress=True) as server:
            made = server.client.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "policy": {"rules": []}})
            assert made.status == 201, made.body
            with Sandbox(server.client, made.json) as box:
                self.put(box)
                done = server.client.call("POST", f"/cay/v1/sandboxes/{box.id}/exec", {
                    "shell": "/tmp/probe all", "user": "root", "policy": "deny", "env": self.bait.env(),
                    "timeout_ms": COMMAND_SECONDS * 1000}, timeout=COMMAND_SECONDS + 60)
                assert done.status == 200 and done.json["exit_code"] is not None, done.body
                return parse(done.json["stdout"]) | {case: BY_POLICY for case in COMMAND_TAKEN}

    def measure(self, without):
        off = {"network-bounds", "network-namespace"} & set(without)
        with world.stamps(allowed=bool(off)), world.Server(self.options.build, self.base, without) as server:
            with server.client.create() as box:
                self.put(box)
                return {user: parse(box.run("/tmp/probe all", user=user, timeout=300, env=self.bait.env()).out)
                        for user in USERS}

    def put(self, box):
        """Not by an upload: for that PID 1 takes on other ids, upon which the kernel makes it undumpable by
        itself, and the control of that defence would show nothing."""
        text = base64.b64encode(gzip.compress(self.program)).decode()
        for at in range(0, len(text), 90000):
            box.run(f"echo {text[at:at + 90000]} >> /tmp/probe.b64", user="root")
        done = box.run("base64 -d /tmp/probe.b64 | gzip -d > /tmp/probe && chmod 755 /tmp/probe && rm /tmp/probe.b64",
                       user="root")
        assert done.exit_code == 0, done.stderr

    def opens(self, case, without):
        """Its outcome where the way is open, or None."""
        result = self.under(without)
        for user in USERS:
            verdict, why = result[user].get(case, ("missing", ""))
            if verdict == "OPEN":
                return f"{user}: {why}"
        return None


def parse(text):
    return {line.split("\t")[0]: tuple(line.split("\t")[1:3]) for line in text.splitlines() if line.count("\t") == 2}


def wanted(options, text):
    """--only may name several, with commas between."""
    return any(part in text for part in options.only.split(","))


def cases(options):
    out = subprocess.run([options.build / "test/probe/probe", "list"], capture_output=True, text=True, check=True)
    return [line.split("\t") for line in out.stdout.splitlines() if wanted(options, line)]


# Preparations by the machine's root, so that there is something to be found.
PREPARED = {
    "id.ambient": "exec setpriv --inh-caps +chown --ambient-caps +chown {probe} {case}",
    "id.groups": "exec setpriv --groups 65534 {probe} {case}",
    "net.interfaces": "exec unshare --net sh -c 'ip link add type veth && exec {probe} {case}'",
    "ipc.host_sockets": "exec unshare --mount sh -c 'mount -t tmpfs none /run && touch /run/docker.sock && "
                        "exec {probe} {case}'",
    "mount.chroot": "mkdir -p {base}/jail/tmp && cp {probe} {base}/jail/probe && exec chroot {base}/jail /probe {case}",
}


def reduce_set(runs, case, base):
    """From all switched off, back to those without which it is refused."""
    now = set(base)
    for name in base:
        if runs.opens(case, now - {name}):
            now.discard(name)
    return sorted(now)


def on_host(options, bait, case):
    """The machine's root, in the runner's namespaces, with a victim for PID 1."""
    with world.Victim() as pid:
        env = {**os.environ, **bait.env(), "CAY_PROBE_PID": pid}
        shell = PREPARED.get(case, "exec {probe} {case}").format(
            probe=options.build / "test/probe/probe", case=case, base=bait.base)
        out = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, env=env, timeout=60).stdout
    return parse(out).get(case, ("missing", out))


def find_control(runs, options, case, host):
    for name in SINGLE:
        why = runs.opens(case, [name])
        if why:
            return {"without": [name], "why": why}
    for base in BASES:
        if runs.opens(case, base):
            without = reduce_set(runs, case, base)
            return {"without": without, "why": runs.opens(case, without)}
    if host:
        verdict, why = on_host(options, runs.bait, case)
        if verdict == "OPEN":
            return {"without": ["host"], "why": f"root of the machine: {why}"}
        return {"without": [], "why": f"root of the machine: {why}"}
    return {"without": [], "why": "with all off: " + runs.under(INNER)["root"].get(case, ("", "missing"))[1]}


def known_control(runs, case, known):
    """The quick form: only what one switch opens."""
    without = known.get(case, {}).get("without", [])
    if len(without) != 1 or without[0] not in SINGLE or without[0] == "network-rules":
        return None
    why = runs.opens(case, without)
    return {"without": without if why else [], "why": why or "the control is lost"}


def probe_rows(options, runs, known):
    rows, command = [], runs.in_command_sandbox()
    for case, host, about in cases(options):
        found = [runs.under()[user].get(case, ("missing", "")) for user in USERS]
        control = known_control(runs, case, known) if options.quick else find_control(
            runs, options, case, host == "host-control")
        rows.append({"case": case, "about": about, "class": escape_table.class_of(case), "user": found[0],
                     "root": found[1], "command": command.get(case, ("missing", "")), "control": control})
    return rows


def scene_rows(options, base):
    """Each scene with all defences, then without its own."""
    chosen = [s for s in scenes.ALL if wanted(options, s.name) and (s.quick or not options.quick)]
    rows = {s.name: {"case": s.name, "about": s.about, "class": s.number, "control": None} for s in chosen}
    with world.Server(options.build, base) as server:
        for s in chosen:
            verdict = scenes.run(s, server)
            rows[s.name] |= {"user": verdict, "root": verdict}
            print(f"{s.name}: {verdict}", flush=True)
    for s in chosen:
        if not s.without or options.quick:
            continue
        with world.Server(options.build, base, s.without) as server:
            verdict, why = scenes.run(s, server)
        print(f"{s.name} without {s.without}: {verdict} {why}", flush=True)
        rows[s.name]["control"] = {"without": list(s.without) if verdict == "OPEN" else [], "why": why}
    for s in chosen:
        if not s.without and not options.quick:
            rows[s.name]["control"] = {"without": [escape_table.MEASURED], "why": s.shown}
    return list(rows.values())


def without_control(case, known):
    """Is nothing written of the case: neither a control that was found, nor why there is none?"""
    return not known.get(case, {}).get("without") and case not in UNSHOWN


def failures(rows, quick, known=None):
    """Sentences, one for each thing that is not as it has to be."""
    out = []
    for row in rows:
        for user in (*USERS, "command"):
            if user in row and row[user][0] not in ("refused", "not-applicable"):
                out.append(f"{row['case']} as {user}: {row[user][0]} {row[user][1]}")
        control = row["control"]
        if control is None and quick:
            if without_control(row["case"], known or {}):
                out.append(f"{row['case']}: neither a control in controls.json nor a reason in unshown.json: run "
                           f"test/escapes/run.py --only={row['case']} --write=docs/reports/security-tests.md")
            continue
        if (control is None or not control["without"]) and row["case"] not in UNSHOWN:
            out.append(f"{row['case']}: no control: {control and control['why']}")
    return out


def options_of():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", action="store_true", help="a line of each case and its verdicts, for report.py")
    options = parser.parse_args()
    options.build = options.build.resolve()
    if options.quick and options.write:
        parser.error("--quick finds no controls: the table is written of a run without it")
    return options


def write(options, rows, known):
    """The table, and the controls: of a whole run, or with what was run put in its place among the rest."""
    found = {r["case"]: {"without": r["control"]["without"]} for r in rows if r["control"]}
    if options.only:
        options.write.write_text(escape_table.merged(options.write.read_text(), rows, UNSHOWN, world.ROOT))
        found = known | found
    else:
        options.write.write_text(escape_table.document(rows, UNSHOWN, world.ROOT))
    CONTROLS.write_text(json.dumps(found, indent=1) + "\n")


def main():
    options, begun = options_of(), time.monotonic()
    if options.only and options.write:
        escape_table.check_mergeable(options.write)
    world.enter()
    world.loopback()
    base, bait = world.make_base(), None
    try:
        bait = world.Bait(base)
        runs = Runs(options, base, bait)
        known = json.loads(CONTROLS.read_text()) if CONTROLS.exists() else {}
        rows = probe_rows(options, runs, known) + scene_rows(options, base)
    finally:
        world.remove_base(base)
        if bait:
            bait.remove_files()
    if options.write:
        write(options, rows, known)
    bad = failures(rows, options.quick, known)
    shown = sum(1 for r in rows if r["control"] and r["control"]["without"])
    for row in rows if options.rows else ():
        print("\t".join(["ROW", row["case"], *(escape_table.verdict(row[who]) if who in row else "" for who in (*USERS, "command"))]))
    for line in bad:
        print("FAILED:", line)
    print(f"{len(rows)} cases, {shown} controls shown, {len(runs.done)} sets of defences, "
          f"{len(bad)} failures, {time.monotonic() - begun:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
