// @e2b/cli: sandboxes: create, list, info, exec, logs, metrics, kill; templates: create, list, publish, delete.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'

function e2b(...args) {
  const done = spawnSync(process.execPath, ['node_modules/@e2b/cli/dist/index.js', ...args], { encoding: 'utf8', timeout: 60_000 })
  assert.equal(done.status, 0, `e2b ${args.join(' ')}: ${done.stderr || done.stdout}`)
  return done.stdout
}

const id = /\bi[a-z0-9]{19,}\b/.exec(e2b('sandbox', 'create', '--detach', 'base'))?.[0]
assert.ok(id)
try {
  assert.ok(e2b('sandbox', 'list', '--format', 'json').includes(id))
  assert.ok(e2b('sandbox', 'info', id).includes(id))
  assert.equal(e2b('sandbox', 'exec', id, 'echo', '42').trim(), '42')
  e2b('sandbox', 'metrics', id)
  e2b('sandbox', 'logs', id)
} finally {
  e2b('sandbox', 'kill', id)
}

const name = `cli-${process.pid}`
const found = () => JSON.parse(e2b('template', 'list', '--format', 'json')).find((one) => one.names.includes(name))
const listed = () => found() !== undefined
writeFileSync('cay.Dockerfile', 'FROM e2bdev/base\nRUN echo 42 > /tmp/said\n')
e2b('template', 'create', name, '-d', 'cay.Dockerfile')
try {
  assert.ok(listed())
  const built = /\bi[a-z0-9]{19,}\b/.exec(e2b('sandbox', 'create', '--detach', name))?.[0]
  assert.ok(built)
  try {
    assert.equal(e2b('sandbox', 'exec', built, 'cat', '/tmp/said').trim(), '42')
  } finally {
    e2b('sandbox', 'kill', built)
  }
  assert.equal(found().public, false)
  e2b('template', 'publish', name, '--yes')
  assert.equal(found().public, true)
  e2b('template', 'unpublish', name, '--yes')
  assert.equal(found().public, false)
} finally {
  e2b('template', 'delete', name, '--yes')
}
assert.ok(!listed())
