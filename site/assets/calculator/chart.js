// Draws a line chart as SVG, in the colours of the page.

const NAMESPACE = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [640, 300];
const [LEFT, RIGHT, TOP, BOTTOM] = [76, 16, 18, 46];

/**
 * Returns a chart of one or two curves with the same x values. If there are two, their names stand at their ends.
 *
 * @param {object} chart
 * @param {string} chart.title for readers who do not see the chart
 * @param {string} chart.xLabel
 * @param {{name: string, points: [number, number][]}[]} chart.curves
 * @param {number | null} chart.limit the value of a dashed line, or null
 * @param {(x: number) => string} chart.formatX
 * @param {(y: number) => string} chart.formatY
 */
export function chartOf({ title, xLabel, curves, limit, formatX, formatY }) {
  const mostX = curves[0].points.at(-1)[0] || 1;
  const mostY = Math.max(limit ?? 0, ...curves.flatMap(({ points }) => points.map(([, y]) => y))) || 1;
  const [ticksX, ticksY] = [ticksUpTo(mostX), ticksUpTo(mostY)];
  const topY = Math.max(mostY, ticksY[ticksY.length - 1]) * 1.04;
  const x = (value) => LEFT + (value / mostX) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / topY) * (HEIGHT - TOP - BOTTOM);

  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "chart" });
  svg.append(element("title", {}, title));
  for (const tick of ticksY) {
    svg.append(element("path", { class: "grid", d: `M${LEFT} ${y(tick)}H${WIDTH - RIGHT}` }));
    svg.append(element("text", { x: LEFT - 8, y: y(tick) + 5, "text-anchor": "end" }, formatY(tick)));
  }
  for (const tick of ticksX) {
    const anchor = x(tick) > WIDTH - RIGHT - 24 ? "end" : "middle";
    svg.append(element("text", { x: x(tick), y: HEIGHT - BOTTOM + 20, "text-anchor": anchor }, formatX(tick)));
  }
  svg.append(element("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, xLabel));
  if (limit !== null) svg.append(element("path", { class: "limit", d: `M${LEFT} ${y(limit)}H${WIDTH - RIGHT}` }));
  for (const [index, { points }] of curves.entries()) {
    const line = points.map(([px, py]) => `${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join("L");
    svg.append(element("path", { class: index === 0 ? "curve" : "curve other", d: `M${line}` }));
  }
  if (curves.length > 1) svg.append(...labelsOf(curves, x, y));
  return svg;
}

/** Returns the names of two curves, near their ends: above the higher one, and below the lower one. */
function labelsOf(curves, x, y) {
  const ends = curves.map(({ name, points }) => ({ name, point: points.at(-1) }));
  ends.sort((one, other) => other.point[1] - one.point[1]);
  return ends.map(({ name, point: [px, py] }, rank) => {
    const place = { x: x(px) - 4, y: Math.max(y(py) + (rank === 0 ? -8 : 26), 12), "text-anchor": "end" };
    return element("text", { class: "name", ...place }, name);
  });
}

/** Returns round numbers from 0 to `most`: three to six of them. */
function ticksUpTo(most) {
  const magnitude = 10 ** Math.floor(Math.log10(most));
  const step = [0.2, 0.5, 1, 2].map((factor) => factor * magnitude).find((step) => most / step <= 5);
  const count = Math.floor(most / step + 1e-9) + 1;
  return Array.from({ length: count }, (_, index) => Number((index * step).toPrecision(12)));
}

function element(name, attributes, text) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
