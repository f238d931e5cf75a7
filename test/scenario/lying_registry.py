"""A registry that answers what a file says, read anew for each request: {PATH: [STATUS, {HEADER: VALUE}, BODY]}, BODY in latin-1;
null: no answer comes, ever. `lying_registry.py ADDRESS PORT CERT KEY ANSWERS LOG`; each path that is asked for is a line of LOG."""

import http.server
import json
import pathlib
import ssl
import sys
import threading

ADDRESS, PORT, CERT, KEY, ANSWERS, LOG = sys.argv[1:]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with open(LOG, "a", encoding="latin-1") as f:
            f.write(f"{self.headers.get('Host')} {self.path}\n")
        answers = json.loads(pathlib.Path(ANSWERS).read_text(encoding="utf-8"))
        found = answers.get(self.path, [404, {}, "{}"])
        if found is None:
            threading.Event().wait(120)
            self.close_connection = True
            return
        status, headers, body = found
        body = body.encode("latin-1")
        self.send_response(status)
        for one in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(*one)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Clients that go away are meant."""


server = Server((ADDRESS, int(PORT)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERT, KEY)
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
