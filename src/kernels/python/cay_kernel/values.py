"""Values of Python as JSON has them."""

import json


def plain(value):
    """A value as JSON has it: numpy's scalars and arrays by their own methods, keys as text. TypeError: it has none."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else key_text(key): plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and value not in (float("inf"), float("-inf")) else None
    if type(value).__name__ in ("NaTType", "NAType"):  # pandas'
        return None
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return plain(value.tolist())
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(type(value).__name__)


def key_text(key):
    if key is None or isinstance(key, (bool, int, float)):
        return json.dumps(key)
    if hasattr(key, "isoformat"):
        return key.isoformat()
    raise TypeError(type(key).__name__)


def text(value):
    """The user's own classes may do anything here."""
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


def shown(value, above=()):
    """Like plain, and text where JSON has nothing: also for what is in itself, and 64 deep."""
    if isinstance(value, (dict, list, tuple)):
        if id(value) in above or len(above) == 64:
            return text(value)
        above += (id(value),)
        if isinstance(value, dict):
            return {shown_key(key): shown(v, above) for key, v in value.items()}
        return [shown(v, above) for v in value]
    try:
        return plain(value)
    except Exception:
        return text(value)


def shown_key(key):
    if isinstance(key, str):
        return key
    try:
        return key_text(key)
    except Exception:
        return text(key)
