// What the tests share. The server comes from E2B_DOMAIN and E2B_API_KEY alone, as `cay env` gives them.
import { readFileSync } from 'node:fs'
import { Sandbox } from 'e2b'

export const template = process.env.CAY_TEST_TEMPLATE ?? 'host'

/** Runs f with a new sandbox that is ended afterwards, also after a failure. */
export async function withSandbox(f, options = {}) {
  const sandbox = await Sandbox.create(template, { timeoutMs: 120_000, ...options })
  try {
    return await f(sandbox)
  } finally {
    await sandbox.kill()
  }
}

/** Waits until f gives something true; fails loudly when it never does. */
export async function until(f, what, ms = 10_000) {
  const end = Date.now() + ms
  for (;;) {
    const value = await f()
    if (value) return value
    if (Date.now() > end) throw new Error(`still waiting for ${what} after ${ms} ms`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** A fast pattern in which any lost, doubled or swapped block shows. */
export function pattern(bytes, seed = 1) {
  const out = new Uint32Array(bytes / 4)
  let x = seed >>> 0 || 1
  for (let i = 0; i < out.length; i++) {
    x ^= x << 13
    x ^= x >>> 17
    x ^= x << 5
    out[i] = x >>> 0
  }
  return new Uint8Array(out.buffer)
}

/** The hard RLIMIT_NPROC here. The server of the tests inherits it, and it binds users in sandboxes too. */
export function processLimit() {
  const hard = /^Max processes +\S+ +(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))[1]
  return hard === 'unlimited' ? Infinity : Number(hard)
}
