/** Runs the code for node-redis on the pages. It prints what the pages say. */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { RESP_TYPES } from 'redis';
import { BINARY_ITEMS, connected, FULL, items, NOT_FOUND, PORT, TIGHT, urlOf } from './shared.mjs';

// The fields that BF.INFO returns only if they are named.
const FURTHER_FIELDS = ['ERROR', 'TIGHTENING', 'MAXSCALEDCAPACITY', 'SEED', 'LAYOUT', 'FILL', 'FPR', 'ESTIMATED', 'WINDOW', 'SLICES', 'REFRESH', 'ROLLING', 'OLDEST'];

/** Runs a program, which can import the packages of this folder. Returns what it prints. */
const inNode = (code) =>
  execFileSync(process.execPath, ['--input-type=module', '--eval', code], {
    cwd: fileURLToPath(new URL('.', import.meta.url)),
    encoding: 'utf8',
    timeout: 30_000,
  });

/** Returns the blocks of code for node-redis on a page. */
function codeOn(page) {
  const text = readFileSync(new URL(`../../../${page}`, import.meta.url), 'utf8');
  return [...text.matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code);
}

/** Runs the code of a page with this server. Returns what it prints. Options in the code take precedence. */
function printed(code, options = {}) {
  const here = JSON.stringify({ ...options, url: urlOf(PORT) });
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
const [LIVE_CODE, ...noneElse] = codeOn('docs/live-copies.md');

test('all code for node-redis on the pages runs here', () => {
  assert.deepEqual([none, noMore, noneElse], [[], [], []]);
  assert.ok([README_CODE, CART_CODE, PACKED_CODE, CHUNKS_CODE, FIELDS_CODE, LIVE_CODE].every(Boolean));
});

for (const [name, code] of [
  ['README.md', README_CODE],
  ['docs/clients.md', CART_CODE],
  ['docs/clients.md, for packed items,', PACKED_CODE],
  ['docs/clients.md, for chunks,', CHUNKS_CODE],
  ['docs/live-copies.md', LIVE_CODE],
]) {
  test(`the code in ${name} prints what it says, each time`, async (t) => {
    await connected(t);
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

for (const RESP of [2, 3]) {
  test(`the function in docs/clients.md packs all items and reads all replies, over RESP ${RESP}`, async (t) => {
    const [send, client] = [packedSend(), await connected(t, RESP)];
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
  });

  test(`the code in docs/clients.md reads the fields that node-redis does not, over RESP ${RESP}`, async (t) => {
    const client = await connected(t, RESP);
    const shown = [printed(FIELDS_CODE, { RESP }), printed(FIELDS_CODE, { RESP })];
    const expected = [];
    for (const field of FURTHER_FIELDS) {
      const reply = await client.sendCommand(['BF.INFO', 'users', field]);
      expected.push(`${field} ${Object.values(reply)[0]}\n`);
    }
    assert.equal(expected[0], 'ERROR 0.001\n');
    assert.deepEqual(shown, [expected.join(''), expected.join('')]);
  });
}
