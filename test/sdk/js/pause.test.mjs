import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, SandboxNotFoundError } from 'e2b'
import { until, withSandbox } from './helpers.mjs'

async function listed(sandbox, state) {
  const paginator = Sandbox.list({ query: { state: [state] } })
  const all = []
  while (paginator.hasNext) all.push(...(await paginator.nextItems()))
  return all.some((one) => one.sandboxId === sandbox.sandboxId)
}

test('a sandbox is paused and connected to, with its programs and files', async () => {
  await withSandbox(async (sandbox) => {
    const command = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
    command.wait().catch(() => {}) // its stream ends with the pause
    await sandbox.files.write('here', 'x')
    assert.equal(await sandbox.pause(), true)
    assert.equal(await sandbox.isRunning(), false)
    assert.equal(await listed(sandbox, 'paused'), true)
    assert.equal(await listed(sandbox, 'running'), false)
    assert.equal((await sandbox.getInfo()).state, 'paused')
    assert.equal(await sandbox.pause(), false)
    await sandbox.connect()
    assert.equal(await sandbox.isRunning(), true)
    assert.equal(await sandbox.files.read('here'), 'x')
    assert.ok((await sandbox.commands.list()).some((one) => one.pid === command.pid))
    assert.equal((await sandbox.commands.connect(command.pid)).pid, command.pid)
    assert.equal(await sandbox.commands.kill(command.pid), true)
  }, { envs: { KEPT: 'yes' } })
})

test('a sandbox is paused at the end of its time', async () => {
  await withSandbox(async (sandbox) => {
    await until(async () => (await sandbox.getInfo()).state === 'paused', 'the pause')
    assert.equal((await (await Sandbox.connect(sandbox.sandboxId)).commands.run('echo awake')).stdout, 'awake\n')
  }, { timeoutMs: 2000, lifecycle: { onTimeout: 'pause' } })
})

test('what is asked of a paused sandbox wakes it, if its owner wants that', async () => {
  await withSandbox(async (sandbox) => {
    for (let i = 0; i < 3; i++) {
      assert.equal(await sandbox.pause(), true)
      assert.equal((await sandbox.commands.run('echo awake')).stdout, 'awake\n')
    }
  }, { lifecycle: { onTimeout: 'pause', autoResume: true } })
})

test('a sandbox is paused with its files alone, and boots anew', async () => {
  await withSandbox(async (sandbox) => {
    const boot = async () => (await sandbox.commands.run('cat /proc/sys/kernel/random/boot_id; echo $KEPT')).stdout.split('\n')
    const before = await boot()
    await sandbox.files.write('here', 'x')
    assert.equal(await sandbox.pause({ keepMemory: false }), true)
    assert.equal(await sandbox.isRunning(), false)
    await sandbox.connect()
    assert.equal(await sandbox.isRunning(), true)
    assert.equal(await sandbox.files.read('here'), 'x')
    const after = await boot()
    assert.notEqual(after[0], before[0])
    assert.equal(after[1], 'yes')
  }, { envs: { KEPT: 'yes' } })
})

test('at the end of its time its files alone are kept', async () => {
  await withSandbox(async (sandbox) => {
    await sandbox.files.write('here', 'x')
    await until(async () => (await sandbox.getInfo()).state === 'paused', 'the pause')
    await sandbox.connect()
    assert.equal(await sandbox.files.read('here'), 'x')
  }, { timeoutMs: 2000, lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
})

test('a paused sandbox can be ended', async () => {
  await withSandbox(async (sandbox) => {
    assert.equal(await sandbox.pause(), true)
    assert.equal(await sandbox.kill(), true)
    await assert.rejects(Sandbox.connect(sandbox.sandboxId), SandboxNotFoundError)
  })
})
