#!/usr/bin/env python3
"""Writes the seed corpora of the http targets: make_corpus.py [DIRECTORY]. Inputs that the fuzzer finds beside them
are added by hand, with a name that says what it was."""
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

PASSWD = (b"root:x:0:0:root:/root:/bin/bash\n# no user\n+nis\nuser:x:1000:1000:,,,:/home/user:/bin/sh\n"
          b"odd:x:4294967295:1::/:\nbare:x:7:7:::\n")
GROUP = b"root:x:0:\nsudo:x:27:user,other\nuser:x:1000:\nbad:x:-1:user\nmore:x:28:user"
AGENT_VALUES = {
    "user": b"\0user\0" + PASSWD + b"\0" + GROUP,
    "user_bare": b"\0bare\0" + PASSWD + b"\0" + GROUP,
    "user_none": b"\0nobody\0" + PASSWD + b"\0",
    "user_groups": b"\0u\0u:x:1:1::/:/\0" + b"".join(b"g%d:x:%d:u\n" % (i, i) for i in range(70)),
    "path": b"\1/a//b/../c/./d/\0/home/user\0/work",
    "path_relative": b"\1a/../../b\0/home/user\0",
    "path_home": b"\1~/x\0/home/user\0/work",
    "path_other": b"\1~root/x\0/home/user\0",
    "path_default": b"\1\0/home/user\0/work/../x",
    "path_long": b"\1/" + b"a/" * 2100 + b"\0/home\0",
    "meta": b"\2X-Metadata-Key\0value\0x-metadata-KEY\0other\0X-Metadata-b\0c\0Host\0a",
    "meta_bad": b"\2X-Metadata-\xc3\xa9\0v",
    "meta_long": b"\2X-Metadata-" + b"k" * 247 + b"\0v",
    "meta_big": b"\2X-Metadata-k\0" + b"v" * 4100,
    "name": b"\3a \"b\\c\x01\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
    "name_bad": b"\3\xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80a\xe2\x82",
}

LOGS = {
    "lines": b'{"logs":[{"seq":7,"atMs":1790000000000,"level":"info","message":"m","fields":'
             b'{"event_type":"process_start","pid":"12"}},{"atMs":5,"level":"no","message":""}]}',
    "wrong": b'{"logs":[{"atMs":-1,"message":"m"},{"atMs":"1","message":"m"},7,{"atMs":1,"message":2},'
             b'{"atMs":9223372036854775807,"message":"m","fields":{"a":1}}]}',
    "none": b'{"logs":{}}',
    "many": b'{"logs":[' + b",".join([b'{"atMs":1,"message":"m"}'] * 1100) + b"]}",
    "no_json": b"<html>",
}


def post(path, body, kind=b"application/json", more=b""):
    return (b"POST " + path + b" HTTP/1.1\r\nHost: a\r\nContent-Type: " + kind + b"\r\nContent-Length: "
            + str(len(body)).encode() + b"\r\n" + more + b"\r\n" + body)


def get(path, more=b""):
    return b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n" + more + b"\r\n"


def fs(method, body):
    return post(b"/filesystem.Filesystem/" + method, body)


