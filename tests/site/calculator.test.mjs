// Compares the calculator with the library. SIZES is the program filter/examples/sizes.rs.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

import { falsePositiveRate } from "../../site/assets/calculator/blocks.js";
import { commandOf, filterOf, KINDS } from "../../site/assets/calculator/filters.js";

function fromLibrary(...args) {
  const output = execFileSync(process.env.SIZES, args, { encoding: "utf8", maxBuffer: 2 ** 26 });
  return output.trim().split("\n").map(JSON.parse);
}

test("new filters have the same shape, bytes and rates as the library's", () => {
  const cases = fromLibrary("shapes", "10000");
  assert.equal(cases.length, 10_000);
  const kinds = new Set();
  const small = new Set();
  for (const { bytes, shape, space, lengths, rate, fullRate, tooLarge, ...options } of cases) {
    const filter = filterOf(options);
    const about = JSON.stringify(options);
    kinds.add(options.kind);
    if (tooLarge) {
      assert.equal(filter, null, about);
      continue;
    }
    assert.equal(filter.emptyBytes, bytes, about);
    assert.deepEqual(filter.shape, shape ?? null, about);
    if (shape) {
      small.add(shape.words);
      assert.equal(falsePositiveRate(filter.shape, options.items), rate, about);
      assert.equal(falsePositiveRate(filter.shape, options.capacity), fullRate, about);
    }
    if (space) assert.deepEqual(filter.space, space, about);
    if (lengths) assert.deepEqual(filter.lengths, lengths, about);
  }
  assert.deepEqual([...kinds].sort(), Object.keys(KINDS).sort());
  assert.ok(small.size > 25, "too few sizes of blocks were compared");
});

const filled = fromLibrary("filled", "400");

test("the memory of filters with items is estimated well", () => {
  const about = { small: [], large: [] };
  for (const { items, bytes, ...options } of filled) {
    const forgets = KINDS[options.kind].window || KINDS[options.kind].rolling;
    const filter = filterOf(options);
    const shown = filter.bytesWith(forgets ? options.capacity : items);
    const error = Math.abs(shown / bytes - 1);
    if (options.kind === "nonscaling") assert.equal(shown, bytes);
    if (options.errorRate > 0.1) continue;
    const most = bytes < 100_000 ? 0.13 : 0.03;
    assert.ok(error <= most, `${JSON.stringify(options)}, ${items} items: ${shown} instead of ${bytes} bytes`);
    about[bytes < 100_000 ? "small" : "large"].push(error);
  }
  for (const errors of Object.values(about)) {
    assert.ok(errors.length > 25);
    assert.ok(errors.reduce((sum, error) => sum + error) / errors.length < 0.01);
  }
});

test("the error rate of filters with items is estimated well", () => {
  // In small blocks, chance decides how many bits are set.
  const tables = filled.filter(({ kind, items, capacity, errorRate }) => {
    return (kind === "counting" || (kind === "native" && capacity > 1000)) && items > 20_000 && errorRate <= 0.1;
  });
  assert.ok(tables.length > 20);
  for (const { items, rate, ...options } of tables) {
    const shown = filterOf(options).rateWith(items);
    assert.ok(Math.abs(shown / rate - 1) < 0.1, `${JSON.stringify(options)}: ${shown} instead of ${rate}`);
    assert.ok(shown <= options.errorRate);
  }
});

test("commands create the filters", () => {
  const options = { errorRate: 0.001, capacity: 1000, window: 60, slices: 8 };
  const command = (kind, others) => commandOf({ ...options, kind, ...others });
  assert.equal(command("native"), "BF.RESERVE key 0.001 1000");
  assert.equal(command("counting-nonscaling"), "BF.RESERVE key 0.001 1000 COUNTING NONSCALING");
  assert.equal(command("cuckoo"), "CF.RESERVE key 1000 ERROR 0.001");
  assert.equal(command("window-rolling", { slices: 4 }), "BF.RESERVE key 0.001 1000 WINDOW 60 ROLLING SLICES 4");
  assert.equal(command("native", { slices: 4 }), "BF.RESERVE key 0.001 1000");
});
