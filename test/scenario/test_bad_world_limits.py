"""docs/limits.md against the code: every value in its tables is what the constant or the setting says."""

import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
UNITS = {"KiB": 1024, "MiB": 1 << 20, "ms": 1, "s": 1, "": 1}
ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<value>\d+) ?(?P<unit>[A-Za-z]*) \| `(?P<name>[^`]+)` ?(?P<file>\S*) \|", re.M)
ROWS = [m.groupdict() for m in ROW.finditer((REPOSITORY / "docs/limits.md").read_text())]


def constant(name, path):
    found = re.search(rf"^#define {name} +([^/\n]+)", (REPOSITORY / path).read_text(), re.M)
    assert found, f"{path} has no {name}"
    text = re.sub(r"(?<=\d)[uUlL]+", "", found[1]).strip()
    assert re.fullmatch(r"[\d() *+-]+", text), text
    return eval(text)


def setting(name):
    section, key = re.fullmatch(r"\[(\w+)\] (\w+)", name).groups()
    found = re.search(rf'{{"{section}", "{key}",[^"]*"(\d+)"', (REPOSITORY / "src/base/settings.c").read_text())
    assert found, f"no setting {name} with a number"
    return int(found[1])


def test_every_row_is_read():
    tables = [line for line in (REPOSITORY / "docs/limits.md").read_text().splitlines() if line.startswith("| ")]
    assert len(ROWS) == sum(not line.startswith("| what ") for line in tables)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_value(row):
    actual = constant(row["name"], row["file"]) if row["file"] else setting(row["name"])
    assert int(row["value"]) * UNITS[row["unit"]] == actual
