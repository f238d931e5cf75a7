"""Traces by the whole server: what a collector gets of creates, pauses, resumes, snapshots and forks, and that one which
stalls, refuses, breaks off or answers without end holds up nothing. The collector stands in the host's network, where
cay-egress is."""

import http.server
import json
import os
import threading
import time

import pytest
from client import Sandbox
from egresslib import Stack, internet
from test_openmetrics import read
from waitlib import until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=geheim-state"}
ALL_DROPPED = ("queue_full", "refused", "not_sent", "memory")


class Collector:
    """An OTLP/HTTP receiver, good or not by its mode. Made in the thread whose network it is in."""

    def __init__(self):
        self.requests, self.mode, self.asked = [], "good", 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                outer.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, h):
        body = h.rfile.read(int(h.headers["Content-Length"]))
        mode = self.mode
        self.asked += 1
        if mode == "close":
            h.close_connection = True
            return
        if mode == "stall":
            while self.mode == "stall":
                time.sleep(0.02)
            h.close_connection = True
            return
        if mode in ("good", "huge"):
            self.requests.append((h.path, {k.lower(): v for k, v in h.headers.items()}, body))
        status = {"500": 500, "503": 503, "redirect": 307}.get(mode, 200)
        h.send_response(status)
        if status == 307:
            h.send_header("Location", f"http://127.0.0.1:{self.port}/elsewhere")
        if mode == "huge":
            return self.flood(h)
        h.send_header("Content-Length", "2")
        h.end_headers()
        h.wfile.write(b"{}")
        return None

    @staticmethod
    def flood(h):
        h.send_header("Transfer-Encoding", "chunked")
        h.end_headers()
        try:
            for _ in range(4096):  # 256 MiB: far more than cay-egress keeps
                h.wfile.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        except OSError:
            pass
        h.close_connection = True

    def spans(self):
        return [span for _, _, body in list(self.requests) for resource in json.loads(body)["resourceSpans"]
                for scope in resource["scopeSpans"] for span in scope["spans"]]

    def named(self, name, **attributes):
        return [s for s in self.spans() if s["name"] == name and attributes.items() <= attributes_of(s).items()]

    def close(self):
        self.mode = "good"
        self.server.shutdown()
        self.server.server_close()


def attributes_of(span):
    return {a["key"]: a["value"]["stringValue"] for a in span["attributes"]}


def start(url=None):
    """A stack with a collector at url, or one of its own on its loopback."""
    made = {}

    class Args(tuple):
        """Options that are known once the stack has entered its network."""

        def __iter__(self):
            if "collector" not in made:
                made["collector"] = None if url else Collector()
            to = url or f"http://localhost:{made['collector'].port}"
            return iter((f"--traces-otlp-url={to}",))

    s = Stack(egress_args=Args(), cayd_args=Args())
    s.collector = made["collector"]
    return s


@pytest.fixture(scope="module")
def stack():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    s = start()
    try:
        yield s
    finally:
        s.close()
        s.collector.close()


@pytest.fixture
def collector(stack):
    c = stack.collector
    until(lambda: waiting(stack) == 0, 90)
    c.requests.clear()
    yield c
    c.mode = "good"


def counts(stack):
    found, _ = read(stack.cay)
    return ({name: found[(f"cay_trace_spans_{name}{'' if name == 'waiting' else '_total'}", ())] for name in ("waiting", "sent")}
            | {why: found[("cay_trace_spans_dropped_total", (("reason", why),))] for why in ALL_DROPPED})


def waiting(stack):
    return counts(stack)["waiting"]


def create(stack, headers=None, **body):
    reply = stack.cay.call("POST", "/v2/sandboxes", {"templateID": "host", "timeout": 300, **body}, headers=headers)
    assert reply.status == 201, reply.body
    return Sandbox(stack.cay, reply.json)


def call(stack, path, body, status, headers):
    reply = stack.cay.call("POST", path, body, headers=headers)
    assert reply.status == status, reply.body
    return reply


def check_child(child, parent):
    assert (child["traceId"], child["parentSpanId"]) == (parent["traceId"], parent["spanId"])
    assert int(parent["startTimeUnixNano"]) <= int(child["startTimeUnixNano"])
    assert int(child["endTimeUnixNano"]) <= int(parent["endTimeUnixNano"])


