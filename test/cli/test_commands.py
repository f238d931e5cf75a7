"""The other commands, what they print, and how they refuse."""

import configparser
import datetime
import http.server
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest

from conftest import CAY

TRUST = {"NODE_EXTRA_CA_CERTS", "DENO_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"}
COMMANDS = ["up", "down", "status", "env", "debug", "create", "exec", "run", "cp", "ls", "kill", "logs", "top",
            "policy show", "policy set", "policy explain", "policy check", "policy learned", "denials", "secret set", "secret ls", "secret rm", "audit",
            "audit verify", "events", "resize", "webhook create", "webhook ls", "webhook deliveries", "webhook ping", "webhook retry", "webhook rm", "mcp", "template build", "template export", "template import", "template limits", "template ls", "template publish", "template push", "template rm", "key create", "key ls", "key revoke", "doctor", "completion"]


def test_up_again_says_that_it_runs_and_does_nothing(cay):
    first, again = cay("up"), cay("up")
    assert first.returncode == again.returncode == 0
    assert re.fullmatch(r"cay is running at https?://\S+ \(pid \d+\)\n", again.stdout) and first.stdout == again.stdout


def test_status(cay):
    assert "ready" in cay("status").stdout
    status = json.loads(cay("status", "--json").stdout)
    assert status["ready"] is True and status["version"]


def test_a_group_says_what_it_goes_on_with(cay):
    alone, wrong, unknown = cay("template"), cay("template", "make", "base"), cay("templates")
    assert [done.returncode for done in (alone, wrong, unknown)] == [2, 2, 2]
    assert '"template" goes on with one of build, export, import, ls, limits, publish, push, rm' in alone.stderr.replace("\n", " ")
    assert '"template make" is no command' in wrong.stderr and "build" in wrong.stderr
    assert 'unknown command "templates"' in unknown.stderr
    helped = cay("template", "--help")
    assert helped.returncode == 0 and helped.stdout == cay("help", "template").stdout and "cay template rm" in helped.stdout
    assert helped.stdout.count("With every command:") == 1 and helped.stdout.count("--api-key=KEY") == 1


def test_events_say_what_is_kept(cay):
    box = cay("create", "host", "--ttl=1m", "-q").stdout.strip()
    if cay("pause", "--files", box).returncode != 0:
        pytest.skip("a state disk of btrfs is needed to keep files")
    assert cay("resume", box).returncode == 0 and cay("pause", box).returncode == 0
    lines = cay("events", f"--sandbox={box}").stdout.splitlines()
    told = [line.split(" ", 2)[2] for line in lines]
    assert {line.split()[1] for line in lines} == {box}  # all of the id, as one that has ended is found by nothing less
    assert told == ["sandbox.created host", "sandbox.paused api, files", "sandbox.resumed", "sandbox.paused api"]
    assert cay("kill", "-q", box).returncode == 0


def test_what_is_made_of_a_snapshot_is_shown_so(cay, box):
    made = cay("snapshot", "create", box)
    if "btrfs" in made.stderr:
        pytest.skip("a state disk of btrfs is needed for snapshots")
    snapshot = made.stdout.strip()
    assert snapshot in cay("snapshot", "ls", "-q").stdout.split() and snapshot in cay("snapshot", "ls").stdout
    assert snapshot in (s["snapshotID"] for s in json.loads(cay("snapshot", "ls", "--json").stdout))
    done = cay("create", snapshot)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert f"snapshot {snapshot}" in next(line for line in cay("ls").stdout.splitlines() if line.startswith(done.stdout.strip()))
    assert cay("kill", done.stdout.strip()).returncode == 0 and cay("snapshot", "rm", snapshot).returncode == 0


def test_resize(cay, box):
    done = cay("resize", "--memory=200M", "--cpu=0.5", box)
    assert done.returncode == 0 and re.match(r"memory 200\S* MiB, processors 0.5, disk ", done.stdout), (done.stdout, done.stderr)
    shown = json.loads(cay("resize", "--cpu=0.25", "--json", box).stdout)
    assert (shown["memoryBytes"], shown["cpuMilli"]) == (200 << 20, 250)
    more = cay("resize", "--memory=10T", box)
    assert more.returncode == 1 and "at most" in more.stderr
    more = cay("resize", "--memory=1000T", box)
    assert more.returncode == 1 and "32 MiB to 16 TiB" in more.stderr
    for wrong in ([], ["--cpu=much"], ["--cpu=0"], ["--cpu=0.1234"], ["--cpu=-1"], ["--memory=little"], ["--disk=0"]):
        assert cay("resize", *wrong, box).returncode == 2, wrong
    assert cay("resize", "--cpu=1", "i0nothere").returncode == 1
    assert "--memory=SIZE" in cay("help", "resize").stdout


