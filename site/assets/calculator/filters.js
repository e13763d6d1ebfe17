// Computes the memory and the error rate of a filter, given the options that create it.

import { bytesOf, falsePositiveRate, itemsOffered, layerErrorRate, LOWEST_ERROR_RATE, shapeOf } from "./blocks.js";
import {
  addressSpace,
  EMPTY_TABLE_BYTES,
  fingerprintLengths,
  fixedTableBytes,
  fixedTableRate,
  forgettingTableBytes,
  growingTable,
  TABLE_BYTES,
} from "./tables.js";

export const MAX_CAPACITY = 10 ** 12;
export const MAX_WINDOW = 3155760000;

/** The bytes of a filter's structures, without what these point to; and of a slice. */
const FILTER_BYTES = 80;
const COUNTING_BYTES = 192;
const CUCKOO_BYTES = 208;
const WINDOWED_BYTES = 320;
const SLICE_BYTES = 24;

/** The part of the error rate for the table of the expected items, in a filter with WINDOW that grows. */
const EXPECTED_SHARE = 0.75;
const LOWEST_RATE_WITH_STAMPS = 2 ** -40;

/** The kinds of filters, and the options that create them. */
export const KINDS = {
  native: { grows: true, options: [] },
  nonscaling: { grows: false, options: ["NONSCALING"] },
  counting: { grows: true, counts: true, options: ["COUNTING"] },
  "counting-nonscaling": { grows: false, counts: true, options: ["COUNTING", "NONSCALING"] },
  cuckoo: { grows: true, counts: true, cuckoo: true, options: [] },
  window: { grows: true, window: true, options: ["WINDOW"] },
  "window-nonscaling": { grows: false, window: true, options: ["WINDOW", "NONSCALING"] },
  rolling: { grows: false, rolling: true, options: ["ROLLING"] },
  "window-rolling": { grows: false, window: true, rolling: true, options: ["WINDOW", "ROLLING"] },
};

/**
 * Returns the facts about a filter:
 *
 * - `shape`: the shape of its blocks, or null;
 * - `space`: the space of its table of fixed size, or null;
 * - `lengths`: the lengths of the fingerprints in its growing table, or null;
 * - `emptyBytes`: the memory of the new filter, to the byte;
 * - `isExact(items)`: true if `bytesWith(items)` is exact and not an estimate;
 * - `bytesWith(items)`: the memory after `items` distinct items were added; with a window, in a steady stream of
 *   `items` items per window;
 * - `rateWith(items)`: the expected false-positive rate then;
 * - `limit`: the number of items up to which the figures are given (beyond it, a filter with WINDOW may grow), or
 *   Infinity.
 *
 * Returns null if the filter is larger than the module allows.
 *
 * @param {{kind: string, errorRate: number, capacity: number, slices: number}} options
 */
export function filterOf(options) {
  const { window, rolling, counts, grows } = KINDS[options.kind];
  if (window || rolling) return forgettingFilter(options);
  if (counts) return grows ? growingCountingFilter(options) : fixedCountingFilter(options);
  return nativeFilter(options, grows);
}

function nativeFilter({ errorRate, capacity }, grows) {
  const shape = shapeOf(capacity, errorRate, grows);
  if (!shape) return null;
  const bytes = FILTER_BYTES + bytesOf(shape);
  const layerRate = layerErrorRate(errorRate, grows);
  const offered = itemsOffered(capacity, Math.max(layerRate, LOWEST_ERROR_RATE), shape.probes);
  const full = Math.min(falsePositiveRate(shape, offered), layerRate);
  const facts = { shape, space: null, lengths: null, emptyBytes: bytes };
  if (!grows) {
    const limit = Math.floor(offered);
    return {
      ...facts,
      limit,
      isExact: () => true,
      bytesWith: () => bytes,
      rateWith: (items) => falsePositiveRate(shape, Math.min(items, limit)),
    };
  }
  const lengths = fingerprintLengths(errorRate - full);
  /** Returns the facts of the table. Items that are false positives in the blocks are not added to it. */
  const table = (items) => growingTable(lengths, (items - offered) * (1 - full), true);
  return {
    ...facts,
    lengths,
    limit: Infinity,
    isExact: (items) => items <= capacity,
    bytesWith: (items) => (items <= offered ? bytes : bytes + TABLE_BYTES + table(items).bytes),
    rateWith: (items) => {
      if (items <= offered) return falsePositiveRate(shape, items);
      const ofTable = table(items).rate;
      return full + ofTable - full * ofTable;
    },
  };
}

