/**
 * Tests that node-redis' own `client.bf` and `client.cf` get from the module what they get from RedisBloom.
 *
 * Every method and option is called over RESP 2 and RESP 3, one by one and in transactions, with both layouts. The
 * replies must be equal, except for the figures in which native filters differ.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { ErrorReply, MultiErrorReply, RESP_TYPES } from 'redis';
import { connected, PORT, PORT_OF_REDISBLOOM, TIGHT } from './shared.mjs';

const NATIVE_FIGURES = {
  bf: ['Size'],
  cf: ['Size', 'Number of filters', 'Number of items deleted'],
};

/** Returns calls for a server with a string, and with an empty filter `source`, which has this header. */
const conversation = (header) => [
  ['bf', 'reserve', 'filter', TIGHT, 1000, { EXPANSION: 4 }],
  ['bf', 'reserve', 'filter', 0.5, 7],
  ['bf', 'info', 'filter'],
  ['bf', 'add', 'filter', 'a'],
  ['bf', 'add', 'filter', 'a'],
  ['bf', 'mAdd', 'filter', ['a', 'b']],
  ['bf', 'mAdd', 'filter', 'c'],
  ['bf', 'insert', 'filter', ['b', 'd', 'd']],
  ['bf', 'insert', 'filter', 'a', { NOCREATE: true }],
  ['bf', 'exists', 'filter', 'd'],
  ['bf', 'exists', 'filter', 'absent'],
  ['bf', 'mExists', 'filter', ['a', 'absent', 'b']],
  ['bf', 'card', 'filter'],
  ['bf', 'info', 'filter'],
  ['bf', 'reserve', 'full', TIGHT, 2, { NONSCALING: true }],
  ['bf', 'mAdd', 'full', ['a', 'a', 'b', 'c', 'd', 'a']],
  ['bf', 'insert', 'full', ['b', 'c', 'b']],
  ['bf', 'add', 'full', 'c'],
  ['bf', 'info', 'full'],
  ['bf', 'add', 'added', 'a'],
  ['bf', 'info', 'added'],
  ['bf', 'insert', 'growing', ['a'], { CAPACITY: 50, ERROR: 0.001, EXPANSION: 3 }],
  ['bf', 'info', 'growing'],
  ['bf', 'insert', 'fixed', ['a'], { NONSCALING: true }],
  ['bf', 'info', 'fixed'],
  ['bf', 'scanDump', 'source', 0],
  ['bf', 'loadChunk', 'copy', 1, header],
  ['bf', 'info', 'copy'],
  ['bf', 'exists', 'missing', 'a'],
  ['bf', 'mExists', 'missing', ['a', 'b']],
  ['bf', 'card', 'missing'],
  ['bf', 'insert', 'missing', 'a', { NOCREATE: true }],
  ['bf', 'info', 'missing'],
  ['bf', 'scanDump', 'missing', 0],
  ['bf', 'loadChunk', 'missing', 2, 'data'],
  ['bf', 'reserve', 'string', 0.01, 10],
  ['bf', 'add', 'string', 'a'],
  ['bf', 'mAdd', 'string', ['a', 'b']],
  ['bf', 'info', 'string'],
  ['cf', 'reserve', 'cart', 1000, { BUCKETSIZE: 4, MAXITERATIONS: 30, EXPANSION: 2 }],
  ['cf', 'reserve', 'cart', 1000],
  ['cf', 'add', 'cart', 'apple'],
  ['cf', 'add', 'cart', 'apple'],
  ['cf', 'addNX', 'cart', 'apple'],
  ['cf', 'addNX', 'cart', 'pear'],
  ['cf', 'count', 'cart', 'apple'],
  ['cf', 'exists', 'cart', 'apple'],
  ['cf', 'exists', 'cart', 'plum'],
  ['cf', 'mExists', 'cart', ['apple', 'plum']],
  ['cf', 'insert', 'cart', ['plum', 'plum']],
  ['cf', 'insert', 'made', ['fig'], { CAPACITY: 100 }],
  ['cf', 'insert', 'none', ['fig'], { NOCREATE: true }],
  ['cf', 'insertNX', 'cart', ['plum', 'quince']],
  ['cf', 'del', 'cart', 'plum'],
  ['cf', 'del', 'cart', 'grape'],
  ['cf', 'info', 'cart'],
  ['cf', 'scanDump', 'cart', 0],
  ['cf', 'loadChunk', 'none', 2, 'data'],
];

