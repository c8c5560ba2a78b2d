// Loaded before a client: names below .localhost are this machine, wherever the system's resolver would look for them.
import dns from 'node:dns'

const { lookup } = dns
dns.lookup = (name, options, done) => {
  const callback = done ?? options
  if (!name.endsWith('.localhost')) return done ? lookup(name, options, done) : lookup(name, callback)
  const all = typeof options === 'object' && options.all
  setImmediate(() => (all ? callback(null, [{ address: '127.0.0.1', family: 4 }]) : callback(null, '127.0.0.1', 4)))
}
