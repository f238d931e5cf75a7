"""A small S3 server of the tests' own on loopback, which checks no signature, and answers as badly as it is told: misbehave["GET"] is called
with the connection, the request and the object instead. An answer without an end ends with the client, or before long."""

import re
import socket
import struct
import threading
import time
from dataclasses import dataclass

BYTES_MAX = 64 << 20  # that it sends in one answer
SECONDS_MAX = 150


@dataclass
class Request:
    method: str
    path: str
    headers: dict
    body: bytes


class Stub:
    name = "cay-stub"

    def __init__(self):
        self.objects, self.misbehave, self.seen = {}, {}, []
        self.stopping = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    def options(self, credentials):
        return {"bucket": self.name, "bucket_endpoint": self.url, "bucket_region": "us-east-1", "bucket_credentials": credentials}

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self.serve, args=[connection], daemon=True)
            self.threads.append(thread)
            thread.start()

    def serve(self, connection):
        connection.settimeout(SECONDS_MAX)
        with connection:
            try:
                self.serve_one(connection)
            except (OSError, ValueError):
                pass  # the client has gone

    def serve_one(self, connection):
        head = b""
        while b"\r\n\r\n" not in head:
            more = connection.recv(65536)
            if not more:
                return
            head += more
        head, body = head.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        request = Request(method, path, headers, body)
        self.seen.append((method, path))
        early = self.misbehave.get(method + " early")  # before the body is read
        if early:
            early(connection, request, self.objects.get(path))
            return
        if headers.get("expect") == "100-continue":
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(request.body) < int(headers.get("content-length", 0)):
            more = connection.recv(1 << 20)
            if not more:
                return
            request.body += more
        (self.misbehave.get(method) or self.behave)(connection, request, self.objects.get(path))

    def behave(self, connection, request, stored):
        if request.method == "PUT":
            self.objects[request.path] = request.body
            answer(connection, "200 OK")
        elif request.method == "DELETE":
            self.objects.pop(request.path, None)
            answer(connection, "204 No Content")
        elif stored is None:
            answer(connection, "404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>")
        elif end := re.fullmatch("bytes=-([0-9]+)", request.headers.get("range", "")):
            answer(connection, "206 Partial Content", stored[-int(end[1]):])
        else:
            answer(connection, "200 OK", stored)

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()


def answer(connection, status, body=b"", *lines):
    connection.sendall("\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *lines, "", ""]).encode("latin-1") + body)


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def again_and_again(connection, part, pause=0):
    """Sends it until the client goes, within what is bearable."""
    end, left = time.monotonic() + SECONDS_MAX, BYTES_MAX
    while time.monotonic() < end and left > 0:
        connection.sendall(part)
        left -= len(part)
        time.sleep(pause)
