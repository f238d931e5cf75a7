import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { FileType, FilesystemEventType, InvalidArgumentError, NotFoundError, Sandbox } from 'e2b'
import { pattern, template, until } from './helpers.mjs'

let sandbox
before(async () => { sandbox = await Sandbox.create(template, { timeoutMs: 300_000 }) })
after(async () => { await sandbox?.kill() })

test('text is written and read', async () => {
  const written = await sandbox.files.write('a.txt', 'Grüße\n')
  assert.equal(written.path, '/home/user/a.txt')
  assert.equal(written.type, FileType.FILE)
  assert.equal(await sandbox.files.read('a.txt'), 'Grüße\n')
  assert.equal(await sandbox.files.read('/home/user/a.txt'), 'Grüße\n')
})

test('ten mebibytes come back byte for byte', async () => {
  const bytes = pattern(10 * 1024 * 1024)
  await sandbox.files.write('/tmp/big.bin', new Blob([bytes]))
  const back = await sandbox.files.read('/tmp/big.bin', { format: 'bytes' })
  assert.ok(Buffer.from(bytes).equals(Buffer.from(back)))
  const sum = await sandbox.commands.run('stat -c %s /tmp/big.bin')
  assert.equal(sum.stdout, '10485760\n')
})

test('a stream is written and read', async () => {
  const bytes = pattern(1024 * 1024, 7)
  await sandbox.files.write('/tmp/stream.bin', new Blob([bytes]).stream())
  const chunks = []
  for await (const chunk of await sandbox.files.read('/tmp/stream.bin', { format: 'stream' })) chunks.push(chunk)
  assert.ok(Buffer.concat(chunks).equals(Buffer.from(bytes)))
})

test('gzip both ways changes nothing', async () => {
  const text = 'the same line\n'.repeat(10_000)
  await sandbox.files.write('/tmp/z.txt', text, { gzip: true })
  assert.equal(await sandbox.files.read('/tmp/z.txt', { gzip: true }), text)
  assert.equal((await sandbox.commands.run('head -1 /tmp/z.txt')).stdout, 'the same line\n')
})

test('several files in one request, into folders that are made', async () => {
  const written = await sandbox.files.write([
    { path: 'many/one.txt', data: '1' },
    { path: '/tmp/deep/er/ünï.txt', data: '2' },
    { path: 'many/empty', data: '' },
  ])
  assert.deepEqual(written.map((f) => f.path),
    ['/home/user/many/one.txt', '/tmp/deep/er/ünï.txt', '/home/user/many/empty'])
  assert.equal(await sandbox.files.read('/tmp/deep/er/ünï.txt'), '2')
  assert.equal(await sandbox.files.read('many/empty'), '')
})

test('writing again replaces all of it', async () => {
  await sandbox.files.write('again', 'a long first version')
  await sandbox.files.write('again', 'short')
  assert.equal(await sandbox.files.read('again'), 'short')
})

test('folders: made once, listed by depth, with what the entries are', async () => {
  assert.equal(await sandbox.files.makeDir('tree/a/b'), true)
  assert.equal(await sandbox.files.makeDir('tree/a/b'), false)
  await sandbox.files.write('tree/a/b/leaf', 'x')
  const one = await sandbox.files.list('tree')
  assert.deepEqual(one.map((e) => [e.name, e.type]), [['a', FileType.DIR]])
  const three = await sandbox.files.list('tree', { depth: 3 })
  assert.deepEqual(three.map((e) => e.path),
    ['/home/user/tree/a', '/home/user/tree/a/b', '/home/user/tree/a/b/leaf'])
})

test('info says what a file is', async () => {
  await sandbox.files.write('info.txt', '12345')
  await sandbox.commands.run('chmod 640 info.txt && ln -s info.txt link')
  const info = await sandbox.files.getInfo('info.txt')
  assert.equal(info.size, 5)
  assert.equal(info.mode, 0o640)
  assert.equal(info.permissions, '-rw-r-----')
  assert.equal(info.owner, 'user')
  assert.equal(info.group, 'user')
  const link = await sandbox.files.getInfo('link')
  assert.equal(link.symlinkTarget, '/home/user/info.txt')
})

test('exists, rename, remove', async () => {
  await sandbox.files.write('old', 'x')
  assert.equal(await sandbox.files.exists('old'), true)
  const moved = await sandbox.files.rename('old', 'new')
  assert.equal(moved.path, '/home/user/new')
  assert.equal(await sandbox.files.exists('old'), false)
  await sandbox.files.remove('new')
  assert.equal(await sandbox.files.exists('new'), false)
})

test('what is not there is not found', async () => {
  await assert.rejects(sandbox.files.read('nowhere'), NotFoundError)
  await assert.rejects(sandbox.files.list('nowhere'), NotFoundError)
  await assert.rejects(sandbox.files.rename('nowhere', 'x'), NotFoundError)
  await assert.rejects(sandbox.files.getInfo('nowhere'), NotFoundError)
})

test('a folder where a file should be is refused', async () => {
  await assert.rejects(sandbox.files.read('/tmp'), InvalidArgumentError)
  await assert.rejects(sandbox.files.write('/tmp', 'x'), InvalidArgumentError)
})

test('files belong to whom they are written as', async () => {
  await sandbox.files.write('/tmp/roots', 'x', { user: 'root' })
  assert.equal((await sandbox.files.getInfo('/tmp/roots')).owner, 'root')
  await sandbox.files.write('/tmp/users', 'x')
  assert.equal((await sandbox.files.getInfo('/tmp/users')).owner, 'user')
})

test('metadata travels with a file', async () => {
  await sandbox.files.write('meta', 'x', { metadata: { origin: 'test' } })
  assert.deepEqual((await sandbox.files.getInfo('meta')).metadata, { origin: 'test' })
})

test('files of procfs, which have no size, are read to their end', async () => {
  assert.match(await sandbox.files.read('/proc/meminfo'), /^MemTotal:/)
})

test('a folder is watched', async () => {
  await sandbox.files.makeDir('watched')
  const events = []
  const handle = await sandbox.files.watchDir('watched', (event) => { events.push(event) })
  await sandbox.files.write('watched/file', 'x')
  await until(() => events.some((e) => e.type === FilesystemEventType.WRITE && e.name === 'file'), 'a write')
  await sandbox.files.rename('watched/file', 'watched/other')
  await until(() => events.some((e) => e.type === FilesystemEventType.RENAME && e.name === 'file'), 'a rename')
  await sandbox.files.remove('watched/other')
  await until(() => events.some((e) => e.type === FilesystemEventType.REMOVE && e.name === 'other'), 'a removal')
  await handle.stop()
})

test('a folder is watched with what comes below it', async () => {
  await sandbox.files.makeDir('deep')
  const events = []
  const handle = await sandbox.files.watchDir('deep', (event) => { events.push(event) }, { recursive: true })
  await sandbox.files.makeDir('deep/new/er')
  await until(() => events.some((e) => e.name === 'new'), 'the folder')
  await sandbox.files.write('deep/new/er/file', 'x')
  await until(() => events.some((e) => e.name === 'new/er/file'), 'the file in it')
  await handle.stop()
})

test('a folder that is not there cannot be watched', async () => {
  await assert.rejects(sandbox.files.watchDir('nowhere', () => {}), NotFoundError)
})
