/**
 * Tests that node-redis' own `client.bf` works with the module as it does with RedisBloom.
 *
 * Every method and option is called over RESP 2 and RESP 3, one by one, in transactions and in pipelines, and must
 * return the type that the client documents. The commands themselves are tested in `tests/server`, and compared with
 * RedisBloom in `tests/oracle`.
 */

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { inspect } from 'node:util';
import { createClient, ErrorReply, MultiErrorReply, RESP_TYPES, WatchError } from 'redis';
import { BINARY_ITEMS, FULL, items, NOT_FOUND, TIGHT } from './filters.mjs';
import { startServer } from './server.mjs';

// More chunks than any dump here has, so that an endless SCANDUMP fails instead of hanging.
const MOST_CHUNKS = 1000;

const WRONG_TYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value';

const INFO_NAMES = ['Capacity', 'Size', 'Number of filters', 'Number of items inserted', 'Expansion rate'];

/** Returns a check of a reply to BF.INFO, whose size depends on the layout. */
const info = (...expected) => (reply) => {
  assert.deepEqual(Object.keys(reply), INFO_NAMES);
  const [capacity, size, ...others] = Object.values(reply);
  assert.ok(Number.isInteger(size) && size > 0, `Size is ${size}`);
  assert.deepEqual([capacity, ...others], expected);
};

const errorReply = (message) => (error) => {
  assert.ok(error instanceof ErrorReply, String(error));
  assert.equal(error.message, message);
  return true;
};

const chunk = ({ iterator, chunk }) => {
  assert.ok(Number.isInteger(iterator) && iterator > 0);
  assert.equal(typeof chunk, 'string');
};

/** Checks a reply, or each part of it, against a value or a function that checks it. */
function check(reply, expected) {
  if (typeof expected === 'function') return expected(reply);
  if (!Array.isArray(expected)) return assert.deepEqual(reply, expected);
  assert.equal(reply.length, expected.length);
  for (const [index, part] of expected.entries()) check(reply[index], part);
}

/**
 * Returns calls for a server with an empty filter `source`, which has this header, and a string: the method, the reply
 * and the arguments.
 */
function conversation(RESP, header) {
  const wrongType = errorReply(WRONG_TYPE);
  const notFound = errorReply(NOT_FOUND);
  // Over RESP 2, the client turns every element into a boolean, even the error.
  const full = RESP === 2 ? false : errorReply(FULL);
  return [
    ['reserve', 'OK', 'filter', TIGHT, 1000, { EXPANSION: 4 }],
    ['reserve', errorReply('ERR item exists'), 'filter', 0.5, 7],
    ['info', info(1000, 1, 0, 4), 'filter'],
    ['add', true, 'filter', 'a'],
    ['add', false, 'filter', 'a'],
    ['mAdd', [false, true], 'filter', ['a', 'b']],
    ['mAdd', [true], 'filter', 'c'],
    ['insert', [false, true, false], 'filter', ['b', 'd', 'd']],
    ['insert', [false], 'filter', 'a', { NOCREATE: true }],
    ['exists', true, 'filter', 'd'],
    ['exists', false, 'filter', 'absent'],
    ['mExists', [true, false, true], 'filter', ['a', 'absent', 'b']],
    ['card', 4, 'filter'],
    ['info', info(1000, 1, 4, 4), 'filter'],
    ['reserve', 'OK', 'default', 0.01, 1234],
    ['info', info(1234, 1, 0, 2), 'default'],
    ['reserve', 'OK', 'full', TIGHT, 2, { NONSCALING: true }],
    ['mAdd', [true, false, true, full], 'full', ['a', 'a', 'b', 'c', 'd', 'a']],
    ['insert', [false, full], 'full', ['b', 'c', 'b']],
    ['add', errorReply(FULL), 'full', 'c'],
    ['info', info(2, 1, 2, null), 'full'],
    ['add', true, 'added', 'a'],
    ['info', info(100, 1, 1, 2), 'added'],
    ['insert', [true], 'growing', ['a'], { CAPACITY: 50, ERROR: 0.001, EXPANSION: 3 }],
    ['info', info(50, 1, 1, 3), 'growing'],
    ['insert', [true], 'fixed', ['a'], { NONSCALING: true }],
    ['info', info(100, 1, 1, null), 'fixed'],
    ['scanDump', chunk, 'source', 0],
    ['loadChunk', 'OK', 'copy', 1, header],
    ['info', info(1234, 1, 0, 2), 'copy'],
    ['exists', false, 'missing', 'a'],
    ['mExists', [false, false], 'missing', ['a', 'b']],
    ['card', 0, 'missing'],
    ['insert', notFound, 'missing', 'a', { NOCREATE: true }],
    ['info', notFound, 'missing'],
    ['scanDump', notFound, 'missing', 0],
    ['loadChunk', notFound, 'missing', 2, 'data'],
    ['reserve', wrongType, 'string', 0.01, 10],
    ['add', wrongType, 'string', 'a'],
    ['mAdd', wrongType, 'string', ['a', 'b']],
    ['insert', wrongType, 'string', ['a']],
    ['card', wrongType, 'string'],
    ['info', wrongType, 'string'],
    ['scanDump', wrongType, 'string', 0],
    ['loadChunk', wrongType, 'string', 1, 'data'],
  ];
}

