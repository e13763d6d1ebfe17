// The form of the calculator, and its results.

import { chartOf } from "./chart.js";
import { commandOf, DEFAULT_SLICES, forgets, hasWindow, isFixed, isRolling, KINDS } from "./kinds.js";
import { exact, grouped, numberIn, percent, short, size } from "./numbers.js";

const MAX_CAPACITY = 10 ** 12;
const MAX_WINDOW = 3155760000;

/** The form, and the places for its results. Everything else is generated below. */
const FORM = `
<form class="calculator" novalidate>
  <label>Error rate <input name="errorRate" value="1%" inputmode="text" autocomplete="off"></label>
  <label>Capacity <input name="capacity" value="1,000,000" inputmode="text" autocomplete="off"></label>
  <label>Kind <select name="kind"></select></label>
  <label>Items that are added <input name="items" value="1,000,000" inputmode="text" autocomplete="off"></label>
  <label data-for="window">
    Window in seconds <input name="window" value="86400" inputmode="text" autocomplete="off">
  </label>
  <label data-for="slices">
    Slices <input name="slices" value="${DEFAULT_SLICES}" inputmode="numeric" autocomplete="off">
  </label>
</form>
<p class="calculator-error" role="alert" hidden></p>
<div class="calculator-results" aria-live="polite">
  <div class="highlight"><pre><code data-result="command"></code></pre></div>
  <table><tbody></tbody></table>
  <h3>Memory</h3>
  <figure data-chart="memory"></figure>
  <h3>False-positive rate</h3>
  <figure data-chart="rate"></figure>
</div>`;

/** The number of steps of a curve. It has one point more. */
const STEPS = 40;

/** A mistake in the form: the field, and what to enter. */
class Mistake extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

/** Answers questions about filters, in the order in which they were asked. */
class Library {
  #worker = new Worker(new URL("library.js", import.meta.url), { type: "module" });
  #list = 0;
  #take = () => {};

  constructor() {
    this.#worker.addEventListener("message", ({ data }) => {
      if (data.list === this.#list) this.#take(data.index, data.answer);
    });
  }

  /** Calls `take` with the index of each question and its answer, until the next call of this function. */
  ask(questions, take) {
    this.#list += 1;
    this.#take = take;
    this.#worker.postMessage({ list: this.#list, questions });
  }
}

