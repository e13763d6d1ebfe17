// Computes the shape of quotient tables, and estimates their memory.
//
// The shapes are those of filter/src/table/fingerprint.rs, and a test compares both. The memory depends on the hashes
// of the items: the estimate is an average over them.

import { log1p, log2, powerOfTwo } from "./libm.js";

const LOWEST_ERROR_RATE = powerOfTwo(-50);
const QUOTIENT_BITS = 6;
/** The largest level of a table of fixed size. */
const MAX_LEVEL = 34;
const MAX_LOG_GROUPS = 5;
const MAX_WIDTH = 57;
const MAX_LENGTH = MAX_WIDTH - 1;
const MAX_SEGMENT_BYTES = 65535;
const MAX_SPARE = 24;
const SPARE_UNIT = 64;
const PADDING = 8;
/** From level SMALL to level LARGE, fingerprints have the shortest length, or one bit more below some level. */
const SMALL = 14;
const LARGE = 22;
const FIRST_LEVEL = QUOTIENT_BITS + 1;
const LAST_LEVEL = 63;

/** The maximum number of slots in a segment of a growing table. A segment with more slots is split. */
const MAX_SLOTS = 64 << MAX_LOG_GROUPS;

/** The bytes of a table's structures in memory: a table, a page of its directory, and a segment in a page. */
export const TABLE_BYTES = 136;
export const PAGE_BYTES = 24;
export const SEGMENT_BYTES = 32;
const PAGE_BITS = 6;

/** The approximate bytes of the directory per segment of a growing table. A shallow segment fills several entries. */
const DIRECTORY_BYTES = 60;

/** Returns the lengths of the fingerprints of a growing table: `shortest` and `longerBelow`. */
export function fingerprintLengths(errorRate) {
  const rate = Math.max(errorRate, LOWEST_ERROR_RATE);
  const steps = [0, ...Array.from({ length: LARGE - SMALL + 1 }, (_, step) => SMALL + 1 + step)];
  for (let shortest = 1; shortest <= MAX_LENGTH; shortest++) {
    for (const longerBelow of steps) {
      const lengths = { shortest, longerBelow };
      if (limitOf(lengths) <= rate) return lengths;
    }
  }
  return { shortest: MAX_LENGTH, longerBelow: 0 };
}

/** Returns the length of new fingerprints at a level. */
function lengthAt({ shortest, longerBelow }, level) {
  const flat = shortest + (level < longerBelow ? 1 : 0);
  return Math.min(flat + Math.max(SMALL - level, 0) + Math.ceil(Math.max(level - LARGE, 0) / 2), MAX_LENGTH);
}

/** Returns the limit of the error rate of a table that grows without end. */
function limitOf(lengths) {
  const share = (level) => powerOfTwo(-lengthAt(lengths, level)) / 2;
  let sum = 0;
  for (let level = FIRST_LEVEL; level <= LAST_LEVEL; level++) sum += share(level);
  return share(FIRST_LEVEL) + sum;
}

/** Returns the space of a table of fixed size: `level`, `width` and `scale`; or null if the capacity is too large. */
export function addressSpace(capacity, errorRate, stampBits) {
  const size = capacity / -log1p(-Math.max(errorRate, LOWEST_ERROR_RATE));
  let [best, bytes] = [null, Infinity];
  for (let width = 2; width <= MAX_WIDTH - stampBits; width++) {
    const values = powerOfTwo(width);
    const min = (size * (1 + 2 / values)) / values;
    for (let spare = 0; spare <= MAX_SPARE; spare++) {
      const space = spaceOf(width, min * (1 + spare / SPARE_UNIT));
      const needed = space.level <= MAX_LEVEL ? typicalBytes(space, capacity, stampBits) : Infinity;
      if (needed < bytes) [best, bytes] = [space, needed];
    }
  }
  return best;
}

/** Returns the smallest space with at least this many quotients. */
function spaceOf(width, quotients) {
  const level = Math.max(Math.ceil(log2(quotients)), QUOTIENT_BITS);
  const scale = Math.ceil((quotients / powerOfTwo(level)) * powerOfTwo(64));
  return { level, width, scale: scale >= powerOfTwo(64) ? 0 : scale };
}

const logGroupsOf = (space) => Math.min(space.level - QUOTIENT_BITS, MAX_LOG_GROUPS);
const depthOf = (space) => space.level - QUOTIENT_BITS - logGroupsOf(space);
const usedOf = (space) => (space.scale === 0 ? 1 : space.scale / powerOfTwo(64));

/** Returns the size of the segments, if each has two standard deviations more slots than the mean. */
function typicalBytes(space, slots, stampBits) {
  const segments = Math.max(usedOf(space) * powerOfTwo(depthOf(space)), 1);
  const mean = slots / segments;
  const max = segments > 1 ? mean + 2 * Math.sqrt(mean) : mean;
  if (max > MAX_SEGMENT_BYTES) return Infinity;
  return segments * segmentBytes(Math.ceil(max), logGroupsOf(space), space.width + stampBits, stampBits > 0);
}

/** Returns the size of a segment. */
function segmentBytes(slots, logGroups, width, hasStamps) {
  if (slots === 0) return 0;
  const groups = 1 << logGroups;
  const bits = 65 * groups + slots * (width + 1);
  const needed = Math.ceil(bits / 8) + (hasStamps ? 3 : 2) * groups + 2 * (groups + 1) + PADDING;
  const bytes = needed + Math.floor(needed / 32);
  // Rounds up to a size class of the allocator. There are four for each doubling.
  const step = Math.max(2 ** (32 - Math.clz32(bytes - 1)) / 8, 16);
  return Math.ceil(bytes / step) * step;
}

