/** Items, errors and limits that tests of Bloom filters share. */

// An error rate so low that the items of a small test have no false positives.
export const TIGHT = 1e-18;

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

/**
 * Returns a bound that a number with the binomial distribution B(trials, rate) exceeds with a probability below 2e-14.
 *
 * It is Bernstein's inequality at eight standard deviations, which filter/tests/promises/rates.rs explains.
 */
export function mostFalsePositives(trials, rate) {
  const z = 8;
  const variance = trials * rate * (1 - rate);
  return trials * rate + z ** 2 / 6 + Math.sqrt(z ** 4 / 36 + z ** 2 * variance);
}

/** Returns the textbook size of a Bloom filter: n ln(1/p) / (ln 2)^2 bits. */
export const idealBytes = (capacity, rate) => (capacity * Math.log(1 / rate)) / Math.LN2 ** 2 / 8;
