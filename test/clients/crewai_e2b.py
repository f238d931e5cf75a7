"""crewai-tools: the shell and file tools, then E2BPythonTool, its first example."""

from crewai_tools import E2BExecTool, E2BFileTool, E2BPythonTool

shell = E2BExecTool(persistent=True)
said = shell.run(command="echo $((6 * 7))")
assert "42" in str(said), said
shell.close()
files = E2BFileTool(persistent=True)
files.run(action="write", path="/home/user/notes.txt", content="kept")
said = files.run(action="read", path="/home/user/notes.txt")
assert "kept" in str(said), said
files.close()
said = E2BPythonTool().run(code="print(sum(range(10)))")
assert "45" in str(said) and not (isinstance(said, dict) and said.get("error")), f"E2BPythonTool: {said}"
