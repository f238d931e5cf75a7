// The example of examples/js that Daytona's clients know, as it is, with the packages of this folder.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { copyFile, mkdir } from 'node:fs/promises'
import { test } from 'node:test'
import { promisify } from 'node:util'

const here = new URL('./', import.meta.url)
const { E2B_API_KEY, E2B_DOMAIN } = process.env
const env = { ...process.env, DAYTONA_API_URL: `https://${E2B_DOMAIN}/api`, DAYTONA_API_KEY: E2B_API_KEY, MODEL: '' }

test('deepagents', async () => {
  const copy = new URL('node_modules/.cay-examples/deepagents.mjs', here) // where packages are found
  await mkdir(new URL('.', copy), { recursive: true })
  await copyFile(new URL('../../../examples/js/deepagents.mjs', here), copy)
  const { stdout } = await promisify(execFile)(process.execPath, [copy.pathname], { env, timeout: 120000 })
  assert.match(stdout, /^tool: 285\n\n\[Command succeeded with exit code 0\]$/m)
  assert.match(stdout, /^ai: The script has run\.$/m)
})