def test_all_that_a_caller_does_is_in_its_trace(stack, collector):
    before = counts(stack)
    with create(stack, CALLER) as box:
        call(stack, f"/sandboxes/{box.id}/pause", {}, 204, CALLER)
        call(stack, f"/sandboxes/{box.id}/connect", {"timeout": 300}, 201, CALLER)
        call(stack, f"/sandboxes/{box.id}/pause", {"memory": False}, 204, CALLER)
        call(stack, f"/sandboxes/{box.id}/connect", {"timeout": 300}, 201, CALLER)
        snapshot = call(stack, f"/sandboxes/{box.id}/snapshots", {}, 201, CALLER).json["snapshotID"]
        forks = call(stack, f"/sandboxes/{box.id}/fork", {"count": 2}, 201, CALLER).json
        until(lambda: len(collector.named("sandbox.fork")) == 1 and waiting(stack) == 0)
        spans = collector.spans()
        for one in forks:
            stack.cay.call("DELETE", f"/sandboxes/{one['sandbox']['sandboxID']}")
        stack.cay.call("DELETE", f"/templates/{snapshot}")
    assert {s["traceId"] for s in spans} == {TRACE}
    roots = [s for s in spans if s["parentSpanId"] == PARENT]
    assert sorted(s["name"] for s in roots) == sorted([
        "sandbox.create", "sandbox.pause", "sandbox.pause", "sandbox.resume", "sandbox.resume", "snapshot.create", "sandbox.fork"])
    assert all(s["kind"] == 2 and s["status"] == {"code": 1} for s in roots)
    for s in spans:
        if s["parentSpanId"] != PARENT:
            check_child(s, next(parent for parent in spans if parent["spanId"] == s["parentSpanId"]))
    assert [s["name"] for s in spans].count("sandbox.create") == 3  # one of its own, two of the fork
    tiers = sorted((s["name"], attributes_of(s)["cay.pause.tier"]) for s in roots if "cay.pause.tier" in attributes_of(s))
    assert tiers == [("sandbox.pause", "files"), ("sandbox.pause", "frozen"), ("sandbox.resume", "files"), ("sandbox.resume", "frozen")]
    path, headers, body = collector.requests[0]
    assert path == "/v1/traces" and headers["content-type"] == "application/json"
    resource = json.loads(body)["resourceSpans"][0]["resource"]
    assert attributes_of(resource)["service.name"] == "cay"
    assert counts(stack)["sent"] - before["sent"] == len(spans)


def test_nothing_that_a_tenant_wrote_is_in_them(stack, collector):
    words = {"metadata": {"geheim-key": "geheim-value"}, "envVars": {"GEHEIM_NAME": "geheim-env"}}
    with create(stack, CALLER, **words) as box:
        box.run("echo geheim-argument > /home/user/geheim-path")
        snapshot = call(stack, f"/sandboxes/{box.id}/snapshots", {"name": "geheim-snapshot"}, 201, CALLER).json["snapshotID"]
        refused = stack.cay.call("POST", "/v2/sandboxes", {"templateID": "geheim-template"}, headers=CALLER)
        assert refused.status == 404 and b"geheim-template" in refused.body  # the control: all that could be told
        until(lambda: collector.named("snapshot.create"))
        (made,) = collector.named("snapshot.create")
        stack.cay.call("DELETE", f"/templates/{snapshot}")
    assert attributes_of(made) == {"cay.tenant": "default", "cay.sandbox.id": box.id, "cay.snapshot.id": attributes_of(made)["cay.snapshot.id"]}
    for _, headers, body in collector.requests:
        assert b"geheim" not in body.lower() and "geheim" not in json.dumps(headers).lower()
        assert stack.cay.key.encode() not in body


@pytest.mark.parametrize("headers", [{}, {"traceparent": f"00-{TRACE.upper()}-{PARENT}-01"}, {"traceparent": f"ff-{TRACE}-{PARENT}-01"},
                                     {"traceparent": "00-" + "0" * 32 + f"-{PARENT}-01"}, {"traceparent": "x" * 4000}])
