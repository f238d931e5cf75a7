"""The programs that are run inside a sandbox against stand-ins of their servers (test/scenario/test_agents.py): one row
each. A row is installed once, from its registry by name and version, into BUILD/clients, and copied into a sandbox.

    name      also the directory it is installed in
    packages  of npm or PyPI, with versions
    run       what is run inside, by bash; the installed files are in $CLIENT, done.txt is what it has to make
    files     {path inside: text} that it needs
    env       besides the key, which is KEY_VARIABLE=cay-secret:MODEL_KEY
    agent     it calls a tool: the model has to see its result
    short     part of `make test`; the others of `make egress-clients`

docs/agents.md has the same settings in words."""

import dataclasses
import pathlib
import shutil
import subprocess

PLACEHOLDER = "cay-secret:MODEL_KEY"
PYTHON = "/usr/bin/python3"


@dataclasses.dataclass
class Client:
    name: str
    registry: str
    packages: tuple
    host: str
    run: str
    key_variable: str
    files: dict = dataclasses.field(default_factory=dict)
    env: dict = dataclasses.field(default_factory=dict)
    short: bool = False
    agent: bool = False

    def install(self, build):
        """The directory with its files."""
        place = build / "clients" / self.name
        done = place / ".done"
        if done.exists() and done.read_text() == repr(self.packages):
            return place
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        command = {"npm": ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", place, *self.packages],
                   "pypi": [PYTHON, "-m", "pip", "install", "-q", "--no-warn-script-location", "--target", place,
                            *self.packages]}[self.registry]
        log = pathlib.Path(f"{place}.log")
        with open(log, "w", encoding="utf-8") as out:
            r = subprocess.run([str(part) for part in command], stdout=out, stderr=subprocess.STDOUT, timeout=900, check=False)
        assert r.returncode == 0, f"{self.name}: {log.read_text()[-2000:]}"
        done.write_text(repr(self.packages))
        return place


JOB = "Use your shell tool to run: echo the job is done > done.txt"
OPENAI_PY = """
import openai
client = openai.OpenAI()
said = client.responses.create(model="gpt-test", input="Say that the job is done.").output_text
chunks = client.chat.completions.create(model="gpt-test", messages=[{"role": "user", "content": "Say it."}], stream=True)
again = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
assert said == again == "The job is done.", (said, again)
open("done.txt", "w").write("the job is done")
"""
ANTHROPIC_PY = """
import anthropic
client = anthropic.Anthropic()
ask = dict(model="claude-test", max_tokens=100, messages=[{"role": "user", "content": "Say that the job is done."}])
said = client.messages.create(**ask).content[0].text
with client.messages.stream(**ask) as stream:
    again = stream.get_final_text()
assert said == again == "The job is done.", (said, again)
open("done.txt", "w").write("the job is done")
"""
OPENAI_JS = """
import OpenAI from "openai";
import { writeFileSync } from "node:fs";
const client = new OpenAI();
const r = await client.responses.create({ model: "gpt-test", input: "Say that the job is done." });
let again = "";
for await (const c of await client.chat.completions.create({ model: "gpt-test", stream: true,
    messages: [{ role: "user", content: "Say it." }] })) again += c.choices[0]?.delta?.content ?? "";
if (r.output_text !== "The job is done." || again !== r.output_text) throw new Error(r.output_text + again);
writeFileSync("done.txt", "the job is done");
"""
ANTHROPIC_JS = """
import Anthropic from "@anthropic-ai/sdk";
import { writeFileSync } from "node:fs";
const client = new Anthropic();
const ask = { model: "claude-test", max_tokens: 100, messages: [{ role: "user", content: "Say that the job is done." }] };
const r = await client.messages.create(ask);
const again = await client.messages.stream(ask).finalText();
if (r.content[0].text !== "The job is done." || again !== r.content[0].text) throw new Error(again);
writeFileSync("done.txt", "the job is done");
"""
CODEX_CONFIG = """
model = "gpt-test"
model_provider = "own"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.own]
name = "OpenAI"
base_url = "https://api.openai.com/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
supports_websockets = false
"""
OPENCODE_CONFIG = """{
  "$schema": "https://opencode.ai/config.json",
  "model": "own/gpt-test",
  "small_model": "own/gpt-test",
  "autoupdate": false,
  "share": "disabled",
  "permission": {"bash": "allow", "edit": "allow"},
  "provider": {
    "own": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "OpenAI",
      "options": {"baseURL": "https://api.openai.com/v1", "apiKey": "{env:OPENAI_API_KEY}"},
      "models": {"gpt-test": {"name": "gpt-test", "tool_call": true, "limit": {"context": 100000, "output": 8000}}}
    }
  }
}
"""

CLIENTS = (
    Client("openai-python", "pypi", ("openai==2.20.0",), "api.openai.com", f"PYTHONPATH=$CLIENT {PYTHON} job.py",
           "OPENAI_API_KEY", {"job.py": OPENAI_PY}, short=True),
    Client("anthropic-python", "pypi", ("anthropic==2.12.0",), "api.anthropic.com", f"PYTHONPATH=$CLIENT {PYTHON} job.py",
           "ANTHROPIC_API_KEY", {"job.py": ANTHROPIC_PY}, short=True),
    Client("openai-js", "npm", ("openai@7.57.0",), "api.openai.com",
           "ln -sf $CLIENT/node_modules . && node job.mjs", "OPENAI_API_KEY", {"job.mjs": OPENAI_JS}),
    Client("anthropic-js", "npm", ("@anthropic-ai/sdk@1.12.0",), "api.anthropic.com",
           "ln -sf $CLIENT/node_modules . && node job.mjs", "ANTHROPIC_API_KEY", {"job.mjs": ANTHROPIC_JS}),
    Client("claude-code", "npm", ("@anthropic-ai/claude-code-linux-x64@2.1.330",), "api.anthropic.com",
           "$CLIENT/node_modules/@anthropic-ai/claude-code-linux-x64/claude -p --dangerously-skip-permissions "
           f"--model claude-sonnet-4-5 '{JOB}'", "ANTHROPIC_API_KEY",
           env={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}, agent=True),
    Client("codex", "npm", ("@openai/codex@0.169.0-linux-x64",), "api.openai.com",
           "git init -q . ; $(find $CLIENT -name codex -type f -perm -u+x | head -1) exec --skip-git-repo-check "
           f"'{JOB}' < /dev/null", "OPENAI_API_KEY", {".codex/config.toml": CODEX_CONFIG}, agent=True),
    Client("opencode", "npm", ("opencode-linux-x64@1.18.33",), "api.openai.com",
           f"$CLIENT/node_modules/opencode-linux-x64/bin/opencode run --print-logs '{JOB}' < /dev/null", "OPENAI_API_KEY",
           {"opencode.json": OPENCODE_CONFIG}, agent=True),
    Client("aider", "pypi", ("aider-chat==0.86.2",), "api.openai.com",
           f"git init -q . && touch done.txt && PYTHONPATH=$CLIENT {PYTHON} -m aider --yes-always --no-check-update "
           "--no-show-model-warnings --no-gitignore --no-auto-commits --model openai/gpt-4o --edit-format diff "
           "--no-show-release-notes --analytics-disable --message 'Write that the job is done into done.txt' done.txt",
           "OPENAI_API_KEY"),
)
