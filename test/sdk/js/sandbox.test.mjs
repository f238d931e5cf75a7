import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import http from 'node:http'
import https from 'node:https'
import { test } from 'node:test'
import { AuthenticationError, Sandbox, SandboxError, SandboxNotFoundError } from 'e2b'
import { template, until, withSandbox } from './helpers.mjs'

async function listAll(options) {
  const paginator = Sandbox.list(options)
  const all = []
  while (paginator.hasNext) all.push(...(await paginator.nextItems()))
  return all
}

test('a sandbox is made, described and ended', async () => {
  const mark = randomUUID()
  await withSandbox(async (sandbox) => {
    assert.match(sandbox.sandboxId, /^[a-z0-9]+$/)
    assert.equal(await sandbox.isRunning(), true)
    const info = await sandbox.getInfo()
    assert.equal(info.sandboxId, sandbox.sandboxId)
    assert.equal(info.state, 'running')
    assert.deepEqual(info.metadata, { mark })
    assert.ok(info.endAt - info.startedAt > 100_000)
    assert.equal(await sandbox.kill(), true)
    assert.equal(await sandbox.kill(), false)
    assert.equal(await sandbox.isRunning(), false)
    await assert.rejects(Sandbox.getInfo(sandbox.sandboxId), SandboxNotFoundError)
  }, { metadata: { mark } })
})

test('sandboxes are listed by metadata and page by page', async () => {
  const mark = `a b&c=ü ${randomUUID()}`
  const made = []
  try {
    for (let i = 0; i < 3; i++) {
      made.push(await Sandbox.create(template, { metadata: { mark, i: String(i) }, timeoutMs: 60_000 }))
    }
    const found = await listAll({ query: { metadata: { mark } }, limit: 2 })
    assert.deepEqual(found.map((s) => s.sandboxId), made.map((s) => s.sandboxId).reverse())
    const one = await listAll({ query: { metadata: { mark, i: '1' } } })
    assert.deepEqual(one.map((s) => s.sandboxId), [made[1].sandboxId])
    assert.deepEqual(await listAll({ query: { metadata: { mark: randomUUID() } } }), [])
  } finally {
    await Promise.all(made.map((s) => s.kill()))
  }
})

test('a sandbox is connected to by its id', async () => {
  await withSandbox(async (sandbox) => {
    await sandbox.files.write('here', 'x')
    const again = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(await again.files.read('here'), 'x')
  })
  await assert.rejects(Sandbox.connect('i00000000000000000000'), SandboxNotFoundError)
})

test('the time that is left is set, and its end is the end', async () => {
  await withSandbox(async (sandbox) => {
    await sandbox.setTimeout(600_000)
    const later = (await sandbox.getInfo()).endAt
    assert.ok(later - Date.now() > 500_000)
    await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 1000 })
    assert.equal((await sandbox.getInfo()).endAt.getTime(), later.getTime(), 'connect never shortens')
    await sandbox.setTimeout(1000)
    await until(async () => !(await sandbox.isRunning()), 'the end of its time')
    await assert.rejects(Sandbox.getInfo(sandbox.sandboxId), SandboxNotFoundError)
  })
})

test('a time that cannot be is refused', async () => {
  await assert.rejects(Sandbox.create(template, { timeoutMs: 1000 * 86_400 * 36_500 }), SandboxError)
})

test('metrics come within half a minute', async () => {
  await withSandbox(async (sandbox) => {
    const metrics = await until(async () => {
      const found = await sandbox.getMetrics()
      return found.length > 0 && found
    }, 'metrics', 30_000)
    assert.ok(metrics[0].memTotal > 0 && metrics[0].memUsed > 0)
    assert.ok(metrics[0].cpuCount >= 1)
    assert.ok(metrics[0].diskTotal > 0)
    const before = await sandbox.getMetrics({ start: new Date(1_000_000), end: new Date(2_000_000) })
    assert.deepEqual(before, [])
  })
})

