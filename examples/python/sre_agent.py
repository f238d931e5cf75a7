"""An agent for operations whose own program runs inside the sandbox (pattern 1): it may start the scripts of one folder, reads
what they print, and goes on until the service is well. No key of a model is inside.

pip install e2b; eval "$(cay env)"; python3 sre_agent.py

With MODEL ("gpt-5.2") and OPENAI_API_KEY it asks OpenAI's API: then api.openai.com is all that the sandbox reaches, and the key
is put on its requests outside of it. Without MODEL a scripted one answers, and the sandbox reaches nothing.
"""

import os

from e2b import Sandbox

SCRIPTS = {
    "check": "curl -fs --max-time 5 http://127.0.0.1:8000/ > /dev/null && echo 'web is up' || echo 'web is down'\n",
    "logs": "tail -n 20 web.log 2> /dev/null || echo 'there is no log: web was not started'\n",
    "restart": "mkdir -p www; nohup python3 -m http.server --directory www --bind 127.0.0.1 8000 > web.log 2>&1 &\n"
               "for i in 1 2 3 4 5 6 7 8 9 10; do curl -fs http://127.0.0.1:8000/ > /dev/null && break; sleep 0.3; done\n"
               "echo 'web was started'\n",
}

AGENT = r'''
import json, os, pathlib, subprocess, urllib.request

SCRIPTS = sorted(path.name for path in pathlib.Path("operations").iterdir())
TOOL = {"type": "function", "function": {
    "name": "operate", "description": "Start an operation script; gives what it prints.",
    "parameters": {"type": "object", "properties": {"script": {"enum": SCRIPTS}}, "required": ["script"]}}}

def ask(messages):
    body = json.dumps({"model": os.environ["MODEL"], "messages": messages, "tools": [TOOL]}).encode()
    request = urllib.request.Request("https://api.openai.com/v1/chat/completions", body, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]

def scripted(messages):
    plan = ["check", "logs", "restart", "check"]
    done = sum(message["role"] == "tool" for message in messages)
    if done == len(plan):
        return {"role": "assistant", "content": f"Checked, restarted, checked again: {messages[-1]['content']}."}
    call = {"id": f"call-{done}", "type": "function",
            "function": {"name": "operate", "arguments": json.dumps({"script": plan[done]})}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}

def operate(script):
    if script not in SCRIPTS:
        return f"there is no script {script!r}; there are {', '.join(SCRIPTS)}"
    done = subprocess.run(["sh", f"operations/{script}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return done.stdout[-4000:].strip()

messages = [{"role": "system", "content": "You run the service web. Find out what is wrong with it, and mend it."},
            {"role": "user", "content": "Users say that web does not answer."}]
for _ in range(20):
    answer = ask(messages) if os.environ.get("MODEL") else scripted(messages)
    messages.append(answer)
    if not answer.get("tool_calls"):
        print(answer["content"], flush=True)
        break
    for call in answer["tool_calls"]:
        script = json.loads(call["function"]["arguments"]).get("script")
        output = operate(script)
        print(f"{script}: {output}", flush=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
'''

model, key = os.environ.get("MODEL", ""), os.environ.get("OPENAI_API_KEY", "")
network = {
    "allow_out": ["api.openai.com"], "deny_out": ["0.0.0.0/0"],
    "rules": {"api.openai.com": [{"transform": {"headers": {"Authorization": f"Bearer {key}"}}}]},
} if model else None

with Sandbox.create(timeout=600, envs={"MODEL": model}, network=network, allow_internet_access=bool(model)) as sandbox:
    for name, text in SCRIPTS.items():
        sandbox.files.write(f"operations/{name}", text)
    sandbox.files.write("agent.py", AGENT)
    sandbox.commands.run("python3 agent.py", timeout=300, on_stdout=lambda text: print(text, end=""),
                         on_stderr=lambda text: print(text, end=""))