def test_without_a_parent_that_is_well_formed_there_is_a_trace_of_its_own(stack, collector, headers):
    with create(stack, headers) as box:
        until(lambda: collector.named("sandbox.create", **{"cay.sandbox.id": box.id}))
    (root,) = collector.named("sandbox.create")
    assert "parentSpanId" not in root and root["traceId"] not in (TRACE, "0" * 32) and len(root["traceId"]) == 32


def test_what_the_caller_does_not_sample_is_not_told(stack, collector):
    with create(stack, {"traceparent": f"00-{TRACE}-{PARENT}-00"}), create(stack) as control:
        until(lambda: collector.named("sandbox.create", **{"cay.sandbox.id": control.id}))
    assert len(collector.named("sandbox.create")) == 1


def test_who_has_no_key_has_no_trace(stack, collector):
    reply = stack.cay.call("POST", "/v2/sandboxes", {"templateID": "host"}, headers=CALLER, key="e2b_" + "0" * 40)
    assert reply.status == 401
    with create(stack) as control:
        until(lambda: collector.named("sandbox.create", **{"cay.sandbox.id": control.id}))
    assert {s["traceId"] for s in collector.spans()}.isdisjoint({TRACE})


@pytest.mark.parametrize("mode", ["500", "redirect"])
def test_what_is_refused_is_dropped_and_counted(stack, collector, mode):
    before = counts(stack)
    collector.mode = mode
    with create(stack):
        until(lambda: counts(stack)["refused"] > before["refused"])
    assert counts(stack)["refused"] - before["refused"] == 3 and waiting(stack) == 0
    assert collector.requests == []  # a redirect is not followed
    collector.mode = "good"
    with create(stack) as box:
        until(lambda: collector.named("sandbox.create", **{"cay.sandbox.id": box.id}))


@pytest.mark.parametrize("mode", ["503", "close", "stall"])
def test_what_is_not_taken_is_sent_again(stack, collector, mode):
    before, asked = counts(stack), collector.asked
    collector.mode = mode
    with create(stack, CALLER) as box:
        until(lambda: collector.asked > asked)
        with create(stack):  # nothing waits for the collector
            assert box.run("echo still here").out == "still here\n"
        assert waiting(stack) >= 3
        collector.mode = "good"
        until(lambda: counts(stack)["sent"] - before["sent"] == 6, 90)
    assert len(collector.named("sandbox.create", **{"cay.sandbox.id": box.id})) == 1
    assert {why: counts(stack)[why] - before[why] for why in ALL_DROPPED} == dict.fromkeys(ALL_DROPPED, 0)


def test_an_answer_without_end_is_not_read(stack, collector):
    before = counts(stack)
    collector.mode = "huge"
    with create(stack) as box:
        until(lambda: counts(stack)["sent"] - before["sent"] == 3)
        assert box.run("echo still here").out == "still here\n"
    (pid,) = stack.pids("cay-egress")
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        (line,) = [line for line in f if line.startswith("VmRSS")]
    assert int(line.split()[1]) < 128 * 1024  # of the 256 MiB that it was sent


def test_spans_outlive_an_end_of_cay_egress(stack, collector):
    before = counts(stack)
    collector.mode = "503"
    with create(stack) as box:
        until(lambda: waiting(stack) >= 3)
        stack.wait_replaced("cay-egress", stack.kill("cay-egress"))
        collector.mode = "good"
        until(lambda: counts(stack)["sent"] - before["sent"] >= 3, 90)
    assert len(collector.named("sandbox.create", **{"cay.sandbox.id": box.id})) == 1


def test_no_sandbox_reaches_the_collectors_address(stack):
    """A collector with a public address, which a policy that lets all out would reach: as another stack's sandbox does."""
    ask = f"curl -s --max-time 20 -o /dev/null -w '%{{http_code}}' http://{internet.OTHER}/; curl -s --max-time 20 -o /dev/null -w ' %{{http_code}}' http://{internet.WEB}/"
    with create(stack) as control:
        assert control.run(ask).out == "200 200"
    other = start(f"http://{internet.OTHER}:4318")
    try:
        with Sandbox(other.cay, other.cay.call("POST", "/v2/sandboxes", {"templateID": "host"}).json) as box:
            said = box.run(ask).out
    finally:
        other.close()
    assert said.split()[1] == "200" and said.split()[0] != "200"
