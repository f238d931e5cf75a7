"""Runs in a sandbox: Git over HTTP for who knows the password, on two ports; says in the file `seen` what came."""

import base64
import http.server
import os
import pathlib
import subprocess
import threading

RIGHT = "Basic " + base64.b64encode(b"me:se cret\"'%").decode()
LOCK = threading.Lock()


def say(text):
    with LOCK, open("seen", "a") as f:
        f.write(text + "\n")


def look_at_command_lines():
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if b"se cret" in line:
            say("password seen")
        if line.startswith(b"git\0"):
            say("git seen")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        port, given = self.server.server_port, self.headers.get("Authorization")
        look_at_command_lines()
        path, _, query = self.path.partition("?")
        if port == 8200 and path.startswith("/away.git"):
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:8201{self.path}")
            self.end_headers()
            return
        say(f"{port} {'none' if not given else 'right' if given == RIGHT else 'wrong'}")
        if given != RIGHT:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.answer(path, query)

    do_POST = do_GET

    def answer(self, path, query):
        length = int(self.headers.get("Content-Length") or 0)
        env = {**os.environ, "GIT_PROJECT_ROOT": os.getcwd(), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
               "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_USER": "me",
               "CONTENT_LENGTH": str(length), "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
               "GIT_PROTOCOL": self.headers.get("Git-Protocol", "")}
        done = subprocess.run(["git", "http-backend"], input=self.rfile.read(length), env=env, capture_output=True)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


for number in (8200, 8201):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", number), Handler)
    threading.Thread(target=server.serve_forever).start()
    say("ready")
