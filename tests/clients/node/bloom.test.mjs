/**
 * Tests that node-redis' own `client.bf` works with the module as it does with RedisBloom.
 *
 * Every method and option is called over RESP 2 and RESP 3, and must return the type that the client documents.
 * Membership is compared with a set. Where a value depends on a filter's structure (its size, the chunks of a dump),
 * the tests only check what every Bloom filter must satisfy.
 */

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { inspect } from 'node:util';
import { createClient, ErrorReply, MultiErrorReply, RESP_TYPES, WatchError } from 'redis';
import { BINARY_ITEMS, FULL, idealBytes, items, mostFalsePositives, NOT_FOUND, TIGHT } from './filters.mjs';
import { startServer } from './server.mjs';

// More chunks than any dump here has, so that an endless SCANDUMP fails instead of hanging.
const MOST_CHUNKS = 1000;

const WRONG_TYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value';

const INFO_NAMES = [
  'Capacity',
  'Size',
  'Number of filters',
  'Number of items inserted',
  'Expansion rate',
];

/** Returns the values of BF.INFO by name, without the size, which depends on the layout. */
const info = (capacity, filters, inserted, expansion) => ({
  Capacity: capacity,
  'Number of filters': filters,
  'Number of items inserted': inserted,
  'Expansion rate': expansion,
});

const errorReply = (message) => (error) => {
  assert.ok(error instanceof ErrorReply, String(error));
  assert.equal(error.message, message);
  return true;
};

let server;
before(async () => {
  server = await startServer();
});
after(() => server?.stop());