test('sandboxes do not see each other', async () => {
  await withSandbox(async (a) => withSandbox(async (b) => {
    await a.files.write('/tmp/secret', 'a')
    assert.equal(await b.files.exists('/tmp/secret'), false)
    const seen = await b.commands.run('ps -e 2>/dev/null | wc -l; hostname')
    assert.ok(!seen.stdout.includes(a.sandboxId))
  }))
})

/** One request as a browser would make it: the host name tells sandbox and port. */
function get(host, scheme = https) {
  const [hostname, port] = host.split(':')
  return new Promise((resolve, reject) => {
    scheme.get({ hostname, port, path: '/', headers: { Host: host } }, (response) => {
      let text = ''
      response.on('data', (chunk) => { text += chunk })
      response.on('end', () => resolve({ status: response.statusCode, text }))
    }).on('error', reject)
  })
}

test('a port inside is reached by the host name', async () => {
  await withSandbox(async (sandbox) => {
    await sandbox.files.write('www/index.html', 'hello from inside')
    await sandbox.commands.run('python3 -m http.server 8000 --bind 127.0.0.1 -d www', { background: true })
    const host = sandbox.getHost(8000)
    assert.ok(host.startsWith(`8000-${sandbox.sandboxId}.`))
    const answer = await until(async () => {
      const got = await get(host)
      return got.status === 200 && got
    }, 'the server inside')
    assert.equal(answer.text, 'hello from inside')
    assert.equal((await get(host, http)).text, 'hello from inside') // plain HTTP on the same port
    assert.equal((await get(sandbox.getHost(8001))).status, 502)
    await sandbox.kill()
    assert.equal((await get(host)).status, 502)
  })
})

test('an unknown template is refused by name', async () => {
  await assert.rejects(Sandbox.create('no-such-template'), /no-such-template/)
})

test('a missing or wrong key is refused', async () => {
  const wrong = `e2b_${'0'.repeat(40)}`
  await assert.rejects(Sandbox.create(template, { apiKey: wrong }), AuthenticationError)
  await assert.rejects(listAll({ apiKey: 'nonsense' }), AuthenticationError)
})

test('sandboxes of others cannot be seen, used or ended', async () => {
  const answer = await fetch(`https://api.${process.env.E2B_DOMAIN}/cay/v1/keys`, {
    method: 'POST',
    headers: { 'X-API-Key': process.env.E2B_API_KEY, 'Content-Type': 'application/json' },
    body: JSON.stringify({ tenant: 'sdk-other', label: 'test' }),
  })
  assert.equal(answer.status, 201)
  const apiKey = (await answer.json()).key
  await withSandbox(async (sandbox) => {
    await assert.rejects(Sandbox.getInfo(sandbox.sandboxId, { apiKey }), SandboxNotFoundError)
    await assert.rejects(Sandbox.connect(sandbox.sandboxId, { apiKey }), SandboxNotFoundError)
    assert.equal(await Sandbox.kill(sandbox.sandboxId, { apiKey }), false)
    assert.deepEqual(await listAll({ apiKey }), [])
    assert.equal(await sandbox.isRunning(), true)
  })
})

test('an agent without its token answers nothing', async () => {
  await withSandbox(async (sandbox) => {
    const headers = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' }
    const call = (more) => fetch(`https://sandbox.${process.env.E2B_DOMAIN}/files?path=/etc/passwd`, { headers: { ...headers, ...more } })
    assert.equal((await call({})).status, 401)
    assert.equal((await call({ 'X-Access-Token': 'wrong' })).status, 401)
  })
})

test('twelve sandboxes at a time, each with its own bytes', async () => {
  await Promise.all(Array.from({ length: 12 }, (_, i) => withSandbox(async (sandbox) => {
    await sandbox.files.write('n', String(i))
    const result = await sandbox.commands.run('for k in $(seq 50); do cat n; done')
    assert.equal(result.stdout, String(i).repeat(50))
  })))
})
