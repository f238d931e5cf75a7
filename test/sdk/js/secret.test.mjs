import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Secret, SecretError, SecretNotFoundError } from 'e2b'

const name = 'cay-sdk-js'
const value = 'a-value-of-the-sdk-test'

test('a secret is made, updated, listed, found and destroyed; its value is never shown', async () => {
  await Secret.destroy(name)
  const made = await Secret.create(name, value, { metadata: { team: 'a' } })
  assert.equal(made.name, name)
  assert.equal(made.version, 1)
  assert.deepEqual(made.metadata, { team: 'a' })
  await assert.rejects(() => Secret.create(name, value), SecretError)
  const updated = await Secret.update(made.secretId, value + '-2')
  assert.equal(updated.version, 2)
  assert.deepEqual(await Secret.getInfo(name), updated)
  assert.equal(await Secret.exists(name), true)
  const listed = []
  for (const pages = Secret.list({ limit: 1 }); pages.hasNext; ) listed.push(...(await pages.nextItems()))
  assert.equal(listed.filter((s) => s.name === name).length, 1)
  assert.ok(!JSON.stringify([made, updated, listed]).includes(value))
  assert.equal(await Secret.destroy(name), true)
  assert.equal(await Secret.destroy(name), false)
  assert.equal(await Secret.exists(name), false)
  await assert.rejects(() => Secret.update(name, value), SecretNotFoundError)
})
