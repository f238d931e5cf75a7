"""The examples of examples/python that stand on E2B's SDK, as they are, with the models that they script themselves."""

import os
import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples/python"


def run(name):
    env = {**os.environ, "MODEL": "", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, EXAMPLES / name], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_shell_as_a_tool():
    shown = run("agent_tool.py")
    assert shown.startswith("45\n") and "exit status 1\n" in shown and "/no/such/file" in shown


def test_an_agent_inside():
    shown = run("sre_agent.py").splitlines()
    assert [line.partition(":")[0] for line in shown] == ["check", "logs", "restart", "check", "Checked, restarted, checked again"]
    assert shown[0].endswith("web is down") and shown[3].endswith("web is up")
