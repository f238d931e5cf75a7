"""pydantic-ai-harness: an agent with E2BSandbox and Coder. Its model is a function that calls the tools."""

import json

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai_harness.coder import Coder
from pydantic_ai_harness.e2b_sandbox import E2BSandbox

CALLS = [("shell", {"command": "echo $((6 * 7)); exit 3"})]
heard = []


def model(messages, info):
    heard.extend(str(part.content) for part in messages[-1].parts if part.part_kind == "tool-return")
    if len(heard) < len(CALLS):
        return ModelResponse(parts=[ToolCallPart(*CALLS[len(heard)])])
    return ModelResponse(parts=[TextPart("done")])


async def stream(messages, info):
    for part in model(messages, info).parts:
        if isinstance(part, ToolCallPart):
            yield {0: DeltaToolCall(name=part.tool_name, json_args=json.dumps(part.args))}
        else:
            yield part.content


agent = Agent(FunctionModel(model, stream_function=stream), capabilities=[E2BSandbox(), Coder()])
assert agent.run_sync("What is six times seven?").output == "done"
assert "42" in heard[0] and "3" in heard[0].replace("42", ""), f"the exit status is lost: {heard}"