def test_env_is_for_eval(cay):
    shown = json.loads(cay("env", "--json").stdout)
    script = subprocess.run(["sh", "-c", f'eval "$({CAY} env)"; printf "%s %s" "$E2B_API_KEY" "$E2B_DOMAIN"'],
                            capture_output=True, text=True, check=True)
    assert script.stdout == f'{shown["E2B_API_KEY"]} {shown["E2B_DOMAIN"]}'
    assert cay("env", "--shell=fish").stdout.startswith("set -gx E2B_")
    assert cay("env", "--shell=tcl").returncode == 2
    assert set(shown) == {"E2B_DOMAIN", "E2B_API_KEY", "DAYTONA_API_URL", "DAYTONA_API_KEY", *TRUST}
    assert shown["DAYTONA_API_URL"] == f'https://{shown["E2B_DOMAIN"]}/api' and shown["DAYTONA_API_KEY"] == shown["E2B_API_KEY"]
    assert {shown[name] for name in TRUST} <= {os.path.dirname(shown["SSL_CERT_FILE"]) + f"/{name}"
                                               for name in ("ca.pem", "bundle.pem")}


def test_env_after_another_server_whose_key_is_left_in_the_shell(cay):
    """As after `cay down --purge`, `cay up`. A key that is named on the command line is the caller's own matter, and the
    other commands do not take another key than they were told."""
    own, left = cay("env", "--json").stdout, {"E2B_API_KEY": "e2b_" + "0" * 40}
    shown = cay("env", "--json", env=left)
    assert shown.returncode == 0 and json.loads(shown.stdout) == json.loads(own) and "E2B_API_KEY" in shown.stderr
    assert cay("env", f"--api-key={left['E2B_API_KEY']}").returncode == 1
    assert cay("ls", env=left).returncode == 1


