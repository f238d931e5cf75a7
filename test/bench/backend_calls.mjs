// Commands one after the other, by each way that a JavaScript program has: node backend_calls.mjs PACKAGES-OF-DAYTONA PACKAGES-OF-E2B.
// Reads lines {"way", "commands"}, and answers each with {"ms"}: the time of each command. Ways: @langchain/daytona's execute(); the
// request that it makes, by fetch; E2B's SDK; child_process with that request's command (line), and with the command itself (bare).
import { execFile } from 'node:child_process'
import { createRequire } from 'node:module'
import { resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'

const [daytona, e2b] = process.argv.slice(2)
const load = (folder, name) => import(pathToFileURL(createRequire(resolve(folder, 'package.json')).resolve(name)))
const { DaytonaSandbox } = await load(daytona, '@langchain/daytona')
const { Sandbox } = await load(e2b, 'e2b')
const run = promisify(execFile)

// As the SDK below @langchain/daytona sends it.
const asSent = (command) => `sh -c "echo '${Buffer.from(command).toString('base64')}' | base64 -d | sh"`
const { DAYTONA_API_URL, DAYTONA_API_KEY } = process.env

async function request(command) {
  const answer = await fetch(`${DAYTONA_API_URL}/toolbox/${backend.id}/process/execute`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${DAYTONA_API_KEY}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ command: asSent(command), timeout: 300 }),
  })
  const { exitCode, result } = await answer.json()
  if (exitCode !== 0) throw new Error(`${command}: ${answer.status} ${result}`)
}

async function execute(command) {
  const { exitCode, output } = await backend.execute(command)
  if (exitCode !== 0) throw new Error(`${command}: ${output}`)
}

const backend = await DaytonaSandbox.create({ snapshot: 'host' })
const sandbox = await Sandbox.create('host', { timeoutMs: 3_600_000 })
const ways = {
  backend: execute,
  request,
  e2b: (command) => sandbox.commands.run(command),
  line: (command) => run('/bin/bash', ['-c', asSent(command)]),
  bare: (command) => run('/bin/sh', ['-c', command]),
}
try {
  for await (const asked of createInterface({ input: process.stdin })) {
    const { way, commands } = JSON.parse(asked)
    const ms = []
    for (const command of commands) {
      const begun = performance.now()
      await ways[way](command)
      ms.push(performance.now() - begun)
    }
    console.log(JSON.stringify({ ms }))
  }
} finally {
  await backend.close()
  await sandbox.kill()
}