RAW = b"application/octet-stream"
GZIP = b"Content-Encoding: gzip\r\n"
FORM = b"multipart/form-data; boundary=AaB"
AGENT_FILES = {
    "upload": post(b"/files?path=new&username=user", b"hello", RAW, b"X-Metadata-Key: v\r\n") + get(b"/files?path=new"),
    "upload_gzip": post(b"/files?path=/tmp/x/y", gzip.compress(b"abc" * 99, mtime=0), RAW, GZIP) + fs(b"Stat", b'{"path":"/tmp/x/y"}'),
    "upload_form": post(b"/files?username=root", b'--AaB\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
                        b'hello\r\n--AaB\r\nContent-Disposition: form-data; name="file"; filename="d/g"\r\n\r\n\r\n--AaB--\r\n', FORM),
    "upload_bad": post(b"/files?path=d", b"x", RAW) + post(b"/files", b"x", b"text/plain") + post(b"/files?path=fifo", b"x", RAW),
    "download": get(b"/files?path=a", b"Range: bytes=2-5\r\n") + get(b"/files?path=a", b"Accept-Encoding: gzip\r\n")
                + get(b"/files?path=gone") + get(b"/files?path=loop") + get(b"/files?path=d&username=nobody"),
    "conditional": get(b"/files?path=a", b"If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\nRange: bytes=-3\r\n")
                   + get(b"/files?path=a", b"If-Range: Sun, 06 Nov 1994 08:49:37 GMT\r\nRange: bytes=0-1,3-4\r\n"),
    "compose": post(b"/files/compose", b'{"source_paths":["a","d/e/f","a"],"destination":"all","username":"user"}'),
    "list": fs(b"ListDir", b'{"path":"~","depth":3}') + fs(b"ListDir", b'{"path":"a"}') + fs(b"ListDir", b"{}"),
    "make": fs(b"MakeDir", b'{"path":"x/y/z"}') + fs(b"MakeDir", b'{"path":"d"}') + fs(b"MakeDir", b'{"path":"a/b"}'),
    "move": fs(b"Move", b'{"source":"a","destination":"d/b"}') + fs(b"Move", b'{"source":"d","destination":"d/e/d"}'),
    "remove": fs(b"Remove", b'{"path":"d"}') + fs(b"Remove", b'{"path":"/"}') + fs(b"Remove", b'{"path":"none"}'),
    "watch": fs(b"CreateWatcher", b'{"path":"d","recursive":true}') + fs(b"MakeDir", b'{"path":"d/n"}')
             + fs(b"GetWatcherEvents", b'{"watcherId":"w"}') + fs(b"RemoveWatcher", b'{"watcherId":"w"}'),
    "watch_stream": post(b"/filesystem.Filesystem/WatchDir", struct.pack(">BI", 0, 13) + b'{"path":"d"} ',
                         b"application/connect+json"),
    "init": post(b"/init", b'{"envVars":{"A":"b"},"defaultUser":"root","defaultWorkdir":"/tmp","timestamp":'
                 b'"2025-01-01T00:00:00Z","limits":{"memoryBytes":1,"cpuMilli":5}}') + get(b"/envs") + get(b"/health"),
    "logs": get(b"/cay/logs?after=1") + get(b"/none") + b"PUT /files HTTP/1.1\r\nHost: a\r\n\r\n",
    "basic": post(b"/filesystem.Filesystem/Stat", b'{"path":"~/a"}', b"application/json", b"Authorization: Basic cm9vdDo=\r\n"),
}


def envelope(text, flags=0):
    return struct.pack(">BI", flags, len(text)) + text


def call(method, body):
    return post(b"/process.Process/" + method, body)


def start(body, more=b""):
    return post(b"/process.Process/Start", envelope(body), b"application/connect+json", more)


def stream(*events):
    return post(b"/process.Process/StreamInput", b"".join(map(envelope, events)), b"application/connect+json")


SHELL = b'{"process":{"cmd":"/bin/sh","args":["-c","x"],"envs":{"A":"b"},"cwd":"/tmp"},"tag":"t"}'
TTY = b'{"process":{"cmd":"sh"},"pty":{"size":{"cols":80,"rows":24}},"tag":"t"}'
CHUNKED_START = (b"POST /process.Process/Start HTTP/1.1\r\nHost: a\r\nContent-Type: application/connect+json\r\n"
                 b"Transfer-Encoding: chunked\r\n\r\n")
