// Daytona's SDK, unmodified, against what cay has of its API: sandboxes are made, found, listed and ended, and their
// network settings changed. The server comes
// from E2B_DOMAIN and E2B_API_KEY. That what is allowed passes is shown where there is an internet to reach:
// test/scenario/test_egress_daytona.py. Here no connection leaves the machine: each is refused.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import {
  Daytona, DaytonaAuthenticationError, DaytonaError, DaytonaNotFoundError, DaytonaValidationError,
} from '@daytonaio/sdk'

const server = `https://${process.env.E2B_DOMAIN}`
const key = process.env.E2B_API_KEY
const config = { apiKey: key, apiUrl: `${server}/api`, useDeprecatedPolling: true }
const daytona = new Daytona(config)

async function call(method, path, body) {
  const answer = await fetch(server + path, {
    method, headers: { 'X-API-Key': key, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body),
  })
  const text = await answer.text()
  assert.ok(answer.ok, `${answer.status} ${text}`)
  return text ? JSON.parse(text) : undefined
}

/** Runs f with a new sandbox that is ended afterwards, also after a failure. */
async function withSandbox(f, params = {}) {
  const sandbox = await daytona.create({ snapshot: 'host', ttlMinutes: 5, ...params })
  try {
    return await f(sandbox)
  } finally {
    await sandbox.delete()
  }
}

/** What curl gets inside for an address that is allowed to no sandbox here. */
async function refusal(sandbox, url) {
  const done = await call('POST', `/cay/v1/sandboxes/${sandbox.id}/exec`, { command: ['curl', '-sS', '--max-time', '20', url] })
  assert.equal(done.exit_code, 0, done.stderr)
  return { ...JSON.parse(done.stdout), seen: done.violations.map((v) => v.rule) }
}

const settings = (s) => [s.networkBlockAll, s.networkAllowList, s.domainAllowList]
const policyOf = (s) => call('GET', `/cay/v1/sandboxes/${s.id}/policy`)

test('a sandbox is made with its settings, found, and ended', async () => {
  const mark = randomUUID()
  await withSandbox(async (sandbox) => {
    assert.equal(sandbox.state, 'started')
    assert.deepEqual(settings(sandbox), [true, undefined, undefined])
    const again = await daytona.get(sandbox.id)
    assert.deepEqual(settings(again), [true, undefined, undefined])
    assert.deepEqual(again.labels, { mark, 'code-toolbox-language': 'python' })
    assert.ok(again.memory > 0 && again.disk > 0 && again.cpu > 0)
    const found = []
    for await (const item of daytona.list({ labels: { mark } })) found.push(item.id)
    assert.deepEqual(found, [sandbox.id])
    const refused = await refusal(sandbox, 'http://192.0.2.77/')
    assert.equal(refused.error.code, 'egress_denied')
    assert.deepEqual(refused.sandbox_allows, [])
    assert.equal(refused.seen.length, 1)
  }, { networkBlockAll: true, labels: { mark }, envVars: { A: '1' } })
})

test('settings are changed while it runs', async () => {
  await withSandbox(async (sandbox) => {
    assert.deepEqual(settings(sandbox), [false, undefined, undefined])
    assert.deepEqual(await policyOf(sandbox), { default: 'public' })
    await sandbox.updateNetworkSettings({ domainAllowList: 'example.com,*.daytona.io' })
    assert.deepEqual(settings(sandbox), [false, undefined, 'example.com,*.daytona.io'])
    assert.deepEqual((await policyOf(sandbox)).rules[0].domains, ['example.com', '*.daytona.io', 'daytona.io'])
    const refused = await refusal(sandbox, 'http://other.example.net/')
    assert.equal(refused.error.code, 'egress_denied')
    assert.deepEqual(refused.sandbox_allows, ['example.com', '*.daytona.io', 'daytona.io'])
    await sandbox.updateNetworkSettings({ networkAllowList: '208.80.154.232/32, 192.168.1.0/16' })
    assert.deepEqual((await policyOf(sandbox)).rules[0].addresses, ['208.80.154.232/32', '192.168.0.0/16'])
    await sandbox.updateNetworkSettings({ networkBlockAll: true })
    await sandbox.refreshData()
    assert.deepEqual(settings(sandbox), [true, undefined, undefined])
    await sandbox.updateNetworkSettings({ networkBlockAll: false })
    assert.deepEqual(await policyOf(sandbox), { default: 'public' })
  })
})

test('a sandbox of another dialect is found and changed too', async () => {
  const made = await call('POST', '/v2/sandboxes', { templateID: 'host', timeout: 120, metadata: { of: 'e2b' } })
  const sandbox = await daytona.get(made.sandboxID)
  try {
    assert.deepEqual(sandbox.labels, { of: 'e2b' })
    await sandbox.updateNetworkSettings({ networkBlockAll: true })
    assert.deepEqual(await policyOf(sandbox), { default: 'deny', refusal: 'close' })
  } finally {
    await sandbox.delete()
  }
  await assert.rejects(daytona.get(made.sandboxID), DaytonaNotFoundError)
})

test('what is wrong or not there is an error of the right class, and says why', async () => {
  const is = (kind, text) => (e) => e instanceof kind && e.message.includes(text)
  await withSandbox(async (sandbox) => {
    await assert.rejects(sandbox.updateNetworkSettings({ domainAllowList: 'https://a.com' }), is(DaytonaValidationError, 'Invalid domain'))
    await assert.rejects(sandbox.updateNetworkSettings({ networkAllowList: '10.0.0.1' }), is(DaytonaValidationError, 'CIDR'))
    await assert.rejects(sandbox.archive(), is(DaytonaError, 'stop it first'))
    assert.equal((await sandbox.process.executeCommand('echo $HOME; exit 3')).result, '/home/daytona\n')
    assert.deepEqual(settings(await daytona.get(sandbox.id)), [false, undefined, undefined])
  })
  await assert.rejects(daytona.create({ networkBlockAll: true, domainAllowList: 'a.com' }), is(DaytonaValidationError, 'combined'))
  await assert.rejects(daytona.create({ image: 'debian:12.9' }), is(DaytonaError, 'takes no images from docker.io'))
  await assert.rejects(daytona.get('nosuchsandbox'), DaytonaNotFoundError)
  await assert.rejects(new Daytona({ ...config, apiKey: 'e2b_' + '0'.repeat(40) }).get('x'), DaytonaAuthenticationError)
})
