// The unmodified SDK's commands, sessions, terminals and files, and a stop and a start; with its stream of events, as it
// comes.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Daytona } from '@daytonaio/sdk'

const daytona = new Daytona({ apiKey: process.env.E2B_API_KEY, apiUrl: `https://${process.env.E2B_DOMAIN}/api` })
let sandbox

before(async () => {
  sandbox = await daytona.create({ snapshot: 'host', envVars: { MADE: 'yes' } })
})

after(async () => {
  await sandbox?.delete()
})

test('a command', async () => {
  const done = await sandbox.process.executeCommand('echo $A $MADE; id -un; exit 3', undefined, { A: 'b' })
  assert.equal(done.exitCode, 3)
  assert.equal(done.result, 'b yes\ndaytona\n')
})

test('a session, and its logs as they come', async () => {
  await sandbox.process.createSession('s1')
  await sandbox.process.executeSessionCommand('s1', { command: 'cd /tmp; export B=1' })
  const sync = await sandbox.process.executeSessionCommand('s1', { command: 'echo $PWD $B; echo err >&2' })
  assert.deepEqual([sync.exitCode, sync.stdout, sync.stderr], [0, '/tmp 1\n', 'err\n'])
  const made = await sandbox.process.executeSessionCommand('s1', { command: 'echo o; echo e >&2', runAsync: true })
  let out = '', err = ''
  await sandbox.process.getSessionCommandLogs('s1', made.cmdId, (c) => { out += c }, (c) => { err += c })
  assert.deepEqual([out, err], ['o\n', 'e\n'])
  await sandbox.process.deleteSession('s1')
  await assert.rejects(sandbox.process.getSession('s1'), /not found/)
})

test('files', async () => {
  await sandbox.fs.createFolder('work', '755')
  await sandbox.fs.uploadFile(Buffer.from('hello'), 'work/a b.txt')
  assert.equal((await sandbox.fs.downloadFile('work/a b.txt')).toString(), 'hello')
  assert.deepEqual((await sandbox.fs.listFiles('work')).map((f) => [f.name, f.size, f.isDir]), [['a b.txt', 5, false]])
  assert.deepEqual((await sandbox.fs.searchFiles('work', '*.txt')).files, ['work/a b.txt'])
})

test('a terminal', async () => {
  let seen = ''
  const pty = await sandbox.process.createPty({
    id: 'p1', cols: 90, rows: 30, envs: { FOO: 'bar' }, onData: (bytes) => { seen += new TextDecoder().decode(bytes) },
  })
  await pty.waitForConnection()
  await pty.sendInput('stty size; echo "<$FOO>"; exit 5\n')
  assert.equal((await pty.wait()).exitCode, 5)
  assert.match(seen, /30 90\r\n<bar>/)
})

test('the interpreter keeps its variables', async () => {
  const python = sandbox.codeInterpreter
  const seen = []
  assert.equal((await python.runCode('x = 41')).error, undefined)
  const done = await python.runCode('print(x + 1)\n1 / 0', { onStdout: (m) => seen.push(m.output) })
  assert.deepEqual([done.stdout, seen.join(''), done.error.name], ['42\n', '42\n', 'ZeroDivisionError'])
  const context = await python.createContext('/tmp')
  assert.deepEqual((await python.listContexts()).map((one) => one.id), [context.id])
  assert.equal((await python.runCode("print('x' in globals())", { context })).stdout, 'False\n')
  await python.deleteContext(context)
  await assert.rejects(python.runCode('import time; time.sleep(600)', { timeout: 1 }), { name: 'DaytonaTimeoutError' })
})

test('the time after which a stopped one is deleted is as it was set', async () => {
  const one = await daytona.create({ snapshot: 'host', autoDeleteInterval: 15 })
  try {
    assert.equal(one.autoDeleteInterval, 15)
    await one.stop()
    await one.setAutoDeleteInterval(30)
    await one.refreshData()
    assert.deepEqual([one.autoDeleteInterval, one.state], [30, 'stopped'])
    await one.setAutoDeleteInterval(-1)
    assert.equal((await daytona.get(one.id)).autoDeleteInterval, -1)
  } finally {
    await one.setAutoDeleteInterval(0)
  }
  await assert.rejects(daytona.get(one.id), { name: 'DaytonaNotFoundError' })
})

