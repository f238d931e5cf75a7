"""A tool for an AI agent: runs unreviewed code, in a sandbox that lives as long as the talk.

pip install e2b; eval "$(cay env)"; python3 agent_tool.py
"""

from e2b import CommandExitException, Sandbox


class ShellTool:
    def __init__(self):
        self.sandbox = Sandbox.create(timeout=600)

    def __call__(self, command: str) -> str:
        try:
            done = self.sandbox.commands.run(command, timeout=60)
            return done.stdout + done.stderr
        except CommandExitException as failed:
            return f"exit status {failed.exit_code}\n{failed.stdout}{failed.stderr}"

    def close(self):
        self.sandbox.kill()


if __name__ == "__main__":
    tool = ShellTool()
    print(tool("python3 -c 'print(sum(range(10)))'"))
    print(tool("cat /no/such/file"))
    tool.close()