BY_TAG = b'"process":{"tag":"t"}'
AGENT_PROCESS = {
    "start": start(SHELL),
    "start_user": start(SHELL, b"Authorization: Basic cm9vdDo=\r\nConnect-Timeout-Ms: 5\r\n"),
    "start_terminal": start(TTY),
    "start_no_stdin": start(b'{"process":{"cmd":"a"},"stdin":false}'),
    "start_bad": call(b"Start", SHELL) + start(b'{"process":{"cmd":""}}') + start(b'{"process":{"cmd":"a","args":[1]}}')
                 + start(b'{"process":{"cmd":"a","envs":{"=":"b"}}}') + start(b'{"process":{"cmd":"a","cwd":"~x"}}'),
    "select": call(b"CloseStdin", b'{"process":{"pid":100}}') + call(b"CloseStdin", b'{"process":{"pid":1,"tag":"t"}}')
              + call(b"SendSignal", b'{"process":{"pid":100},"signal":"SIGNAL_SIGKILL"}') + call(b"List", b"{}"),
    "signal": call(b"SendSignal", b"{" + BY_TAG + b',"signal":15}') + call(b"SendSignal", b"{" + BY_TAG + b',"signal":"SIGNAL_SIGTERM"}'),
    "update": call(b"Update", b"{" + BY_TAG + b',"pty":{"size":{"cols":1,"rows":65535}}}'),
    "input": call(b"SendInput", b"{" + BY_TAG + b',"input":{"stdin":"aGVsbG8="}}') + call(b"SendInput", b"{" + BY_TAG + b',"input":{"pty":"="}}'),
    "stream": stream(b'{"start":{' + BY_TAG + b"}}", b'{"data":{"input":{"stdin":"aGk="}}}', b'{"keepalive":{}}'),
    "connect": post(b"/process.Process/Connect", envelope(b"{" + BY_TAG + b"}"), b"application/connect+json"),
    "init": post(b"/init", b'{"envVars":{"PATH":"a::/b"},"defaultUser":"root","defaultWorkdir":"/"}') + start(b'{"process":{"cmd":"c"}}'),
}
# A stream keeps its connection, so the calls for its process come over another one: agent_driver.h.
NEXT = b"\xff|\xff"
for name, rest in list(AGENT_PROCESS.items()):
    AGENT_PROCESS["beside_" + name] = start(TTY if name in ("update", "start_terminal") else SHELL) + NEXT + rest

START = envelope(b'{"event":{"start":{"pid":12}}}')
SESSION = {
    "whole": START + envelope(b'{"event":{"data":{"stdout":"aGVsbG8K"}}}')
             + envelope(b'{"event":{"data":{"stderr":"eA==","pty":"eQ=="}}}') + envelope(b'{"event":{"keepalive":{}}}')
             + envelope(b'{"event":{"end":{"exited":true,"status":"exit status 0"}}}') + envelope(b"{}", 2),
    "status": START + envelope(b'{"event":{"end":{"exitCode":7,"exited":true,"status":"exit status 7"}}}'),
    "killed": START + envelope(b'{"event":{"end":{"exitCode":-1,"status":"signal: killed"}}}'),
    "signal": START + envelope(b'{"event":{"end":{"exitCode":-1,"status":"signal 34"}}}'),
    "refused": envelope(b'{"error":{"code":"invalid_argument","message":"cwd \'/a\' does not exist"}}', 2),
    "deadline": START + envelope(b'{"error":{"code":"deadline_exceeded","message":"m"}}', 2),
    "bad_base64": START + envelope(b'{"event":{"data":{"stdout":"a"}}}'),
    "bad_json": envelope(b"{"),
    "too_long": struct.pack(">BI", 0, 0x7fffffff) + b"{}",
    "error_text": b'{"code":400,"message":"m","hint":"h"}',
    "error_text_empty": b'{"code":400,"message":""}',  # was an error without a text
}
EVENTS_HEAD = b'HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n'


def event_line(event, more, sandbox=b"i1", slot=4, gen=2):
    return b'{"event":"%s","sandbox":"%s","tenant":"other","slot":%d,"gen":%d,%s}\n' % (event, sandbox, slot, gen, more)