/** The bytes that an empty table points to: a page with one segment, for which no slots are allocated. */
export const EMPTY_TABLE_BYTES = PAGE_BYTES + SEGMENT_BYTES;

/** Returns about how many bytes a table of fixed size takes with `slots` filled slots. */
export function fixedTableBytes(space, slots) {
  const bytes = (k) => segmentBytes(k, logGroupsOf(space), space.width, false);
  return overSegments(space, slots, (mean) => averageOver(mean, depthOf(space) === 0 ? 0 : mean, bytes));
}

/**
 * Returns the approximate bytes of a table of fixed size that forgets, in a steady stream of items. Its segments keep
 * the size that they needed when they were fullest.
 */
export function forgettingTableBytes(space, slots, stampBits) {
  const bytes = (k) => segmentBytes(Math.ceil(k), logGroupsOf(space), space.width + stampBits, true);
  return overSegments(space, slots, (mean) => bytes(depthOf(space) === 0 ? mean : mean + 2 * Math.sqrt(mean)));
}

/** Returns the bytes of a table's segments and of its directory. `bytesFor` maps a mean number of slots to bytes. */
function overSegments(space, slots, bytesFor) {
  if (slots < 1) return EMPTY_TABLE_BYTES;
  const depth = depthOf(space);
  const [whole, used] = [2 ** depth, usedOf(space) * 2 ** depth];
  // If not all quotients are used, the last segment is only used in part.
  const [full, part] = [Math.floor(used), used % 1];
  const mean = slots / used;
  const bytes = full * bytesFor(mean) + (part > 0 ? bytesFor(mean * part) : 0);
  return bytes + SEGMENT_BYTES * Math.ceil(used) + PAGE_BYTES * Math.max(whole / 2 ** PAGE_BITS, 1);
}

/** Returns the false-positive rate of a table of fixed size with this many entries. */
export function fixedTableRate(space, entries) {
  const values = 2 ** space.width;
  return Math.min((entries * (1 + 2 / values)) / values / (usedOf(space) * 2 ** space.level), 1);
}

/**
 * Returns about how many bytes a growing table takes for `items` items, and its false-positive rate. A set does not
 * store items that are false positives. Fingerprints that have no bits left are copied when their segment splits, so
 * there can be more slots than items.
 */
export function growingTable(lengths, items, isSet) {
  if (items < 1) return { bytes: EMPTY_TABLE_BYTES, rate: 0 };
  const added = [];
  let [level, slots, left, rate] = [FIRST_LEVEL, 0, items, 0];
  for (;;) {
    const stored = isSet ? 1 - Math.min(rate, 0.99) : 1;
    const here = Math.max(Math.min(left * stored, 2 ** level - slots), 0);
    added.push({ level, here });
    rate += here * 2 ** -(level + lengthAt(lengths, level));
    left -= here / stored;
    slots += here;
    if (left < 0.5) break;
    level += 1;
    slots = added.reduce((sum, { level: from, here }) => sum + here * copiesOf(lengths, from, level), 0);
  }
  return { bytes: growingBytes(lengths, slots), rate: Math.min(rate, 1) };
}

/** Returns the number of copies at level `to` of a fingerprint that was added at level `from`. */
function copiesOf(lengths, from, to) {
  return 2 ** Math.max(to - from - lengthAt(lengths, from), 0);
}

function growingBytes(lengths, slots) {
  const bytes = (slots, logGroups, level) => segmentBytes(slots, logGroups, lengthAt(lengths, level) + 1, false);
  if (slots <= MAX_SLOTS) {
    const logGroups = Math.max(Math.ceil(Math.log2(slots / 64)), 1);
    return bytes(Math.round(slots), logGroups, QUOTIENT_BITS + logGroups) + EMPTY_TABLE_BYTES;
  }
  // A segment of depth d exists if its parent had too many slots, and if it has few enough itself.
  const usual = Math.log2(slots / MAX_SLOTS);
  let total = 0;
  for (let depth = Math.max(1, Math.floor(usual) - 1); depth <= Math.ceil(usual) + 2; depth++) {
    const parents = 2 ** (depth - 1);
    const mean = slots / parents;
    const perParent = averageOver(mean, mean * (1 - 1 / parents), (whole) => {
      if (whole <= MAX_SLOTS) return 0;
      const level = depth + MAX_LOG_GROUPS + QUOTIENT_BITS;
      const half = (k) => (k > MAX_SLOTS ? 0 : bytes(k, MAX_LOG_GROUPS, level) + DIRECTORY_BYTES);
      return 2 * averageOver(whole / 2, whole / 4, half);
    });
    total += parents * perParent;
  }
  return total + EMPTY_TABLE_BYTES;
}

/** Returns the mean of `f` over whole numbers that have about a normal distribution with this mean and variance. */
function averageOver(mean, variance, f) {
  const deviation = Math.sqrt(variance);
  if (deviation < 0.5) return f(Math.round(mean));
  const step = deviation / 10;
  let [sum, weights] = [0, 0];
  for (let steps = -35; steps <= 35; steps++) {
    const weight = Math.exp((-steps * steps) / 200);
    sum += weight * f(Math.max(Math.round(mean + steps * step), 0));
    weights += weight;
  }
  return sum / weights;
}
