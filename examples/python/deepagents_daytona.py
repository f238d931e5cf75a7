"""A deep agent whose computer is a sandbox: it writes a script, runs it, and the sandbox is stopped.

pip install daytona langchain-daytona deepagents
eval "$(cay env)"
python3 deepagents_daytona.py

MODEL names a real model ("anthropic:claude-sonnet-4-5", with its package and key). Without it a scripted one answers, so that
this runs without a network.
"""

import os

from daytona import Daytona
from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_daytona import DaytonaSandbox

SCRIPT = "print(sum(n * n for n in range(10)))\n"


class Scripted(GenericFakeChatModel):
    """Calls two tools, and is done."""

    def __init__(self):
        def call(name, **args):
            return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{name}"}])
        super().__init__(messages=iter([
            call("write_file", file_path="/home/daytona/sum.py", content=SCRIPT),
            call("execute", command="python3 /home/daytona/sum.py"),
            AIMessage("The script has run."),
        ]), profile={"tool_calling": True, "max_input_tokens": 100_000})

    def bind_tools(self, tools, **options):
        return self


sandbox = Daytona().create()
try:
    agent = create_deep_agent(
        model=os.environ.get("MODEL") or Scripted(),
        system_prompt="You are a Python coding assistant with sandbox access.",
        backend=DaytonaSandbox(sandbox=sandbox),
    )
    result = agent.invoke({"messages": [{"role": "user", "content": "Run a small python script"}]})
    for message in result["messages"]:
        if message.content:
            print(f"{message.type}: {message.content}")
    sandbox.stop()
finally:
    sandbox.delete()