def test_env_with_addresses(cay):
    """For users without TLS; variables set then are unset by the next one without."""
    shown = json.loads(cay("env", "--urls", "--json").stdout)
    assert shown["E2B_API_URL"] == shown["E2B_SANDBOX_URL"] == shown["E2B_VOLUME_API_URL"] and shown["E2B_API_URL"].startswith("http://127.0.0.1:")
    assert shown["DAYTONA_API_URL"] == shown["E2B_API_URL"] + "/api"
    assert "unset DAYTONA_TARGET\n" in cay("env", env={"DAYTONA_TARGET": "us"}).stdout
    urls = {name: shown[name] for name in ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL")}
    assert "unset E2B_API_URL\nunset E2B_SANDBOX_URL\nunset E2B_VOLUME_API_URL\n" in cay("env", env=urls).stdout
    assert "set -e E2B_API_URL\n" in cay("env", "--shell=fish", env=urls).stdout
    assert "unset" not in cay("env").stdout


def test_create_ls_kill(cay):
    made = cay("create", "host", "--ttl=90s", "-m", "job=17", "-e", "A=b")
    assert made.returncode == 0
    sandbox = made.stdout.strip()
    assert cay("exec", sandbox[:8], "sh", "-c", "echo $A").stdout == "b\n"
    listed = [s for s in json.loads(cay("ls", "--json").stdout) if s["sandboxID"] == sandbox]
    assert listed[0]["metadata"] == {"job": "17"}
    assert "job=17" in cay("ls").stdout and "NAME" not in cay("ls").stdout
    assert cay("kill", sandbox).stdout.strip() == sandbox
    assert cay("kill", sandbox).returncode == 1
    assert sandbox not in cay("ls", "-q").stdout
    ended = next(line for line in cay("ls", "--ended").stdout.splitlines() if line.startswith(sandbox))
    assert "ended (killed)" in ended and sandbox in cay("ls", "--ended", "-q").stdout.split()
    assert sandbox in (s["sandboxID"] for s in json.loads(cay("ls", "--ended", "--json").stdout))


def test_ls_shows_the_name_that_daytonas_clients_gave(cay):
    env = json.loads(cay("env", "--json", "--urls").stdout)
    asked = urllib.request.Request(env["E2B_API_URL"] + "/api/sandbox", method="POST", data=json.dumps(
        {"snapshot": "host", "name": "my-box"}).encode(), headers={
            "Authorization": "Bearer " + env["E2B_API_KEY"], "Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        sandbox = json.load(answer)["id"]
    head, line = [text.split() for text in cay("ls").stdout.splitlines()][:2]
    assert head[-1] == "NAME" and line[0] == sandbox and line[-1] == "my-box"
    cay("kill", sandbox)


def test_without_ttl_it_is_the_settings(cay):
    """Neither the program's own default nor E2B's, where the settings have one (test/run: 7m)."""
    settings = configparser.ConfigParser()
    settings.read(os.environ["CAY_CONFIG"])
    told = settings.get("sandbox", "default_ttl", fallback=None)
    if told is None or not re.fullmatch(r"\d+m", told):
        pytest.skip("the server's settings have no [sandbox] default_ttl in minutes; test/run writes one")
    made = cay("create", "host")
    assert made.returncode == 0, made.stderr
    sandbox = made.stdout.strip()
    shown = next(s for s in json.loads(cay("ls", "--json").stdout) if s["sandboxID"] == sandbox)
    times = [datetime.datetime.fromisoformat(shown[name].replace("Z", "+00:00")) for name in ("startedAt", "endAt")]
    cay("kill", sandbox)
    minute = datetime.timedelta(minutes=1)  # more than a create may take, whose end is where it begins
    assert int(told[:-1]) * minute <= times[1] - times[0] < (int(told[:-1]) + 1) * minute


def test_a_time_over_the_maximum_is_told_as_the_option_says_it(cay):
    refused = cay("create", "host", "--ttl=26h")
    assert refused.returncode == 2 and "--ttl=26h: cannot be greater than 86400 seconds (24h)" in refused.stderr
    refused = cay("create", "host", "--idle=26h")
    assert refused.returncode == 2 and "--idle=26h (seconds): must be between 1 and 86400, not 93600" in refused.stderr, refused.stderr


def test_base_before_it_is_built_is_host_and_says_so(cay):
    if any(t["id"] == "base" and t["ready"] for t in json.loads(cay("template", "ls", "--json").stdout)):
        pytest.skip("base is built")
    made = cay("create")
    assert made.returncode == 0
    assert "base was not built" in made.stderr and "`cay template build base`" in made.stderr, made.stderr
    assert "for base" in cay("ls").stdout
    cay("kill", made.stdout.strip())


# ESC, BEL, DEL, the C1 form of CSI, and what turns the direction of text; each is obeyed by some terminal.
CONTROLS = "\x1b]0;title\x07\x7f\u009b31m\u202e"


def test_no_control_reaches_the_terminal(cay, box):
    """Names of programs are the sandbox's own choice, and cay prints them."""
    assert cay("exec", box, "--", f"/bin/no{CONTROLS}program").returncode != 0
    assert cay("exec", box, "--", "sh", "-c", f"cp /bin/true '/tmp/x{CONTROLS}'; chmod 755 /tmp/x*").returncode == 0
    assert cay("exec", box, "--", f"/tmp/x{CONTROLS}").returncode == 0
    logs = cay("logs", box).stdout
    assert "/tmp/x?]0;title???31m?" in logs
    failed = cay("exec", box, "--", f"/bin/no{CONTROLS}program").stderr
    for text in (logs, failed):
        assert not [c for c in text if c in CONTROLS and not c.isalnum() and c not in "];"], text


def test_no_control_of_a_server_reaches_the_terminal(cay):
    """A server of another's is what --url names."""
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"version": CONTROLS, "domain": CONTROLS, "disk": {"backend": CONTROLS}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        shown = cay("status", f"--url=http://127.0.0.1:{server.server_port}", env={"E2B_API_KEY": "e2b_" + "0" * 40})
        server.shutdown()
    assert shown.returncode == 0 and shown.stdout.count("?]0;title???31m?") == 3, shown.stdout
    assert not [c for c in shown.stdout if c in CONTROLS and not c.isalnum() and c not in "];"]


def test_debug_mode_leads_to_one_sandbox(cay, box):
    """Requests as SDKs send them in debug mode (no key, no token) reach the sandbox that was created without a token, and no other."""
    secured = cay("debug", box)
    assert secured.returncode != 0 and "cay create --no-token" in secured.stderr
    opened = cay("create", "-q", "host", "--no-token").stdout.strip()
    try:
        variables = json.loads(cay("debug", "--json", opened).stdout)
        assert variables["E2B_DEBUG"] == "true" and f"49983-{opened}." in variables["E2B_SANDBOX_URL"]
        health = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", variables["CURL_CA_BUNDLE"],
                                 variables["E2B_SANDBOX_URL"] + "/files?path=/etc/hostname&username=user",
                                 "-H", "E2b-Sandbox-Id: debug_sandbox_id", "-H", "E2b-Sandbox-Port: 49983"],
                                capture_output=True, text=True)
        assert health.stdout == "200", health
    finally:
        cay("kill", "-q", opened)


def test_logs_and_top(cay, box):
    cay("exec", box, "true")
    assert "true" in cay("logs", box).stdout
    assert any(row["sandboxID"] == box for row in json.loads(cay("top", "--json").stdout))
    assert box in cay("top").stdout


def test_templates(cay):
    assert any(t["id"] == "host" and t["ready"] for t in json.loads(cay("template", "ls", "--json").stdout))
    assert cay("template", "build", "no-such").returncode == 1
    assert cay("template", "rm", "no-such").returncode == 1


def test_keys_keep_tenants_apart(cay, box):
    key = cay("key", "create", "--tenant=cli-test", "--label=x").stdout.strip()
    assert key.startswith("e2b_")
    other = {"E2B_API_KEY": key}
    assert cay("ls", "-q", env=other).stdout == ""
    assert cay("exec", box, "true", env=other).returncode == 125
    assert cay("kill", box, env=other).returncode == 1
    assert cay("key", "create", "--tenant=another", env=other).returncode == 1
    assert cay("status", "--json", "--api-key", "e2b_" + "0" * 40).returncode == 1


def test_a_leaked_key_is_revoked(cay):
    made = json.loads(cay("key", "create", "--tenant=cli-test", "--label=leaked", "--json").stdout)
    assert made["id"] in cay("key", "ls").stdout
    assert made["id"] in cay("key", "ls", "--tenant=cli-test").stdout
    assert [k["label"] for k in json.loads(cay("key", "ls", "--json").stdout) if k["id"] == made["id"]] == ["leaked"]
    assert cay("key", "revoke", made["id"]).returncode == 0
    assert cay("ls", env={"E2B_API_KEY": made["key"]}).returncode == 1
    again = cay("key", "revoke", made["id"])
    assert again.returncode == 1 and "cay key ls" in again.stderr
    own = next(k["id"] for k in json.loads(cay("key", "ls", "--json").stdout) if k["current"])
    assert cay("key", "revoke", own).returncode == 1
    assert cay("key", "revoke", "../x").returncode == 2


def test_doctor(cay):
    checks = json.loads(cay("doctor", "--json").stdout)
    assert all(c["level"] in ("ok", "limited", "missing", "skipped") and c["text"] for c in checks)
    assert "cay can run here" in cay("doctor").stdout


def test_doctor_looks_where_the_files_will_be(cay, tmp_path):
    """At the state directory of the settings, or, before it is there, at the one in which it will be made."""
    def told(path):
        (tmp_path / "cay.conf").write_text(f"[state]\ndir = {path}\n")
        checks = json.loads(cay("doctor", "--json", env={"CAY_CONFIG": str(tmp_path / "cay.conf")}).stdout)
        return next(c["text"] for c in checks if c["check"] == "free space")
    assert told("/dev/shm/cay/not/there").endswith("free in /dev/shm")
    assert told(tmp_path).endswith(f"free in {tmp_path}")


def test_a_settings_file_that_is_not_there_says_who_names_it(cay, tmp_path):
    named = cay("ls", env={"CAY_CONFIG": str(tmp_path / "nope")})
    assert named.returncode == 2 and f"cannot open {tmp_path}/nope" in named.stderr and "CAY_CONFIG names that file" in named.stderr
    given = cay("ls", f"--config={tmp_path}/nope")
    assert given.returncode == 2 and "CAY_CONFIG" not in given.stderr and "--config names that file" in given.stderr


def test_a_settings_file_that_was_changed_after_the_start_is_told(cay, tmp_path):
    copy = tmp_path / "cay.conf"
    copy.write_text(pathlib.Path(os.environ["CAY_CONFIG"]).read_text())
    new = cay("up", "--no-build", f"--config={copy}")
    assert new.returncode == 0 and "cay is running at" in new.stdout
    assert f"{copy} was changed after its start" in new.stderr and "`cay down` and `cay up`" in new.stderr
    os.utime(copy, (0, 0))
    assert "was changed" not in cay("up", "--no-build", f"--config={copy}").stderr


def test_doctor_looks_for_the_names(cay):
    """The variables that the suites of the SDKs rest on: names below the domain, TLS, and the trust of this shell."""
    shell = json.loads(cay("env", "--json").stdout)

    def levels(**env):
        checks = json.loads(cay("doctor", "--json", env={**shell, **env}).stdout)
        return {c["check"]: (c["level"], c["text"]) for c in checks if c["check"] in ("names", "tls", "trust")}
    assert {name: level for name, (level, _) in levels().items()} == {"names": "ok", "tls": "ok", "trust": "ok"}
    level, text = levels(SSL_CERT_FILE="/dev/null")["trust"]
    assert level == "limited" and "cay env" in text


def test_doctor_looks_at_what_sdks_of_this_shell_are_told(cay):
    shown = json.loads(cay("env", "--json").stdout)

    def levels(**env):
        checks = json.loads(cay("doctor", "--json", env={**shown, **env}).stdout)
        return {c["check"]: (c["level"], c["text"]) for c in checks if c["check"].startswith("E2B_")}
    assert {name: level for name, (level, _) in levels().items()} == {"E2B_DOMAIN": "ok", "E2B_API_KEY": "ok"}
    level, text = levels(E2B_DOMAIN="cay.localhost:1")["E2B_DOMAIN"]
    assert level == "limited" and "cay.localhost:1" in text and shown["E2B_DOMAIN"] in text and "cay env" in text
    level, text = levels(E2B_API_KEY="e2b_" + "0" * 40)["E2B_API_KEY"]
    assert level == "limited" and "does not know the key" in text


def test_up_with_other_settings_says_that_they_are_not_taken(cay):
    assert "take effect after `cay down`" in cay("up", "--sandbox-pids=100").stderr
    assert "take effect" not in cay("up").stderr


def test_the_local_authority(cay, tmp_path):
    """Its key is root's alone, and is good for this server's names only: another name that it signs is not believed."""
    folder = pathlib.Path(json.loads(cay("env", "--json").stdout)["SSL_CERT_FILE"]).parent
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == {"ca.pem": 0o644, "ca.key": 0o600, "cert.pem": 0o644, "key.pem": 0o600, "bundle.pem": 0o644}
    for name, believed in (("x.cay.localhost", True), ("api.example.org", False)):
        openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                   "-subj", "/O=x", "-addext", f"subjectAltName=DNS:{name}", "-addext", "basicConstraints=critical,CA:FALSE",
                   "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-keyout", tmp_path / "k.pem", "-out",
                   tmp_path / "c.pem"]
        subprocess.run(openssl, check=True, capture_output=True)
        done = subprocess.run(["openssl", "verify", "-CAfile", folder / "ca.pem", tmp_path / "c.pem"], capture_output=True,
                              text=True)
        assert (done.returncode == 0) == believed, (name, done.stderr)
        assert believed or "permitted subtree violation" in done.stderr
    again = (folder / "cert.pem").read_bytes()
    assert cay("up").returncode == 0 and (folder / "cert.pem").read_bytes() == again


