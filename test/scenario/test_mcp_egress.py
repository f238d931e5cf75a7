"""The text that an agent gets by the Model Context Protocol when the network refused a command something."""

import os

import pytest

from egresslib import ZONE, Stack
from mcplib import Mcp


@pytest.fixture(scope="module")
def stack():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    s = Stack(zone=ZONE)
    yield s
    s.close()


def fetch(session):
    answer = session.call("run", command="curl -sS -m 10 http://web.example.com/")
    return answer.result["structuredContent"], answer.result["content"][-1]["text"]


def test_a_refusal_names_its_rule(stack):
    with Mcp(stack.cay) as session:
        got, text = fetch(session)
    assert [(d["name"], d["port"]) for d in got["denied"]] == [("web.example.com", 80)], got
    assert got["denied"][0]["rule"] and got["denied"][0]["reason"]
    assert "The network refused web.example.com port 80" in text and got["denied"][0]["rule"] in text


def test_what_its_owner_allows_is_reached(stack):
    """The control: the same command, with the policy that the connection's owner set."""
    with Mcp(stack.cay, headers={"X-Cay-Policy": "public"}) as session:
        got, text = fetch(session)
    assert got["denied"] == [] and got["exit_code"] == 0 and got["stdout"], got
    assert "refused" not in text
