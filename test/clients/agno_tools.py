"""agno: E2BTools; commands and files first, then Python as its first example runs it."""

from agno.tools.e2b import E2BTools

tools = E2BTools(timeout=120)
try:
    said = tools.run_command("echo $((6 * 7))")
    assert "42" in str(said), said
    said = tools.write_file_content("notes.txt", "kept")
    assert "kept" in str(tools.read_file_content("notes.txt")), said
    said = tools.run_python_code("print(6 * 7)")
    assert "42" in str(said), f"run_python_code: {said}"
finally:
    tools.shutdown_sandbox()
