// The form of the calculator, and its results.

import { bytesOf } from "./blocks.js";
import { chartOf } from "./chart.js";
import { commandOf, filterOf, KINDS, MAX_CAPACITY, MAX_WINDOW } from "./filters.js";

/** The form, and the places for its results. Everything else is generated below. */
const FORM = `
<form class="calculator" novalidate>
  <label>Error rate <input name="errorRate" value="0.01" inputmode="decimal" autocomplete="off"></label>
  <label>Capacity <input name="capacity" value="1000000" inputmode="numeric" autocomplete="off"></label>
  <label>Kind
    <select name="kind">
      <option value="native">grows (the default)</option>
      <option value="nonscaling">does not grow: NONSCALING</option>
      <option value="counting">can delete items: COUNTING</option>
      <option value="counting-nonscaling">can delete items, does not grow: COUNTING NONSCALING</option>
      <option value="cuckoo">cuckoo filter, with CF commands: CF.RESERVE</option>
      <option value="window">forgets after some time: WINDOW</option>
      <option value="window-nonscaling">forgets, does not grow: WINDOW NONSCALING</option>
      <option value="rolling">remembers the last items: ROLLING</option>
      <option value="window-rolling">forgets after some time, or earlier: WINDOW ROLLING</option>
    </select>
  </label>
  <label>Items that are added <input name="items" value="1000000" inputmode="numeric" autocomplete="off"></label>
  <label data-for="window">
    Window in seconds <input name="window" value="86400" inputmode="numeric" autocomplete="off">
  </label>
  <label data-for="slices">Slices <input name="slices" value="15" inputmode="numeric" autocomplete="off"></label>
</form>
<p class="calculator-error" role="alert" hidden></p>
<div class="calculator-results" aria-live="polite">
  <div class="highlight"><pre><code data-result="command"></code></pre></div>
  <table><tbody></tbody></table>
  <h3>False-positive rate</h3>
  <figure data-chart="rate"></figure>
  <h3>Memory</h3>
  <figure data-chart="memory"></figure>
</div>`;

/** The number of steps of a curve. It has one point more. */
const STEPS = 120;

/** A mistake in the form: the field, and what to enter. */
class Mistake extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

function start(place) {
  place.innerHTML = FORM;
  const form = place.querySelector("form");
  const update = () => show(place, form);
  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
}

function show(place, form) {
  const error = place.querySelector(".calculator-error");
  const results = place.querySelector(".calculator-results");
  const { window, rolling } = KINDS[form.elements.kind.value];
  form.querySelector("[data-for=window]").hidden = !window;
  form.querySelector("[data-for=slices]").hidden = !window && !rolling;
  for (const field of form.elements) field.removeAttribute("aria-invalid");
  try {
    const options = read(form);
    const filter = filterOf(options);
    if (!filter) throw new Mistake("capacity", "The module creates no filter that large. Choose a smaller capacity.");
    showFilter(results, options, filter);
    error.hidden = true;
    results.hidden = false;
  } catch (mistake) {
    if (!(mistake instanceof Mistake)) throw mistake;
    form.elements[mistake.field].setAttribute("aria-invalid", "true");
    error.textContent = mistake.message;
    error.hidden = false;
    results.hidden = true;
  }
}

/** Returns the options in the form. */
function read(form) {
  const kind = form.elements.kind.value;
  const { window, rolling } = KINDS[kind];
  const text = form.elements.errorRate.value.trim();
  const errorRate = /^[0-9]*\.?[0-9]+(e-?[0-9]+)?$/i.test(text) ? Number(text) : NaN;
  if (!(errorRate > 0 && errorRate < 1)) {
    throw new Mistake("errorRate", "The error rate is a number above 0 and below 1, such as 0.01.");
  }
  return {
    kind,
    errorRate,
    capacity: whole(form, "capacity", "The capacity", 1, MAX_CAPACITY),
    items: whole(form, "items", "The number of items", 0, MAX_CAPACITY),
    window: window ? whole(form, "window", "The window", 1, MAX_WINDOW) : null,
    slices: window || rolling ? whole(form, "slices", "The number of slices", 2, 64) : 15,
  };
}

/** Returns the whole number in a field. Ignores spaces, commas and underscores. */
function whole(form, field, name, min, max) {
  const text = form.elements[field].value.replace(/[ ,_]/g, "");
  const number = /^[0-9]+$/.test(text) ? Number(text) : NaN;
  if (!(number >= min && number <= max)) {
    throw new Mistake(field, `${name} is a whole number from ${grouped(min)} to ${grouped(max)}.`);
  }
  return number;
}

