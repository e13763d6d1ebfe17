// Numbers as people type and read them.

/** Returns the number that a text such as `0.01`, `1 %`, `1e9` or `1,000,000` stands for, or NaN. */
export function numberIn(text) {
  const [, digits, percent] = /^([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)(%?)$/i.exec(text.replace(/[ ,_]/g, "")) ?? [];
  // Divides the decimal number: 0.1 % is 0.001, where 0.1 / 100 is not.
  return Number(percent ? `${digits}e-2`.replace(/e(.+)e-2$/i, (_, power) => `e${power - 2}`) : digits ?? NaN);
}

/** Returns a number of bytes, to the byte. */
export function exact(bytes) {
  return bytes < 1000 ? `${bytes} bytes` : `${grouped(bytes)} bytes (${size(bytes)})`;
}

/** Returns a whole number with commas. */
export function grouped(number) {
  return Math.round(number).toLocaleString("en-US");
}

/** Returns a number such as 1.5M. */
export function short(number) {
  return new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 }).format(number);
}

/** Returns a size in a unit that fits, with three digits. */
export function size(bytes) {
  const units = ["bytes", "KB", "MB", "GB", "TB", "PB"];
  const unit = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), units.length - 1);
  return `${Number((bytes / 1000 ** unit).toPrecision(3))} ${units[unit]}`;
}

/** Returns a rate in percent. */
export function percent(rate) {
  if (rate === 0) return "0";
  return rate < 1e-6 ? Number(rate.toPrecision(3)).toExponential() : `${Number((rate * 100).toPrecision(3))} %`;
}