NEWS = {
    "denial": EVENTS_HEAD + event_line(b"denial", b'"id":7,"type":"egress","domain":"a.example","path":"/","reason":"no rule"'),
    "dropped": event_line(b"dropped", b'"count":3') + event_line(b"dropped", b'"count":-1') + event_line(b"dropped", b'"count":"3"'),
    "unknown": event_line(b"denial", b'"a":1', sandbox=b"i2") + event_line(b"denial", b'"a":1', slot=5)
               + event_line(b"denial", b'"a":1', gen=1) + event_line(b"other", b'"a":1') + b'{"event":7}\n{}\n[]\n\n{\n',
    "long": event_line(b"denial", b'"a":"' + b"x" * 8000 + b'"') + event_line(b"denial", b'"a":"' + b"x" * 9000 + b'"')
            + event_line(b"dropped", b'"count":1'),
    "deep": event_line(b"denial", b'"a":' + b"[" * 3000 + b"]" * 3000),
    "open": event_line(b"denial", b'"a":1')[:-1],
}


def dns_question(name, kind, extra=b"", count=1):
    labels = b"".join(bytes([len(p)]) + p for p in name.split(b".") if p)
    return struct.pack(">HHHHHH", 7, 0x0100, count, 0, 0, 1 if extra else 0) + labels + b"\0" + struct.pack(">HH", kind, 1) + extra


EDNS = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0)
DNS = {
    "a": dns_question(b"web.example.com", 1),
    "aaaa_edns": dns_question(b"WEB.example.com", 28, EDNS),
    "https": dns_question(b"web.example.com", 65),
    "ptr4": dns_question(b"16.0.18.198.in-addr.arpa", 12),
    "ptr6": dns_question(b".".join([b"0"] * 32) + b".ip6.arpa", 12),
    "any": dns_question(b"a.b", 255),
    "localhost": dns_question(b"localhost", 1),
    "root": dns_question(b"", 2),
    "two": dns_question(b"a", 1, count=2) + b"\1b\0\0\1\0\1",
    "long": dns_question(b".".join([b"x" * 63] * 3) + b"." + b"y" * 61, 1),
    "loop": b"\0\7\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1",
    "answer": b"\0\7\x81\x80" + dns_question(b"a.b", 1)[4:],
    "update": b"\0\7\x28\0" + dns_question(b"a.b", 6)[4:],
    "escape": dns_question(b"a\\000.b c", 1),
}
FIRST = {
    "get": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "get_absolute": b"GET http://a.example:80/x HTTP/1.0\n",
    "connect": b"CONNECT a.example:443 HTTP/1.1\r\n\r\n",
    "h2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "redis": b"GET key\r\n",
    "ssh": b"SSH-2.0-x\r\n",
    "tls": b"\x16\3\1\2\0\1",
    "socks_greeting": b"\5\2\0\2",
    "socks_v4": b"\5\1\0\1\x5d\xb8\xd8\x22\1\xbb",
    "socks_v6": b"\5\1\0\4" + bytes(15) + b"\1\0\x50",
    "socks_name": b"\5\1\0\3\x0fweb.example.com\1\xbb",
    "socks_digits": b"\5\1\0\3\x09127.0.0.1\0\x50",
    "socks_bind": b"\5\2\0\1\0\0\0\0\0\1",
    "authority": b"a.example:443",
    "authority6": b"[2001:db8::1]:443",
    "authority_user": b"u@a.example:443",
}


