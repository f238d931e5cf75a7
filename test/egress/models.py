"""Stand-ins for model APIs, for tests of agents and SDKs: OpenAI's (chat completions, responses) and Anthropic's
(messages), whole or as server-sent events. They ask for a key, and do one small job: they tell the program to run a
command with whichever tool it offers for that, and when its result comes they say that the job is done.

Part of the stand-in internet (internet.py): `answer` is called for hosts that are in NAMES. The key is in the file
model-key beside the zone; each call is a line of models.log there. While the file model-hold is there, the last
answer is not given, so that a test can look at the program that waits for it."""

import hmac
import json
import re
import time

NAMES = ("api.openai.com", "api.anthropic.com")
COMMAND = "echo the job is done > done.txt"
SAID = "The job is done."
SHELLS = ("bash", "shell", "shell_command", "exec_command", "local_shell", "run_shell_command")
HOLD_SECONDS = 120
AIDER_EDIT = "done.txt\n```\n<<<<<<< SEARCH\n=======\nthe job is done\n>>>>>>> REPLACE\n```\n"


def argument(schema, name):
    """An argument that fits in a parameter that a tool cannot do without."""
    kind = schema.get("type")
    if "command" in name or name in ("cmd", "script"):
        return ["bash", "-lc", COMMAND] if kind == "array" else COMMAND
    return {"number": 10000, "integer": 10000, "boolean": False, "array": [], "object": {}}.get(kind, "x")


def arguments(schema):
    properties = schema.get("properties", {})
    names = [n for n in properties if n in schema.get("required", ()) or n in ("command", "cmd")]
    return {name: argument(properties[name], name) for name in names}


def shell_of(tools):
    """Name and arguments of the tool that runs commands, or None."""
    for tool in tools or ():
        inner = tool.get("function", tool)
        name = inner.get("name") or tool.get("type", "")
        if name.lower() in SHELLS:
            return name, arguments(inner.get("parameters") or inner.get("input_schema") or {})
    return None


def wants_edit(body):
    return "SEARCH/REPLACE" in json.dumps(body)


# -- the answers: (is there a tool to be called, the text) ---------------------------------------------


def events(web, pieces):
    web.send_response(200)
    web.send_header("Content-Type", "text/event-stream")
    web.send_header("Connection", "close")
    web.end_headers()
    web.close_connection = True
    for kind, data in pieces:
        text = data if isinstance(data, str) else json.dumps(data)
        web.wfile.write(((f"event: {kind}\n" if kind else "") + f"data: {text}\n\n").encode())


def reply(web, value, status=200):
    web.send(json.dumps(value).encode(), "application/json", status)


def chat(web, body, call, text):
    head = {"id": "chatcmpl-1", "created": int(time.time()), "model": body.get("model", "m")}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    message = {"role": "assistant", "content": None if call else text}
    if call:
        message["tool_calls"] = [{"id": "call_1", "type": "function",
                                  "function": {"name": call[0], "arguments": json.dumps(call[1])}}]
    reason = "tool_calls" if call else "stop"
    if not body.get("stream"):
        reply(web, head | {"object": "chat.completion", "usage": usage,
                           "choices": [{"index": 0, "message": message, "finish_reason": reason}]})
        return
    if call:
        message["tool_calls"][0]["index"] = 0
    chunk = head | {"object": "chat.completion.chunk"}
    events(web, [(None, chunk | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]}),
                 (None, chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}),
                 (None, "[DONE]")])


