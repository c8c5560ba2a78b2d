// An S3-speaking server of npm that checks signatures: node s3rver.cjs MODULES DIRECTORY KEY SECRET
const [modules, directory, key, secret] = process.argv.slice(2)
const S3rver = require(`${modules}/@20minutes/s3rver`)
require(`${modules}/@20minutes/s3rver/lib/models/account`).DUMMY_ACCOUNT.createKeyPair(key, secret)
new S3rver({ port: 0, address: '127.0.0.1', directory, silent: true, vhostBuckets: false, configureBuckets: [{ name: 'saved' }] })
  .run().then(at => console.log(at.port))