SECRET = b"Zq9-top-secret"
ANSWERS = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\nX: " + SECRET + b"\r\n\r\n...." + SECRET + b"..",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nZq9-t\r\n9;x=" + SECRET + b"\r\nop-secret\r\n"
               b"0\r\nTrailer: " + SECRET + b"\r\n\r\n",
    "until_close": b"HTTP/1.0 200 OK\r\n\r\nZq9-" + SECRET + SECRET + b" Zq9-top",
    "tunnel": b"HTTP/1.1 101 x\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + SECRET + b"..Z..Zq9-",
    "interim": b"HTTP/1.1 103 x\r\nX: " + SECRET + b"\r\n\r\nHTTP/1.1 204 x\r\nX: " + SECRET + b"\r\n\r\n",
    "gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nxxxxxxxxx",
    "two": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
}
TO = b" HTTP/1.1\r\nHost: a.example\r\n"
INJECTS = {
    "get": b"GET /v1/x?key=own&a=b" + TO + b"Authorization: own\r\nX-Key: own\r\n\r\n",
    "places": b"GET /v1/cay-secret:here?x=${e2b.secrets.here}" + TO + b"A: Bearer cay-secret:here, b\r\n\r\n",
    "basic": b"GET /v1" + TO + b"Authorization: Basic bWU6Y2F5LXNlY3JldDpoZXJl\r\n\r\n",
    "json": b"POST /v1/a" + TO + b"Content-Type: application/json\r\nContent-Length: 27\r\n\r\n{\"k\": \"cay-secret:here\"}   ",
    "form": b"POST /v1" + TO + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 17\r\n\r\nk=cay-secret:here",
    "text": b"PUT /v1" + TO + b"Content-Type: text/plain\r\nContent-Length: 30\r\n\r\n${e2b.secrets.here}cay-secret:b",
    "chunked": b"POST /v1" + TO + b"Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "path": b"GET /v2/%2e%2e/v1" + TO + b"\r\n",
    "aws": b"PUT /v1/b%20c?z=1&a=%2F" + TO + b"Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/eu-west-1/s3/aws4_request,"
           b" SignedHeaders=host, Signature=0\r\nx-amz-date: 20260101T000000Z\r\nx-amz-meta-a:  b  c\r\nContent-Length: 3\r\n\r\nabc",
    "aws_chunks": b"PUT /v1" + TO + b"Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/r/s3/aws4_request,\r\n"
                  b"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\nContent-Length: 0\r\n\r\n",
    "websocket": b"GET /v1" + TO + b"Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Extensions: x\r\n\r\n",
}


def client_hello(name, alpn=()):
    import ssl
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if not name:
        context.check_hostname = False
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def write_hellos(folder):
    """Real ones, with other randomness each time: those that are there stay."""
    if folder.exists():
        return
    one = client_hello("web.example.com", ("h2", "http/1.1"))
    write(folder, {"named": one, "nameless": client_hello(None), "cut": one[:80],
                   "two_records": one[:3] + struct.pack(">H", 60) + one[5:65] + one[:3]
                   + struct.pack(">H", len(one) - 65) + one[65:],
                   "nul_name": one.replace(b"web.example", b"web\0example"), "alert": b"\x15\3\3\0\2\2\x31"}, [b""])


POLICY_WHOLE = b"""{"default": "deny", "presets": ["package-registries", "github"], "rules": [
{"name": "no admin", "action": "deny", "domains": ["api.example.com"], "paths": ["/v1/admin*", "/v*/x"]},
{"name": "models", "action": "allow", "domains": ["api.example.com", "*.example.org"], "ports": [443, "8000-8100"]},
{"action": "allow", "addresses": ["203.0.113.0/24", "2001:db8::/32", "10.1.2.3"]},
{"action": "allow", "domains": ["git.example.net"], "methods": ["GET", "HEAD"]}],
"inject": [{"credential": "KEY", "domains": ["api.example.com"], "methods": ["POST"], "paths": ["/v1*"]}],
"limits": {"connections": 64, "connections_per_second": 20, "requests_per_second": 50, "bytes": 1073741824}}"""
POLICY_RANGE = b"""{"rules": [{"action": "deny", "addresses": ["10.0.0.0/8"]}, {"action": "allow", "domains": ["*.a.example"]},
{"action": "deny", "methods": ["DELETE"]}, {"action": "allow"}], "default": "public"}"""
POLICIES = {
    "whole": b"api.example.com\n203.0.113.7\nPOST\n/v1/models\n" + POLICY_WHOLE,
    "admin": b"api.example.com\n203.0.113.7\nGET\n/v1/%61dmin\n" + POLICY_WHOLE,
    "address": b"\n2001:db8::5\nGET\n/\n" + POLICY_WHOLE,
    "registry": b"pypi.org\n151.101.0.223\nGET\n/simple/\n" + POLICY_WHOLE,
    "range": b"b.a.example\n10.1.1.1\nDELETE\n/x//y\n" + POLICY_RANGE,
    "never": b"B.A.example.\n::ffff:169.254.169.254\nGET\n/latest\n" + POLICY_RANGE,
    "nat64": b"x.example\n64:ff9b::a9fe:a9fe\nGET\n/\n" + b'{"default": "allow"}',
    "empty": b"x.example\n192.0.2.1\nGET\n/\n{}",
    "bad": b'x.example\n192.0.2.1\nGET\n/\n{"rules": [{"action": "allow", "ports": [70000]}]}',
}


