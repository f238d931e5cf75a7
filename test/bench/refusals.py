#!/usr/bin/env python3
"""How long a refusal takes: of each route that names something by an id, the 404 for an id of another tenant's beside the
404 for one that never was. `make bench-refusals`, as root. With a server of its own.

Both are asked in turns, over one kept connection, with ids of one length. A ratio that stays away from 1 tells tenants
which ids are there: the lookup looks at whose it is too late (docs/extending.md: by tenant and id). Prints the ratios of the
medians, those that are farthest from 1 first, beside the ratio of one half of the same answers to the other half,
which is the noise of that route. --json writes them. Nothing is asserted.

REFUSALS_COUNT (200): how often each is asked."""

import argparse
import http.client
import json
import os
import pathlib
import re
import statistics
import time

import server
import routelib  # noqa: I001: server says where it is

COUNT = int(os.environ.get("REFUSALS_COUNT", "200"))
SHOWN = 15


class Tenant:
    def __init__(self, own, key):
        self.key = key
        self.connection = http.client.HTTPConnection("127.0.0.1", own.port, timeout=60)

    def call(self, method, path, body=None):
        """Status, JSON, milliseconds."""
        data = None if method in ("GET", "DELETE") else json.dumps(body if body is not None else {}).encode()
        begun = time.perf_counter()
        self.connection.request(method, path, data, {"X-API-Key": self.key, "Authorization": f"Bearer {self.key}",
                                                     **({"Content-Type": "application/json"} if data else {})})
        reply = self.connection.getresponse()
        text = reply.read()
        ms = 1000 * (time.perf_counter() - begun)
        return reply.status, text, ms

    def made(self, method, path, body, field):
        """Things that are made for the other to ask for; None where this server cannot make it, and then why."""
        status, text, _ = self.call(method, path, body)
        if status >= 300:
            print(f"absent: {method} {path}: {status} {text[:120].decode(errors='replace')}")
            return None
        return json.loads(text)[field] if field else body["name"]


def things(owner):
    """By kind: what the owner has."""
    box = owner.made("POST", "/v2/sandboxes", {"templateID": "host", "timeout": 3600}, "sandboxID")
    status, text, _ = owner.call("POST", "/v3/templates", {"name": "refusals"})
    build = json.loads(text) if status < 300 else {}
    return {
        "box": box,
        "volume": owner.made("POST", "/volumes", {"name": "refusals-volume"}, "volumeID"),
        "snapshot": owner.made("POST", f"/sandboxes/{box}/snapshots", {}, "snapshotID"),
        "template": build.get("templateID"), "build": build.get("buildID"),
        "key": owner.made("POST", "/cay/v1/keys", {"label": "refusals"}, "id"),
        "secret": owner.made("POST", "/cay/v1/secrets", {"name": "refusals-secret", "value": "a" * 16, "bind": {"kind": "bearer", "domains": ["a.example"]}}, None),
        "webhook": owner.made("POST", "/cay/v1/webhooks", {"url": "https://hooks.example/"}, "id"),
        "tenant": "owner",
    }


KINDS = ((r"/builds/\{build\}|/tags$", "template"), (r"sandbox", "box"), (r"volumes", "volume"), (r"snapshots|templates", "snapshot"),
         (r"secrets", "secret"), (r"keys|access-tokens", "key"), (r"webhooks", "webhook"), (r"tenants", "tenant"))
FILLED = {"{interval}": "5", "{port}": "80", "{hash}": "0" * 64, "{ask}": "nothing"}


def never(text):
    """An id of the same length and alphabet that is not there."""
    return text[:-4] + ("0000" if text[-4:] != "0000" else "1111")


def path_of(pattern, name, build):
    path = pattern.replace("{build}", build or "nothing").replace("*", "nothing")
    for part, value in FILLED.items():
        path = path.replace(part, value)
    return re.sub(r"\{\w+\}", name, path)


def routes(have):
    """Method, pattern, path of the foreign, path of none, body."""
    for method, pattern, _, owns, _ in routelib.ROUTES:
        kind = next((kind for what, kind in KINDS if re.search(what, pattern)), None)
        if owns != "yes" or "{" not in pattern or not kind or not have[kind]:
            continue
        paths = (path_of(pattern, have[kind], have["build"]),
                 path_of(pattern, never(have[kind]), have["build"] and never(have["build"])))
        yield "POST" if method == "*" else method, pattern, *paths, routelib.BODIES.get(pattern, {})
    for method, pattern, _ in routelib.TOOLBOX:
        inside = pattern.replace("{}", "nothing").replace("*", "nothing")
        paths = (f"/api/toolbox/{name}{inside}" for name in (have["box"], never(have["box"])))
        yield "POST" if method == "*" else method, f"/api/toolbox/{{id}}{pattern}", *paths, {}


def measure(asker, row):
    method, pattern, foreign, none, body = row
    times, statuses = {foreign: [], none: []}, {foreign: set(), none: set()}
    for i in range(COUNT):
        for path in (foreign, none) if i % 2 else (none, foreign):
            status, _, ms = asker.call(method, path, body)
            times[path].append(ms)
            statuses[path].add(status)
    mine, base = (statistics.median(times[path]) for path in (foreign, none))
    noise = statistics.median(times[none][::2]) / statistics.median(times[none][1::2])
    return {"method": method, "route": pattern, "foreign_ms": mine, "none_ms": base, "ratio": mine / base, "noise": noise,
            "statuses": [sorted(statuses[path]) for path in (foreign, none)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    with server.Server(64) as own:
        operator = Tenant(own, own.key)
        owner, asker = (Tenant(own, operator.made("POST", "/cay/v1/keys", {"tenant": t, "label": t}, "key")) for t in ("owner", "asker"))
        have = things(owner)
        for _ in range(200):
            asker.call("GET", f"/sandboxes/{never(have['box'])}")  # all is warm afterwards
        rows = [measure(asker, row) for row in routes(have)]
    rows.sort(key=lambda row: abs(row["ratio"] - 1), reverse=True)
    print(f"{'ratio':>6} {'noise':>6} {'ms':>7}  route")
    for row in rows[:SHOWN]:
        print(f"{row['ratio']:6.3f} {row['noise']:6.3f} {row['none_ms']:7.3f}  {row['method']} {row['route']}")
    print(f"{len(rows)} routes, each {COUNT} times: ratio {min(r['ratio'] for r in rows):.3f} to {max(r['ratio'] for r in rows):.3f}, "
          f"median {statistics.median(r['ratio'] for r in rows):.3f}; noise {min(r['noise'] for r in rows):.3f} to {max(r['noise'] for r in rows):.3f}")
    for row in rows:
        if row["statuses"][0] != row["statuses"][1] or len(row["statuses"][0]) != 1:
            print(f"answered differently: {row['method']} {row['route']}: {row['statuses']}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
