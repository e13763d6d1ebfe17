/** The servers that tests use, and items, errors and limits that they share. */

import { createClient } from 'redis';

export const { PORT, PORT_OF_REDISBLOOM } = process.env;
export const urlOf = (port) => `redis://127.0.0.1:${port}`;

// An error rate so low that the items of a small test have no false positives.
export const TIGHT = 1e-9;

export const FULL = 'ERR non scaling filter is full';
export const NOT_FOUND = 'ERR not found';

export const BINARY_ITEMS = [
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

export const items = (prefix, count) => Array.from({ length: count }, (_, number) => `${prefix}:${number}`);

/** Empties a server. Returns a client, which is closed after the test. */
export async function connected(test, RESP, port = PORT) {
  const client = await createClient({ RESP, url: urlOf(port) }).connect();
  test.after(() => client.destroy());
  await client.flushAll();
  return client;
}
