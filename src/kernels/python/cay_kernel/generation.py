"""A kernel in the memory of a template goes on in each sandbox of it (docs/generation.md): before the first execution there its
generators of random numbers are seeded anew, and the identity in its environment is that sandbox's."""

import os
import sys

GENERATION = "/run/sandbox/generation"
IDENTITY = "/run/e2b"  # files .NAME with the value of the variable NAME
NAMES = ("E2B_SANDBOX_ID", "E2B_TEMPLATE_ID")
now = None


def read(path):
    try:
        with open(path) as file:
            return file.read(200).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def seed():
    for module, function in (("random", "seed"), ("numpy.random", "seed"), ("torch", "seed")):
        try:
            if module in sys.modules:
                getattr(sys.modules[module], function)()
        except Exception:  # it is the user's module by now
            continue


def renew(*_):
    global now

    found = read(GENERATION)
    if found == now:
        return
    now = found
    seed()
    for name in NAMES:
        value = read(f"{IDENTITY}/.{name}")
        if value and name in os.environ:
            os.environ[name] = value


def register(shell):
    global now

    now = read(GENERATION)
    shell.events.register("pre_run_cell", renew)
