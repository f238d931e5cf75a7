"""Every test that the table of ways past cay-egress names is there (test/escapes/egress.py)."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "escapes"))
import egress  # noqa: E402


def test_the_table_names_tests_that_are_there():
    assert len(egress.CASES) > 40 and {case.number for case in egress.CASES} == set(egress.TITLES)
    assert egress.missing() == []