def test_a_certificate_that_ends_soon_gets_a_successor(cay, tmp_path):
    """By `cay up`, beside a server that runs: sandboxes live on, and the port serves the new one."""
    shown = json.loads(cay("env", "--json").stdout)
    folder, (host, port) = pathlib.Path(shown["SSL_CERT_FILE"]).parent, shown["E2B_DOMAIN"].split(":")
    sandbox = cay("create", "host", "-q").stdout.strip()
    names = f"subjectAltName=DNS:{host},DNS:*.{host},DNS:localhost,IP:127.0.0.1,IP:::1"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "5",
                    "-subj", "/O=x", "-addext", names, "-addext", "basicConstraints=critical,CA:FALSE", "-CA",
                    folder / "ca.pem", "-CAkey", folder / "ca.key", "-keyout", tmp_path / "key.pem", "-out",
                    tmp_path / "cert.pem"], check=True, capture_output=True)
    for name in ("key.pem", "cert.pem"):
        shutil.copy(tmp_path / name, folder / name)
    done = cay("up")
    assert done.returncode == 0 and "has a new one" in done.stderr, done.stderr
    wanted = (folder / "cert.pem").read_text()
    assert wanted != (tmp_path / "cert.pem").read_text()
    for _ in range(300):
        try:
            if ssl.get_server_certificate(("127.0.0.1", int(port))).strip() == wanted.strip():
                break
        except OSError:  # between the daemons
            pass
        time.sleep(0.1)
    else:
        raise AssertionError("the port goes on with the old certificate")
    assert cay("exec", sandbox, "--", "echo", "here").stdout == "here\n"
    assert cay("kill", "-q", sandbox).returncode == 0


