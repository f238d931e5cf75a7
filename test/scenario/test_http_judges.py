"""The strict gate against another parser, h11: whatever cay accepts, h11 must read in the same way.

The other direction is not asked: cay refuses more on purpose. Skipped where h11 is not installed or the
judge was not built. The choices are seeded, so that a run can be repeated."""
import os
import pathlib
import random
import struct
import subprocess

import pytest

h11 = pytest.importorskip("h11")

BUILD = os.environ.get("CAY_BUILD", str(pathlib.Path(__file__).parents[2] / "build"))
JUDGE = pathlib.Path(BUILD) / "test" / "fuzz" / "http_judge"
CORPUS = pathlib.Path(BUILD) / "test" / "fuzz" / "inputs" / "http_request"
ROUNDS = int(os.environ.get("CAY_JUDGE_ROUNDS", "20000"))

PIECES = [b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b",", b";", b"\0", b"\x0b", b"\x7f", b"\x80", b"0", b"1",
          b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: x\r\n",
          b"Host: b\r\n", b"Connection: close\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n", b"chunked", b"HTTP/1.0",
          b"GET ", b"/", b"?", b"#", b"*", b"http://a/", b"_", b"\xc3\xa9", b"+", b"-", b"\"", b"x" * 40]


def mutate(rng, seeds):
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(4)
        if what == 0:
            data[at:at] = rng.choice(PIECES)
        elif what == 1:
            del data[at:at + rng.randint(1, 4)]
        elif what == 2 and at < len(data):
            data[at] = rng.randrange(256)
        else:
            data[at:at + 1] = rng.choice(PIECES)
    return bytes(data)


def read_by_h11(data):
    conn = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    conn.receive_data(data)
    request, body = None, b""
    while True:
        event = conn.next_event()
        if isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            rest = len(conn.trailing_data[0])
            return (f"{request.method.decode()} {request.target.decode()} headers={len(request.headers)} "
                    f"body={body.hex()} rest={rest}")
        else:
            return "more"


@pytest.mark.skipif(not JUDGE.exists(), reason="http_judge is not built")
def test_whatever_is_accepted_has_one_meaning():
    rng = random.Random(20)
    seeds = [path.read_bytes()[1:] for path in sorted(CORPUS.iterdir())]
    accepted = 0
    with subprocess.Popen([JUDGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as judge:
        for _ in range(ROUNDS):
            data = mutate(rng, seeds)
            judge.stdin.write(struct.pack("=I", len(data)) + data)
            judge.stdin.flush()
            ours = judge.stdout.readline().decode().rstrip("\n")
            if ours in ("refused", "more"):
                continue
            accepted += 1
            try:
                theirs = read_by_h11(data)
            except h11.RemoteProtocolError as error:
                theirs = f"refused: {error}"
            assert ours == theirs, data
        judge.stdin.close()
        assert judge.wait(10) == 0
    assert accepted > ROUNDS // 20
