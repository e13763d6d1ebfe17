// The sizing of native filters: the blocks, the blocks per item and the probes for an error rate and a capacity.
//
// This is filter/src/sizing.rs in JavaScript, function by function, and that file explains it. A test compares both.
// With capacities up to 10^12, all computed whole numbers stay below 2^53, so they are exact.

import { log, log1p, log2, powerOfTwo } from "./libm.js";

export const LOWEST_ERROR_RATE = powerOfTwo(-64);

const BITS_PER_LINE = 512;
const WORD_BITS = 64;
const WORDS_PER_LINE = BITS_PER_LINE / WORD_BITS;
/** The library's limit is one less, but JavaScript cannot represent `2^54 - 1`. */
const MAX_BLOCKS = 2 ** 54;
const MAX_BLOCKS_PER_ITEM = 16;
const SPEED_BUDGET = 1.02;
const MAX_WORDS = 31;
const MAX_SMALL_WORDS = 512;
const SPARE_WORDS = 2;
const LAYER_SHARE = 0.75;
const LN_2 = 0.693147180559945309417232121458176568;
const FRAC_1_SQRT_2 = 0.707106781186547524400844362104849039;

/**
 * Returns the shape of the blocks of a native filter: `blocks`, `words` in a block, `blocksPerItem`, `probes`. Returns
 * null if the bits cannot be addressed.
 *
 * @param {number} capacity a whole number from 1 to 10^12
 * @param {number} errorRate above 0 and below 1
 * @param {boolean} grows true if the filter grows
 */
export function shapeOf(capacity, errorRate, grows) {
  const rate = Math.max(layerErrorRate(errorRate, grows), LOWEST_ERROR_RATE);
  const optimum = capacity * classicBitsPerItem(rate);
  const limit = grows
    ? capacity * classicBitsPerItem(Math.max(errorRate, LOWEST_ERROR_RATE) / 2)
    : optimum * SPEED_BUDGET;
  const search = (words, counted, min, max) => fewestBlocksPerItem({ capacity, rate, words, counted }, min, max);
  /** Prefers a shape that keeps the rate until `capacity` items were counted as new; see `itemsOffered`. */
  const firstOf = (find) => find(true) ?? find(false);

  const words = wordsFor(grows ? limit : optimum) + SPARE_WORDS;
  if (words <= (grows ? MAX_SMALL_WORDS : MAX_WORDS)) {
    const shape = firstOf((counted) => small(words, (size, min, max) => search(size, counted, min, max)));
    if (shape) return shape;
  }
  const min = Math.max(blocksFor(optimum) - 1, 1);
  const max = grows ? Math.min(blocksFor(limit), Math.floor(words / WORDS_PER_LINE)) : blocksFor(limit);
  const either = (max) => firstOf((counted) => search(WORDS_PER_LINE, counted, Math.min(min, max), max));
  const shape = either(max) ?? either(max + 1);
  if (shape) return shape;
  let larger = Math.max(max, blocksFor(capacity * wholeProbesBitsPerItem(rate)));
  for (;;) {
    larger += Math.floor(larger / 16) + 1;
    if (!(larger <= MAX_BLOCKS)) return null;
    const shape = search(WORDS_PER_LINE, false, max + 1, larger);
    if (shape) return shape;
  }
}

/** Returns the part of a filter's error rate that its blocks may use. */
export function layerErrorRate(errorRate, grows) {
  return grows ? LAYER_SHARE * errorRate : errorRate;
}

/** Returns the bytes of all blocks of a shape. */
export function bytesOf(shape) {
  return shape.blocks * shape.words * 8;
}

/** Returns the expected false-positive rate after `items` distinct items were added to blocks of this shape. */
export function falsePositiveRate(shape, items) {
  if (items < 1) return 0;
  const perBlock = probesPerBlock(shape);
  const hit = shape.blocksPerItem / shape.blocks;
  if (items * hit > 64 * shape.words * WORD_BITS) return 1;
  const [base, extra] =
    hit >= 1
      ? allSet(perBlock, power(perBlock.untouched, Math.floor(items)), power(perBlock.twoUntouched, Math.floor(items)))
      : allSetOnAverage(perBlock, items, hit);
  return power(base, shape.blocksPerItem - perBlock.extraBlocks) * power(extra, perBlock.extraBlocks);
}

