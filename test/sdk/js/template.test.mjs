// Templates built by steps, as the SDK does it.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { Sandbox, Template, waitForPort } from 'e2b'
import { template as base } from './helpers.mjs'

const nameOf = () => `js-${randomUUID().slice(0, 13)}`

/** Builds under a new name, runs f with that, and removes the template. */
async function withTemplate(template, f, options = {}) {
  const name = nameOf()
  const lines = []
  const built = await Template.build(template, name, { cpuCount: 1, memoryMB: 256, onBuildLogs: (l) => lines.push(l), ...options })
  try {
    return await f(name, built, lines)
  } finally {
    await Sandbox.deleteSnapshot(built.templateId)
  }
}

test('steps, user, folder and variables', async () => {
  const template = Template().fromTemplate(base).setEnvs({ GREETING: 'hello you' }).setWorkdir('/srv/files')
    .runCmd('echo "$GREETING" > said; id -un >> said; echo to see').makeSymlink('/srv/files/said', '/tmp/link')
  await withTemplate(template, async (name, built, lines) => {
    assert.ok(await Template.exists(name))
    assert.ok(lines.some((l) => l.message === 'to see' && l.level === 'info'))
    const sandbox = await Sandbox.create(name)
    try {
      assert.equal((await sandbox.commands.run('cat /tmp/link; echo $GREETING')).stdout, 'hello you\nuser\nhello you\n')
    } finally {
      await sandbox.kill()
    }
  })
})

test('a step that fails', async () => {
  const name = nameOf()
  await assert.rejects(Template.build(Template().fromTemplate(base).runCmd('echo why >&2; exit 9'), name), /status 9: why/)
  assert.equal(await Template.exists(name), false)
  await assert.rejects(Template.build(Template().fromTemplate('no-such-template'), name), /no-such-template/)
  await Sandbox.deleteSnapshot(name)
})

test('in the background, from a Dockerfile, with a start command', async () => {
  const template = Template().fromDockerfile(`FROM e2bdev/base\nENV A=1\nWORKDIR /srv\nRUN echo $A > page\nUSER user`)
    .setStartCmd('exec python3 -m http.server 8126', waitForPort(8126))
  const name = nameOf()
  const built = await Template.buildInBackground(template, name, { cpuCount: 1, memoryMB: 256 })
  let status
  do {
    await new Promise((resolve) => setTimeout(resolve, 50))
    status = await Template.getBuildStatus(built, { logsOffset: 0 })
  } while (status.status === 'building' || status.status === 'waiting')
  assert.equal(status.status, 'ready', JSON.stringify(status))
  const sandbox = await Sandbox.create(name)
  try {
    assert.equal((await sandbox.commands.run('curl -s http://127.0.0.1:8126/page')).stdout, '1\n')
  } finally {
    await sandbox.kill()
    await Sandbox.deleteSnapshot(built.templateId)
  }
})

test('tags', async () => {
  await withTemplate(Template().fromTemplate(base).runCmd('true'), async (name, built) => {
    const info = await Template.assignTags(name, ['production', 'latest'])
    assert.equal(info.buildId, built.buildId)
    assert.ok(info.tags.includes('production'))
    assert.deepEqual((await Template.getTags(name)).map((t) => t.tag).sort(), ['default', 'latest', 'production'])
    await assert.rejects(Template.assignTags(name, ':bad'))
    await assert.rejects(Template.assignTags(name, `${name}:`))
    await Template.removeTags(name, 'production')
    assert.equal(await Template.exists(`${name}:production`), false)
  })
})

// CAY_TEST_IMAGE: one that the server takes (test/scenario/test_template_images.py has such a server), which says so in /etc/first.
test('an image of a registry', async () => {
  const image = process.env.CAY_TEST_IMAGE
  const name = nameOf()
  const aws = { accessKeyId: 'a', secretAccessKey: 'b', region: 'c' }
  await assert.rejects(Template.build(Template().fromImage('refused.example.net/team/tools'), name),
    /takes no images from refused\.example\.net\/team\/tools/)
  await assert.rejects(Template.build(Template().fromAWSRegistry('refused.example.net/tools', aws), name), /"aws" is not supported/)
  await assert.rejects(Template.build(Template().fromGCPRegistry('refused.example.net/tools', { serviceAccountJSON: {} }), name),
    /"gcp" is not supported/)
  await Sandbox.deleteSnapshot(name)
  if (!image) return
  await withTemplate(Template().fromImage(image).runCmd('read x < /etc/first; echo $x'), async (name, built, lines) => {
    assert.ok(lines.some((l) => l.message === 'low'))
    assert.ok(lines.some((l) => l.message.startsWith('docker://') && l.message.includes('@sha256:')))
  })
})
