"""The lists of docs/policy.md and docs/audit.md are the program's own: presets with their hosts, conditions of a rule, fields and
events of the audit log. A new entry of the program that a page lacks fails here."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"


def rows(page, heading):
    """First cell and the rest of each row of the first table after that heading."""
    text = (ROOT / "docs" / page).read_text().split(f"\n## {heading}\n")[1]
    table = re.search(r"^\|.*?\n\|-.*?\n((?:\|.*\n)+)", text, re.M).group(1)
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ", 1)) for line in table.splitlines()]


def names(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_presets():
    text = (SRC / "policy/preset.c").read_text()
    lists = {name: re.findall(r'HOST\("([^"]+)"\)', body)
             for name, body in re.findall(r"static union entry (\w+)\[\] = \{(.*?)\};", text, re.S)}
    there = {name: lists[hosts] for name, hosts in re.findall(r'PRESET\("([^"]+)", (\w+)\)', text)}
    assert "github.com" in there["github"] and len(there) >= 2
    assert {names(first)[0]: names(rest) for first, rest in rows("policy.md", "Presets")} == there


def test_conditions_of_a_rule():
    keys = re.findall(r"^ +X\([A-Z]+, (\w+),", (SRC / "policy/condition.h").read_text(), re.M)
    assert {"domains", "paths"} <= set(keys)
    page = (ROOT / "docs/policy.md").read_text().split("\n## Presets\n")[0]
    assert [key for key in keys if f'"{key}"' not in page] == []  # in the example


def test_a_secret_is_bound_by_options_to_all_that_a_binding_may_have():
    keys = re.findall(r"^ +X\([A-Z]+, (\w+), [A-Z]+, true\)", (SRC / "policy/condition.h").read_text(), re.M)
    options = dict(re.findall(r'add_list\(c, bind, "(\w+)", "(\w+)"\)', (SRC / "cli/cmd_secret.c").read_text()))
    assert "domains" in keys and set(keys) <= set(options.values())
    text = (SRC / "cli/commands_policy.c").read_text()
    assert [option for option in options if f'{{0, "{option}", ' not in text] == []


def test_fields_of_the_log():
    text = (SRC / "egress/flow/audit.c").read_text()
    fields = set(re.findall(r'put_(?:text|number|true)\(a, "(\w+)"', text))
    assert {"time", "prev", "warned", "port"} <= fields
    documented = [name for first, _ in rows("audit.md", "A record") for name in names(first)]
    assert len(documented) == len(set(documented)) and set(documented) == fields


def test_a_line_of_the_log_has_room_for_all_of_its_texts():
    text = (SRC / "egress/flow/audit.c").read_text()
    room = int(re.search(r"#define TEXTS_MAX +(\d+)", text).group(1))
    assert 10 < len(set(re.findall(r'put_text\(a, "(\w+)"', text))) <= room


def test_events_of_the_log():
    text = (SRC / "egress/flow/audit.c").read_text()
    events = re.findall(r'"(\w+)"', re.search(r"event_names\[\] = \{(.*?)\}", text, re.S).group(1))
    assert {"connection", "end"} <= set(events)
    told = dict(rows("audit.md", "A record"))["`event`"]
    assert [event for event in events if f"`{event}`" not in told] == []
