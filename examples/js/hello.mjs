// npm install e2b; eval "$(cay env)"; node hello.mjs
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create()
try {
  await sandbox.commands.run('for i in 1 2 3; do echo line $i; sleep 0.2; done', {
    onStdout: (data) => process.stdout.write(data),
  })
  await sandbox.files.write('numbers.txt', [1, 2, 3].join('\n'))
  console.log(await sandbox.commands.run("awk '{s += $1} END {print s}' numbers.txt"))
} finally {
  await sandbox.kill()
}
