"""`cay doctor` says which settings of the network the kernel has once for the whole host, so that no sandbox gets a
value of its own. Kernels that cay runs on here have none such: files in the place of /proc/sys stand for it."""

import json
import subprocess

import pytest

from conftest import BUILD


@pytest.mark.parametrize("value, level", [(131072, "limited"), (20480, "ok")])
def test_what_no_sandbox_has_of_its_own(value, level):
    shown = ("mount -t tmpfs -o mode=0 none /proc/sys && mkdir -p /proc/sys/net/core && "
             f"echo {value} >/proc/sys/net/core/optmem_max && exec {BUILD}/src/cli/cay doctor --json")
    done = subprocess.run(["unshare", "--mount", "sh", "-c", shown], capture_output=True, text=True)
    pools = next(c for c in json.loads(done.stdout) if c["check"] == "pools of the host")
    assert pools["level"] == level, pools
    assert ("net/core/optmem_max" in pools["text"]) == (level == "limited")