def test_limits_of_a_template(cay):
    """They are what its sandboxes get from then on, in every answer; each is checked, and only the operator sets them."""
    def shown(*options):
        return json.loads(cay("template", "limits", "host", *options, "--json").stdout)
    before = shown()
    try:
        after = shown("--memory=256M", "--cpu-milli=500", "--pids=100")
        assert after == {**before, "memoryBytes": 256 << 20, "cpuMilli": 500, "pids": 100}
        sandbox = cay("create", "host", "-q").stdout.strip()
        listed = next(s for s in json.loads(cay("ls", "--json").stdout) if s["sandboxID"] == sandbox)
        assert (listed["memoryMB"], listed["cpuCount"]) == (256, 1)
        held = cay("exec", sandbox, "--", "sh", "-c", "head -c 400M /dev/zero | tail > /dev/null")
        assert held.returncode != 0  # 400 MiB have no room in 256
        cay("kill", "-q", sandbox)
        other = json.loads(cay("key", "create", "--tenant=limits", "--json").stdout)["key"]
        assert cay("template", "limits", "host", "--pids=50", env={"E2B_API_KEY": other}).returncode == 1
        low = cay("template", "limits", "host", "--memory=1M")
        assert low.returncode == 1 and "memoryBytes: found 1048576, allowed are 33554432" in low.stderr
        assert cay("template", "limits", "host", "--pids=many").returncode == 2
        assert cay("template", "limits", "nowhere", "--pids=50").returncode == 1
    finally:
        assert shown("--default") == before


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command(cay, command):
    shown = cay("help", *command.split())
    assert shown.returncode == 0 and f"cay {command}" in shown.stdout
    assert cay(*command.split(), "--help").stdout == shown.stdout