/** The ways to call methods. Each returns the replies and the errors. */
const WAYS = {
  async 'one by one'(client, calls) {
    const replies = [];
    for (const [method, , ...args] of calls) {
      replies.push(await client.bf[method](...args).catch((error) => error));
    }
    return replies;
  },

  async 'multi().exec()'(client, calls) {
    const multi = client.multi();
    for (const [method, , ...args] of calls) multi.bf[method](...args);
    const error = await multi.exec().catch((error) => error);
    assert.ok(error instanceof MultiErrorReply);
    const failed = error.replies.flatMap((reply, index) => (reply instanceof ErrorReply ? [index] : []));
    assert.deepEqual(error.errorIndexes, failed);
    return error.replies;
  },
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

    test('the client offers no method that is not tested here', () => {
      const offered = Object.getOwnPropertyNames(Object.getPrototypeOf(bf));
      const methods = offered.filter((name) => name !== name.toUpperCase());
      assert.deepEqual(new Set(methods), new Set(conversation(RESP, '').map(([method]) => method)));
    });

    for (const [way, call] of Object.entries(WAYS)) {
      test(`every method returns what the client documents, called ${way}`, async () => {
        await bf.reserve('source', TIGHT, 1234);
        await client.set('string', 'value');
        const calls = conversation(RESP, (await binary.bf.scanDump('source', 0)).chunk);
        const replies = await call(client, calls);
        for (const [index, [method, expected, ...args]] of calls.entries()) {
          try {
            check(replies[index], expected);
          } catch (error) {
            throw new Error(`${method} ${inspect(args)} returned ${inspect(replies[index])}`, { cause: error });
          }
        }
        for (const [key, rate] of [['filter', TIGHT], ['growing', 0.001]]) {
          assert.deepEqual(Object.values(await client.sendCommand(['BF.INFO', key, 'ERROR'])).map(Number), [rate]);
        }
        assert.equal(await client.get('string'), 'value');
        assert.equal(await client.exists('missing'), 0);
      });
    }

    test('an error in multi().execAsPipeline() rejects it but stops no other call', async () => {
      await client.set('string', 'value');
      const multi = client.multi().bf.add('filter', 'a').bf.add('string', 'a').bf.info('missing').bf.add('filter', 'b');
      await assert.rejects(multi.execAsPipeline(), errorReply(WRONG_TYPE));
      const replies = await client.multi().bf.mExists('filter', ['a', 'b']).bf.card('filter').execAsPipeline();
      assert.deepEqual(replies, [[true, true], 2]);
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

    test('a filter of many megabytes can be copied', async () => {
      // RedisBloom's chunks hold at most 16 MiB; this filter is larger.
      const members = items('member', 2000);
      const asked = [...members, ...items('absent', 2000)];
      await bf.reserve('original', 0.001, 10_000_000);
      await bf.mAdd('original', members);
      let [position, chunks] = [0, 0];
      for (; chunks < MOST_CHUNKS; chunks++) {
        const { iterator, chunk } = await binary.bf.scanDump('original', position);
        assert.ok(Number.isInteger(iterator) && Buffer.isBuffer(chunk));
        if (iterator === 0) {
          assert.equal(chunk.length, 0);
          break;
        }
        assert.equal(await bf.loadChunk('copy', iterator, chunk), 'OK');
        position = iterator;
      }
      assert.ok(1 < chunks && chunks < MOST_CHUNKS, `${chunks} chunks`);
      assert.deepEqual(await bf.mExists('copy', members), members.map(() => true));
      assert.deepEqual(await bf.mExists('copy', asked), await bf.mExists('original', asked));
      assert.deepEqual(await bf.info('copy'), await bf.info('original'));
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
