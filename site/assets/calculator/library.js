// The library's predictions, from WebAssembly. A worker, so that the page stays responsive: it answers a list of
// questions one by one, and drops the rest of a list when the next one arrives.

const FIELDS = ["status", "memory", "rate", "isEstimate", "probes", "blocks", "blockBytes", "blocksPerItem"];
const STATUS = ["fits", "full", "impossible"];

const loaded = load();
let newest = 0;

/** Loads the library. Not while it streams, since some servers send WebAssembly without its media type. */
async function load() {
  const response = await fetch(new URL("calculator.wasm", import.meta.url));
  return WebAssembly.instantiate(await response.arrayBuffer());
}

/** Returns the prediction for a filter of a kind (a code of `KINDS`) with a number of items. */
async function predict({ code, errorRate, capacity, slices, items }) {
  const { predict, memory } = (await loaded).instance.exports;
  const address = predict(code, errorRate, capacity, slices, items);
  const numbers = new Float64Array(memory.buffer, address, FIELDS.length);
  const answer = Object.fromEntries(FIELDS.map((field, index) => [field, numbers[index]]));
  return { ...answer, status: STATUS[answer.status] };
}

addEventListener("message", async ({ data: { list, questions } }) => {
  newest = list;
  for (const [index, question] of questions.entries()) {
    const answer = await predict(question);
    // Lets the next list in.
    await new Promise((resolve) => setTimeout(resolve));
    if (list !== newest) return;
    postMessage({ list, index, answer });
  }
});
