// The unmodified TypeScript SDKs against a cay server: the one of the handshake revisions (@modelcontextprotocol/sdk), and its
// successor (@modelcontextprotocol/client), which speaks both generations. Each lists and calls every tool, checks the results
// against the tools' schemas by itself, is told progress, and gives up a command, which is killed.
import assert from "node:assert/strict";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import * as now from "@modelcontextprotocol/client";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const url = new URL(`https://${process.env.E2B_DOMAIN}/mcp`);
const options = { requestInit: { headers: { Authorization: `Bearer ${process.env.E2B_API_KEY}` } } };
const me = { name: "test", version: "1" };
const calls = {
  run: { command: "echo hi; exit 3" }, write: { path: "a b.txt", content: "one\ntwo\n" }, read: { path: "a b.txt" },
  edit: { path: "a b.txt", old: "two", new: "three" }, list: {}, search: { by: "content", pattern: "thr.e" },
  expose: { port: 8000 }, pause: {}, resume: {}, kill: {},
};

// [name, a client, its transport, how its callTool takes options]
const clients = [
  ["sdk", () => new OldClient(me), () => new OldTransport(url, options), (client, call, more) => client.callTool(call, undefined, more)],
  ["client, handshake", () => new now.Client(me), () => new now.StreamableHTTPClientTransport(url, options),
    (client, call, more) => client.callTool(call, more)],
  ["client, newest", () => new now.Client(me, { versionNegotiation: { mode: "auto" } }),
    () => new now.StreamableHTTPClientTransport(url, options), (client, call, more) => client.callTool(call, more)],
];

for (const [name, makeClient, makeTransport, callTool] of clients) {
  test(`every tool: ${name}`, async () => {
    const client = makeClient();
    await client.connect(makeTransport());
    try {
      const names = (await client.listTools()).tools.map((tool) => tool.name);
      assert.deepEqual([...names].sort(), ["create", ...Object.keys(calls)].sort());
      const { sandbox } = (await callTool(client, { name: "create", arguments: {} })).structuredContent;
      const got = {};
      for (const [tool, args] of Object.entries(calls)) {
        const result = await callTool(client, { name: tool, arguments: { ...args, sandbox } });
        assert.ok(!result.isError, JSON.stringify(result));
        got[tool] = result.structuredContent;
      }
      assert.equal(got.run.exit_code, 3);
      assert.equal(got.read.content, "one\ntwo\n");
      assert.equal(got.search.matches[0].text, "three");
      const refused = await callTool(client, { name: "run", arguments: { command: "true", sandbox } });
      assert.ok(refused.isError && refused.content[0].text.includes("ended"));
    } finally {
      await client.close();
    }
  });

  test(`progress and giving up: ${name}`, async () => {
    const client = makeClient();
    await client.connect(makeTransport());
    const { sandbox } = (await callTool(client, { name: "create", arguments: {} })).structuredContent;
    const run = (command, more) => callTool(client, { name: "run", arguments: { command, sandbox } }, more);
    const waitUntil = async (wanted) => {
      for (let i = 0; i < 300; i++) {
        const { stdout } = (await run("pgrep -f '[m]arker' || true")).structuredContent;
        if ((stdout !== "") === wanted) return;
        await sleep(50);
      }
      assert.fail(`never ${wanted}`);
    };
    try {
      const told = [];
      const result = await run("for i in 1 2 3; do echo line $i; sleep 0.4; done", { onprogress: (p) => told.push(p.message) });
      assert.equal(result.structuredContent.stdout, "line 1\nline 2\nline 3\n");
      assert.ok(told.length >= 2, JSON.stringify(told));
      const given = new AbortController();
      const call = run("exec -a marker sleep 300", { signal: given.signal });
      await waitUntil(true);
      given.abort("enough");
      await assert.rejects(call);
      await waitUntil(false);
    } finally {
      await callTool(client, { name: "kill", arguments: { sandbox } });
      await client.close();
    }
  });
}