function growingCountingFilter({ kind, errorRate }) {
  const lengths = fingerprintLengths(errorRate);
  const header = FILTER_BYTES + (KINDS[kind].cuckoo ? CUCKOO_BYTES : COUNTING_BYTES);
  return {
    shape: null,
    space: null,
    lengths,
    emptyBytes: header + EMPTY_TABLE_BYTES,
    limit: Infinity,
    isExact: (items) => items < 1,
    bytesWith: (items) => header + growingTable(lengths, items, false).bytes,
    rateWith: (items) => growingTable(lengths, items, false).rate,
  };
}

function fixedCountingFilter({ errorRate, capacity }) {
  const space = addressSpace(capacity, errorRate, 0);
  if (!space) return null;
  const header = FILTER_BYTES + COUNTING_BYTES;
  return {
    shape: null,
    space,
    lengths: null,
    emptyBytes: header + EMPTY_TABLE_BYTES,
    limit: capacity,
    isExact: (items) => items < 1,
    bytesWith: (items) => header + fixedTableBytes(space, Math.min(items, capacity)),
    rateWith: (items) => fixedTableRate(space, Math.min(items, capacity)),
  };
}

function forgettingFilter({ kind, errorRate, capacity, slices }) {
  const { window, rolling, grows } = KINDS[kind];
  const inSlice = Math.ceil(capacity / slices);
  const room = capacity + inSlice;
  const span = window && rolling ? 2 * slices + 3 : slices + 1;
  const stampBits = 32 - Math.clz32(span - 1);
  const rate = grows ? EXPECTED_SHARE * errorRate : errorRate;
  const space = addressSpace(room, Math.max(rate, LOWEST_RATE_WITH_STAMPS), stampBits);
  if (!space) return null;
  const lengths = grows ? fingerprintLengths((1 - EXPECTED_SHARE) * errorRate) : null;
  const header = FILTER_BYTES + WINDOWED_BYTES + span * SLICE_BYTES;
  /**
   * Returns the number of entries after `items` items. With a window, `items` includes false positives, which are not
   * added. With ROLLING alone, `items` is the number of entries.
   */
  const entriesOf = (items) => (window ? items / (1 + fixedTableRate(space, 1) * items) : items);
  const inWindow = (items) => Math.min(items, capacity);
  return {
    shape: null,
    space,
    lengths,
    stampBits,
    emptyBytes: header + EMPTY_TABLE_BYTES,
    limit: capacity,
    isExact: (items) => items < 1,
    bytesWith: (items) =>
      header + forgettingTableBytes(space, entriesOf((inWindow(items) / capacity) * room), stampBits),
    // On average, half a slice beyond the window is remembered.
    rateWith: (items) => fixedTableRate(space, entriesOf(inWindow(items) * (1 + 0.5 / slices))),
  };
}

/** Returns the command that creates the filter. */
export function commandOf({ kind, errorRate, capacity, window, slices }) {
  if (KINDS[kind].cuckoo) return `CF.RESERVE key ${capacity} ERROR ${errorRate}`;
  const values = { WINDOW: `WINDOW ${window}` };
  const options = KINDS[kind].options.map((option) => values[option] ?? option);
  const forgets = KINDS[kind].window || KINDS[kind].rolling;
  if (forgets && slices !== 15) options.push(`SLICES ${slices}`);
  return ["BF.RESERVE key", errorRate, capacity, ...options].join(" ");
}
