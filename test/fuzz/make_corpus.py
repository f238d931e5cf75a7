#!/usr/bin/env python3
"""Writes the seed corpora of the http targets: make_corpus.py [DIRECTORY]. What the fuzzer finds beside
them is added by hand, with a name that says what it was."""
import gzip
import pathlib
import struct
import sys

HEAD = b"Host: a.example:80\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

REQUESTS = {
    "get": b"GET /p%20a?q=1&r HTTP/1.1\r\n" + HEAD + b"Accept: */*\r\n\r\n",
    "pipelined": (b"GET /x HTTP/1.1\r\n" + HEAD + b"\r\n") * 3,
    "length": b"POST /echo HTTP/1.1\r\n" + HEAD + b"Content-Length: 5\r\n\r\nhello",
    "length_big": b"POST /echo HTTP/1.1\r\n" + HEAD + b"Content-Length: 60\r\n\r\n" + b"x" * 60,
    "chunked": b"POST /echo HTTP/1.1\r\n" + CHUNKED + b"5\r\nhello\r\n1;a=b\r\n!\r\n0\r\n\r\n",
    "trailers": b"POST /stream HTTP/1.1\r\n" + CHUNKED + b"a\r\n0123456789\r\n0\r\nA: b\r\nC: d\r\n\r\n",
    "stream": b"POST /stream HTTP/1.1\r\n" + HEAD + b"Content-Length: 200\r\n\r\n" + b"abc" * 67,
    "wait": b"GET /w HTTP/1.1\r\n" + HEAD + b"\r\nGET / HTTP/1.1\r\n" + HEAD + b"\r\n",
    "wait_body": b"POST /wb HTTP/1.1\r\n" + HEAD + b"Content-Length: 12\r\n\r\nhello world!",
    "abort": b"GET /a HTTP/1.1\r\n" + HEAD + b"\r\n",
    "http10": b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "close": b"HEAD / HTTP/1.1\r\n" + HEAD + b"Connection: close\r\n\r\n",
    "expect": b"POST /echo HTTP/1.1\r\n" + HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
    "upgrade": b"GET / HTTP/1.1\r\n" + HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nx",
    "options": b"OPTIONS * HTTP/1.1\r\n" + HEAD + b"\r\n",
    "two_lengths": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "both": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "lone_lf": b"GET / HTTP/1.1\n" + HEAD + b"\r\n",
    "lone_cr": b"GET / HTTP/1.1\r\n" + HEAD + b"X: a\rY: b\r\n\r\n",
    "folded": b"GET / HTTP/1.1\r\n" + HEAD + b"X: a\r\n b\r\n\r\n",
    "no_host": b"GET / HTTP/1.1\r\n\r\n",
    "ipv6": b"GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
    "rpc": b"POST /rpc HTTP/1.1\r\n" + HEAD + b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{\"a\":[1]}",
    "rpc_stream": b"POST /rpc HTTP/1.1\r\n" + HEAD + b"Content-Type: application/connect+json\r\n"
                  b"Content-Length: 12\r\n\r\n" + struct.pack(">BI", 0, 7) + b'{"a":1}',
    "rpc_compressed": b"POST /rpc HTTP/1.1\r\n" + HEAD + b"Content-Type: application/connect+json\r\n"
                      b"Content-Length: 7\r\n\r\n" + struct.pack(">BI", 1, 2) + b"{}",
}

OK = b"HTTP/1.1 200 OK\r\n"
RESPONSES = {
    "length": OK + b"Content-Length: 5\r\nServer: x\r\n\r\nhello",
    "chunked": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nT: u\r\n\r\n",
    "until_close": b"HTTP/1.0 200 OK\r\n\r\nhello",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n",
    "switch": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nbytes",
    "no_content": b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n",
    "not_modified": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
    "more": OK + b"Content-Length: 1\r\n\r\nab",
    "less": OK + b"Content-Length: 9\r\n\r\nab",
    "hop": OK + b"Connection: x-a, close\r\nX-A: 1\r\nKeep-Alive: 3\r\nContent-Length: 0\r\n\r\n",
    "both": OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "large": OK + b"Content-Length: 300\r\n\r\n" + b"x" * 300,
}

PART = b'--AaB\r\nContent-Disposition: form-data; name="file"; filename="/home/user/a b"\r\n' \
       b"Content-Type: text/plain\r\n\r\nhello\r\n"
TYPE = b"multipart/form-data; boundary=AaB\0"
MULTIPART = {
    "one": TYPE + PART + b"--AaB--\r\n",
    "two": TYPE + b"preamble\r\n" + PART + PART + b"--AaB--epilogue",
    "near": TYPE + b"--AaB\r\n\r\n\r\r\n-\r\n--Aa\r\n--AaC\r\n--AaB--",
    "quoted": b'multipart/form-data; boundary="A B"\0--A B\r\nContent-Disposition: form-data; '
              b'name="a\\"b"; filename*=UTF-8\'\'%C3%A9\r\n\r\n\r\n--A B--',
    "many": TYPE + PART * 6 + b"--AaB--",
    "empty": TYPE + b"--AaB--",
}

JSON = {
    "object": b'{"a":"text","b":[1,2.5,-3e2,true,false,null],"c":{"d":"\\u00e9\\n"}}',
    "map": b'{"a":{"k":"v","l":"w"}}',
    "deep": b"[" * 33 + b"]" * 33,
    "numbers": b'{"a":3.0,"b":9007199254740993}',
    "duplicate": b'{"a":1,"a":2}',
    "bad_utf8": b'"\xff\xc3"',
    "empty": b" ",
}

VALUES = {
    "query": b"path=%2Fhome%2Fuser&username=user&signature=v1_a%2Bb&x",
    "range": b"bytes=5-100",
    "range_end": b"bytes=-30",
    "date": b"Sun, 06 Nov 1994 08:49:37 GMT",
    "date_850": b"Sunday, 06-Nov-94 08:49:37 GMT",
    "date_c": b"Sun Nov  6 08:49:37 1994",
    "authority": b"49983-iabc.cay.localhost:3000",
    "authority6": b"[fe80::1]:80",
    "accept": b"gzip;q=0.5, identity;q=0, *;q=0",
    "accept_huge": b"gzip;q=42017300000000, *;q=1e99",  # was out of an int's range
    "date_negative": b"Sun, 06 Nov 1994 -1:-9:-7 GMT",  # was read as a time of the day before
    "base64": b"aGVsbG8gd29ybGQ=",
    "gzip": gzip.compress(b"hello " * 50, mtime=0),
    "bomb": gzip.compress(b"\0" * 300000, mtime=0),
    "members": gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0),
    "name": b"/a/b.tar.gz",
}


def write(folder, seeds, prefixes):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds.items():
        for prefix in prefixes:
            suffix = f"_{prefix[0]:02x}" if len(prefixes) > 1 else ""
            (folder / (name + suffix)).write_bytes(prefix + data)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "corpus")
    write(root / "http_request", REQUESTS, [b"\x01"])
    write(root / "http_server", REQUESTS, [b"\x03"])
    # The first byte picks one of six requests and whether the upstream ends.
    write(root / "http_response", RESPONSES, [bytes([i]) for i in range(1, 12, 2)])
    write(root / "multipart", MULTIPART, [b"\x05"])
    write(root / "json", JSON, [b""])
    write(root / "values", VALUES, [b""])


if __name__ == "__main__":
    main()
