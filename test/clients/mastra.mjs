// Mastra: a workspace with E2BSandbox; commands and files.
import assert from 'node:assert/strict'
import { Workspace } from '@mastra/core/workspace'
import { E2BSandbox } from '@mastra/e2b'

const sandbox = new E2BSandbox({ timeout: 60_000 })
const workspace = new Workspace({ sandbox })
await workspace.init()
try {
  const result = await sandbox.executeCommand('sh', ['-c', 'echo $((6 * 7))'])
  assert.equal(result.stdout.trim(), '42')
  // Mastra itself gives the output of a command that fails twice.
  assert.equal((await sandbox.executeCommand('sh', ['-c', 'exit 3'])).exitCode, 3)
} finally {
  await workspace.destroy()
}
