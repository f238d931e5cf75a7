"""smolagents: CodeAgent with executor_type="e2b". Its model is a function that answers with code."""

from smolagents import CodeAgent, Model
from smolagents.models import ChatMessage, MessageRole


class Fixed(Model):
    def generate(self, messages, **_):
        return ChatMessage(role=MessageRole.ASSISTANT, content="Thought: multiply.\n<code>\nfinal_answer(6 * 7)\n</code>")


with CodeAgent(tools=[], model=Fixed(), executor_type="e2b", max_steps=2) as agent:
    answer = agent.run("What is six times seven?")
assert str(answer) == "42", answer