# Scripts for fuzz_egress_h2.c: what its steps read, in that order. Stream ids are 2n + 1.
GET, POST, CONNECT, HEAD = range(4)
V1, DENY, OTHER, AWS = range(4)
HTTP2_END, FIELD_TYPE, FIELD_TRAILER_KEY = 4, (5, 3), (0, 6)  # a field: name's number, value's number


def h2_request(stream, method=GET, path=V1, *fields, end=True, host=0, flags=0):
    return bytes([flags, host | HTTP2_END * end, method | path << 3 | len(fields) << 6, stream]) + bytes(sum(fields, ()))


def h2_response(stream, status=0, *fields, end=False, no_status=False):
    return bytes([2, status | 8 * end | len(fields) << 4 | 0x80 * no_status, stream]) + bytes(sum(fields, ()))


def h2_data(side, stream, text, end=False):
    return bytes([4 if side else 3, end, stream, len(text)]) + text


def h2_expand(side, stream, again):
    """A head that means a field of 4,000 bytes so often."""
    return bytes([13 | 0x80 * side, stream, again])


def h2_secret(stream, part=None, end=False):
    """All of the secret from the server, its first 13 bytes, or the others."""
    return bytes([4, {None: 2, 0: 2 | 4, 1: 2 | 13 << 4}[part] | end, stream])


def h2_control(side, what, stream, body=b""):
    return bytes([7 if side else 6, what, stream, len(body)]) + body


