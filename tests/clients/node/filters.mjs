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
