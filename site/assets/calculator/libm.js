// Logarithms with the same bits as those of the crate `libm` 0.2.16, on every machine.
//
// The sizing of filters compares numbers that differ in their last bits, and browsers have logarithms of their own.
// The algorithm is that of FreeBSD's msun (Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved. Developed
// at SunSoft, a Sun Microsystems, Inc. business. Permission to use, copy, modify, and distribute this software is
// freely granted, provided that this notice is preserved.)

const LN2_HI = 6.93147180369123816490e-1;
const LN2_LO = 1.90821492927058770002e-10;
const INVERSE_LN2_HI = 1.44269504072144627571;
const INVERSE_LN2_LO = 1.67517131648865118353e-10;

/** The high words of 1 and of the square root of 1/2. */
const ONE = 0x3ff00000;
const ROOT_HALF = 0x3fe6a09e;

const view = new DataView(new ArrayBuffer(8));

function highWord(x) {
  view.setFloat64(0, x);
  return view.getUint32(0);
}

function withWords(x, high) {
  view.setFloat64(0, x);
  view.setUint32(0, high);
  return view.getFloat64(0);
}

/** Returns `2^exponent` for a whole number from -1022 to 1023. */
export function powerOfTwo(exponent) {
  view.setUint32(0, (exponent + 1023) << 20);
  view.setUint32(4, 0);
  return view.getFloat64(0);
}

/** Splits `x` into the factors `2^k` and one between the square roots of 1/2 and of 2. */
function reduce(x) {
  const high = highWord(x) + (ONE - ROOT_HALF);
  return { k: (high >>> 20) - 0x3ff, factor: withWords(x, (high & 0x000fffff) + ROOT_HALF) };
}

/** Returns the terms of the logarithm of `1 + f`: `f^2 / 2`, `s = f / (2 + f)` and the rest of the series. */
function terms(f) {
  const s = f / (2 + f);
  const z = s * s;
  const w = z * z;
  const even = w * (3.999999999940941908e-1 + w * (2.222219843214978396e-1 + w * 1.531383769920937332e-1));
  const odd =
    z *
    (6.666666666666735130e-1 +
      w * (2.857142874366239149e-1 + w * (1.818357216161805012e-1 + w * 1.479819860511658591e-1)));
  return { half: 0.5 * f * f, s, rest: odd + even };
}

/** Returns the natural logarithm of a normal number above 0. */
export function log(x) {
  if (x === 1) return 0;
  const { k, factor } = reduce(x);
  const f = factor - 1;
  const { half, s, rest } = terms(f);
  return s * (half + rest) + k * LN2_LO - half + f + k * LN2_HI;
}

/** Returns the natural logarithm of `1 + x`, for `x` above -1. */
export function log1p(x) {
  if (Math.abs(x) < 2 ** -53) return x;
  let [k, f, correction] = [0, x, 0];
  const high = highWord(x);
  // True if x is outside of about sqrt(1/2) - 1 … sqrt(2) - 1.
  if (x < 0 ? high > 0xbfd2bec4 : high >= 0x3fda827a) {
    const sum = 1 + x;
    const reduced = reduce(sum);
    k = reduced.k;
    f = reduced.factor - 1;
    if (k < 54) correction = (k >= 2 ? 1 - (sum - x) : x - (sum - 1)) / sum;
  }
  const { half, s, rest } = terms(f);
  return s * (half + rest) + (k * LN2_LO + correction) - half + f + k * LN2_HI;
}

/** Returns the logarithm to base 2 of a normal number above 0. */
export function log2(x) {
  if (x === 1) return 0;
  const { k, factor } = reduce(x);
  const f = factor - 1;
  const { half, s, rest } = terms(f);
  view.setFloat64(0, f - half);
  view.setUint32(4, 0);
  const high = view.getFloat64(0);
  const low = f - high - half + s * (half + rest);
  const product = high * INVERSE_LN2_HI;
  const whole = k + product;
  return (low + high) * INVERSE_LN2_LO + low * INVERSE_LN2_HI + (k - whole + product) + whole;
}
