"""The JSON that the kernel sends: values that have no JSON become text, and output that is longer than cay-kernels takes in
one message is cut, which the output says."""

import json

from jupyter_client.jsonutil import json_default

from .values import shown

ROOM = 40 << 20  # bytes as JSON with escapes, as clients get it; cay-kernels takes 48 MiB in a message and in a line
SURE = ROOM // 6  # no character takes more than six times of its bytes


def pack(content):
    data = dumps(content)
    if len(data) > SURE and isinstance(content, dict) and size(content) > ROOM:
        data = dumps(shortened(content))
    return data


def dumps(content):
    try:
        return json.dumps(content, default=json_default, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogateescape")
    except (TypeError, ValueError, RecursionError):  # NaN, a key that is no text, half of a surrogate pair
        return json.dumps(shown(content)).encode()


def size(value):
    return len(json.dumps(shown(value)))


def shortened(content):
    """stream has text, display_data and execute_result have data, error has its texts."""
    short = dict(content)
    if isinstance(content.get("data"), dict):
        short["data"] = shortened_data(content["data"])
    for name in ("text", "evalue"):
        if isinstance(content.get(name), str):
            short[name] = cut(content[name], ROOM // 2)
    if isinstance(content.get("traceback"), list):
        short["traceback"] = [cut("".join(map(str, content["traceback"])), ROOM // 4)]
    return short


def shortened_data(data):
    """The forms of a result that fit beside its text, the smallest first."""
    room, kept, left = ROOM // 2, {}, []
    for kind, value in sorted(((k, v) for k, v in data.items() if k != "text/plain"), key=lambda item: size(item[1])):
        room -= size(value)
        if room > 0:
            kept[kind] = value
        else:
            left.append(f"[{kind} of {size(value) >> 20} MiB is not shown]")
    return {"text/plain": "\n".join([cut(str(data.get("text/plain", "")), ROOM // 2), *left]), **kept}


def cut(text, room):
    length = min(len(text), room)
    while size(text[:length]) > room:
        length = length // 2
    return text if length == len(text) else f"{text[:length]}\n[cut: {length} of {len(text)} characters are shown]\n"


def register(shell):
    """Of the kernel's one session, by which its output and its answers go."""
    kernel = getattr(shell, "kernel", None)
    if kernel is not None:
        kernel.session.pack = pack