for (const RESP of [2, 3]) {
  describe(`RESP ${RESP}`, { timeout: 600_000 }, () => {
    let client;
    let bf;
    let binary; // the same connection, with bulk strings as Buffers, since dumps are not text

    beforeEach(async () => {
      const socket = { host: '127.0.0.1', port: server.port, reconnectStrategy: false };
      client = createClient({ socket, RESP });
      client.on('error', () => {}); // a broken connection also rejects the calls under test
      await client.connect();
      await client.flushAll();
      bf = client.bf;
      binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
    });

    afterEach(() => client.destroy());

    async function readInfo(key) {
      const { Size, ...rest } = await bf.info(key);
      assert.ok(Number.isInteger(Size) && Size > 0, `Size is ${Size}`);
      return rest;
    }

    async function copyFilter(source, target) {
      let position = 0;
      for (let chunks = 0; chunks < MOST_CHUNKS; chunks++) {
        const { iterator, chunk } = await binary.bf.scanDump(source, position);
        assert.ok(Number.isInteger(iterator) && Buffer.isBuffer(chunk));
        if (iterator === 0) {
          assert.equal(chunk.length, 0);
          return;
        }
        assert.equal(await bf.loadChunk(target, iterator, chunk), 'OK');
        position = iterator;
      }
      assert.fail('SCANDUMP does not end');
    }

    test('the client offers no method that is not tested here', () => {
      const offered = Object.getOwnPropertyNames(Object.getPrototypeOf(bf));
      const methods = offered.filter((name) => name !== name.toUpperCase()).sort();
      const tested = ['reserve', 'add', 'mAdd', 'insert', 'exists', 'mExists', 'card', 'info'];
      assert.deepEqual(methods, [...tested, 'scanDump', 'loadChunk'].sort());
    });

    // Creating

    for (const [options, expansion] of [
      [{}, 2],
      [{ EXPANSION: 1 }, 1],
      [{ EXPANSION: 4 }, 4],
      [{ NONSCALING: true }, null],
    ]) {
      test(`reserve creates the filter that ${inspect(options)} describes`, async () => {
        assert.equal(await bf.reserve('filter', 0.01, 1234, options), 'OK');
        assert.deepEqual(await readInfo('filter'), info(1234, 1, 0, expansion));
      });
    }

    test('reserve rejects an existing filter and leaves it alone', async () => {
      await bf.reserve('filter', 0.01, 1000);
      await bf.add('filter', 'member');
      await assert.rejects(bf.reserve('filter', 0.5, 7), errorReply('ERR item exists'));
      assert.deepEqual(await readInfo('filter'), info(1000, 1, 1, 2));
      assert.equal(await bf.exists('filter', 'member'), true);
    });

    for (const [rate, capacity, options] of [
      [0, 10],
      [1, 10],
      ['low', 10],
      [0.1, 0],
      [0.1, 'many'],
      [0.1, 10, { EXPANSION: 2, NONSCALING: true }],
    ]) {
      test(`reserve rejects ${inspect([rate, capacity, options])} and creates no key`, async () => {
        await assert.rejects(bf.reserve('filter', rate, capacity, options), ErrorReply);
        assert.equal(await client.exists('filter'), 0);
      });
    }

    // Adding and checking

    test('add tells new items from known ones', async () => {
      assert.equal(await bf.add('filter', 'a'), true);
      assert.equal(await bf.add('filter', 'b'), true);
      assert.equal(await bf.add('filter', 'a'), false);
    });

    test('add creates a missing filter with the default arguments', async () => {
      await bf.add('filter', 'a');
      assert.deepEqual(await readInfo('filter'), info(100, 1, 1, 2));
    });

    for (const method of ['mAdd', 'insert']) {
      test(`${method} answers for every item in order`, async () => {
        assert.deepEqual(await bf[method]('filter', ['a', 'b', 'a']), [true, true, false]);
        assert.deepEqual(await bf[method]('filter', ['b', 'c']), [false, true]);
        assert.deepEqual(await bf[method]('filter', 'd'), [true]);
      });
    }

    for (const [options, capacity, expansion] of [
      [{}, 100, 2],
      [{ CAPACITY: 4321 }, 4321, 2],
      [{ EXPANSION: 3 }, 100, 3],
      [{ NONSCALING: true }, 100, null],
      [{ CAPACITY: 50, ERROR: 0.001, EXPANSION: 1 }, 50, 1],
      [{ CAPACITY: 50, ERROR: 0.001, NONSCALING: true }, 50, null],
    ]) {
      test(`insert creates the filter that ${inspect(options)} describes`, async () => {
        await bf.insert('filter', ['a', 'b'], options);
        assert.deepEqual(await readInfo('filter'), info(capacity, 1, 2, expansion));
      });
    }

    for (const rate of [0.1, 0.0001]) {
      test(`a filter of error rate ${rate} has about the textbook size`, async () => {
        await bf.reserve('reserved', rate, 100_000);
        await bf.insert('inserted', 'a', { CAPACITY: 100_000, ERROR: rate });
        const ideal = idealBytes(100_000, rate);
        for (const key of ['reserved', 'inserted']) {
          const { Size } = await bf.info(key);
          assert.ok(ideal / 2 < Size && Size < ideal * 2, `${key}: ${Size} bytes`);
        }
      });
    }

    test('insert with NOCREATE adds only to an existing filter', async () => {
      const insert = () => bf.insert('filter', 'a', { NOCREATE: true });
      await assert.rejects(insert(), errorReply(NOT_FOUND));
      assert.equal(await client.exists('filter'), 0);
      await bf.reserve('filter', 0.01, 1000);
      assert.deepEqual(await insert(), [true]);
    });

    test('exists and mExists tell members from absent items', async () => {
      await bf.mAdd('filter', ['a', 'b']);
      assert.equal(await bf.exists('filter', 'a'), true);
      assert.equal(await bf.exists('filter', 'absent'), false);
      assert.deepEqual(await bf.mExists('filter', ['a', 'absent', 'b']), [true, false, true]);
    });

    test('card counts distinct items', async () => {
      await bf.reserve('filter', TIGHT, 1000);
      assert.equal(await bf.card('filter'), 0);
      await bf.mAdd('filter', [...items('member', 500), ...items('member', 500)]);
      assert.equal(await bf.card('filter'), 500);
    });

    test('reads of a missing key find nothing and create nothing', async () => {
      assert.equal(await bf.exists('missing', 'a'), false);
      assert.deepEqual(await bf.mExists('missing', ['a', 'b']), [false, false]);
      assert.equal(await bf.card('missing'), 0);
      assert.equal(await client.exists('missing'), 0);
    });

    for (const key of ['with\0nul', ' ', 'ключ', Buffer.from([0xff, 0xfe])]) {
      test(`keys such as ${inspect(key)} and items may be any bytes`, async () => {
        const members = BINARY_ITEMS.filter((_, index) => index % 2 === 0);
        const others = BINARY_ITEMS.filter((_, index) => index % 2 === 1);
        await bf.reserve(key, TIGHT, 1000);
        assert.deepEqual(await bf.mAdd(key, members), members.map(() => true));
        assert.deepEqual(await bf.mExists(key, members), members.map(() => true));
        assert.deepEqual(await bf.mExists(key, others), others.map(() => false));
        assert.deepEqual(await bf.insert(key, others), others.map(() => true));
        assert.equal(await bf.card(key), BINARY_ITEMS.length);
      });
    }

    for (const capacity of [10_000, 1000]) {
      test(`there are no false negatives and few false positives, from capacity ${capacity}`, async () => {
        const members = new Set(items('member', 10_000));
        await bf.reserve('filter', 0.01, capacity);
        await bf.mAdd('filter', [...members]);
        const asked = [...members, ...items('absent', 30_000)];
        const answers = await bf.mExists('filter', asked);
        const found = asked.filter((_, index) => answers[index]);
        const falsePositives = found.filter((item) => !members.has(item)).length;
        assert.equal(found.length - falsePositives, members.size);
        assert.ok(falsePositives <= mostFalsePositives(30_000, 0.01), `${falsePositives}`);
      });
    }

    // Growing

    test('info is an object with the five names in order', async () => {
      await bf.reserve('filter', 0.01, 1000);
      const reply = await bf.info('filter');
      assert.deepEqual(Object.keys(reply), INFO_NAMES);
      assert.ok(Object.values(reply).every(Number.isInteger));
    });

    test('info comes as the map or array that a type mapping asks for', async () => {
      await bf.reserve('filter', 0.01, 1000);
      const entries = Object.entries(await bf.info('filter'));
      const mapped = (type) => client.withTypeMapping({ [RESP_TYPES.MAP]: type }).bf.info('filter');
      assert.deepEqual(await mapped(Map), new Map(entries));
      assert.deepEqual(await mapped(Array), entries.flat());
    });

    test("info's names stay text for a client that wants bulk strings as Buffers", async () => {
      await bf.reserve('filter', 0.01, 1000);
      const mapping = { [RESP_TYPES.BLOB_STRING]: Buffer, [RESP_TYPES.MAP]: Array };
      const reply = await client.withTypeMapping(mapping).bf.info('filter');
      assert.deepEqual(
        reply.filter((_, index) => index % 2 === 0),
        INFO_NAMES,
      );
    });

    for (const [field, value] of [
      ['Capacity', 1234],
      ['Filters', 1],
      ['Items', 2],
      ['Expansion', 4],
    ]) {
      test(`a raw BF.INFO with ${field} replies with that value alone`, async () => {
        await bf.reserve('filter', 0.01, 1234, { EXPANSION: 4 });
        await bf.mAdd('filter', ['a', 'b']);
        const reply = await client.sendCommand(['BF.INFO', 'filter', field]);
        if (RESP === 2) {
          assert.deepEqual(reply, [value]);
        } else {
          const name = INFO_NAMES.find((name) => name.toLowerCase().includes(field.toLowerCase()));
          assert.deepEqual({ ...reply }, { [name]: value });
        }
      });
    }

    for (const expansion of [1, 2, 4]) {
      test(`a full filter grows as far as it must, whatever its expansion is: ${expansion}`, async () => {
        const members = items('member', 2000);
        await bf.reserve('filter', TIGHT, 100, { EXPANSION: expansion });
        for (const [count, filters, capacity] of [
          [100, 1, 100],
          [101, 2, 228],
          [228, 2, 228],
          [2000, 2, 2148],
        ]) {
          await bf.mAdd('filter', members.slice(0, count));
          assert.deepEqual(await readInfo('filter'), info(capacity, filters, count, expansion));
        }
        assert.deepEqual(await bf.mExists('filter', members), members.map(() => true));
      });
    }

    test('a full filter that must not scale rejects new items', async () => {
      await bf.reserve('filter', TIGHT, 2, { NONSCALING: true });
      await bf.mAdd('filter', ['a', 'b']);
      await assert.rejects(bf.add('filter', 'c'), errorReply(FULL));
      assert.equal(await bf.add('filter', 'a'), false);
      assert.deepEqual(await bf.mExists('filter', ['a', 'b', 'c']), [true, true, false]);
      assert.deepEqual(await readInfo('filter'), info(2, 1, 2, null));
    });

    for (const method of ['mAdd', 'insert']) {
      test(`${method} stops at the item that does not fit`, async () => {
        await bf.reserve('filter', TIGHT, 2, { NONSCALING: true });
        const replies = await bf[method]('filter', ['a', 'a', 'b', 'c', 'd', 'a']);
        const last = replies.pop();
        assert.deepEqual(replies, [true, false, true]);
        // Over RESP 2, the client turns every element into a boolean, even the error.
        if (RESP === 2) assert.equal(last, false);
        else assert.ok(errorReply(FULL)(last));
        assert.equal(await bf.card('filter'), 2);
      });
    }

    // Errors

    for (const [method, ...args] of [['info'], ['scanDump', 0], ['loadChunk', 2, 'data']]) {
      test(`${method} reports a missing key as not found`, async () => {
        await assert.rejects(bf[method]('missing', ...args), errorReply(NOT_FOUND));
        assert.equal(await client.exists('missing'), 0);
      });
    }

    for (const [method, ...args] of [
      ['reserve', 0.01, 10],
      ['add', 'a'],
      ['mAdd', ['a', 'b']],
      ['insert', ['a']],
      ['card'],
      ['info'],
      ['scanDump', 0],
      ['loadChunk', 1, 'data'],
    ]) {
      test(`${method} rejects a key of another type and leaves it alone`, async () => {
        await client.set('string', 'value');
        await assert.rejects(bf[method]('string', ...args), errorReply(WRONG_TYPE));
        assert.equal(await client.get('string'), 'value');
      });
    }

    // Dumping and loading

    for (const [name, rate, capacity, options, count] of [
      ['empty', 0.1, 1000, {}, 0],
      ['one-layer', 0.1, 1000, {}, 1000],
      ['scaled', 0.1, 100, { EXPANSION: 3 }, 5000],
      ['non-scaling', 0.1, 1000, { NONSCALING: true }, 500],
    ]) {
      test(`a copied ${name} filter answers and grows as the original`, async () => {
        const absent = items('absent', 5000);
        const members = items('member', count);
        await bf.reserve('original', rate, capacity, options);
        if (count) await bf.mAdd('original', members);
        await copyFilter('original', 'copy');

        const assertSame = async () => {
          const [original, copy] = await Promise.all(
            ['original', 'copy'].map(async (key) => [
              { ...(await bf.info(key)) },
              await bf.card(key),
              await bf.mExists(key, absent),
            ]),
          );
          assert.deepEqual(copy, original);
        };
        if (count) assert.deepEqual(await bf.mExists('copy', members), members.map(() => true));
        await assertSame();
        await bf.mAdd('original', items('later', 400));
        await bf.mAdd('copy', items('later', 400));
        await assertSame();
      });
    }

    test('a filter of many megabytes can be copied', async () => {
      // RedisBloom's chunks hold at most 16 MiB; this filter is larger.
      const members = items('member', 2000);
      const asked = [...members, ...items('absent', 2000)];
      await bf.reserve('original', 0.001, 10_000_000);
      await bf.mAdd('original', members);
      await copyFilter('original', 'copy');
      assert.deepEqual(await bf.mExists('copy', members), members.map(() => true));
      assert.deepEqual(await bf.mExists('copy', asked), await bf.mExists('original', asked));
      assert.deepEqual(await bf.info('copy'), await bf.info('original'));
    });

    test('a dump is not loaded over an existing filter', async () => {
      await bf.reserve('source', 0.01, 5000);
      const { iterator, chunk } = await binary.bf.scanDump('source', 0);
      await bf.add('target', 'member');
      await assert.rejects(bf.loadChunk('target', iterator, chunk), ErrorReply);
      assert.deepEqual(await readInfo('target'), info(100, 1, 1, 2));
      assert.equal(await bf.exists('target', 'member'), true);
    });

    for (const junk of ['', '\0', 'junk', Buffer.alloc(16, 0xff)]) {
      test(`the dump header ${inspect(junk)} is rejected and creates no key`, async () => {
        await assert.rejects(bf.loadChunk('filter', 1, junk), ErrorReply);
        assert.equal(await client.exists('filter'), 0);
      });
    }

    // Pipelines and transactions

    for (const execute of ['exec', 'execAsPipeline']) {
      test(`multi().${execute}() replies as the single calls do`, async () => {
        const replies = await client
          .multi()
          .bf.reserve('filter', TIGHT, 1000)
          .bf.add('filter', 'a')
          .bf.mAdd('filter', ['a', 'b'])
          .bf.insert('filter', ['b', 'c'])
          .bf.exists('filter', 'c')
          .bf.mExists('filter', ['c', 'd'])
          .bf.card('filter')
          .bf.info('filter')
          .bf.scanDump('filter', 0)
          [execute]();
        const { iterator, chunk } = replies.pop();
        const { Size, ...rest } = replies.pop();
        assert.deepEqual(replies, [
          'OK',
          true,
          [false, true],
          [false, true],
          true,
          [true, false],
          3,
        ]);
        assert.ok(Size > 0);
        assert.deepEqual(rest, info(1000, 1, 3, 2));
        assert.ok(Number.isInteger(iterator) && iterator > 0);
        assert.equal(typeof chunk, 'string');
      });
    }

    const multiWithErrors = async () => {
      await client.set('string', 'value');
      return client
        .multi()
        .bf.add('filter', 'a')
        .bf.add('string', 'a')
        .bf.info('missing')
        .bf.exists('filter', 'a');
    };

    test('an error in multi().exec() stays in its place', async () => {
      const multi = await multiWithErrors();
      await assert.rejects(multi.exec(), (error) => {
        assert.ok(error instanceof MultiErrorReply);
        const [first, wrongType, missing, last] = error.replies;
        assert.deepEqual([first, last], [true, true]);
        assert.ok(errorReply(WRONG_TYPE)(wrongType));
        assert.ok(errorReply(NOT_FOUND)(missing));
        assert.deepEqual(error.errorIndexes, [1, 2]);
        return true;
      });
    });

    test('an error in multi().execAsPipeline() rejects it but stops no other call', async () => {
      const multi = await multiWithErrors();
      multi.bf.add('filter', 'b');
      await assert.rejects(multi.execAsPipeline(), errorReply(WRONG_TYPE));
      assert.deepEqual(await bf.mExists('filter', ['a', 'b']), [true, true]);
    });

    test('calls made at once are answered in order', async () => {
      await bf.reserve('filter', TIGHT, 1000);
      const members = items('member', 500);
      const calls = [...members, ...members].map((item) => bf.add('filter', item));
      const expected = [...members.map(() => true), ...members.map(() => false)];
      assert.deepEqual(await Promise.all(calls), expected);
    });

    test('a watched key notices a write but not a read', async () => {
      await bf.add('filter', 'a');
      const transaction = () => client.multi().bf.add('filter', 'late').exec();

      await client.watch('filter');
      await bf.add('filter', 'b');
      await assert.rejects(transaction(), WatchError);
      assert.equal(await bf.exists('filter', 'late'), false);

      await client.watch('filter');
      await bf.mExists('filter', ['a', 'b']);
      await bf.info('filter');
      await bf.card('filter');
      assert.deepEqual(await transaction(), [true]);
    });
  });
}
