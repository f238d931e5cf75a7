"""cay-egress alone in the stand-in internet (test/egress/internet.py), without cayd and cay-privd: what its tests
share."""

import contextlib
import os
import pathlib
import pwd
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "egress"))
from conftest import BUILD, USER  # noqa: E402
from internet import World  # noqa: E402


def make_world(zone):
    """The caller closes it."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    for tool in ("ip", "nft", "openssl", "curl", "setpriv"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    try:
        pwd.getpwnam(USER)
        user = USER
    except KeyError:
        user = "nobody"
    return World(BUILD / "src/egress/cay-egress", zone, user, ["--egress-connect-timeout=3s"])


@contextlib.contextmanager
def restarted(world, *arguments):
    """The same world with a cay-egress of other settings for a while."""
    before, world.arguments = world.arguments, world.arguments + list(arguments)
    try:
        world.kill_egress()
        world.start_egress()
        yield
    finally:
        world.arguments = before
        world.kill_egress()
        world.start_egress()
