/** Tests that node-redis' own `client.cf` works with both layouts of cuckoo filters as it does with RedisBloom. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RESP_TYPES } from 'redis';
import { connected } from './shared.mjs';

for (const layout of ['native', 'classic']) {
  for (const RESP of [2, 3]) {
    test(`client.cf, ${layout} filters, RESP${RESP}`, async (t) => {
      const client = await connected(t, RESP);
      await client.configSet('bf.cf-layout', layout);
      await useEveryMethod(client, layout);
    });
  }
}

async function useEveryMethod(client, layout) {
  const { cf } = client;
  assert.equal(await cf.reserve('cart', 1000, { BUCKETSIZE: 4, MAXITERATIONS: 30, EXPANSION: 2 }), 'OK');
  assert.equal(await client.type('cart'), layout === 'native' ? 'oxcuckoo-' : 'MBbloomCF');
  await assert.rejects(cf.reserve('cart', 1000), { message: 'ERR item exists' });
  assert.equal(await cf.add('cart', 'apple'), true);
  assert.equal(await cf.add('cart', 'apple'), true);
  assert.equal(await cf.addNX('cart', 'apple'), false);
  assert.equal(await cf.addNX('cart', 'pear'), true);
  assert.equal(await cf.count('cart', 'apple'), 2);
  assert.equal(await cf.exists('cart', 'apple'), true);
  assert.equal(await cf.exists('cart', 'plum'), false);
  assert.deepEqual(await cf.insert('cart', ['plum', 'plum']), [true, true]);
  assert.deepEqual(await cf.insert('made', ['fig'], { CAPACITY: 100 }), [true]);
  await assert.rejects(cf.insert('none', ['fig'], { NOCREATE: true }), { message: 'ERR not found' });
  const insertedNx = await cf.insertNX('cart', ['plum', 'quince']);
  assert.deepEqual(insertedNx.map(Number), [0, 1]);
  assert.equal(await cf.del('cart', 'plum'), true);
  assert.equal(await cf.del('cart', 'grape'), false);
  const { Size, ...info } = { ...(await cf.info('cart')) };
  assert.ok(Size > 0);
  assert.deepEqual(info, {
    'Number of buckets': 256,
    'Number of filters': 1,
    'Number of items inserted': 5,
    'Number of items deleted': 1,
    'Bucket size': 4,
    'Expansion rate': 2,
    'Max iterations': 30,
  });
  await checkDump(client);
}

/** Copies a filter in chunks. node-redis decodes chunks as text by default, which only some bytes survive. */
async function checkDump(client) {
  const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  for (let iterator = 0, chunks = 0; ; chunks++) {
    const dumped = await binary.cf.scanDump('cart', iterator);
    iterator = Number(dumped.iterator);
    if (iterator === 0) {
      assert.ok(chunks >= 2);
      break;
    }
    assert.equal(await client.cf.loadChunk('copy', iterator, dumped.chunk), 'OK');
  }
  assert.equal(await client.cf.count('copy', 'apple'), 2);
  assert.deepEqual(await client.cf.info('copy'), await client.cf.info('cart'));
}
