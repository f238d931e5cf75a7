"""Whom the servers of tests run as: users that are there. `cay` and `cay-egress` come with the first `make up`; a machine on which it
never ran has those that every Debian brings, and nothing runs as."""

import pwd


def first_there(*names):
    """The first of the names that this machine has a user of."""
    known = {user.pw_name for user in pwd.getpwall()}
    for name in names:
        if name in known:
            return name
    raise SystemExit(f"none of the users {', '.join(names)} is there (make one: useradd --system --no-create-home {names[0]})")
