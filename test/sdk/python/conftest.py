"""The unmodified E2B SDK against the server that E2B_DOMAIN and E2B_API_KEY name."""

import os
import time

import pytest
from e2b import Sandbox

TEMPLATE = os.environ.get("CAY_TEST_TEMPLATE", "host")


@pytest.fixture(scope="session")
def template():
    return TEMPLATE


@pytest.fixture
def factory():
    """Makes sandboxes that are ended with the test."""
    made = []

    def make(**options):
        sandbox = Sandbox.create(TEMPLATE, **{"timeout": 120, **options})
        made.append(sandbox)
        return sandbox

    yield make
    for sandbox in made:
        sandbox.kill()


@pytest.fixture(scope="module")
def sandbox():
    """A single sandbox for all tests of a file that do not spoil it."""
    sandbox = Sandbox.create(TEMPLATE, timeout=300, envs={"GLOBAL": "g"})
    yield sandbox
    sandbox.kill()


@pytest.fixture(scope="session")
def until():
    def wait(check, what, seconds=10.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = check()
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"still waiting for {what} after {seconds} s")
    return wait
