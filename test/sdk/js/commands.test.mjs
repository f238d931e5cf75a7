import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { CommandExitError, Sandbox, TimeoutError } from 'e2b'
import { processLimit, template, until } from './helpers.mjs'

let sandbox
before(async () => { sandbox = await Sandbox.create(template, { timeoutMs: 300_000, envs: { GLOBAL: 'g' } }) })
after(async () => { await sandbox?.kill() })

test('standard output and error come apart, in order, with the exit code', async () => {
  const result = await sandbox.commands.run('echo out; echo err >&2; printf "a\\nb"')
  assert.equal(result.exitCode, 0)
  assert.equal(result.stdout, 'out\na\nb')
  assert.equal(result.stderr, 'err\n')
})

test('a failing command throws with its code and output', async () => {
  await assert.rejects(sandbox.commands.run('echo so far; echo why >&2; exit 7'), (error) => {
    assert.ok(error instanceof CommandExitError)
    assert.equal(error.exitCode, 7)
    assert.equal(error.stdout, 'so far\n')
    assert.equal(error.stderr, 'why\n')
    return true
  })
})

test('a command that a signal ended throws too', async () => {
  await assert.rejects(sandbox.commands.run('kill -9 $$'), CommandExitError)
})

test('special characters arrive as they are', async () => {
  const text = `'"$\`\\ ü 漢字 😀 \t|;&<>`
  const result = await sandbox.commands.run('printf %s "$TEXT"', { envs: { TEXT: text } })
  assert.equal(result.stdout, text)
})

test('output is streamed while the command runs', async () => {
  const seen = []
  await sandbox.commands.run('for i in 1 2 3; do echo $i; sleep 0.3; done', {
    onStdout: (data) => { seen.push([data, Date.now()]) },
  })
  assert.equal(seen.map(([data]) => data).join(''), '1\n2\n3\n')
  assert.ok(seen.at(-1)[1] - seen[0][1] >= 300, 'all of it came at once')
})

test('eight mebibytes of output are whole', async () => {
  const result = await sandbox.commands.run('head -c 6291456 /dev/zero | base64 -w0')
  assert.equal(result.stdout.length, 8 * 1024 * 1024)
  assert.match(result.stdout, /^A+$/)
})

test('environment: of the sandbox, of the command, and not of the command before', async () => {
  const both = await sandbox.commands.run('echo $GLOBAL-$OWN', { envs: { OWN: 'o' } })
  assert.equal(both.stdout, 'g-o\n')
  const one = await sandbox.commands.run('echo $GLOBAL-$OWN', { envs: { GLOBAL: 'x' } })
  assert.equal(one.stdout, 'x-\n')
  const id = await sandbox.commands.run('echo $E2B_SANDBOX:$E2B_SANDBOX_ID')
  assert.equal(id.stdout, `true:${sandbox.sandboxId}\n`)
})

test('user and directory', async () => {
  assert.equal((await sandbox.commands.run('id -un; pwd')).stdout, 'user\n/home/user\n')
  assert.equal((await sandbox.commands.run('id -u; pwd', { user: 'root', cwd: '/tmp' })).stdout, '0\n/tmp\n')
  assert.equal((await sandbox.commands.run('sudo id -u')).stdout, '0\n')
})

test('a directory that is not there is said so', async () => {
  await assert.rejects(sandbox.commands.run('true', { cwd: '/nowhere' }), /does not exist/)
})

test('a timeout ends the command and says so', async () => {
  const begun = Date.now()
  await assert.rejects(sandbox.commands.run('sleep 60', { timeoutMs: 1000 }), TimeoutError)
  assert.ok(Date.now() - begun < 10_000)
})

test('in the background: pid, list, kill, kill again', async () => {
  const handle = await sandbox.commands.run('sleep 3600', { background: true })
  assert.ok(handle.pid > 1)
  const listed = await sandbox.commands.list()
  assert.ok(listed.some((p) => p.pid === handle.pid && p.args.join(' ').includes('sleep 3600')))
  assert.equal(await sandbox.commands.kill(handle.pid), true)
  await assert.rejects(handle.wait(), CommandExitError)
  await assert.rejects(sandbox.commands.run(`kill -0 ${handle.pid}`), CommandExitError)
  assert.equal(await sandbox.commands.kill(handle.pid), false)
})

test('standard input: lines, bytes, nothing, the end', async () => {
  const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(handle.pid, 'one\n')
  await sandbox.commands.sendStdin(handle.pid, '')
  await sandbox.commands.sendStdin(handle.pid, 'zwei ü\n')
  await sandbox.commands.closeStdin(handle.pid)
  const result = await handle.wait()
  assert.equal(result.stdout, 'one\nzwei ü\n')
})

test('a command is connected to again', async () => {
  const handle = await sandbox.commands.run('read line; echo got $line', { background: true, stdin: true })
  await handle.disconnect()
  const again = await sandbox.commands.connect(handle.pid)
  assert.equal(again.pid, handle.pid)
  await sandbox.commands.sendStdin(handle.pid, 'it\n')
  assert.equal((await again.wait()).stdout, 'got it\n')
})

test('a command that is not there cannot be connected to', async () => {
  await assert.rejects(sandbox.commands.connect(999_999))
})

test('children of a background command do not hold it up', async () => {
  const result = await sandbox.commands.run('setsid sleep 300 >/dev/null 2>&1 </dev/null & echo started')
  assert.equal(result.stdout, 'started\n')
})

test('twenty commands at a time keep their outputs apart', async (t) => {
  if (processLimit() < 128) {
    t.skip(`this machine gives a user ${processLimit()} processes (RLIMIT_NPROC), twenty commands need more`)
    return
  }
  const results = await Promise.all(Array.from({ length: 20 }, (_, i) =>
    sandbox.commands.run(`for k in $(seq 200); do echo ${i}:$k; done`)))
  results.forEach((result, i) => {
    assert.equal(result.stdout, Array.from({ length: 200 }, (_, k) => `${i}:${k + 1}\n`).join(''))
  })
})

test('a sandbox that is killed ends its command', async () => {
  const other = await Sandbox.create(template)
  const handle = await other.commands.run('sleep 3600', { background: true })
  const waited = assert.rejects(handle.wait(), TimeoutError)
  assert.equal(await other.kill(), true)
  await waited
  await until(async () => !(await other.isRunning()), 'the end')
})
