// ComputeSDK: the quick start with one provider; commands, files, the address of a port.
import assert from 'node:assert/strict'
import { compute } from 'computesdk'
import { e2b } from '@computesdk/e2b'

compute.setConfig({ provider: e2b({ apiKey: process.env.E2B_API_KEY }) })
const sandbox = await compute.sandbox.create()
try {
  const result = await sandbox.runCommand('python3 -c "print(6 * 7)"')
  assert.equal(result.stdout.trim(), '42')
  await sandbox.filesystem.writeFile('/home/user/notes.txt', 'kept')
  assert.equal(await sandbox.filesystem.readFile('/home/user/notes.txt'), 'kept')
  await sandbox.runCommand('nohup python3 -m http.server 8000 >/dev/null 2>&1 &')
  const url = await sandbox.getUrl({ port: 8000 })
  let answer
  for (let i = 0; i < 100 && answer?.status !== 200; i++) {
    await new Promise((resolve) => setTimeout(resolve, 100))
    answer = await fetch(url)
  }
  assert.equal(answer.status, 200)
} finally {
  await sandbox.destroy()
}
