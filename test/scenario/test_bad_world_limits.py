"""docs/limits.md against the code: every value in its tables is what the constant or the setting says."""

import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
UNITS = {"KiB": 1024, "MiB": 1 << 20, "ms": 1, "s": 1, "": 1}
ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<value>\d+) ?(?P<unit>[A-Za-z]*) \| `(?P<name>[^`]+)` ?(?P<file>\S*) \|", re.M)
TEXT, SCOPES = (REPOSITORY / "docs/limits.md").read_text().split("## Whose each limit is")
ROWS = [m.groupdict() for m in ROW.finditer(TEXT)]
EACH, POOLS = SCOPES.split("| of all |")
ONE_EACH = re.findall(r"^\| `([^`]+)` \| (call|sandbox|tenant) \|$", EACH, re.M)
GLOBAL = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", POOLS, re.M))


def constant(name, path):
    found = re.search(rf"^#define {name} +([^/\n]+)", (REPOSITORY / path).read_text(), re.M)
    assert found, f"{path} has no {name}"
    text = re.sub(r"(?<=\d)[uUlL]+|\((?:size_t|uint64_t)\)", "", found[1]).strip()
    assert re.fullmatch(r"[\d() *+-]+", text), text
    return eval(text)


def setting(name):
    section, key = re.fullmatch(r"\[(\w+)\] (\w+)", name).groups()
    found = re.search(rf'{{"{section}", "{key}",[^"]*"(\d+)([KMG]?)"', (REPOSITORY / "src/base/settings.c").read_text())
    assert found, f"no setting {name} with a number"
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


def test_every_row_is_read():
    tables = [line for line in TEXT.splitlines() if line.startswith("| ")]
    assert len(ROWS) == sum(not line.startswith("| what ") for line in tables)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_value(row):
    actual = constant(row["name"], row["file"]) if row["file"] else setting(row["name"])
    assert int(row["value"]) * UNITS[row["unit"]] == actual


def test_every_row_has_one_scope():
    """Of each call, sandbox or tenant, or of all; and none is there that is no row."""
    assert {scope for _, scope in ONE_EACH} == {"call", "sandbox", "tenant"} and GLOBAL
    assert len(ONE_EACH) == EACH.count("\n| `"), "a line of the first table has another form"
    assert ONE_EACH == sorted(ONE_EACH, key=lambda row: row[0].lower()), "the first table is not sorted"
    said = [name for name, _ in ONE_EACH] + list(GLOBAL)
    assert sorted(said) == sorted({*said}), "some limit has two scopes"
    assert {*said} == {row["name"] for row in ROWS}


def test_a_pool_of_all_has_shares():
    """Each limit for all says who gives way; where it is by shares, the code makes a pool of that size, or counts by its rule."""
    sources = "\n".join(path.read_text() for path in (REPOSITORY / "src").rglob("*.c"))
    pools = {*re.findall(r"share_(?:pool_new|leaves_space)\((?:eg->config\.)?(\w+)[,)]", sources)}
    shared = {name for name, gives_way in GLOBAL.items() if "base/share.h" in gives_way}
    assert all(len(gives_way) > 20 for gives_way in GLOBAL.values())
    counted = {"EGRESS_FLOWS_MAX": "flows_max", "PRIVSEP_FILTERS_SANDBOXES": "filter_shares",
               "RUNTIME_ARCHIVE_DEVICES_MAX": "devices_max",
               "[server] max_connections": "shares"}
    assert {counted.get(name, name) for name in shared} == pools


@pytest.mark.parametrize("each", sorted({name for text in GLOBAL.values() for name in re.findall("`([A-Z_]+)`", text)}))
def test_what_a_share_is_said_by_is_a_row(each):
    assert each in {row["name"] for row in ROWS}