@pytest.mark.parametrize("arguments", [
    [], ["nonsense"], ["exec"], ["ls", "--nonsense"], ["create", "a", "b"], ["cp", "x"], ["kill"],
    ["up", "--listen-port=0"], ["up", "--listen-prot=1"], ["create", "--ttl"], ["--generate=x"],
])
def test_usage_errors(cay, arguments):
    done = cay(*arguments)
    assert done.returncode == 2
    assert done.stderr


def test_a_key_that_only_sees_is_told_so(cay, tmp_path):
    key = json.loads(cay("key", "create", "--role=read-only", "--label=sees", "--json").stdout)
    box = cay("create", "host", "--ttl=5m", "-q").stdout.strip()
    sees = {"E2B_API_KEY": key["key"]}
    try:
        assert cay("ls", env=sees).returncode == 0 and cay("logs", box, env=sees).returncode == 0
        for entering in (["exec", box, "true"], ["cp", __file__, f"{box}:"], ["cp", f"{box}:/etc/passwd", tmp_path], ["debug", box]):
            done = cay(*entering, env=sees)
            assert done.returncode not in (0, 2) and "this API key is read-only" in done.stderr, entering
            assert "role owner" in done.stderr and done.stdout == ""
            assert cay(*entering).returncode == 0 or entering[0] == "debug"  # asks for a token that debug mode has not
    finally:
        cay("key", "revoke", key["id"])
        cay("kill", box)


@pytest.mark.parametrize("command, options, good", [
    ("resume", ("--files", "--or-files"), None), ("pause", ("--files", "--memory"), None), ("pause", ("--or-files",), None),
    ("exec", ("--tty", "--no-tty"), ("--no-tty",)), ("exec", ("--interactive", "--no-stdin"), ("--interactive",)),
    ("kill", ("--all",), None)])
def test_options_that_contradict_each_other_are_refused(cay, box, command, options, good):
    rest = ("true",) if command == "exec" else ()
    done = cay(command, *options, box, *rest)
    assert done.returncode == 2 and options[0] in done.stderr, done.stderr
    assert box in cay("ls", "-q").stdout.split() and "paused" not in cay("ls").stdout
    assert good is None or cay(command, *good, box, *rest).returncode == 0


def test_errors_say_what_to_do(cay):
    for listed in ("ls", "ls --ended", "snapshot ls", "volume ls"):
        assert cay(*listed.split(), "--url=http://127.0.0.1:1").returncode == 1
    done = cay("ls", "--url=http://127.0.0.1:1")
    assert done.returncode == 1
    assert "cannot reach a cay server at http://127.0.0.1:1" in done.stderr and "cay up" in done.stderr
    said = cay("create", "no-such-template").stderr
    assert "no-such-template" in said and said.count("see `cay template ls`") == 1
    assert json.loads(cay("create", "no-such-template", "--json").stdout)["error"]["code"] == "not_found"
    for wrong in ["--ttl=soon"], ["--env=A"], ["--metadata=job"], ["--idle-counts=all", "--idle=5m"]:
        refused = cay("create", *wrong)
        assert refused.returncode == 2 and wrong[0].split("=")[0] in refused.stderr
        assert json.loads(cay("create", "--json", *wrong).stdout)["error"]["code"] == "invalid"