H2_RECHECK, H2_HANG_UP_CLIENT, H2_HANG_UP_SERVER = b"\x0a\1", b"\x0b\0", b"\x8b\0"
H2_GRPC = (5, 200, 16) + tuple(b"application/grpc")
H2_SCRIPTS = {
    "echo": h2_request(0) + h2_response(0) + h2_secret(0, end=True),
    "pieces": h2_request(0) + h2_response(0) + h2_secret(0, 0) + h2_secret(0, 1, end=True),
    "grpc": h2_request(0, POST, V1, end=False) + h2_response(0, 0, H2_GRPC) + h2_data(0, 0, b"x" * 9)
            + h2_secret(0, 0) + h2_secret(0, 1) + h2_response(0, 0, FIELD_TRAILER_KEY, end=True, no_status=True)
            + h2_data(0, 0, b"", end=True),
    "header": h2_request(0) + h2_response(0, 0, FIELD_TRAILER_KEY, end=True),
    "interim": h2_request(0, POST, V1, (6, 5), end=False) + h2_response(0, 1) + h2_response(0, 2)
               + h2_data(0, 0, b"hello", end=True) + h2_response(0, 3, end=True),
    "denied": h2_request(0, GET, DENY) + h2_request(1) + h2_request(2, POST, DENY, end=False) + h2_data(0, 2, b"abc")
              + h2_response(1, end=True) + h2_data(0, 2, b"", end=True),
    "collected": h2_request(0, POST, OTHER, (2, 200, 2) + tuple(b"25"), FIELD_TYPE, end=False)
                 + h2_data(0, 0, b'{"k":"cay-secret:here  "}', end=True) + h2_response(0) + h2_secret(0, end=True),
    "signed": h2_request(0, POST, AWS, (2, 1), end=False) + h2_data(0, 0, b"hello", end=True) + h2_response(0, end=True),
    "expect": h2_request(0, POST, AWS, (2, 1), (6, 5), end=False) + h2_data(0, 0, b"hello", end=True),
    "coded": h2_request(0) + h2_response(0, 0, (8, 7)) + h2_data(1, 0, b"zipped", end=True),
    "trailers": h2_request(0, POST, V1, end=False) + h2_data(0, 0, b"x")
                + bytes([12, 0x80 | 8 | 1 << 4, 0, 4, 0]) + h2_response(0, end=True),
    "connect": h2_request(0, CONNECT) + h2_request(1, HEAD) + h2_response(1, end=True) + h2_request(2, GET, V1, host=2),
    "resets": h2_request(0) + h2_control(0, 0, 0) + h2_request(1) + h2_control(1, 0, 1, b"\0\0\0\7") + h2_request(2)
              + h2_response(2) + h2_control(1, 0, 2),
    "early": h2_request(0, POST, V1, end=False) + h2_response(0, 5, end=True) + h2_control(1, 0, 0) + h2_data(0, 0, b"x"),
    "windows": h2_control(0, 3, 0, b"\0\4\0\0\0\1") + h2_request(0) + h2_response(0) + h2_secret(0, end=True)
               + h2_control(0, 9, 0, b"\0\0\0\x20") + h2_control(0, 1, 0, b"\0\1\0\0"),
    "floods": h2_request(0) + h2_control(0, 0x82, 0) * 20 + h2_control(1, 0x83, 0) * 20,
    "expanding": b"".join(h2_expand(0, n, 5) + h2_expand(1, n, 5) for n in range(20)) + h2_expand(0, 20, 255)
                 + h2_request(21) + h2_expand(1, 21, 255) + h2_request(22) + h2_response(22, end=True),
    "continued": bytes([8, 14]) + b"\0\0\5\1\0\0\0\0\1\0\1a\1b" + h2_control(0, 0x86, 0, b"\0\1a\1b"),
    "going_away": h2_request(0) + h2_control(1, 5, 0, b"\0\0\0\1\0\0\0\0") + h2_request(1)
                  + h2_response(0, end=True) + h2_request(2),
    "client_goes": h2_request(0) + h2_control(0, 5, 0) + h2_response(0) + h2_data(1, 0, b"x", end=True),
    "other_rules": h2_request(0) + h2_request(1) + h2_response(1) + H2_RECHECK + h2_response(0) + h2_data(1, 1, b"x"),
    "server_lost": h2_request(0) + h2_request(1) + h2_response(1) + h2_data(1, 1, b"x") + H2_HANG_UP_SERVER
                   + h2_request(2),
    "client_lost": h2_request(0, POST, V1, end=False) + h2_response(0) + h2_data(1, 0, b"x") + H2_HANG_UP_CLIENT,
    "many": b"".join(h2_request(n, flags=0x10) for n in range(30)) + b"".join(
        h2_response(n) + h2_secret(n, end=True) for n in range(30)),
}


def write(folder, seeds, prefixes):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds.items():
        for prefix in prefixes:
            suffix = f"_{prefix[0]:02x}" if len(prefixes) > 1 else ""
            (folder / (name + suffix)).write_bytes(prefix + data)


