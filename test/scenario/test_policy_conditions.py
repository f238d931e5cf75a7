"""The table of a rule's conditions (src/policy/condition.h) is whole or does not compile: a condition that was added without
one of its functions would be forgotten by a reader, and so allow what it should not. Every function is left out in turn; the
control is the same condition with all of them. The reading of each condition by each reader is test_policy_conditions.c's."""

import json
import os
import pathlib
import re
import shlex
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CAY_BUILD", ROOT / "build"))

PARTS = {
    "allowed": '#define condition_extra_allowed "anything"',
    "read": "static int condition_extra_read(const json_t *json, union entry *out) { return 0; }",
    "matches": "static bool condition_extra_matches(const union entry *e, const struct subject *s, bool denies)"
               " { return true; }",
    "overlaps": "static bool condition_extra_overlaps(const union entry *a, const union entry *b) { return true; }",
    "describe": "static void condition_extra_describe(const struct subject *s, char *out, size_t size) { out[0] = 0; }",
    "print": "static void condition_extra_print(const union entry *e, char *out, size_t size) { out[0] = 0; }",
    "clear": "static void condition_extra_clear(union entry *e) { }",
}


def compile_with(tmp_path, parts):
    """Checks condition.c with one condition more, which has these of its functions."""
    command = next(c for c in json.loads((BUILD / "compile_commands.json").read_text())
                   if c["file"].endswith("src/policy/condition.c"))
    head = tmp_path / "extra.h"
    head.write_text("#define CONDITIONS_MORE(X) X(EXTRA, extra, REQUEST, true)\n"
                    '#include "policy/internal.h"\n' + "\n".join(PARTS[p] for p in parts) + "\n")
    words = shlex.split(command["command"])
    out = words.index("-o")
    words = [w for w in words[:out] + words[out + 2:] if w != "ccache"]
    return subprocess.run(words + ["-fsyntax-only", "-include", str(head)], cwd=command["directory"],
                          capture_output=True, text=True)


def test_a_whole_condition_compiles(tmp_path):
    done = compile_with(tmp_path, PARTS)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("missing", PARTS)
def test_a_condition_without_one_of_its_functions_does_not(tmp_path, missing):
    done = compile_with(tmp_path, [p for p in PARTS if p != missing])
    assert done.returncode != 0
    assert re.search(rf"condition_extra_{missing}\b.*undeclared", done.stderr), done.stderr
