// @openai/agents: a session of E2BSandboxClient with its defaults; commands and files.
import assert from 'node:assert/strict'
import { E2BSandboxClient } from '@openai/agents-extensions/sandbox/e2b'

const client = new E2BSandboxClient()
const session = await client.create()
try {
  const said = await session.execCommand({ cmd: 'echo $((6 * 7))' })
  assert.match(typeof said === 'string' ? said : JSON.stringify(said), /42/)
} finally {
  await (client.delete?.(session.state) ?? session.close?.())
}
