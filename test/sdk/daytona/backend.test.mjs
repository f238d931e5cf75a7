// deepagents' tools above @langchain/daytona, unmodified, with what agents meet: ten thousand files, a file of 100 MiB, names of
// all kinds, long commands, a server, and output that is no text. test_backend.py is the same in Python.
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { after, before, test } from 'node:test'

import { DaytonaSandbox } from '@langchain/daytona'

const HOME = '/home/daytona'
const MANY = `${HOME}/many`
const PATHS = Array.from({ length: 10000 }, (_, i) => `${MANY}/${String(i).padStart(5, '0')}.${i % 2 ? 'py' : 'txt'}`)
const MAKE_MANY = `mkdir ${MANY} && cd ${MANY} && python3 - <<'EOF'
for i in range(${PATHS.length}):
    with open(f"{i:05}.{'py' if i % 2 else 'txt'}", "w") as f:
        f.write(f"number {i}\\n" + ("needle\\n" if i % 100 == 0 else ""))
EOF`
const NAMES = ['with blank', 'qu"o\'te\\s', 'ümläut ☃', 'new\nline', '-dash', 'tab\t', '(1) [2]', '%41&=+', '$HOME `id`']
const digest = (bytes) => createHash('sha256').update(bytes).digest('hex')
const paths = (found) => found.map((one) => one.path).sort()
let backend

before(async () => {
  const auth = { apiKey: process.env.E2B_API_KEY, apiUrl: `https://${process.env.E2B_DOMAIN}/api` }
  backend = await DaytonaSandbox.create({ snapshot: 'host', auth })
})

after(async () => {
  await backend?.close()
})

test('ten thousand files', async () => {
  assert.equal((await backend.execute(MAKE_MANY)).exitCode, 0)
  assert.deepEqual(paths((await backend.ls(MANY)).files), PATHS)
  const found = await backend.glob('*.py', MANY)
  assert.equal(found.truncated, false)
  assert.deepEqual(paths(found.files).map((name) => `${MANY}/${name}`), PATHS.filter((_, i) => i % 2))
  const lines = (await backend.grep('needle', MANY)).matches
  assert.deepEqual(paths(lines), PATHS.filter((_, i) => i % 100 === 0))
  assert.ok(lines.every((one) => one.line === 2))
  assert.deepEqual(paths((await backend.grep('number', MANY)).matches), PATHS)
  assert.deepEqual(paths((await backend.grep('number 42', MANY, '0004*.txt')).matches), [PATHS[42]])
  assert.equal((await backend.delete(MANY)).error, undefined)
})

test('a hundred mebibytes', async () => {
  const path = `${HOME}/large`
  const contents = randomBytes(100 << 20)
  assert.deepEqual(await backend.uploadFiles([[path, contents]]), [{ path, error: null }])
  assert.equal((await backend.execute(`sha256sum <${path}`)).output.split(' ')[0], digest(contents))
  const [got] = await backend.downloadFiles([path])
  assert.deepEqual([got.error, digest(got.content)], [null, digest(contents)])
  assert.equal((await backend.delete(path)).error, undefined)
})

for (const name of NAMES) {
  test(`a name: ${JSON.stringify(name)}`, async () => {
    const folder = `${HOME}/names`
    const path = `${folder}/${name}`
    const text = `${folder}/${name}.txt`
    const contents = Uint8Array.from({ length: 256 }, (_, i) => i)
    assert.deepEqual(await backend.uploadFiles([[path, contents]]), [{ path, error: null }])
    assert.deepEqual(await backend.downloadFiles([path]), [{ path, content: contents, error: null }])
    assert.equal((await backend.write(text, 'one\ntwo\n')).error, undefined)
    assert.equal((await backend.edit(text, 'two', 'zwei ☃')).occurrences, 1)
    assert.match((await backend.read(text)).content, /one\n.*zwei ☃\n/)
    if (!name.includes('\n')) { // these read lines
      assert.deepEqual(paths((await backend.ls(folder)).files), [path, text])
      assert.deepEqual(paths((await backend.glob('*.txt', folder)).files), [`${name}.txt`])
      assert.deepEqual((await backend.grep('zwei', folder)).matches, [{ path: text, line: 2, text: 'zwei ☃' }])
    }
    assert.equal((await backend.delete(folder)).error, undefined)
  })
}

// This client gives a command to `sh` as one argument in base64, of which the kernel takes 128 KiB; the mebibyte is in test_backend.py.
test('commands', async () => {
  const done = await backend.execute('echo out; echo err >&2; exit 42')
  assert.deepEqual([done.exitCode, done.output], [42, 'out\nerr\n'])
  const long = 'y'.repeat(90 << 10)
  const read = await backend.execute(`cat <<'EOF' | sha256sum\n${long}\nEOF\nexit 3`)
  assert.deepEqual([read.exitCode, read.output.split(' ')[0]], [3, digest(`${long}\n`)])
  assert.equal((await backend.execute("printf 'a\\0b\\377'")).output, 'a\0b\ufffd')
  assert.equal((await backend.execute('head -c 1000000 /dev/urandom; exit 4')).exitCode, 4)
  assert.equal((await backend.execute('printf whole')).output, 'whole')
})

test('a server in the background lives on', async () => {
  const begun = await backend.execute('echo served >/tmp/page; cd /tmp; python3 -m http.server 8765 >/dev/null 2>&1 & echo begun')
  assert.equal(begun.output, 'begun\n')
  const asked = 'for i in $(seq 600); do curl -s http://127.0.0.1:8765/page && break; sleep 0.1; done'
  assert.equal((await backend.execute(asked)).output, 'served\n')
})

// Programs that its tools call, the user with its home, and where results and messages go that are too long for the model.
test('what deepagents assumes of its computer', async () => {
  const done = await backend.execute("id -un; pwd; printf aGk= | base64 -d; grep --version | head -n 1; python3 -c 'print(6 * 7)'")
  assert.equal(done.exitCode, 0)
  assert.match(done.output, /^daytona\n\/home\/daytona\nhigrep \(GNU grep\) [^]*\n42\n$/)
  for (const path of ['/large_tool_results/call_1', '/conversation_history/thread.md']) {
    assert.equal((await backend.write(path, 'long')).error, undefined)
    assert.match((await backend.read(path)).content, /\tlong$/m)
  }
})
