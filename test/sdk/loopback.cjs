// Loaded by run-upstream into Node before the suite: names in CAY_LOOPBACK_DOMAIN are this machine, in
// this program only, as *.localhost is in browsers. Everything else is looked up as ever.
const dns = require('node:dns')

const domain = process.env.CAY_LOOPBACK_DOMAIN
const lookup = dns.lookup

dns.lookup = function (name, options, callback) {
  if (!domain || !(name === domain || name.endsWith('.' + domain))) return lookup.apply(this, arguments)
  if (typeof options === 'function') [options, callback] = [{}, options]
  const found = { address: '127.0.0.1', family: 4 }
  process.nextTick(() => (options?.all ? callback(null, [found]) : callback(null, found.address, found.family)))
}