test('a fork and a snapshot begin with the files', async () => {
  await sandbox.fs.uploadFile(Buffer.from('one'), 'forked')
  const fork = await sandbox.fork({ name: 'js-fork' })
  try {
    assert.deepEqual([fork.name, fork.state, String(await fork.fs.downloadFile('forked'))], ['js-fork', 'started', 'one'])
  } finally {
    await fork.delete()
  }
  await sandbox.createSnapshot('js-snapshot')
  const shown = await daytona.snapshot.get('js-snapshot')
  assert.equal(shown.state, 'active')
  assert.ok((await daytona.snapshot.list()).items.some((one) => one.name === 'js-snapshot'))
  const made = await daytona.create({ snapshot: 'js-snapshot' })
  try {
    assert.equal(String(await made.fs.downloadFile('forked')), 'one')
  } finally {
    await made.delete()
    await daytona.snapshot.delete(shown)
  }
  await assert.rejects(daytona.snapshot.get('js-snapshot'), { name: 'DaytonaNotFoundError' })
})

test('a stop keeps the files, and a start goes on with them', async () => {
  await sandbox.process.executeCommand('echo kept >kept')
  await sandbox.stop()
  assert.equal(sandbox.state, 'stopped')
  await sandbox.archive()
  await sandbox.refreshData()
  assert.equal(sandbox.state, 'archived')
  await sandbox.start()
  assert.equal(sandbox.state, 'started')
  assert.equal((await sandbox.process.executeCommand('cat kept; echo $MADE')).result, 'kept\nyes\n')
})

test('a resize', async () => {
  const whole = sandbox.cpu
  await sandbox.stop()
  await sandbox.resize({ cpu: 1 })
  assert.deepEqual([sandbox.cpu, sandbox.state], [1, 'stopped'])
  await sandbox.start()
  await sandbox.resize({ cpu: whole })
  assert.deepEqual([sandbox.cpu, sandbox.state], [whole, 'started'])
  await assert.rejects(sandbox.resize({ cpu: 1 }), /stopped state to decrease/)
  await assert.rejects(sandbox.resize({ disk: 9 }), /stopped sandbox/)
  await assert.rejects(sandbox.resize({ cpu: 1000 }), /at most/)
  assert.equal((await sandbox.process.executeCommand('echo on')).result, 'on\n')
})

test('a volume outlives its sandboxes', async () => {
  const volume = await daytona.volume.get('daytona-js', true)
  try {
    assert.ok((await daytona.volume.list()).some((one) => one.id === volume.id))
    for (const [command, result] of [['echo kept > /mnt/data/here', ''], ['cat /mnt/data/here', 'kept\n']]) {
      const made = await daytona.create({ snapshot: 'host', volumes: [{ volumeId: volume.id, mountPath: '/mnt/data' }] })
      try {
        assert.equal((await made.process.executeCommand(command)).result, result)
      } finally {
        await made.delete()
      }
    }
  } finally {
    await daytona.volume.delete(volume)
  }
  await assert.rejects(daytona.volume.get('daytona-js'), /not found/)
})

// Nothing but the event can end the wait: what asks beside it is switched off.
test('waits end by an event', async () => {
  const call = (step) => fetch(`https://${process.env.E2B_DOMAIN}/api/sandbox/${sandbox.id}/${step}`,
    { method: 'POST', headers: { Authorization: `Bearer ${process.env.E2B_API_KEY}` } })
  const asks = sandbox.refreshData
  sandbox.refreshData = async () => {}
  try {
    assert.equal(sandbox.state, 'started')
    const stopped = sandbox.waitUntilStopped(30)
    assert.equal((await call('stop')).status, 200)
    await stopped
    assert.equal(sandbox.state, 'stopped')
    const started = sandbox.waitUntilStarted(30)
    assert.equal((await call('start')).status, 200)
    await started
    assert.equal(sandbox.state, 'started')
  } finally {
    sandbox.refreshData = asks
  }
})
