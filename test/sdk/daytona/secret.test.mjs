// Daytona's SDK, unmodified: secrets are made, listed, changed, mounted and deleted. What the servers outside get is seen where
// CAY_TEST_SECRET_HOSTS names two of them, the secret's host and another, which tell the digests of the headers that they got:
// test/scenario/test_daytona_secrets.py.
import assert from 'node:assert/strict'
import { createHash, randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { Daytona, DaytonaConflictError, DaytonaNotFoundError, DaytonaValidationError } from '@daytonaio/sdk'

const apiUrl = process.env.DAYTONA_API_URL ?? `https://${process.env.E2B_DOMAIN}/api`
const daytona = new Daytona({ apiKey: process.env.E2B_API_KEY, apiUrl, useDeprecatedPolling: true })
const value = `a-value-${randomUUID()}`

/** Runs f with a new secret that is deleted afterwards. */
async function withSecret(hosts, f) {
  const name = `js-${randomUUID().slice(0, 8)}`
  const made = await daytona.secret.create({ name, value, hosts, description: 'd' })
  try {
    return await f(made)
  } finally {
    await daytona.secret.delete(made.id)
  }
}

test('a secret is made, found, listed, changed and deleted; its value is never shown', async () => {
  let gone
  await withSecret(['api.example.com', '*.example.org'], async (made) => {
    gone = made.id
    assert.deepEqual(made.hosts, ['api.example.com', '*.example.org'])
    assert.deepEqual(await daytona.secret.get(made.id), made)
    const page = await daytona.secret.list({ name: made.name, limit: 1, sort: 'name', order: 'asc' })
    assert.deepEqual(page, { items: [made], total: 1, nextCursor: null })
    await assert.rejects(daytona.secret.create({ name: made.name, value, hosts: ['a.example'] }), DaytonaConflictError)
    await assert.rejects(daytona.secret.create({ name: 'js-free', value }), DaytonaValidationError)
    await assert.rejects(daytona.secret.update(made.id, { hosts: ['a.example'] }), DaytonaValidationError)
    const changed = await daytona.secret.update(made.id, { value: `${value}-2`, hosts: ['a.example'], description: 'e' })
    assert.deepEqual([changed.hosts, changed.description, changed.createdAt], [['a.example'], 'e', made.createdAt])
    assert.ok(!JSON.stringify([made, page, changed]).includes(value))
  })
  await assert.rejects(daytona.secret.get(gone), DaytonaNotFoundError)
})

test('a sandbox has the placeholder, and the server the value', async () => {
  const [host, another] = (process.env.CAY_TEST_SECRET_HOSTS ?? 'api.example.com').split(' ')
  await withSecret([host], async (made) => {
    const sandbox = await daytona.create({ snapshot: 'host', ttlMinutes: 5, secrets: { KEY: made.name } })
    const run = async (command) => (await sandbox.process.executeCommand(command)).result
    const ask = async (of, variable) =>
      JSON.parse(await run(`curl -sS --max-time 20 -H "Authorization: Bearer $${variable}" https://${of}/v1`))
    try {
      assert.equal(await run('echo $KEY'), `${made.placeholder}\n`)
      await sandbox.updateSecrets({ NEXT: made.name })
      assert.equal(await run('echo -$KEY-$NEXT'), `--${made.placeholder}\n`)
      if (!another) return
      const digest = createHash('sha256').update(`Bearer ${value}`).digest('hex')
      assert.equal((await ask(host, 'NEXT')).digests.Authorization, digest)
      assert.equal((await ask(another, 'NEXT')).headers.Authorization, `Bearer ${made.placeholder}`)
      await sandbox.updateSecrets({})
      assert.equal(await run('echo -$NEXT-'), '--\n')
    } finally {
      await sandbox.delete()
    }
  })
})
