"""A server that webhooks are sent to, in the stand-in internet.

    python3 hooks.py CERT KEY DIRECTORY    says `ready`

It speaks TLS on all addresses, on PORT. DIRECTORY/state.json says how it answers: {"mode": "good" | "500" | "redirect" |
"hold"}; DIRECTORY/log.jsonl has a line for each request: path, headers, body."""

import http.server
import json
import pathlib
import ssl
import sys
import time

PORT = 9445


class Hooks(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    directory = None

    def mode(self):
        return json.loads((self.directory / "state.json").read_text())["mode"]

    def reply(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        line = {"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}, "body": body}
        with open(self.directory / "log.jsonl", "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")
        if self.mode() == "hold":  # until the test says go on
            while self.mode() == "hold":
                time.sleep(0.02)
        elif self.mode() == "redirect":
            return self.reply(307, Location=f"https://{self.headers['Host']}/elsewhere")
        elif self.mode() == "500":
            return self.reply(500)
        return self.reply(204)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[1], sys.argv[2])
    Hooks.directory = pathlib.Path(sys.argv[3])
    server = http.server.ThreadingHTTPServer(("0.0.0.0", PORT), Hooks)
    server.daemon_threads = True
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print("ready", flush=True)
    server.serve_forever()
