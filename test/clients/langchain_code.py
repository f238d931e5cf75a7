"""LangChain: an agent with a tool that runs Python in E2B's code interpreter, two calls of one sandbox: the mean of a
table, then a chart of it. Its model is a list of answers."""

from e2b_code_interpreter import Sandbox
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

MEAN = "import pandas as pd\ndf = pd.DataFrame({'day': [1, 2, 3], 'sold': [40, 42, 44]})\nprint(df['sold'].mean())"
CHART = "import matplotlib.pyplot as plt\nplt.plot(df['day'], df['sold'])\nplt.title('sold')\nplt.show()"


class Fixed(GenericFakeChatModel):
    def bind_tools(self, tools, **_):
        return self


def call(code, n):
    return AIMessage("", tool_calls=[{"name": "run_python", "args": {"code": code}, "id": f"call-{n}"}])


with Sandbox.create(timeout=120) as sandbox:

    @tool(response_format="content_and_artifact")
    def run_python(code: str):
        """Runs Python; variables stay for the next call."""
        done = sandbox.run_code(code)
        said = "".join(done.logs.stdout) + (done.error.traceback if done.error else "")
        return said, done.results

    agent = create_agent(Fixed(messages=iter([call(MEAN, 1), call(CHART, 2), AIMessage("42 a day")])), [run_python])
    messages = agent.invoke({"messages": [{"role": "user", "content": "How many are sold a day? Draw it."}]})["messages"]

mean, chart = [message for message in messages if message.type == "tool"]
assert mean.content == "42.0\n", mean
assert chart.artifact[0].png and chart.artifact[0].chart.title == "sold", chart
assert messages[-1].content == "42 a day", messages[-1]
