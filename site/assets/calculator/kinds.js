// The kinds of filters in the calculator, and the commands that create them.

export const DEFAULT_SLICES = 15;

/**
 * The kinds by the names in the page's address. `code` is the number of the kind in site/calculator/src/lib.rs, and
 * `peer` that of RedisBloom's filter for the same purpose, if it has one.
 */
export const KINDS = {
  native: { code: 0, peer: 9, label: "grows (the default)", options: [] },
  nonscaling: { code: 1, peer: 10, label: "does not grow", options: ["NONSCALING"] },
  counting: { code: 2, label: "can delete items", options: ["COUNTING"] },
  "counting-nonscaling": { code: 3, label: "can delete items, does not grow", options: ["COUNTING", "NONSCALING"] },
  cuckoo: { code: 4, peer: 11, label: "cuckoo filter, with CF commands", options: [] },
  window: { code: 5, label: "forgets after some time", options: ["WINDOW"] },
  "window-nonscaling": { code: 6, label: "forgets, does not grow", options: ["WINDOW", "NONSCALING"] },
  rolling: { code: 7, label: "remembers the last items", options: ["ROLLING"] },
  "window-rolling": { code: 8, label: "forgets after some time, or earlier", options: ["WINDOW", "ROLLING"] },
};

export const hasWindow = (kind) => KINDS[kind].options.includes("WINDOW");
export const isRolling = (kind) => KINDS[kind].options.includes("ROLLING");
export const isFixed = (kind) => KINDS[kind].options.includes("NONSCALING");

/** Returns true if filters of a kind consist of slices. */
export const forgets = (kind) => hasWindow(kind) || isRolling(kind);

/** Returns the command that creates a filter. */
export function commandOf({ kind, errorRate, capacity, window, slices }) {
  if (kind === "cuckoo") return `CF.RESERVE key ${capacity} ERROR ${errorRate}`;
  const words = KINDS[kind].options.map((option) => (option === "WINDOW" ? `WINDOW ${window}` : option));
  if (forgets(kind) && slices !== DEFAULT_SLICES) words.push(`SLICES ${slices}`);
  return ["BF.RESERVE key", errorRate, capacity, ...words].join(" ");
}