def responses(web, body, call, text):
    item = ({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": call[0], "status": "completed",
             "arguments": json.dumps(call[1])} if call else
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": text, "annotations": []}]})
    whole = {"id": "resp_1", "object": "response", "created_at": int(time.time()), "model": body.get("model", "m"),
             "status": "completed", "output": [item], "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
             "error": None, "incomplete_details": None, "instructions": None, "metadata": {},
             "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
                       "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}}
    if not body.get("stream"):
        reply(web, whole)
        return
    begun = item | ({"arguments": ""} if call else {"content": []})
    pieces = [("response.created", {"response": whole | {"status": "in_progress", "output": []}}),
              ("response.output_item.added", {"output_index": 0, "item": begun | {"status": "in_progress"}})]
    if not call:
        part = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        pieces += [("response.content_part.added", part | {"part": {"type": "output_text", "text": "", "annotations": []}}),
                   ("response.output_text.delta", part | {"delta": text, "logprobs": []}),
                   ("response.output_text.done", part | {"text": text, "logprobs": []})]
    pieces += [("response.output_item.done", {"output_index": 0, "item": item}), ("response.completed", {"response": whole})]
    events(web, [(kind, {"type": kind, "sequence_number": n} | data) for n, (kind, data) in enumerate(pieces)])


def messages(web, body, call, text):
    block = ({"type": "tool_use", "id": "toolu_1", "name": call[0], "input": call[1]} if call else
             {"type": "text", "text": text})
    reason = "tool_use" if call else "end_turn"
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model", "m"), "content": [block],
             "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5}}
    if not body.get("stream"):
        reply(web, whole)
        return
    begun = block | ({"input": {}} if call else {"text": ""})
    delta = ({"type": "input_json_delta", "partial_json": json.dumps(call[1])} if call else
             {"type": "text_delta", "text": text})
    pieces = [("message_start", {"message": whole | {"content": [], "stop_reason": None}}),
              ("content_block_start", {"index": 0, "content_block": begun}),
              ("content_block_delta", {"index": 0, "delta": delta}), ("content_block_stop", {"index": 0}),
              ("message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 5}}),
              ("message_stop", {})]
    events(web, [(kind, {"type": kind} | data) for kind, data in pieces])


CALLS = {"/v1/chat/completions": chat, "/v1/responses": responses, "/v1/messages": messages}


def has_result(body):
    """Has the tool's result come already?"""
    text = json.dumps(body.get("messages") or body.get("input") or "")
    return bool(re.search(r'"(tool_result|function_call_output|custom_tool_call_output|tool_call_id)"', text))


def key_is_good(web, key):
    said = web.headers.get("x-api-key") or (web.headers.get("Authorization") or "").removeprefix("Bearer ")
    return hmac.compare_digest(said.encode(), key.encode())


def read_body(web):
    if web.headers.get("Transfer-Encoding") != "chunked":
        return web.rfile.read(int(web.headers.get("Content-Length") or 0))
    data = b""
    while n := int(web.rfile.readline(), 16):
        data += web.rfile.read(n)
        web.rfile.readline()
    web.rfile.readline()
    return data


def hold(home):
    for _ in range(HOLD_SECONDS * 10):
        if not (home / "model-hold").exists():
            return
        time.sleep(0.1)


def answer(web):
    raw, home = read_body(web), web.home
    good = key_is_good(web, (home / "model-key").read_text())
    path = web.path.partition("?")[0]
    body = json.loads(raw) if raw[:1] == b"{" else {}
    call = None if has_result(body) else shell_of(body.get("tools"))
    with open(home / "models.log", "a", encoding="utf-8") as log:
        log.write(json.dumps({"method": web.command, "host": web.headers.get("Host"), "path": path, "key": good,
                              "tools": len(body.get("tools") or ()), "result": has_result(body),
                              "call": call[0] if call else None}) + "\n")
    if not good:
        reply(web, {"type": "error", "error": {"type": "authentication_error", "message": "invalid key"}}, 401)
    elif path in CALLS:
        if not call:
            hold(home)
        CALLS[path](web, body, call, AIDER_EDIT if wants_edit(body) else SAID)
    elif path.startswith("/v1/models"):
        reply(web, {"object": "list", "data": [{"id": "gpt-test", "object": "model", "created": 1, "owned_by": "o"}]})
    elif path.endswith("count_tokens"):
        reply(web, {"input_tokens": 10})
    else:
        reply(web, {"type": "error", "error": {"type": "not_found_error", "message": f"nothing at {path}"}}, 404)