@pytest.mark.parametrize("arguments, said, step", [
    (("resume", "i" + "0" * 20), "there is no sandbox i000", "`cay ls`"),
    (("exec", "none", "--", "true"), "there is no sandbox none", "`cay ls`"),
    (("snapshot", "rm", "cli-none"), "there is no snapshot 'cli-none'", "`cay snapshot ls`"),
    (("snapshot", "export", "cli-none", "/dev/null"), "there is no snapshot 'cli-none'", "`cay snapshot ls`"),
    (("volume", "rm", "cli-none"), "there is no volume 'cli-none'", "`cay volume ls`"),
    (("template", "limits", "cli-none"), 'there is no template "cli-none"', "`cay template ls`"),
    (("tenant", "quota", "cli-none"), 'there is no tenant "cli-none"', "`cay tenant ls`"),
    (("key", "create", "--tenant=-x"), "does not begin with '-'", ""),
])
def test_names_that_are_not_there(cay, arguments, said, step):
    done = cay(*arguments)
    assert done.returncode and said in done.stderr and step in done.stderr, done.stderr


def test_a_bad_settings_file_is_refused_with_its_line(cay, tmp_path):
    (tmp_path / "cay.conf").write_text("[listen]\nprot = 1\n")
    done = cay("status", f"--config={tmp_path}/cay.conf")
    assert done.returncode == 2
    assert f"{tmp_path}/cay.conf:2:" in done.stderr and "prot" in done.stderr


def test_the_example_file_is_what_the_program_prints(cay):
    committed = pathlib.Path(__file__).resolve().parents[2] / "packaging/cay.conf"
    assert cay("--generate=conf").stdout == committed.read_text()


@pytest.mark.parametrize("shell, check", [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_completions_are_scripts(cay, tmp_path, shell, check):
    script = tmp_path / shell
    script.write_text(cay("completion", shell).stdout)
    assert "template" in script.read_text()
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, check, script], check=True)


def test_bash_completes(cay, tmp_path):
    (tmp_path / "script").write_text(cay("completion", "bash").stdout)
    shown = subprocess.run(["bash", "-c", f"source {tmp_path}/script; COMP_WORDS=(cay te); COMP_CWORD=1; _cay; "
                            "echo ${COMPREPLY[@]}; COMP_WORDS=(cay create --t); COMP_CWORD=2; _cay 2>/dev/null; "
                            "echo ${COMPREPLY[@]}"], capture_output=True, text=True, check=True)
    assert shown.stdout == "template\n--ttl=\n"


@pytest.mark.parametrize("page", ["man", "man5"])
def test_man_pages_are_mdoc(cay, page):
    shown = cay(f"--generate={page}").stdout
    assert shown.startswith(".Dd") and "\n.Sh NAME\n" in shown
    if not shutil.which("mandoc"):
        pytest.skip("mandoc is not installed")
    assert subprocess.run(["mandoc", "-T", "lint", "-W", "error"], input=shown, text=True).returncode == 0


def test_a_policy_is_explained_without_a_server(cay, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"rules": [{"name": "no admin", "action": "deny", "domains": ["a.example"], "paths": ["/admin*"]},
                                            {"name": "all of it", "action": "allow", "domains": ["a.example"]}]}))
    given = f"--policy={policy}"
    shown = cay("policy", "explain", given, "a.example", "GET", "/admin/x").stdout
    assert '=> deny    rule 0 "no admin"' in shown and 'allow   rule 1 "all of it"' in shown and "conflict" in shown
    told = json.loads(cay("policy", "explain", given, "a.example:8443", "GET", "/", "--json").stdout)
    assert told["verdict"] == "allow" and [m["decides"] for m in told["matches"]] == [True, False]
    assert "never reached" in cay("policy", "explain", "--policy=allow", "169.254.169.254:80").stdout
    policy.write_text('{"rules": [{"action": "allow", "ports": [0]}]}')
    refused = cay("policy", "explain", given, "a.example")
    assert refused.returncode == 1 and "rules[0].ports[0]" in refused.stderr
    for wrong in (("a.example",), (given,), (given, "a.example", "GET"), (given, "a..b"), (given, "a.example:0")):
        assert cay("policy", "explain", *wrong).returncode == 2
    for wrong, why in (((given, "https://a.example/admin"), "arguments of their own"), ((given, "GET", "a.example", "/admin"), "the host comes first"),
                       ((given, "a.example", "GET", "/admin?x"), "ends before its '?'")):
        refused = cay("policy", "explain", *wrong)
        assert refused.returncode == 2 and why in refused.stderr


