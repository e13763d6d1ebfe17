/**
 * Programs in two languages share a filter that is spread over several keys.
 *
 * This file implements the placement of `oxbloom._sharded.placement` in JavaScript, only from its documentation. Each
 * language must find the items that the other one adds.
 *
 * `PYTHON` names a Python with the package (default: the one that `make test-clients` uses).
 */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createClient } from 'redis';
import { startServer } from './server.mjs';

const PYTHON =
  process.env.PYTHON || fileURLToPath(new URL('../../../target/python/bin/python', import.meta.url));
const ERROR_RATE = 1e-18; // so low that the tests have no false positives
const CAPACITY = 10_000;
const SLOTS = 16384;

/** Returns the CRC-32 that zlib, PNG and gzip use. */
function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

/** Returns the CRC-16 that Redis uses for hash slots (XMODEM). */
function crc16(bytes) {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc;
}

const shardOf = (item, shards) => crc32(Buffer.from(item)) % shards;

function keysOf(name, shards) {
  if (shards === 1) return [name];
  const tags = new Map();
  for (let tag = 0; tags.size < shards; tag++) {
    const part = Math.floor(((crc16(Buffer.from(String(tag))) % SLOTS) * shards) / SLOTS);
    if (!tags.has(part)) tags.set(part, tag);
  }
  return Array.from({ length: shards }, (_, i) => `{${tags.get(i)}}:${name}:${i}/${shards}`);
}

/** Returns the items of each shard, by its number. */
function groupByShard(items, shards) {
  const parts = new Map();
  for (const item of items) {
    const shard = shardOf(item, shards);
    parts.set(shard, [...(parts.get(shard) ?? []), item]);
  }
  return parts;
}

const ITEMS = [
  ...Array.from({ length: 1000 }, (_, number) => `https://example.com/?page=${number}`),
  '',
  '\0',
  'straße',
  'фильтр 😀',
  Buffer.from([0xff, 0xfe, 0x00]),
  Buffer.alloc(70_000, 0xab),
];

// The program reads each item as a line of hexadecimal digits, and prints a line for each.
const PROGRAM = `
import sys
import redis
from oxbloom import ShardedFilter
port, shards, operation = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with redis.Redis("127.0.0.1", port) as client:
    filter = ShardedFilter(client, "seen", shards=shards, capacity=${CAPACITY}, error_rate=${ERROR_RATE})
    print(*getattr(filter, operation)(map(bytes.fromhex, sys.stdin.read().split("\\n"))), sep="\\n")
`;

function inPython(port, shards, operation, items) {
  const { error, status, stdout, stderr } = spawnSync(
    PYTHON,
    ['-c', PROGRAM, port, shards, operation].map(String),
    { input: items.map((item) => Buffer.from(item).toString('hex')).join('\n'), timeout: 240_000 },
  );
  if (error) throw new Error(`PYTHON: cannot run ${PYTHON}`, { cause: error });
  assert.equal(status, 0, String(stderr));
  return String(stdout)
    .trim()
    .split('\n')
    .map((line) => line === 'True');
}

describe('sharded filters', { timeout: 600_000 }, () => {
  let server;
  let client;

  before(async () => {
    server = await startServer();
  });
  after(() => server?.stop());

  beforeEach(async () => {
    const socket = { host: '127.0.0.1', port: server.port, reconnectStrategy: false };
    client = createClient({ socket });
    client.on('error', () => {}); // a broken connection also rejects the calls under test
    await client.connect();
    await client.flushAll();
  });
  afterEach(() => client?.destroy());

  test('the checksums are the well-known ones', () => {
    assert.equal(crc32(Buffer.from('123456789')), 0xcbf43926);
    assert.equal(crc16(Buffer.from('123456789')), 0x31c3);
  });

  test('shards and keys are those of the examples', () => {
    assert.equal(shardOf('https://example.com/', 16), 4);
    assert.equal(shardOf('straße', 64), 13);
    assert.deepEqual(keysOf('seen', 1), ['seen']);
    assert.deepEqual(keysOf('seen', 3), ['{3}:seen:0/3', '{1}:seen:1/3', '{0}:seen:2/3']);
  });

  for (const shards of [1, 3, 16, 64]) {
    test(`what JavaScript adds to ${shards} shards, Python finds`, async () => {
      const keys = keysOf('seen', shards);
      for (const [shard, part] of groupByShard(ITEMS, shards)) {
        const options = { CAPACITY, ERROR: ERROR_RATE };
        const added = await client.bf.insert(keys[shard], part, options);
        assert.deepEqual(added, part.map(() => true));
      }
      const absent = ITEMS.map((item) => Buffer.concat([Buffer.from(item), Buffer.from('!')]));
      const found = inPython(server.port, shards, 'contains_all', [...ITEMS, ...absent]);
      assert.deepEqual(found, [...ITEMS.map(() => true), ...absent.map(() => false)]);
      const present = inPython(server.port, shards, 'add_all', ITEMS);
      assert.deepEqual(present, ITEMS.map(() => true));
    });

    test(`what Python adds to ${shards} shards, JavaScript finds`, async () => {
      const present = inPython(server.port, shards, 'add_all', ITEMS);
      assert.deepEqual(present, ITEMS.map(() => false));
      const keys = keysOf('seen', shards);
      assert.deepEqual((await client.keys('*')).sort(), [...keys].sort());
      for (const [shard, part] of groupByShard(ITEMS, shards)) {
        assert.deepEqual(await client.bf.mExists(keys[shard], part), part.map(() => true));
        assert.equal(await client.bf.card(keys[shard]), part.length);
      }
    });
  }
});
