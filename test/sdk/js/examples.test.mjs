// The example of examples/js that stands on E2B's SDK, as it is, with the packages of this folder.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { copyFile, mkdir } from 'node:fs/promises'
import { test } from 'node:test'
import { promisify } from 'node:util'

const here = new URL('./', import.meta.url)

test('hello', async () => {
  const copy = new URL('node_modules/.cay-examples/hello.mjs', here) // where packages are found
  await mkdir(new URL('.', copy), { recursive: true })
  await copyFile(new URL('../../../examples/js/hello.mjs', here), copy)
  const { stdout } = await promisify(execFile)(process.execPath, [copy.pathname], { timeout: 120000 })
  assert.match(stdout, /^line 1\nline 2\nline 3\n/)
  assert.match(stdout, /stdout: '6\\n'/)
})