@pytest.mark.parametrize("rule, why", [('"domains": ["https://a.example/x"]', "keys of their own"), ('"domains": ["10.0.0.1"]', "keys of their own"),
                                       ('"domains": ["a.example:443"]', "keys of their own"), ('"domain": ["a.example"]', "there are name, action, domains")])
def test_a_mistake_in_a_policy_is_told_with_what_is_allowed(cay, rule, why):
    refused = cay("policy", "explain", "--policy=/dev/stdin", "a.example", stdin=b'{"rules": [{"action": "allow", %s}]}' % rule.encode())
    assert refused.returncode == 1 and "rules[0]" in refused.stderr and why in refused.stderr


def test_templates_of_ones_own_are_found(cay):
    """Where a name is none it is said where those that there are stand."""
    assert "`cay template ls` lists them" in cay("template", "rm", "no-such-template").stderr
    assert "cay template build NAME DIR" in cay("template", "build", "no-such-template").stderr


def test_a_secret_of_several_headers(cay):
    several = ("secret", "set", "SEVERAL", "--domain=a.example", "--kind=headers")
    assert cay(*several, stdin=b'{"X-Id": "an-id-of-mine", "X-Key": "a-secret-value"}').returncode == 0
    shown = [s for s in json.loads(cay("secret", "ls", "--json").stdout) if s["name"] == "SEVERAL"]
    assert [s["bind"]["kind"] for s in shown] == ["headers"]
    refused = cay(*several, stdin=b"X-Key: a-secret-value")
    assert refused.returncode == 1 and "NAME" in refused.stderr and "a-secret" not in refused.stderr
    assert cay("secret", "rm", "SEVERAL").returncode == 0


def test_a_secret_for_some_ports(cay):
    assert cay("secret", "set", "PORTS", "--domain=a.example", "--port=8443", "--port=9000-9010", stdin=b"a-secret-value").returncode == 0
    line = next(line for line in cay("secret", "ls").stdout.splitlines() if line.startswith("PORTS "))
    assert line.split()[2:5] == ["a.example", "8443", "9000-9010"]
    assert cay("secret", "rm", "PORTS").returncode == 0
    refused = cay("secret", "set", "PORTS", "--domain=a.example", "--port=none", stdin=b"a-secret-value")
    assert refused.returncode == 1 and "a port, 1 to 65535" in refused.stderr


@pytest.mark.parametrize("option", ["client-id", "client-auth", "scope"])
def test_an_option_of_oauth_alone_is_not_left_unsaid(cay, option):
    refused = cay("secret", "set", "PLAIN", "--domain=a.example", f"--{option}=body", stdin=b"a-secret-value")
    assert refused.returncode == 2 and "--oauth=URL" in refused.stderr
    assert "PLAIN" not in cay("secret", "ls").stdout


def test_a_secret_without_a_value_is_told_where_it_comes_from(cay):
    refused = cay("secret", "set", "EMPTY", "--domain=a.example")
    assert refused.returncode == 1 and "standard input" in refused.stderr
    refused = cay("secret", "set", "TOKEN", "--domain=a.example", "--kind=oauth2:b.example", stdin=b"a-refresh-token")
    assert refused.returncode == 1 and "--oauth=URL" in refused.stderr and "a-refresh-token" not in refused.stderr


def test_cay_begins_with_nothing_allowed(cay, box):
    assert json.loads(cay("policy", "show", box[:8]).stdout) == {"default": "deny"}
    assert cay("policy", "set", box, "public").returncode == 0
    assert json.loads(cay("policy", "show", box, "--json").stdout) == {"default": "public"}
    assert cay("policy", "set", box, "nowhere.json").returncode == 1
    assert "--domain" in cay("secret", "set", "KEY", stdin=b"a-secret-value").stderr
    refused = cay("secret", "set", "KEY", "--domain=a.example", "--kind=magic", stdin=b"a-secret-value")
    assert refused.returncode == 2 and "aws-sigv4" in refused.stderr and "a-secret" not in refused.stderr
