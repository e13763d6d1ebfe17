// Tests the parts of the calculator that need neither a browser nor the library.
import assert from "node:assert/strict";
import { test } from "node:test";

import { commandOf } from "../../site/assets/calculator/kinds.js";
import { numberIn } from "../../site/assets/calculator/numbers.js";

test("numbers are read as people type them", () => {
  const read = { "0.01": 0.01, "1%": 0.01, "0.1 %": 0.001, "1e-2%": 0.0001, ".5": 0.5, "1e9": 1e9, "1.5E+6": 1.5e6 };
  for (const [text, number] of Object.entries(read)) assert.equal(numberIn(text), number, text);
  for (const text of ["1,000,000", "1 000 000", "1_000_000"]) assert.equal(numberIn(text), 1e6, text);
  for (const text of ["", "-1", "many", "1e", "%", "0x10", "1.2.3"]) assert.ok(Number.isNaN(numberIn(text)), text);
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