# Answers of a token server: RFC 6749 sections 5.1 and 5.2, and what some servers make of them.
RENEWALS = {
    "good": b'{"access_token":"2YotnFZFEjr1zCsicMWpAA","token_type":"Bearer","expires_in":3600,"refresh_token":"tGzv3JOkF0XG5Qx2TlKWIA"}',
    "alone": b'{"access_token":"2YotnFZFEjr1zCsicMWpAA==","token_type":"bearer"}',
    "text": b'{"access_token":"2YotnFZFEjr1zCsicMWpAA","token_type":"BEARER","expires_in":"120","refresh_token":null}',
    "far": b'{"access_token":"2YotnFZFEjr1zCsicMWpAA","token_type":"Bearer","expires_in":1e300}',
    "past": b'{"access_token":"2YotnFZFEjr1zCsicMWpAA","token_type":"Bearer","expires_in":-1e300}',
    "form": b'{"access_token":"2YotnFZFEjr1zCsicMWpAA","token_type":"Bearer","refresh_token":"a&b=c d%20\\\"<>#+/"}',
    "header": b'{"access_token":"2YotnFZFEjr1zCs\\r\\nX-More: 1","token_type":"Bearer"}',
    "nul": b'{"access_token":"2YotnFZFEjr1zCs\\u0000pAA","token_type":"Bearer","refresh_token":"tGzv3JOk\\u0000XG5Q"}',
    "mac": b'{"access_token":"2YotnFZFEjr1zCsicMWpAA","token_type":"mac"}',
    "error": b'{"error":"invalid_grant","error_description":"tGzv3JOkF0XG5Qx2TlKWIA has expired"}',
    "other_error": b'{"error":"tGzv3JOkF0XG5Qx2TlKWIA"}',
    "list": b'[{"access_token":"2YotnFZFEjr1zCsicMWpAA","token_type":"Bearer"}]',
    "html": b"<html><body>Bad gateway</body></html>",
    "empty": b"",
}


# The output of git and the kernel; the first byte picks the reader.
TOOLBOX = {
    "status": b"\0# branch.head a/b\0# branch.upstream o/b\0# branch.ab +2 -13\0"
              b"1 .M N... 100644 100644 100644 aa bb f g\0002 R. N... 1 2 3 aa bb R100 new\0old\0"
              b"u UU N... 1 2 3 4 a b c both\0? untracked\0",
    "detached": b"\0# branch.head (detached)\0",
    "branches": b"\1main\nmain\nother\n",
    "history": b"\2ab\0A\0a@b\x002026-01-02T03:04:05Z\0one\n\ntwo\n\0cd\0B\0",
    "ports": b"\3  sl  local\n   0: 0100007F:1F90 00000000:0000 0A 0\n   1: 0000:0BB8 00:0000 01 0\n",
    "refusal": b"\4fatal: Authentication failed for 'x'\n",
}


def write_toolbox(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in TOOLBOX.items():
        (folder / name).write_bytes(data)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "corpus")
    write(root / "http_request", REQUESTS, [b"\x01"])
    write(root / "http_server", REQUESTS, [b"\x03"])
    # The first byte picks one of six requests and whether the upstream ends.
    write(root / "http_response", RESPONSES, [bytes([i]) for i in range(1, 12, 2)])
    write(root / "multipart", MULTIPART, [b"\x05"])
    write(root / "json", JSON, [b""])
    write(root / "values", VALUES, [b""])
    write(root / "agent_values", AGENT_VALUES, [b""])
    write(root / "agent_files", AGENT_FILES, [b"\3"])
    write(root / "agent_process", AGENT_PROCESS, [b"\2"])
    write(root / "agent_logs", LOGS, [b""])
    write(root / "egress_answer", ANSWERS, [bytes([i]) for i in range(3)])
    write(root / "egress_inject", INJECTS, [bytes([i, 0x5a + i]) for i in (0, 1, 4, 5, 6, 0x43, 0x81)])
    write(root / "egress_dns", DNS, [b""])
    write(root / "egress_first", FIRST, [b""])
    write(root / "egress_h2", H2_SCRIPTS, [b"\x07"])
    write_hellos(root / "egress_hello")
    write(root / "policy", POLICIES, [b""])
    write(root / "cli_session", SESSION, [b"\x07"])
    write(root / "exec_stream", SESSION, [b"\x07"])
    write(root / "egress_event_reader", NEWS, [b"\x07"])
    write_toolbox(root / "toolbox")
    write(root / "egress_renewal", RENEWALS, [bytes([i]) for i in (0, 4, 7)])


if __name__ == "__main__":
    main()
