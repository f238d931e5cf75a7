import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, Volume, VolumeNotFoundError } from 'e2b'
import { template, withSandbox } from './helpers.mjs'

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
