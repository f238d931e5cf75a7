#!/usr/bin/env python3
"""The cost of an execution for an agent: deepagents' backends above Daytona's SDKs, E2B's SDKs, and the same command without a
sandbox, in turns and in one run; MCP's tool beside the same call by /cay/v1. As root.

    scripts/bench backends BUILD [--json=FILE] [--write=DIR]

Starts a server of its own (server.py). The clients are unmodified and pinned (test/sdk), one process for each language and SDK
(backend_calls.py, backend_calls.mjs), all started before anything is timed. BENCH_COUNT (200) executions of each way in BENCH_ROUNDS
(10) rounds. Prints a table; nothing is asserted."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import types

import mcp_calls
import report
import server

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "10"))
COUNT = int(os.environ.get("BENCH_COUNT", "200"))
LOOP = 50
LOOPS = max(1, ROUNDS // 2)
WARM = 20
ADDED_MS, MCP_MS = 3.0, 2.0  # the goals
COMMAND = "true"
MARKS = ("<!-- backend-bench: begin -->", "<!-- backend-bench: end -->")
HERE = pathlib.Path(__file__).resolve().parent
POLL_MS = 100  # langchain-daytona asks again after so long


def loop_commands():
    """An agent's work in small: writes, reads, lists, searches, counts."""
    each = ("echo {0} >file{0}", "cat file{1}", "ls | wc -l", "grep -l {1} file*", "wc -c file{1}")
    return [each[i % len(each)].format(i, i - i % len(each)) for i in range(LOOP)]


