/** Tests that node-redis' client for clusters sends packed commands to the server that has the key. */

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, createCluster, RESP_TYPES } from 'redis';
import { startServer } from './server.mjs';

const HOST = '127.0.0.1';
const SLOTS = [
  [0, 8191],
  [8192, 16383],
];
const WITHIN_MS = 240_000; // even on a busy machine

const nodes = [];
let cluster;

before(async () => {
  for (const [first, last] of SLOTS) {
    const server = await startServer({ clustered: true });
    const client = await createClient({ url: `redis://${HOST}:${server.port}` }).connect();
    nodes.push({ server, client });
    await client.sendCommand(['CLUSTER', 'ADDSLOTSRANGE', String(first), String(last)]);
  }
  const { port, busPort } = nodes[1].server;
  await nodes[0].client.sendCommand(['CLUSTER', 'MEET', HOST, String(port), String(busPort)]);
  const deadline = Date.now() + WITHIN_MS;
  for (const { client } of nodes) {
    while (!(await client.sendCommand(['CLUSTER', 'INFO'])).includes('cluster_state:ok')) {
      assert.ok(Date.now() < deadline, 'the cluster was not formed in time');
      await sleep(20);
    }
  }
  cluster = createCluster({
    rootNodes: [{ url: `redis://${HOST}:${nodes[0].server.port}` }],
    defaults: { commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } } },
  });
  await cluster.connect();
});

after(async () => {
  cluster?.destroy();
  for (const { server, client } of nodes) {
    client.destroy();
    await server.stop();
  }
});

/** Returns how often each server ran, redirected or rejected a command. */
async function counts(name) {
  const stats = await Promise.all(nodes.map(({ client }) => client.info('commandstats')));
  const found = stats.map((text) => text.match(`cmdstat_${name}:calls=(\\d+).*?rejected_calls=(\\d+)`) ?? [0, 0, 0]);
  return found.map(([, calls, rejected]) => [Number(calls), Number(rejected)]);
}

test('packed commands reach the server that has their key', async () => {
  // Hash slots 15495 and 3300.
  for (const [key, owner] of [
    ['a', 1],
    ['b', 0],
  ]) {
    await cluster.sendCommand(key, false, ['BF.RESERVE', key, '0.001', '100', 'COUNTING']);
    for (const [name, isRead, bits] of [
      ['BF.ADDPACKED', false, 0b110],
      ['BF.EXISTSPACKED', true, 0b111],
      ['BF.DELPACKED', false, 0b111],
    ]) {
      const earlier = await counts(name.toLowerCase());
      const reply = await cluster.sendCommand(key, isRead, [name, key, 'LINES', 'one\ntwo\none']);
      assert.deepEqual([...reply], [bits << 5], name);
      const later = await counts(name.toLowerCase());
      earlier[owner][0] += 1;
      assert.deepEqual(later, earlier, name);
    }
  }
});
