"""e2b-haystack: the four tools of E2BToolset in one sandbox."""

from haystack_integrations.tools.e2b import E2BToolset

tools = E2BToolset()
tools.warm_up()
try:
    by_name = {tool.name: tool for tool in tools}
    assert len(by_name) == 4, list(by_name)
    said = by_name["run_bash_command"].invoke(command="echo $((6 * 7))")
    assert "42" in said, said
    by_name["write_file"].invoke(path="/home/user/notes.txt", content="kept")
    assert "kept" in by_name["read_file"].invoke(path="/home/user/notes.txt")
    assert "notes.txt" in by_name["list_directory"].invoke(path="/home/user")
finally:
    tools.close()
