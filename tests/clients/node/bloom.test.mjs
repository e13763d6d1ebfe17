/**
 * Tests that node-redis' own `client.bf` works with the module as it does with RedisBloom.
 *
 * Every method and option is called over RESP 2 and RESP 3, one by one and in transactions, and must return the type
 * that the client documents. The commands themselves are tested in `tests/server`, and compared with
 * RedisBloom in `tests/oracle`.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { ErrorReply, MultiErrorReply, RESP_TYPES } from 'redis';
import { connected, FULL, NOT_FOUND, TIGHT } from './shared.mjs';

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

for (const RESP of [2, 3]) {
  for (const [way, call] of Object.entries(WAYS)) {
    test(`every method returns what the client documents, over RESP ${RESP}, called ${way}`, async (t) => {
      const client = await connected(t, RESP);
      await client.bf.reserve('source', TIGHT, 1234);
      await client.set('string', 'value');
      // A dump is not text.
      const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
      const calls = conversation(RESP, (await binary.bf.scanDump('source', 0)).chunk);
      const offered = Object.getOwnPropertyNames(Object.getPrototypeOf(client.bf));
      const methods = offered.filter((name) => name !== name.toUpperCase());
      assert.deepEqual(new Set(methods), new Set(calls.map(([method]) => method)));
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
}