/** The ways to call methods. Each returns the replies and the errors. */
const WAYS = {
  async 'one by one'(client, calls) {
    const replies = [];
    for (const [family, method, ...args] of calls) {
      replies.push(await client[family][method](...args).catch((error) => error));
    }
    return replies;
  },

  async 'multi().exec()'(client, calls) {
    const multi = client.multi();
    for (const [family, method, ...args] of calls) multi[family][method](...args);
    const error = await multi.exec().catch((error) => error);
    assert.ok(error instanceof MultiErrorReply);
    return error.replies;
  },
};

/** Returns a reply without what may differ between the modules. */
function shown([family, method], reply, layout) {
  if (reply instanceof ErrorReply) return { error: reply.message };
  if (Array.isArray(reply)) return reply.map((part) => shown([], part));
  if (method === 'scanDump') return Object.entries(reply).map(([name, part]) => [name, typeof part]);
  if (method !== 'info' || layout === 'classic') return reply;
  return Object.entries(reply).map(([name, value]) => (NATIVE_FIGURES[family].includes(name) ? name : [name, value]));
}

const binary = (client) => client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });

for (const [layout, RESP] of ['classic', 'native'].flatMap((layout) => [2, 3].map((RESP) => [layout, RESP]))) {
  const title = `${layout} filters, RESP ${RESP}`;

  for (const [way, call] of Object.entries(WAYS)) {
    test(`every method returns what it returns with RedisBloom, called ${way}: ${title}`, async (t) => {
      const replies = [];
      for (const port of [PORT, PORT_OF_REDISBLOOM]) {
        const client = await connected(t, RESP, port);
        if (port === PORT) await client.configSet({ 'bf.layout': layout, 'bf.cf-layout': layout });
        await client.bf.reserve('source', TIGHT, 1234);
        await client.set('string', 'value');
        const calls = conversation((await binary(client).bf.scanDump('source', 0)).chunk);
        for (const family of ['bf', 'cf']) {
          const offered = Object.getOwnPropertyNames(Object.getPrototypeOf(client[family]));
          const methods = offered.filter((name) => name !== name.toUpperCase());
          const called = calls.filter(([of]) => of === family).map(([, method]) => method);
          assert.deepEqual(new Set(methods), new Set(called));
        }
        const given = await call(client, calls);
        replies.push(calls.map((call, index) => [inspect(call.slice(0, 3)), shown(call, given[index], layout)]));
      }
      assert.deepEqual(...replies);
    });
  }

  // node-redis decodes chunks as text by default, which only some bytes survive.
  test(`a filter is copied in chunks: ${title}`, async (t) => {
    const client = await connected(t, RESP);
    await client.configSet({ 'bf.layout': layout, 'bf.cf-layout': layout });
    for (const family of ['bf', 'cf']) {
      const [source, copy] = [`${family} source`, `${family} copy`];
      await client[family].insert(source, ['apple', 'pear']);
      for (let cursor = 0; ; ) {
        const { iterator, chunk } = await binary(client)[family].scanDump(source, cursor);
        cursor = Number(iterator);
        if (cursor === 0) break;
        assert.equal(await client[family].loadChunk(copy, cursor, chunk), 'OK');
      }
      assert.deepEqual(await client[family].mExists(copy, ['apple', 'plum']), [true, false]);
      assert.deepEqual(await client[family].info(copy), await client[family].info(source));
    }
  });
}
