"""A code-analysis agent in LangGraph: the graph and its model run here, its tool runs commands in a sandbox (pattern 2: the
sandbox is a tool). The code is copied in and can do nothing outside: that sandbox has no network.

pip install daytona langgraph langchain
eval "$(cay env)"
python3 code_analysis.py [FOLDER]

MODEL names a real model ("anthropic:claude-sonnet-4-5", with its package and key). Without it a scripted one answers, so that
this runs without a network.
"""

import io
import os
import pathlib
import sys
import tarfile

from daytona import CreateSandboxFromSnapshotParams, Daytona
from langchain.chat_models import init_chat_model
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

OUTPUT_MAX = 8000
LONGEST = """
import ast, pathlib
found = [(node.end_lineno - node.lineno + 1, f"{path}:{node.lineno} {node.name}") for path in pathlib.Path().rglob("*.py")
         for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
print(*(f"{lines} {where}" for lines, where in sorted(found, reverse=True)[:3]), sep="\\n")
"""


class Scripted(GenericFakeChatModel):
    """Looks twice, and is done."""

    def __init__(self):
        def call(n, command):
            return AIMessage("", tool_calls=[{"name": "run", "args": {"command": command}, "id": f"call-{n}"}])
        super().__init__(messages=iter([
            call(1, "find . -name '*.py' | sort | xargs wc -l"),
            call(2, f"python3 - <<'END'{LONGEST}END"),
            AIMessage("The longest functions are those above: look there first."),
        ]))

    def bind_tools(self, tools, **options):
        return self


def packed(folder):
    def own(member):  # without virtual environments and other people's packages
        path = folder.joinpath(*pathlib.PurePath(member.name).parts[1:])
        return None if path.name in (".git", "node_modules") or (path / "pyvenv.cfg").exists() else member

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        tar.add(folder, arcname="code", filter=own)
    return data.getvalue()


folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent).resolve()
sandbox = Daytona().create(CreateSandboxFromSnapshotParams(network_block_all=True))


@tool
def run(command: str) -> str:
    """Run a command line in the folder of the code. Gives the end of its output, and its exit status."""
    done = sandbox.process.exec(command, cwd="code", timeout=60)
    return f"{done.result[-OUTPUT_MAX:]}[exit status {done.exit_code}]"


try:
    sandbox.fs.upload_file(packed(folder), "code.tar.gz")
    unpacked = sandbox.process.exec("tar xzf code.tar.gz")
    assert unpacked.exit_code == 0, unpacked.result

    name = os.environ.get("MODEL")
    model = (init_chat_model(name) if name else Scripted()).bind_tools([run])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([run]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    result = graph.compile().invoke({"messages": [
        SystemMessage("You analyse code with the tool run. Look before you judge."),
        HumanMessage("Which functions of this code should be cut into smaller ones?")]}, {"recursion_limit": 30})
    for message in result["messages"][2:]:
        if message.content:
            print(f"{message.type}: {message.text}")
finally:
    sandbox.delete()