class Client:
    """A process that runs commands by the ways it knows."""

    def __init__(self, command, folder, env):
        self.process = subprocess.Popen([str(part) for part in command], cwd=folder, env={**os.environ, **env}, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, way, commands):
        self.process.stdin.write(json.dumps({"way": way, "commands": commands}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"bench: {self.process.args[1]}: ended, status {self.process.wait()}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Clients:
    def __init__(self, own):
        tests = server.test_run()
        sdk, options = server.ROOT / "test/sdk", types.SimpleNamespace(build=server.BUILD)
        node = tests.node_of(sdk / "js")
        tests.install(sdk / "daytona", "--ignore-scripts")
        daytona = tests.python_of(options, [sdk / "daytona/requirements.txt"], "venv-daytona")
        e2b = tests.python_of(options, [sdk / "requirements.txt"])
        env = {"DAYTONA_API_URL": f"{own.url}/api", "DAYTONA_API_KEY": own.key, "E2B_API_URL": own.url, "E2B_SANDBOX_URL": own.url,
               "E2B_DOMAIN": f"localhost:{own.port}", "E2B_API_KEY": own.key, "PYTHONDONTWRITEBYTECODE": "1"}
        self.folder = tempfile.TemporaryDirectory(prefix="cay-bench-", dir="/var/tmp")
        self.kept = []
        self.js = self.start([node, HERE / "backend_calls.mjs", sdk / "daytona", sdk / "js"], env)
        self.python = self.start([daytona, HERE / "backend_calls.py", "daytona"], env)
        self.e2b = self.start([e2b, HERE / "backend_calls.py", "e2b"], env)

    def start(self, command, env):
        self.kept.append(Client(command, self.folder.name, env))
        return self.kept[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self.kept:
            client.close()
        self.folder.cleanup()


def p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


class Times:
    """Of each way: of single executions, of whole loops, and of the SDK's calls below."""

    def __init__(self, ways):
        self.ways = ways  # name: (client, its name there)
        self.single, self.loop, self.steps = ({name: [] for name in ways} for _ in range(3))

    def measure(self):
        for name, (client, way) in self.ways.items():
            client.run(way, [COMMAND] * WARM)
        for i in range(ROUNDS):
            for name, (client, way) in self.ways.items():
                done = client.run(way, [COMMAND] * max(2, COUNT // ROUNDS))
                self.single[name] += done["ms"]
                self.steps[name].append(done.get("steps", {}))
                if i < LOOPS:
                    self.loop[name].append(sum(client.run(way, loop_commands())["ms"]))

    def p50(self, name):
        return statistics.median(self.single[name])

    def step(self, name, what):
        """Median of one call of the SDK, and how often it is made."""
        values = [ms for steps in self.steps[name] for ms in steps.get(what, ())]
        return statistics.median(values), len(values) / len(self.single[name])


def measure_js(out, times):
    single = times.single
    of_line = "its command by child_process"
    out.row("js_execute", "@langchain/daytona: execute()", "ms", times.p50("js"), of_line, times.p50("js line"),
            note=f"p99 {p99(single['js']):.1f} ms")
    out.row("js_added", "@langchain/daytona: added to its command by child_process", "ms", times.p50("js") - times.p50("js line"),
            most_value=ADDED_MS, note="the command is what the SDK makes of `true`: two shells, `echo`, `base64`, and a third shell")
    out.row("js_added_bare", "@langchain/daytona: added to `sh -c true` by child_process", "ms", times.p50("js") - times.p50("js bare"),
            "`sh -c true`", times.p50("js bare"))
    out.row("js_request", "its request by fetch, without the SDK", "ms", times.p50("js request"), of_line, times.p50("js line"))
    out.row("js_e2b", "JS SDK of E2B: commands.run()", "ms", times.p50("js e2b"), "@langchain/daytona", times.p50("js"),
            note=f"a login shell, which the SDK asks for; p99 {p99(single['js e2b']):.1f} ms")


def measure_python(out, times):
    bare, waited = times.p50("python bare"), sum(ms >= POLL_MS for ms in times.single["python"])
    out.row("python_execute", "langchain-daytona: execute()", "ms", times.p50("python"), "subprocess of the command", bare,
            note=f"p99 {p99(times.single['python']):.1f} ms; {waited} of {len(times.single['python'])} were not over when the client "
                 f"first asked, and it waits {POLL_MS} ms before it asks again")
    for name, what in (("create_session", "create a session"), ("execute_session_command", "start the command in it"),
                       ("get_session_command", "ask for its end"), ("get_session_command_logs", "read its output"),
                       ("delete_session", "delete the session")):
        ms, often = times.step("python", name)
        out.row(f"python_{name}", f"of it: {what}", "ms", ms, note=f"{often:.2f} times an execution")
    out.row("python_e2b", "Python SDK of E2B: commands.run()", "ms", times.p50("python e2b"), "langchain-daytona", times.p50("python"),
            note=f"a login shell, which the SDK asks for; p99 {p99(times.single['python e2b']):.1f} ms")


def measure_loops(out, times):
    for name, text, bare in (("js", "@langchain/daytona", "js bare"), ("js e2b", "JS SDK of E2B", "js bare"),
                             ("python", "langchain-daytona", "python bare"), ("python e2b", "Python SDK of E2B", "python bare")):
        out.row(f"{name.replace(' ', '_')}_loop", f"loop of {LOOP} small executions: {text}", "ms",
                statistics.median(times.loop[name]), "the same without a sandbox", statistics.median(times.loop[bare]))


def measure_mcp(out, own):
    """As `make bench` has it."""
    calls = mcp_calls.Calls(own)
    try:
        tool, plain, _ = mcp_calls.in_turns(calls, COUNT)
    finally:
        calls.close()
    out.row("mcp_run", "run of true by MCP's tool, beyond the same by /cay/v1", "ms", statistics.median(tool) - statistics.median(plain),
            "the call by /cay/v1", statistics.median(plain), most_value=MCP_MS,
            note=f"the whole call: p50 {statistics.median(tool):.1f} ms, p99 {p99(tool):.1f} ms")


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    options.add_argument("--write", type=pathlib.Path, metavar="DIR", help="write page and figures below docs")
    args = options.parse_args()
    out = report.Report({"count": COUNT, "rounds": ROUNDS, "loop": LOOP})
    with server.Server(64) as own, Clients(own) as clients:
        out.head |= report.origin()  # installing and starting are not what the load is about
        times = Times({"js": (clients.js, "backend"), "js line": (clients.js, "line"), "js request": (clients.js, "request"),
                       "js bare": (clients.js, "bare"), "js e2b": (clients.js, "e2b"), "python": (clients.python, "backend"),
                       "python bare": (clients.python, "bare"), "python e2b": (clients.e2b, "e2b")})
        times.measure()
        measure_js(out, times)
        measure_python(out, times)
        measure_loops(out, times)
        measure_mcp(out, own)
    found = {**out.json(), "schema": "cay-backend-bench/1"}
    for path in filter(None, (args.json, args.write and args.write / "backend-bench.json")):
        path.write_text(json.dumps(found, indent=1) + "\n")
    if args.write:
        report.replace_between(args.write / "backend-benchmarks.md", MARKS, report.markdown(found))


if __name__ == "__main__":
    sys.exit(main())
