/**
 * Tests that node-redis' own `client.bf` works with the module as it does with RedisBloom.
 *
 * Every method and option is called over RESP 2 and RESP 3, and must return the type that the client documents.
 * Membership is compared with a set. Where a value depends on a filter's structure (its size, the chunks of a dump),
 * the tests only check what every Bloom filter must satisfy.
 */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';
import { createClient, ErrorReply, MultiErrorReply, RESP_TYPES, WatchError } from 'redis';
import { startServer } from './server.mjs';

// An error rate so low that the items of a small test have no false positives.
const TIGHT = 1e-18;

// More chunks than any dump here has, so that an endless SCANDUMP fails instead of hanging.
const MOST_CHUNKS = 1000;

const FULL = 'ERR non scaling filter is full';
const NOT_FOUND = 'ERR not found';
const WRONG_TYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value';

const INFO_NAMES = [
  'Capacity',
  'Size',
  'Number of filters',
  'Number of items inserted',
  'Expansion rate',
];

// The fields that BF.INFO returns only if they are named.
const FURTHER_FIELDS = ['ERROR', 'TIGHTENING', 'MAXSCALEDCAPACITY', 'SEED', 'LAYOUT', 'FILL', 'FPR', 'ESTIMATED', 'WINDOW', 'SLICES', 'REFRESH', 'ROLLING', 'OLDEST'];

const BINARY_ITEMS = [
  '',
  '\0',
  '\0\0',
  'a',
  'a\0',
  '\0a',
  'a\r\nb',
  'фильтр',
  Buffer.from([0xff, 0xfe]),
  Buffer.from([0xc3, 0x28]),
  Buffer.alloc(65_536, 0xab),
];

const items = (prefix, count) => Array.from({ length: count }, (_, number) => `${prefix}:${number}`);

/** Returns the values of BF.INFO by name, without the size, which depends on the layout. */
const info = (capacity, filters, inserted, expansion) => ({
  Capacity: capacity,
  'Number of filters': filters,
  'Number of items inserted': inserted,
  'Expansion rate': expansion,
});

/**
 * Returns a bound that a number with the binomial distribution B(trials, rate) exceeds with a probability below 2e-14.
 *
 * It is Bernstein's inequality at eight standard deviations, which filter/tests/promises/rates.rs explains.
 */
function mostFalsePositives(trials, rate) {
  const z = 8;
  const variance = trials * rate * (1 - rate);
  return trials * rate + z ** 2 / 6 + Math.sqrt(z ** 4 / 36 + z ** 2 * variance);
}

/** Returns the textbook size of a Bloom filter: n ln(1/p) / (ln 2)^2 bits. */
const idealBytes = (capacity, rate) => (capacity * Math.log(1 / rate)) / Math.LN2 ** 2 / 8;

const errorReply = (message) => (error) => {
  assert.ok(error instanceof ErrorReply, String(error));
  assert.equal(error.message, message);
  return true;
};

/** Runs a program, which can import the packages of this folder. Returns what it prints. */
const inNode = (code) =>
  execFileSync(process.execPath, ['--input-type=module', '--eval', code], {
    cwd: fileURLToPath(new URL('.', import.meta.url)),
    encoding: 'utf8',
    timeout: 30_000,
  });

let server;
before(async () => {
  server = await startServer();
});
after(() => server?.stop());

/** Returns the blocks of code for node-redis on a page. */
function codeOn(page) {
  const text = readFileSync(new URL(`../../../${page}`, import.meta.url), 'utf8');
  return [...text.matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code);
}

/** Runs the code of a page with this server. Returns what it prints. Options in the code take precedence. */
function printed(code, options = {}) {
  const here = JSON.stringify({ ...options, url: `redis://127.0.0.1:${server.port}` });
  return inNode(
    code.replace(/createClient\((.*?)\)/, (_, own) => `createClient({ ...${here}, ...${own || '{}'} })`),
  );
}

