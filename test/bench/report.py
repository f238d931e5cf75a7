"""The rows of a bench: printed, as JSON (schema in docs/reports/benchmarks.md), as a table in Markdown, as a picture."""

import datetime
import json
import math
import os
import pathlib
import platform
import subprocess

import chart

SCHEMA = "cay-bench/1"
ROOT = pathlib.Path(__file__).resolve().parents[2]
MARKS = ("<!-- bench: begin -->", "<!-- bench: end -->")


def machine():
    model = ""
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo") as f:
        mib = int(f.readline().split()[1]) // 1024
    return {"kernel": platform.release(), "processor": model, "processors": os.cpu_count(), "memory_mib": mib}


def git(*args):
    done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def origin():
    """Where the figures come from: commit, whether sources differ from it, when, which machine, how many wanted
    its processors before the bench began, and with which priority it ran beside them."""
    return {"load": round(os.getloadavg()[0], 1), "nice": os.nice(0), "commit": git("rev-parse", "--short=12", "HEAD"), "changed": bool(git("status", "--porcelain", "src")),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "machine": machine()}


class Report:
    def __init__(self, settings):
        self.head = {"schema": SCHEMA, **origin(), "settings": settings}
        self.rows = []

    def row(self, name, what, unit, ours, against=None, other=None, most=None, least=None, most_value=None,
            least_value=None, below=None, note=None):
        """A single figure. most, least: goal as a ratio to the other; most_value, least_value, below: in its unit."""
        ratio = ours / other if other else None
        goals = [(most, ratio, "≤ {:g} ×", lambda a, b: a <= b), (least, ratio, "≥ {:g} ×", lambda a, b: a >= b),
                 (most_value, ours, "≤ {:g} " + unit, lambda a, b: a <= b),
                 (least_value, ours, "≥ {:g} " + unit, lambda a, b: a >= b),
                 (below, ours, "< {:g} " + unit, lambda a, b: a < b)]
        goal, reached = None, None
        for limit, value, text, test in goals:
            if limit is not None and value is not None:
                goal, reached = text.format(limit), bool(test(value, limit))
        self.add({"id": name, "what": what, "unit": unit, "ours": number(ours), "against": against,
                  "other": number(other), "ratio": number(ratio), "goal": goal, "reached": reached, "note": note})

    def absent(self, name, what, unit, why):
        self.add({"id": name, "what": what, "unit": unit, "ours": None, "against": None, "other": None,
                  "ratio": None, "goal": None, "reached": None, "note": why})

    def add(self, row):
        if not self.rows:
            print(f"{'':52}{'ours':>10} {'':12}{'other':>10} {'ratio':>8}  goal", flush=True)
        self.rows.append(row)
        print(plain(row), flush=True)

    def json(self):
        return {**self.head, "rows": self.rows}


def number(value):
    return None if value is None or math.isnan(value) else float(f"{value:.4g}")


def show(value):
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def answer(row):
    return {None: "", True: "yes", False: "no"}[row["reached"]]


def plain(row):
    text = f"{row['what'][:51]:52}{show(row['ours']):>10} {row['unit']:12}{show(row['other']):>10} " \
           f"{show(row['ratio']):>8}  {row['goal'] or '':14} {answer(row):4}"
    return text + (row["against"] or "") + (f" ({row['note']})" if row["note"] else "")


def headline(data):
    found = data["machine"]
    return (f"Commit `{data['commit']}`{' with changes' if data['changed'] else ''}, {data['date']}; Linux "
            f"{found['kernel']}, {found['processors']} × {found['processor'] or 'processor'}, "
            f"{found['memory_mib'] / 1024:.1f} GiB. Load average when it began: {data['load']:g}"
            + (" (the machine was busy with other work: look at the ratios)."
               if data["load"] > found["processors"] / 2 else ".")
            + (f" The bench ran at nice {data['nice']}." if data["nice"] else ""))


def markdown(data):
    found = [headline(data) + f" Medians of {data['settings']['count']} rounds.", "",
             "| what | ours | floor or peer | ratio | goal | reached |", "|---|---:|---:|---:|---|---|"]
    for row in data["rows"]:
        other = f"{show(row['other'])} {row['unit']} ({row['against']})" if row["other"] is not None else ""
        ours = f"{show(row['ours'])} {row['unit']}" if row["ours"] is not None else f"not measured: {row['note']}"
        ratio = f"{show(row['ratio'])} ×" if row["ratio"] is not None else ""
        found.append(f"| {row['what']} | {ours} | {other} | {ratio} | {row['goal'] or ''} | {answer(row)} |")
    notes = [f"- {row['what']}: {row['note']}" for row in data["rows"] if row["note"] and row["ours"] is not None]
    return "\n".join([*found, "", *notes])


def replace_between(path, marks, text):
    page = path.read_text()
    begin, end = page.index(marks[0]) + len(marks[0]), page.index(marks[1])
    path.write_text(page[:begin] + "\n" + text + "\n" + page[end:])


def finish(out, args):
    data = out.json()
    missed = [row["what"] for row in out.rows if row["reached"] is False]
    print(f"{sum(row['reached'] is True for row in out.rows)} goals reached, {len(missed)} missed" +
          "".join(f"\n  missed: {what}" for what in missed))
    as_json, as_svg = [args.json], [args.svg]
    if args.write:
        as_json.append(args.write / "bench.json")
        as_svg.append(args.write / "bench.svg")
        replace_between(args.write / "benchmarks.md", MARKS, markdown(data))
    for path in filter(None, as_json):
        path.write_text(json.dumps(data, indent=1) + "\n")
    for path in filter(None, as_svg):
        path.write_text(chart.draw(data))
