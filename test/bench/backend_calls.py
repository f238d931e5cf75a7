"""Commands one after the other, by each way that a Python program has: backend_calls.py daytona|e2b. Reads lines {"way", "commands"},
and answers each with {"ms", "steps"}: the time of each command, and of each call of Daytona's SDK below it. Ways: langchain-daytona's
execute() (backend), E2B's SDK (e2b), subprocess (bare)."""

import collections
import json
import subprocess
import sys
import time

STEPS = ("create_session", "execute_session_command", "get_session_command", "get_session_command_logs", "delete_session")


def note_times(process, steps):
    """Each call of the SDK is timed; nothing else of it is changed."""
    def timed(name, call):
        def wrapped(*args, **more):
            begun = time.perf_counter()
            try:
                return call(*args, **more)
            finally:
                steps[name].append(1000 * (time.perf_counter() - begun))
        return wrapped

    for name in STEPS:
        setattr(process, name, timed(name, getattr(process, name)))


def backend(steps):
    from daytona import CreateSandboxFromSnapshotParams, Daytona
    from langchain_daytona import DaytonaSandbox
    made = Daytona().create(CreateSandboxFromSnapshotParams(snapshot="host"))
    note_times(made.process, steps)
    tool = DaytonaSandbox(sandbox=made)

    def run(command):
        done = tool.execute(command)
        if done.exit_code != 0:
            raise SystemExit(f"bench: {command}: {done}")
    return run, made.delete


def e2b():
    from e2b import Sandbox
    made = Sandbox.create("host", timeout=3600)
    return made.commands.run, made.kill


def main():
    steps = collections.defaultdict(list)
    kind = sys.argv[1]
    run, end = backend(steps) if kind == "daytona" else e2b()
    ways = {"backend" if kind == "daytona" else "e2b": run,
            "bare": lambda command: subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True)}
    try:
        for asked in sys.stdin:
            order, ms = json.loads(asked), []
            steps.clear()
            for command in order["commands"]:
                begun = time.perf_counter()
                ways[order["way"]](command)
                ms.append(1000 * (time.perf_counter() - begun))
            print(json.dumps({"ms": ms, "steps": steps}), flush=True)
    finally:
        end()


if __name__ == "__main__":
    main()
