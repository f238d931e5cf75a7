"""The benches still run and have every row: in their smallest form, on servers of their own. No time is looked at."""

import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from conftest import SERVERS_MAX, SLOTS_MAX, UID_BASE

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "test/bench"
SANDBOXES = 4
FIELDS = {"id", "what", "unit", "ours", "against", "other", "ratio", "goal", "reached", "note"}
MEASURED = {"create_ready", "exec_true", "claim", "member", "burst_wall", "burst_p50", "burst_p99", "sustained", "upload", "upload_plain",
            "download", "download_plain", "whole", "freeze", "thaw", "wake_frozen", "memory_each", "idle_cpu", "list", "list_pages", "end_each", "mcp_run", "mcp_tools",
            *(f"{what}_at_{n}" for what in ("alone", "create") for n in (0, SANDBOXES, SANDBOXES * 5))}
ON_DISK = {"pause_files", "wake_files", "snapshot", "stops", "from_snapshot", "rollback", "fork_1", "fork_10", "fork_100", "fork_1_members", "fork_100_members"}
WITH_MEMORY = {*(f"memory_{what}_{mib}" for what in ("pause", "resume", "fork") for mib in (7, 64, 256)),
               *(f"memory_resume_{mib}_alone" for mib in (7, 64)),
               *(f"memory_forks_{n}{alone}" for n in (1, 10, 100) for alone in ("", "_alone")), "memory_claim"}
MAY_LACK = ON_DISK | WITH_MEMORY | {"sdk_first_output", "kernels_first", "kernels_memory_first", "kernels_execute", "kernels_added", "kernels_memory", "import_image",
            "create_imported", "build_steps", "build_cached", "peer_bwrap", "peer_crun", "peer_runc", "peer_podman", "peer_runsc"}
BOUNDED_SECONDS = 300


def run(*arguments):
    if os.geteuid() != 0:
        pytest.skip("a server of its own needs root")
    small = {"BENCH_COUNT": "3", "BENCH_SECONDS": "1", "BENCH_SANDBOXES": str(SANDBOXES), "BENCH_MIB": "2",
             "BENCH_SDK": "no", "BENCH_INODES": "16384",
             # of this process of the run, after those of its servers: the usual ones are another's
             "BENCH_UID_BASE": str(UID_BASE + SERVERS_MAX * SLOTS_MAX * 65536)}
    done = subprocess.run([sys.executable, *map(str, arguments)], env={**os.environ, **small}, capture_output=True,
                          text=True, timeout=BOUNDED_SECONDS)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_bench_has_every_row(tmp_path):
    run(BENCH / "run.py", f"--json={tmp_path}/bench.json", f"--svg={tmp_path}/bench.svg")
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["schema"] == "cay-bench/1"
    assert {"commit", "changed", "date", "machine", "settings"} <= set(found)
    rows = {row["id"]: row for row in found["rows"]}
    assert set(rows) == MEASURED | MAY_LACK
    for row in rows.values():
        assert set(row) == FIELDS, row
        assert row["ours"] is not None or (row["id"] in MAY_LACK and row["note"]), row
        assert (row["goal"] is None) == (row["reached"] is None), row
    assert ElementTree.parse(tmp_path / "bench.svg").getroot().tag.endswith("svg")


def test_many_runs_and_leaves_nothing(tmp_path):
    run(BENCH / "many.py", "--sandboxes=20", f"--json={tmp_path}/many.json", f"--write={tmp_path}")
    found = json.loads((tmp_path / "many.json").read_text())
    assert found["alive"] == 20 and "stopped_by" not in found
    assert found["used"] == 20
    assert set(found["left_behind"].values()) == {0}
    assert "## Tables that could run out" in (tmp_path / "many.md").read_text()