/** Returns what the code prints on its first and on its second run, according to the comments after `console.log`. */
function expectedOutput(code) {
  const comments = [...code.matchAll(/^console\.log.*; \/\/ (.*)$/gm)].map(([, comment]) => comment);
  const times = comments.map((comment) => comment.split('; when you run it again, '));
  return [0, -1].map((time) => times.map((said) => `${said.at(time)}\n`).join(''));
}

const [README_CODE, ...none] = codeOn('README.md');
const [CART_CODE, PACKED_CODE, CHUNKS_CODE, FIELDS_CODE, ...noMore] = codeOn('docs/clients.md');

test('all code for node-redis on the pages runs here', () => {
  assert.deepEqual([none, noMore], [[], []]);
  assert.ok([README_CODE, CART_CODE, PACKED_CODE, CHUNKS_CODE, FIELDS_CODE].every(Boolean));
});

for (const [name, code] of [
  ['README.md', README_CODE],
  ['docs/clients.md', CART_CODE],
  ['docs/clients.md, for packed items,', PACKED_CODE],
  ['docs/clients.md, for chunks,', CHUNKS_CODE],
]) {
  test(`the code in ${name} prints what it says, each time`, async () => {
    const client = await createClient({ url: `redis://127.0.0.1:${server.port}` }).connect();
    await client.flushAll();
    client.destroy();
    const expected = expectedOutput(code);
    assert.ok(expected[0].length > 0);
    assert.deepEqual([printed(code), printed(code)], expected);
  });
}

/** Returns the function that docs/clients.md defines for packed items. */
function packedSend() {
  const [body] = PACKED_CODE.match(/^async function send.*?^}/ms);
  return new Function('RESP_TYPES', `return ${body}`)(RESP_TYPES);
}

test('the function in docs/clients.md packs all items and reads all replies', async () => {
  const send = packedSend();
  for (const RESP of [2, 3]) {
    const client = await createClient({ RESP, url: `redis://127.0.0.1:${server.port}` }).connect();
    try {
      await client.flushAll();
      await client.bf.reserve('seen', TIGHT, 10_000);
      const many = [...BINARY_ITEMS, ...items('item', 1000)];
      assert.deepEqual(await send(client, ['BF.ADDPACKED', 'seen'], []), []);
      assert.deepEqual(await send(client, ['BF.ADDPACKED', 'seen', 'NOCREATE'], many), many.map(() => true));
      assert.deepEqual(await client.bf.mExists('seen', many), many.map(() => true));
      const asked = [...many, ...items('absent', 1000)];
      assert.deepEqual(await send(client, ['BF.EXISTSPACKED', 'seen'], asked), asked.map((_, i) => i < many.length));
      await client.bf.reserve('small', TIGHT, 50, { NONSCALING: true });
      await assert.rejects(send(client, ['BF.ADDPACKED', 'small'], many), (error) => {
        assert.equal(error.message, FULL);
        assert.deepEqual(error.answers, Array(50).fill(true));
        return true;
      });
      await assert.rejects(send(client, ['BF.ADDPACKED', 'none', 'NOCREATE'], many), { message: NOT_FOUND });
    } finally {
      client.destroy();
    }
  }
});

test('the code in docs/clients.md reads the fields that node-redis does not', async () => {
  for (const RESP of [2, 3]) {
    const client = await createClient({ RESP, url: `redis://127.0.0.1:${server.port}` }).connect();
    try {
      await client.flushAll();
      const shown = [printed(FIELDS_CODE, { RESP }), printed(FIELDS_CODE, { RESP })];
      const expected = [];
      for (const field of FURTHER_FIELDS) {
        const reply = await client.sendCommand(['BF.INFO', 'users', field]);
        expected.push(`${field} ${Object.values(reply)[0]}\n`);
      }
      assert.equal(expected[0], 'ERROR 0.001\n');
      assert.deepEqual(shown, [expected.join(''), expected.join('')]);
    } finally {
      client.destroy();
    }
  }
});

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
