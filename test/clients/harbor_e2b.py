"""harbor: one task of its own, solved by its oracle, in environment "e2b", which builds a template of a Dockerfile: it begins with
a template of this server."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

FILES = {
    "task.toml": 'version = "1.0"\n[metadata]\n[verifier]\ntimeout_sec = 60.0\n[agent]\ntimeout_sec = 60.0\n[environment]\n'
                 "build_timeout_sec = 120.0\n",
    "instruction.md": "Write 42 into /app/answer.\n",
    "environment/Dockerfile": "FROM base\nWORKDIR /app\n",
    "solution/solve.sh": "#!/bin/bash\necho 42 > /app/answer\n",
    "tests/test.sh": "#!/bin/bash\n[ \"$(cat /app/answer)\" = 42 ] && echo 1 > /logs/verifier/reward.txt || "
                     "echo 0 > /logs/verifier/reward.txt\n",
}

with tempfile.TemporaryDirectory() as folder:
    task, jobs = pathlib.Path(folder) / "answer", pathlib.Path(folder) / "jobs"
    for name, text in FILES.items():
        path = task / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    harbor = os.path.join(os.path.dirname(sys.executable), "harbor")
    done = subprocess.run([harbor, "run", "--path", task, "--agent", "oracle", "--env", "e2b", "--jobs-dir", jobs],
                          capture_output=True, text=True, timeout=300)
    trials = [json.loads(path.read_text()) for path in jobs.rglob("result.json")]
    errors = [trial["exception_info"]["exception_message"] for trial in trials if trial.get("exception_info")]
    if errors:
        sys.exit(f"harbor: {errors[0]}")
    rewards = [trial["verifier_result"]["rewards"]["reward"] for trial in trials if trial.get("verifier_result")]
    if not rewards or rewards[0] != 1:
        sys.exit(f"harbor: no reward {rewards}: {done.stdout[-500:]}{done.stderr[-500:]}")