/**
 * Returns the number of distinct items that are added before `capacity` of them are counted as new. The others are
 * false positives when they are added.
 */
export function itemsOffered(capacity, rate, probes) {
  const halfFull = power(1 - FRAC_1_SQRT_2, probes);
  return capacity / (1 - (rate + 4 * halfFull) / 6);
}

function classicBitsPerItem(rate) {
  return -log(rate) / (LN_2 * LN_2);
}

function wholeProbesBitsPerItem(rate) {
  return Math.min(-1 / log1p(-rate), -2 / log1p(-Math.sqrt(rate)));
}

function wordsFor(bits) {
  return Math.max(Math.ceil(Math.trunc(bits) / WORD_BITS), 1);
}

/** Returns the number of blocks for `bits` bits, or NaN if they cannot be addressed. */
function blocksFor(bits) {
  const blocks = Math.max(Math.ceil(Math.trunc(bits) / BITS_PER_LINE), 1);
  return blocks <= MAX_BLOCKS ? blocks : NaN;
}

function small(words, fits) {
  if (words <= MAX_WORDS) {
    let [low, high] = [1, words];
    let best = fits(high, 1, 1);
    if (!best) return null;
    while (low < high) {
      const middle = low + Math.floor((high - low) / 2);
      const shape = fits(middle, 1, 1);
      if (shape) [best, high] = [shape, middle];
      else low = middle + 1;
    }
    const lines = Math.floor(high / WORDS_PER_LINE);
    return (high % WORDS_PER_LINE === 0 && fits(WORDS_PER_LINE, lines, lines)) || best;
  }
  const inLines = fits(WORDS_PER_LINE, 1, Math.floor(words / WORDS_PER_LINE));
  if (inLines) return inLines;
  const sizes = Array.from({ length: 16 }, (_, size) => 2 * WORDS_PER_LINE + size);
  sizes.sort((a, b) => (words % a) - (words % b));
  for (const size of sizes.slice(0, 4)) {
    const blocks = Math.floor(words / size);
    const shape = fits(size, blocks, blocks);
    if (shape) return shape;
  }
  return null;
}

function fewestBlocksPerItem(search, min, max) {
  let low = 1;
  let high = Math.min(classicProbes({ ...search, blocksPerItem: 1 }, max), MAX_BLOCKS_PER_ITEM, max);
  while (low < high) {
    const middle = low + Math.floor((high - low) / 2);
    if (keepsRate({ ...search, blocksPerItem: middle }, max) !== null) high = middle;
    else low = middle + 1;
  }
  return fewestBlocks({ ...search, blocksPerItem: low }, min, max);
}

function keepsRate(search, blocks) {
  const [probes, rate] = bestProbes(search, blocks, classicProbes(search, blocks));
  return rate <= search.rate ? probes : null;
}

function fewestBlocks(search, min, max) {
  min = Math.max(min, search.blocksPerItem);
  if (min > max) return null;
  let probes = keepsRate(search, max);
  if (probes === null) return null;
  let [low, high] = [min, max];
  const step = Math.max(Math.floor(min / 1024), 1);
  let best = shape(search, max, probes);
  while (high - low >= step) {
    const blocks = low + Math.floor((high - low) / 2);
    const [better, rate] = bestProbes(search, blocks, probes);
    if (rate <= search.rate) {
      [high, probes] = [blocks, better];
      best = shape(search, blocks, probes);
    } else {
      low = blocks + 1;
    }
  }
  return best;
}

function shape({ words, blocksPerItem }, blocks, probes) {
  return { blocks, words, blocksPerItem, probes };
}

function classicProbes(search, blocks) {
  const bits = blocks * search.words * WORD_BITS;
  return probeRange(search, Math.trunc((LN_2 * bits) / search.capacity));
}

