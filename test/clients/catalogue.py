"""The integrations that are run: what they are installed from, and what is known to be missing for them."""

import dataclasses

NODE = "22.23.3"


@dataclasses.dataclass(frozen=True)
class Client:
    name: str
    script: str
    packages: tuple  # (name with extras, pinned version); the first is the integration itself
    python: tuple = (3, 11)  # at least
    missing: str = ""  # what it needs that is not there yet; "": it works
    template: str = ""  # what it asks for beyond base, by the name that `cay template build` knows
    short: bool = False  # part of `make test`

    @property
    def is_python(self):
        return self.script.endswith(".py")


CLIENTS = (
    Client("openai-agents (Python)", "openai_agents.py", (("openai-agents[e2b]", "0.24.0"),)),
    Client("openai-agents (JavaScript)", "openai_agents.mjs",
           (("@openai/agents-extensions", "0.18.0"), ("@openai/agents", "0.20.0"), ("e2b", "2.51.0")), short=True),
    Client("openai-agents over Daytona", "openai_agents_daytona.py", (("openai-agents[daytona]", "0.24.0"), ("daytona", "0.226.1"))),
    Client("google-adk", "google_adk.py", (("google-adk", "2.13.0"), ("e2b", "2.63.0")), short=True),
    Client("crewai-tools", "crewai_e2b.py", (("crewai-tools[e2b]", "1.15.30"),), template="code-interpreter"),
    Client("inspect-sandboxes", "inspect_e2b.py", (("inspect-sandboxes[e2b]", "0.6.1"), ("inspect-ai", "0.3.285")),
           python=(3, 12)),
    Client("agno", "agno_tools.py", (("agno", "3.1.10"), ("e2b-code-interpreter", "2.11.5")),
           template="code-interpreter"),
    Client("e2b-haystack", "e2b_haystack.py", (("e2b-haystack", "2.0.0"),), short=True),
    Client("pydantic-ai-harness", "pydantic_harness.py", (("pydantic-ai-harness[e2b]", "0.62.0"),)),
    Client("langchain-e2b", "langchain_e2b_standard.py",
           (("langchain-e2b", "0.0.6"), ("langchain-tests", "1.1.9"), ("pytest", "9.2.0"), ("pytest-asyncio", "1.5.0"))),
    Client("langchain (a tool)", "langchain_code.py", (("langchain", "1.4.7"), ("e2b-code-interpreter", "2.11.5")),
           template="code-interpreter"),
    Client("Mastra", "mastra.mjs", (("@mastra/e2b", "0.8.0"), ("@mastra/core", "1.71.0")), missing="template builder"),
    Client("ComputeSDK", "computesdk.mjs", (("@computesdk/e2b", "1.7.52"), ("computesdk", "4.1.4")), short=True),
    Client("@e2b/cli", "e2b_cli.mjs", (("@e2b/cli", "2.19.0"),)),
    Client("smolagents", "smolagents_e2b.py", (("smolagents[e2b]", "1.26.0"),), template="code-interpreter"),
    Client("harbor", "harbor_e2b.py", (("harbor[e2b]", "0.24.0"),), python=(3, 12)),
    Client("verifiers", "verifiers_e2b.py", (("verifiers[e2b]", "0.4.0"),)),
)