function showFilter(results, options, filter) {
  const { items, capacity, errorRate } = options;
  results.querySelector("[data-result=command]").textContent = commandOf(options);
  const rows = rowsOf(options, filter).map(([name, label, text]) => {
    const row = document.createElement("tr");
    const [head, cell] = [document.createElement("th"), document.createElement("td")];
    head.textContent = label;
    cell.textContent = text;
    cell.dataset.result = name;
    row.append(head, cell);
    return row;
  });
  results.querySelector("tbody").replaceChildren(...rows);

  const { limit } = filter;
  const max = limit === Infinity ? Math.max(2 * capacity, items) : Math.min(Math.max(capacity, 1), limit);
  const xs = Array.from({ length: STEPS + 1 }, (_, index) => (max * index) / STEPS);
  const draw = (name, chart) => {
    const complete = { points: xs.map((x) => [x, chart.f(x)]), xLabel: "distinct items", formatX: short, ...chart };
    results.querySelector(`[data-chart=${name}]`).replaceChildren(chartOf(complete));
  };
  draw("rate", {
    title: "The false-positive rate of the filter, by the number of items. The dashed line is the error rate.",
    f: filter.rateWith,
    limit: errorRate,
    formatY: percent,
  });
  draw("memory", {
    title: "The memory of the filter, by the number of items.",
    f: filter.bytesWith,
    limit: null,
    formatY: size,
  });
}

/** Returns the rows of the table: a name, a label and a text. */
function rowsOf({ items, capacity, errorRate, kind }, filter) {
  const held = Math.min(items, filter.limit);
  const bytes = filter.bytesWith(items);
  const qualifierOf = (count) => (filter.isExact(count) ? "" : "about ");
  const exact = (bytes) => `${grouped(bytes)} bytes (${size(bytes)})`;
  const memory = (count, bytes) => (filter.isExact(count) ? exact(bytes) : `about ${size(bytes)} (an estimate)`);
  const rows = [["empty", "Memory of the new filter", exact(filter.emptyBytes)]];
  rows.push(["memory", `Memory with ${grouped(held)} items`, memory(items, bytes)]);
  if (held > 0) {
    rows.push(["bits", "Bits per item", `${qualifierOf(items)}${((8 * bytes) / held).toFixed(1)}`]);
  }
  rows.push(["rate", `False-positive rate with ${grouped(held)} items`, percent(filter.rateWith(items))]);
  if (filter.shape) {
    const { blocks, words, blocksPerItem, probes } = filter.shape;
    const total = grouped(bytesOf(filter.shape));
    rows.push(["blocks", "Blocks", `${grouped(blocks)} of ${words * 8} bytes: ${total} bytes`]);
    rows.push(["blocksPerItem", "Blocks per item (cache misses)", `${blocksPerItem}`]);
    rows.push(["probes", "Probes per item", `${probes}`]);
  }
  if (filter.space) rows.push(["fingerprint", "Bits of a fingerprint", `${filter.space.width}`]);
  if (items > filter.limit) {
    rows.push(["full", `Beyond ${grouped(filter.limit)} items`, whenFull(kind)]);
  } else if (filter.shape && filter.limit === Infinity && items > capacity) {
    const more = bytes / filterOf({ kind, errorRate, capacity: items }).bytesWith(items);
    const label = `Compared with a filter reserved for ${grouped(items)} items`;
    rows.push(["growth", label, `${more.toFixed(1)} times the memory`]);
  }
  return rows;
}

/** Returns what happens to items beyond the limit. A filter that grows has such a limit only if it forgets. */
function whenFull(kind) {
  if (KINDS[kind].rolling) return "The oldest items are forgotten earlier.";
  return KINDS[kind].grows ? "The filter grows, and shrinks again later." : "New items are rejected with an error.";
}

function grouped(number) {
  return Math.round(number).toLocaleString("en-US");
}

function short(number) {
  return new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 }).format(number);
}

function size(bytes) {
  const units = ["bytes", "KB", "MB", "GB", "TB", "PB"];
  const unit = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), units.length - 1);
  return `${Number((bytes / 1000 ** unit).toPrecision(3))} ${units[unit]}`;
}

function percent(rate) {
  if (rate === 0) return "0";
  return rate < 1e-6 ? Number(rate.toPrecision(3)).toExponential() : `${Number((rate * 100).toPrecision(3))} %`;
}

const place = document.getElementById("filter-calculator");
if (place) start(place);
