import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, Volume, VolumeError, VolumeNotFoundError, VolumePathNotFoundError } from 'e2b'
import { pattern, template, withSandbox } from './helpers.mjs'

test('a volume outlives its sandboxes', async () => {
  const volume = await Volume.create('js-data')
  try {
    await withSandbox(async (sandbox) => {
      await sandbox.files.write('/mnt/data/here', 'x')
      assert.deepEqual((await sandbox.getInfo()).volumeMounts.map((m) => [m.name, m.path]), [['js-data', '/mnt/data']])
      await assert.rejects(Sandbox.create(template, { volumeMounts: { '/v': 'js-data' } }), new RegExp(sandbox.sandboxId))
    }, { volumeMounts: { '/mnt/data': volume } })
    await withSandbox(async (first) => {
      await withSandbox(async (second) => {
        for (const one of [first, second]) assert.equal(await one.files.read('/in/here'), 'x')
        await assert.rejects(first.files.write('/in/here', 'y'))
      }, { volumeMounts: { '/in': 'js-data:ro' } })
    }, { volumeMounts: { '/in': 'js-data:ro' } })
    assert.ok((await Volume.list()).some((one) => one.volumeId === volume.volumeId && one.name === 'js-data'))
    assert.equal((await Volume.getInfo(volume.volumeId)).name, 'js-data')
  } finally {
    assert.equal(await Volume.destroy(volume.volumeId), true)
  }
  await assert.rejects(Volume.getInfo(volume.volumeId), VolumeNotFoundError)
  assert.equal(await Volume.destroy(volume.volumeId), false)
})

test('contents without a sandbox', async () => {
  const volume = await Volume.create('js-contents')
  const paths = async (path, options) => (await volume.list(path, options)).map((one) => one.path)
  try {
    assert.deepEqual(await paths('/'), [])
    const dir = await volume.makeDir('/dir', { uid: 1001, gid: 1002, mode: 0o750 })
    assert.deepEqual([dir.name, dir.type, dir.path, dir.uid, dir.gid, dir.mode], ['dir', 'directory', '/dir', 1001, 1002, 0o750])
    assert.ok(dir.mtime instanceof Date && Math.abs(Date.now() - dir.mtime) < 3600_000)
    assert.equal((await volume.makeDir('/a/b/c', { force: true })).uid, 1000)
    const text = await volume.writeFile('/dir/text', 'grüße', { uid: 5, gid: 6, mode: 0o600 })
    assert.deepEqual([text.type, text.size, text.uid, text.gid, text.mode], ['file', 7, 5, 6, 0o600])
    const bytes = pattern(3 << 20)
    assert.equal((await volume.writeFile('/buffer', bytes.buffer)).size, bytes.length)
    assert.equal((await volume.writeFile('/blob', new Blob([bytes]))).size, bytes.length)
    assert.equal((await volume.writeFile('/stream', new Blob([bytes]).stream())).size, bytes.length)
    assert.equal((await volume.writeFile('/empty', '')).size, 0)
    assert.equal(await volume.readFile('/dir/text'), 'grüße')
    assert.equal(await volume.readFile('/empty'), '')
    assert.deepEqual(await volume.readFile('/buffer', { format: 'bytes' }), bytes)
    assert.deepEqual(new Uint8Array(await (await volume.readFile('/blob', { format: 'blob' })).arrayBuffer()), bytes)
    const pieces = []
    for await (const piece of await volume.readFile('/stream', { format: 'stream' })) pieces.push(piece)
    assert.deepEqual(new Uint8Array(Buffer.concat(pieces)), bytes)
    for (const wrong of [
      () => volume.readFile('/none'), () => volume.readFile('/none', { format: 'stream' }), () => volume.getInfo('/none'),
      () => volume.list('/none'), () => volume.remove('/none'), () => volume.updateMetadata('/none', { mode: 0o600 }),
      () => volume.makeDir('/none/b'), () => volume.writeFile('/none/b', ''),
    ]) await assert.rejects(wrong(), VolumePathNotFoundError)
    await assert.rejects(volume.readFile('/dir'), VolumeError)
    assert.deepEqual([await volume.exists('/dir'), await volume.exists('/none')], [true, false])
    const changed = await volume.updateMetadata('/dir/text', { uid: 7, mode: 0o640 })
    assert.deepEqual([changed.uid, changed.gid, changed.mode], [7, 6, 0o640])
    assert.deepEqual(await paths('/'), ['/a', '/blob', '/buffer', '/dir', '/empty', '/stream'])
    assert.deepEqual(await paths('/a', { depth: 2 }), ['/a/b', '/a/b/c'])
    await withSandbox(async (sandbox) => {
      assert.equal(await sandbox.files.read('/mnt/data/dir/text'), 'grüße')
      await sandbox.commands.run('ln -s dir/text /mnt/data/link')
      await assert.rejects(volume.getInfo('/'), new RegExp(sandbox.sandboxId))
    }, { volumeMounts: { '/mnt/data': volume } })
    const link = await volume.getInfo('/link')
    assert.deepEqual([link.type, link.target], ['symlink', 'dir/text'])
    await volume.remove('/a')
    assert.equal(await volume.exists('/a/b'), false)
    assert.equal(await (await Volume.connect(volume.volumeId)).readFile('/link'), 'grüße')
    await assert.rejects(new Volume(volume.volumeId, volume.name, '0'.repeat(64), volume.domain).getInfo('/'), VolumePathNotFoundError)
  } finally {
    assert.equal(await Volume.destroy(volume.volumeId), true)
  }
  await assert.rejects(volume.list('/'), VolumePathNotFoundError)
})
