// From Sandbox.create() to the first byte of a command's output, as a program that uses the SDK sees it:
// node sdk.mjs DIRECTORY-OF-NODE_MODULES COUNT. One time in milliseconds a line. Each sandbox is killed before
// the next is made, outside of the time.
import { createRequire } from 'node:module'
import { resolve } from 'node:path'

const [directory, count] = process.argv.slice(2)
const { Sandbox } = createRequire(resolve(directory, 'package.json'))('e2b')

async function once() {
  let first
  const begun = performance.now()
  const sandbox = await Sandbox.create('host', { timeoutMs: 60_000 })
  await sandbox.commands.run('echo hi', { onStdout: () => { first ??= performance.now() } })
  await sandbox.kill()
  return first - begun
}

for (let i = 0; i < 5; i++) await once() // the program itself warms up
for (let i = 0; i < Number(count); i++) console.log(await once())
