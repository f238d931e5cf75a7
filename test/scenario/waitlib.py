"""The one way to wait for what comes to pass by itself."""

import inspect
import time

NOT_YET = (OSError, ValueError, AssertionError)  # of something that is being started again


def until(true, seconds=30, what=None, patient=False, every=0.05):
    """What true() says, once it is true. After so many seconds it fails, and says what was waited for (a text, or
    what a function says then; else the source of true) and what was said last. patient: what fails on the way
    is not there yet."""
    end = time.monotonic() + seconds
    while True:
        try:
            if value := true():
                return value
        except NOT_YET as e:
            if not patient:
                raise
            value = e
        assert time.monotonic() < end, f"not within {seconds} s: {name_of(true, what)}; last: {value!r}"
        time.sleep(every)


def name_of(true, what):
    if callable(what):
        return what()
    try:
        return what or inspect.getsource(true).strip()
    except (OSError, TypeError):
        return repr(true)