function start(place) {
  place.innerHTML = FORM;
  const form = place.querySelector("form");
  form.elements.kind.append(...Object.entries(KINDS).map(([name, { label, options }]) => optionOf(name, label, options)));
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (form.elements[name]) form.elements[name].value = value;
  }
  const library = new Library();
  const update = () => show(place, form, library);
  form.addEventListener("input", () => {
    history.replaceState(null, "", `?${new URLSearchParams(new FormData(form))}`);
    update();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
}

function optionOf(name, label, options) {
  const option = document.createElement("option");
  option.value = name;
  option.textContent = options.length > 0 ? `${label}: ${options.join(" ")}` : label;
  return option;
}

function show(place, form, library) {
  const kind = form.elements.kind.value;
  form.querySelector("[data-for=window]").hidden = !hasWindow(kind);
  form.querySelector("[data-for=slices]").hidden = !forgets(kind);
  for (const field of form.elements) field.removeAttribute("aria-invalid");
  const fail = (mistake) => {
    if (!(mistake instanceof Mistake)) throw mistake;
    form.elements[mistake.field].setAttribute("aria-invalid", "true");
    showError(place, mistake.message);
  };
  try {
    showFilter(place, read(form), library, fail);
  } catch (mistake) {
    fail(mistake);
  }
}

function showError(place, message) {
  const error = place.querySelector(".calculator-error");
  error.textContent = message;
  error.hidden = message === "";
  place.querySelector(".calculator-results").hidden = message !== "";
}

/** Returns the options in the form. */
function read(form) {
  const kind = form.elements.kind.value;
  const errorRate = numberIn(form.elements.errorRate.value);
  if (!(errorRate > 0 && errorRate < 1)) {
    throw new Mistake("errorRate", "The error rate is above 0 and below 1, such as 0.01, 1% or 1e-6.");
  }
  return {
    kind,
    errorRate,
    capacity: whole(form, "capacity", "The capacity", 1, MAX_CAPACITY),
    items: whole(form, "items", "The number of items", 0, MAX_CAPACITY),
    window: hasWindow(kind) ? whole(form, "window", "The window", 1, MAX_WINDOW) : null,
    slices: forgets(kind) ? whole(form, "slices", "The number of slices", 2, 64) : DEFAULT_SLICES,
  };
}

/** Returns the whole number in a field. */
function whole(form, field, name, min, max) {
  const number = numberIn(form.elements[field].value);
  if (!(Number.isInteger(number) && number >= min && number <= max)) {
    throw new Mistake(field, `${name} is a whole number from ${grouped(min)} to ${grouped(max)}.`);
  }
  return number;
}

/** Asks for the figures of a filter, and shows each as soon as it arrives. Calls `fail` if the filter is impossible. */
function showFilter(place, options, library, fail) {
  const { kind, capacity, items } = options;
  const { code, peer } = KINDS[kind];
  const limit = isFixed(kind) || forgets(kind) ? capacity : Infinity;
  const held = Math.min(items, limit);
  const most = limit === Infinity ? Math.max(2 * capacity, items) : limit;
  const xs = Array.from({ length: STEPS + 1 }, (_, step) => Math.floor((most * step) / STEPS));
  const question = (items) => ({ ...options, code, items });
  const ofPeer = (items) => ({ ...options, code: peer, items });
  const peers = (counts) => (peer === undefined ? [] : counts.map(ofPeer));
  // The table's figures come first.
  const first = [question(0), question(held), ...peers([held])];
  const curves = [...xs.map(question), ...peers(xs)];
  const answers = [];
  library.ask([...first, ...curves], (index, answer) => {
    answers[index] = answer;
    if (index < first.length - 1) return;
    if (index === first.length - 1) {
      if (answers.some(({ status }) => status === "impossible")) {
        fail(new Mistake("capacity", "The module creates no filter that large. Choose a smaller capacity."));
        return library.ask([], () => {});
      }
      showError(place, "");
      place.querySelector("[data-result=command]").textContent = commandOf(options);
      place.querySelector("tbody").replaceChildren(...rowsOf(options, limit, answers).map(rowOf));
      place.querySelectorAll("figure").forEach((figure) => figure.replaceChildren());
    }
    if (index === first.length + curves.length - 1) drawAll(place, options, xs, answers.slice(first.length));
  });
}

function drawAll(place, { errorRate }, xs, answers) {
  const names = ["oxbloom", "RedisBloom"];
  const curvesOf = (field) => {
    const curves = [];
    for (let from = 0; from < answers.length; from += xs.length) {
      const points = xs.map((x, step) => [x, answers[from + step][field]]);
      curves.push({ name: names[curves.length], points });
    }
    return curves;
  };
  const draw = (name, chart) => {
    const complete = { curves: curvesOf(name), xLabel: "distinct items", formatX: short, ...chart };
    place.querySelector(`[data-chart=${name}]`).replaceChildren(chartOf(complete));
  };
  draw("rate", {
    title: "The false-positive rate by the number of items. The dashed line is the error rate.",
    limit: errorRate,
    formatY: percent,
  });
  draw("memory", { title: "The memory by the number of items.", limit: null, formatY: size });
}

/** Returns the rows of the table: a name, a label and a text. */
function rowsOf({ kind, items }, limit, [empty, full, ofPeer]) {
  const held = Math.min(items, limit);
  const rows = [];
  if (empty.memory !== full.memory) rows.push(["empty", "Memory of the new filter", exact(empty.memory)]);
  const about = full.isEstimate ? "about " : "";
  const memory = full.isEstimate ? `about ${size(full.memory)} (an estimate)` : exact(full.memory);
  rows.push(["memory", `Memory with ${grouped(held)} items`, memory]);
  if (ofPeer) {
    const share = `${(full.memory / ofPeer.memory).toFixed(2)} of ${size(ofPeer.memory)}`;
    rows.push(["peer", "Compared with RedisBloom", `${about}${share}`]);
  }
  if (held > 0) rows.push(["bits", "Bits per item", `${about}${((8 * full.memory) / held).toFixed(1)}`]);
  rows.push(["rate", `False-positive rate with ${grouped(held)} items`, percent(full.rate)]);
  if (full.blocks > 0) {
    rows.push(["blocks", "Blocks", `${grouped(full.blocks)} of ${full.blockBytes} bytes`]);
    rows.push(["blocksPerItem", "Blocks per item (cache misses)", `${full.blocksPerItem}`]);
    rows.push(["probes", "Probes per item", `${full.probes}`]);
  }
  if (items > limit) rows.push(["full", `Beyond ${grouped(limit)} items`, whenFull(kind)]);
  return rows;
}

function rowOf([name, label, text]) {
  const row = document.createElement("tr");
  const head = document.createElement("th");
  const cell = document.createElement("td");
  head.textContent = label;
  cell.textContent = text;
  cell.dataset.result = name;
  row.append(head, cell);
  return row;
}

/** Returns what happens to items beyond the limit. A filter that grows has such a limit only if it forgets. */
function whenFull(kind) {
  if (isRolling(kind)) return "The oldest items are forgotten earlier.";
  return isFixed(kind) ? "New items are rejected with an error." : "The filter grows, and shrinks again later.";
}

const place = document.getElementById("filter-calculator");
if (place) start(place);
