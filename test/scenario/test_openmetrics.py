"""GET /metrics: read by Prometheus' own reader of the format, and held against what the test did."""

import json
import pathlib
import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def read(cay):
    """{(sample, labels as sorted pairs): value}, and the families' types."""
    answer = cay.call("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    families = list(text_string_to_metric_families(answer.body.decode()))
    return ({(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples},
            {f.name: f.type for f in families})


def grown(before, after, name, **labels):
    at = (name, tuple(sorted(labels.items())))
    return after[at] - before[at]


def test_what_happens_is_counted(cay):
    before, types = read(cay)
    assert types["cay_sandboxes"] == "gauge" and types["cay_sandboxes_created"] == "counter"
    assert types["cay_sandbox_step_seconds"] == "histogram"
    with cay.create():
        alive, _ = read(cay)
        assert alive[("cay_sandboxes", (("state", "running"),))] >= 1
    assert cay.call("POST", "/v2/sandboxes", {"templateID": "no-such-template"}).status == 404
    after, _ = read(cay)
    assert grown(before, after, "cay_sandboxes_created_total") == 1
    assert grown(before, after, "cay_sandboxes_ended_total", reason="killed") == 1
    for step in ("create", "create_made", "create_agent", "kill"):
        assert grown(before, after, "cay_sandbox_step_seconds_count", step=step) == 1
        assert grown(before, after, "cay_sandbox_step_seconds_sum", step=step) > 0
    assert grown(before, after, "cay_api_requests_total", dialect="e2b", status="2xx") >= 2
    assert grown(before, after, "cay_api_requests_total", dialect="e2b", status="4xx") >= 1
    assert after[("cay_ready", ())] == 1


def test_pauses_resumes_snapshots_and_forks_are_timed(cay):
    """In each tier; those that are paused are counted by it."""
    tiers = ["frozen"] + (["files"] if cay.call("GET", "/cay/v1/status").json["disk"]["backend"] == "btrfs" else [])
    for tier in tiers:
        before, _ = read(cay)
        with cay.create() as box:
            assert cay.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {"tier": tier}).status == 200
            paused, _ = read(cay)
            assert grown(before, paused, "cay_sandboxes_paused", tier=tier) == 1
            assert cay.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 60}).status == 201
        after, _ = read(cay)
        for step in (f"pause_{tier}", f"resume_{tier}"):
            assert grown(before, after, "cay_sandbox_step_seconds_count", step=step) == 1
            assert grown(before, after, "cay_sandbox_step_seconds_sum", step=step) > 0
            assert grown(before, after, "cay_sandbox_steps_failed_total", step=step) == 0
        assert grown(before, after, "cay_sandboxes_paused", tier=tier) == 0
    if "files" not in tiers:
        return
    before, _ = read(cay)
    words = {dict(labels)["tier"] for name, labels in before if name == "cay_sandboxes_paused"}
    documented = re.search(r"`cay_sandboxes_paused` .*`tier`: ([a-z, ]+) \|", (REPOSITORY / "docs/metrics.md").read_text())[1]
    assert words == {*documented.split(", ")}
    with cay.create() as box:
        assert cay.call("POST", f"/sandboxes/{box.id}/snapshots", {"name": "timed"}).status == 201
        assert cay.call("DELETE", "/templates/timed").status == 204
        forks = cay.call("POST", f"/sandboxes/{box.id}/fork", {"count": 2})
        assert forks.status == 201, forks.body
    for one in cay.call("GET", "/v2/sandboxes").json:
        if one["sandboxID"] in forks.body.decode():
            cay.call("DELETE", f"/sandboxes/{one['sandboxID']}")
    after, _ = read(cay)
    assert grown(before, after, "cay_sandbox_step_seconds_count", step="snapshot") == 2  # the fork's copy too
    assert grown(before, after, "cay_sandbox_step_seconds_count", step="fork") == 1


def test_each_state_of_the_table_has_its_count(cay):
    table = (REPOSITORY / "docs/architecture.md").read_text().split("<!-- table: life -->\n")[1].split("<!-- end -->")[0]
    states = {line.split("|")[1].strip() for line in table.splitlines()[2:]} - {"ended"}
    assert states > {"creating", "running", "paused", "kept"}
    samples, _ = read(cay)
    assert {dict(labels)["state"] for name, labels in samples if name == "cay_sandboxes"} == states


def test_creates_that_are_refused_are_counted(cay):
    before, _ = read(cay)
    assert cay.call("POST", "/v2/sandboxes", {"templateID": "no-such-template"}).status == 404
    after, _ = read(cay)
    assert grown(before, after, "cay_sandbox_creates_failed_total", error="not_found") == 1


@pytest.mark.parametrize("key, status", [("", 401), ("no-such-key", 401)])
def test_only_the_operator_reads_them(cay, key, status):
    assert cay.call("GET", "/metrics", key=key).status == status


def test_a_tenant_does_not(other_tenant):
    assert other_tenant.call("GET", "/metrics").status == 403


def test_the_dashboard_shows_what_there_is(cay):
    """Each name in packaging/grafana-dashboard.json is one that is answered, and each family is shown."""
    after, types = read(cay)
    board = json.loads((REPOSITORY / "packaging/grafana-dashboard.json").read_text())
    expressions = " ".join(target["expr"] for panel in board["panels"] for target in panel["targets"])
    used = set(re.findall(r"\bcay_\w+", expressions))
    assert used and used <= {name for name, _ in after}
    assert {name for name in types if name != "cay"} == {re.sub("_(total|bucket)$", "", name) for name in used}


def test_the_page_lists_each_family(cay):
    samples, types = read(cay)
    page = (REPOSITORY / "docs/metrics.md").read_text()
    said = int(re.search(r"\(about (\d+), and five for each", page).group(1))
    assert abs(said - sum("template" not in dict(labels) for _, labels in samples)) <= 10
    rows = [line for line in page.splitlines() if line.startswith("| `cay_")]
    assert {name for row in rows for name in re.findall(r"`(cay_\w+)`", row.split("|")[1])} == {"cay_info" if name == "cay" else name for name in types}