function bestProbes(search, blocks, probes) {
  const rate = (probes) => {
    const items = search.counted ? itemsOffered(search.capacity, search.rate, probes) : search.capacity;
    return falsePositiveRate(shape(search, blocks, probes), items);
  };
  let best = [probes, rate(probes)];
  for (const direction of [-1, 1]) {
    for (;;) {
      const next = probeRange(search, best[0] + direction);
      const candidate = [next, rate(next)];
      if (next === best[0] || candidate[1] >= best[1]) break;
      best = candidate;
    }
  }
  return best;
}

function probeRange(search, probes) {
  const clamp = (value, min, max) => Math.min(Math.max(value, min), max);
  const max = Math.trunc(2 * -log2(search.rate)) + 2;
  return clamp(probes, search.blocksPerItem, clamp(max, search.blocksPerItem, 255));
}

function probesPerBlock({ words, blocksPerItem, probes }) {
  const extraBlocks = probes % blocksPerItem;
  const perBlock = {
    baseProbes: Math.floor(probes / blocksPerItem),
    extraBlocks,
    oneBit: 1 / (words * WORD_BITS),
    weight: extraBlocks / blocksPerItem,
  };
  /** Returns the probability that an item's probes of a block miss `bits` particular bits of it. */
  const survival = (bits) => {
    const miss = 1 - bits * perBlock.oneBit;
    const base = power(miss, perBlock.baseProbes);
    return base * (1 - perBlock.weight) + base * miss * perBlock.weight;
  };
  perBlock.untouched = survival(1);
  perBlock.twoUntouched = survival(2);
  return perBlock;
}

/** Returns the probabilities that `baseProbes` probes of a block, and one probe more, all find set bits. */
function allSet({ baseProbes, oneBit }, clear, clearPairs) {
  const set = 1 - clear;
  const variance = (1 - oneBit) * clearPairs + oneBit * clear - clear * clear;
  if (baseProbes === 1) return [Math.min(set, 1), Math.min(set * set + variance, 1)];
  const pairs = (probes) => (probes * (probes - 1)) / 2;
  const less = power(set, Math.max(baseProbes - 2, 0));
  const base = less * (set * set + pairs(baseProbes) * variance);
  const extra = less * set * (set * set + pairs(baseProbes + 1) * variance);
  return [Math.min(base, 1), Math.min(extra, 1)];
}

/** Returns the mean of `allSet` over the number of items in a block, which has a binomial distribution. */
function allSetOnAverage(perBlock, items, hit) {
  const VANISHED = 1e-17;
  const odds = hit / (1 - hit);
  const mode = Math.floor((items + 1) * hit);
  const { untouched, twoUntouched } = perBlock;
  const atMode = [power(untouched, mode), power(twoUntouched, mode)];
  let [weights, base, extra] = [0, 0, 0];
  const add = (weight, clear, clearPairs) => {
    const [withBase, withExtra] = allSet(perBlock, clear, clearPairs);
    weights += weight;
    base += weight * withBase;
    extra += weight * withExtra;
  };
  add(1, ...atMode);
  let [weight, clear, clearPairs, j] = [1, ...atMode, mode];
  while (weight > VANISHED && j < items) {
    weight *= (Math.max(items - j, 0) / (j + 1)) * odds;
    clear *= untouched;
    clearPairs *= twoUntouched;
    j += 1;
    add(weight, clear, clearPairs);
  }
  [weight, clear, clearPairs, j] = [1, ...atMode, mode];
  while (weight > VANISHED && j > 0) {
    weight *= j / ((items - j + 1) * odds);
    clear /= untouched;
    clearPairs /= twoUntouched;
    j -= 1;
    add(weight, clear, clearPairs);
  }
  return [base / weights, extra / weights];
}

/** Returns `base^exponent` for a whole exponent, by repeated squaring. */
function power(base, exponent) {
  let [square, result] = [base, 1];
  while (exponent > 0) {
    if (exponent % 2 === 1) result *= square;
    square *= square;
    exponent = Math.floor(exponent / 2);
  }
  return result;
}
