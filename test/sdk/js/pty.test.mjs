import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Sandbox } from 'e2b'
import { template, until } from './helpers.mjs'

let sandbox
before(async () => { sandbox = await Sandbox.create(template, { timeoutMs: 300_000 }) })
after(async () => { await sandbox?.kill() })

async function open(options = {}) {
  const decoder = new TextDecoder()
  const terminal = { text: '' }
  terminal.handle = await sandbox.pty.create({
    cols: 80, rows: 24, onData: (data) => { terminal.text += decoder.decode(data, { stream: true }) }, ...options,
  })
  terminal.type = (text) => sandbox.pty.sendInput(terminal.handle.pid, new TextEncoder().encode(text))
  terminal.sees = (text) => until(() => terminal.text.includes(text), `${text} in ${JSON.stringify(terminal.text)}`)
  return terminal
}

test('a shell with a terminal: input, output, exit code', async () => {
  const terminal = await open({ envs: { WORD: 'w0rd' } })
  await terminal.type('tty && echo "$WORD-$TERM"\n')
  await terminal.sees('/dev/pts/')
  await terminal.sees('w0rd-xterm')
  await terminal.type('exit 3\n')
  await assert.rejects(terminal.handle.wait(), (error) => error.exitCode === 3)
})

test('a resized terminal tells its programs', async () => {
  const terminal = await open()
  await terminal.type('stty size\n')
  // readline sets back the size that it read, before each prompt
  await until(() => /24 80\r?\n[^]*\$ /.test(terminal.text), `a prompt after 24 80 in ${JSON.stringify(terminal.text)}`)
  await sandbox.pty.resize(terminal.handle.pid, { cols: 133, rows: 41 })
  await terminal.type('stty size\n')
  await terminal.sees('41 133')
  await sandbox.pty.kill(terminal.handle.pid)
})

test('control-C ends the program and not the shell', async () => {
  const terminal = await open()
  await terminal.type('sleep 600\n')
  await terminal.sees('sleep 600')
  await new Promise((resolve) => setTimeout(resolve, 500))
  await terminal.type('\x03')
  await terminal.type('echo still $((40+2))\n')
  await terminal.sees('still 42')
  assert.equal(await sandbox.pty.kill(terminal.handle.pid), true)
})

test('a terminal is connected to again', async () => {
  const terminal = await open()
  await terminal.handle.disconnect()
  let text = ''
  const again = await sandbox.pty.connect(terminal.handle.pid, { onData: (data) => { text += new TextDecoder().decode(data) } })
  await sandbox.pty.sendInput(again.pid, new TextEncoder().encode('echo back $((40+2))\n'))
  await until(() => text.includes('back 42'), 'the answer')
  await sandbox.pty.kill(again.pid)
})

test('a killed terminal is gone', async () => {
  const terminal = await open()
  const waited = assert.rejects(terminal.handle.wait())
  assert.equal(await sandbox.pty.kill(terminal.handle.pid), true)
  await waited
  assert.equal(await sandbox.pty.kill(terminal.handle.pid), false)
  await assert.rejects(sandbox.commands.run(`kill -0 ${terminal.handle.pid}`))
})
