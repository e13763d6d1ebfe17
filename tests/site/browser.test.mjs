// Tests the site in headless Chromium: its pages, links, search and calculator. SITE is the folder of the built site.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { after, before, test } from "node:test";

import { chromium } from "playwright-core";

const SITE = process.env.SITE;
const TYPES = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".json": "application/json",
};
/** Without some of these flags, Chromium connects to hosts of its vendor. */
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const PHONE = { width: 360, height: 700 };
/** The minimum contrast of text, and of large text (WCAG 2.1, level AA). */
const MIN_CONTRAST = { text: 4.5, large: 3 };

let server;
let browser;
let root;
let pages;
let otherFiles;

before(async () => {
  server = createServer(async (request, response) => {
    const path = join(SITE, decodeURIComponent(new URL(request.url, "http://localhost").pathname));
    try {
      const body = await readFile(path);
      response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  root = `http://127.0.0.1:${server.address().port}`;
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
  const files = await readdir(SITE, { recursive: true });
  pages = files.filter((file) => file.endsWith(".html") && file !== "404.html").sort();
  otherFiles = files.filter((file) => !file.endsWith(".html"));
  assert.ok(pages.length > 45, "pages are missing");
});

after(async () => {
  await browser?.close();
  server?.close();
});

/** Opens a page. Returns it with a list of the problems on it: errors, and requests to other hosts. */
async function open(context, path) {
  const page = await context.newPage();
  const problems = [];
  const report = (problem) => problems.push(`${path}: ${problem}`);
  page.on("console", (message) => message.type() === "error" && report(message.text()));
  page.on("pageerror", report);
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(`${root}/`) && !url.startsWith("data:")) report(url);
  });
  page.on("response", (response) => response.status() < 400 || report(`${response.status()} ${response.url()}`));
  await page.goto(`${root}/${path}`);
  await page.waitForLoadState("networkidle");
  return { page, problems };
}

test("every page loads, and its links and anchors lead somewhere", { timeout: 300_000 }, async () => {
  const context = await browser.newContext();
  const anchors = new Map(otherFiles.map((file) => [`/${file}`, new Set()]));
  const links = [];
  for (const path of pages) {
    const { page, problems } = await open(context, path);
    assert.deepEqual(problems, []);
    assert.ok((await page.locator("h1").first().innerText()).length > 1, path);
    anchors.set(`/${path}`, new Set(await page.$$eval("[id]", (all) => all.map((element) => element.id))));
    const hrefs = await page.$$eval("a[href]", (all) => all.map((link) => link.href));
    links.push(...hrefs.map((href) => [path, new URL(href)]));
    const broken = await page.$$eval("img", (all) => {
      return all.filter((image) => image.naturalWidth === 0).map((image) => image.src);
    });
    assert.deepEqual(broken, [], path);
    await page.close();
  }
  const dead = links.filter(([, url]) => url.origin === root).filter(([, url]) => {
    const found = anchors.get(url.pathname === "/" ? "/index.html" : url.pathname);
    return !found || (url.hash && !found.has(decodeURIComponent(url.hash.slice(1))));
  });
  assert.deepEqual(dead.map(([path, url]) => `${path}: ${url.pathname}${url.hash}`), []);
  await context.close();
});

test("pages are as wide as a phone, and wide tables scroll within themselves", { timeout: 300_000 }, async () => {
  const context = await browser.newContext({ viewport: PHONE });
  for (const path of pages) {
    const { page } = await open(context, path);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= PHONE.width, path);
    assert.deepEqual(await page.evaluate(cutOff), [], path);
    await page.close();
  }
  await context.close();
});

/** Returns the elements that reach beyond the window, and that do not appear by scrolling. */
function cutOff() {
  const scrolls = (element) => /auto|scroll/.test(getComputedStyle(element).overflowX);
  const isOutside = (element) => element.getBoundingClientRect().right > innerWidth + 1;
  const isInScroller = (element) =>
    element && ((scrolls(element) && !isOutside(element)) || isInScroller(element.parentElement));
  const visible = [...document.querySelectorAll(".md-content *")].filter((element) => element.checkVisibility());
  const cut = visible.filter((element) => isOutside(element) && !isInScroller(element));
  return cut.map((element) => element.outerHTML.slice(0, 80));
}

/** Returns the texts of a page whose contrast is too low. */
function faint({ text, large }) {
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const luminance = (color) => {
    const [r, g, b] = channels(color).map((value) => linear(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if ((channels(color)[3] ?? 1) > 0.5) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const elements = [...document.querySelectorAll(".md-content :is(p, li, td, th, h1, h2, h3, a, code, label)")];
  const isText = (element) => element.innerText?.trim() && element.offsetParent && !element.matches(".headerlink");
  return elements.filter(isText).flatMap((element) => {
    const [one, other] = [luminance(getComputedStyle(element).color), luminance(background(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const minimum = /^H/.test(element.tagName) ? large : text;
    return contrast < minimum ? [`${element.tagName} ${contrast.toFixed(2)}: ${element.innerText.slice(0, 40)}`] : [];
  });
}

for (const colorScheme of ["light", "dark"]) {
  test(`text can be read in ${colorScheme} mode`, { timeout: 300_000 }, async () => {
    const context = await browser.newContext({ colorScheme });
    for (const path of pages) {
      const { page } = await open(context, path);
      const isDark = await page.evaluate(() => document.body.dataset.mdColorScheme === "slate");
      assert.equal(isDark, colorScheme === "dark", path);
      assert.deepEqual(await page.evaluate(faint, MIN_CONTRAST), [], path);
      await page.close();
    }
    await context.close();
  });
}

test("the search leads to the pages that people look for", { timeout: 60_000 }, async () => {
  const context = await browser.newContext();
  const { page, problems } = await open(context, "index.html");
  await page.keyboard.press("Control+k");
  const wanted = { delete: "removing", expire: "forgetting", "valkey-bloom": "valkey-bloom" };
  for (const [words, name] of Object.entries(wanted)) {
    await page.keyboard.press("Control+a");
    await page.keyboard.type(words);
    await page.locator(`[role=option][aria-posinset="1"][href*="${name}"]`).waitFor();
  }
  assert.deepEqual(problems, []);
  await context.close();
});

test("the calculator shows the library's figures, and rejects bad input", { timeout: 120_000 }, async () => {
  const context = await browser.newContext();
  const { page, problems } = await open(context, "docs/calculator.html?kind=nonscaling&capacity=1e6&errorRate=0.01");
  const shown = (name) => page.locator(`[data-result=${name}]`);
  const shows = (name, text) => shown(name).filter({ hasText: text }).waitFor();
  const select = (kind) => page.locator(".calculator [name=kind]").selectOption(kind);
  const fill = (name, value) => page.locator(`.calculator [name=${name}]`).fill(value);
  await shows("command", "BF.RESERVE key 0.01 1000000 NONSCALING");
  await shows("memory", "1,210,448 bytes");
  await shows("probes", "7");
  await page.locator("figure[data-chart=memory] .other").waitFor({ state: "attached" });
  await select("cuckoo");
  await shows("command", "CF.RESERVE key 1000000 ERROR 0.01");
  await shows("empty", "312 bytes");
  await select("rolling");
  await fill("slices", "4");
  await shows("command", "ROLLING SLICES 4");
  assert.equal(new URL(page.url()).searchParams.get("kind"), "rolling");
  const mistakes = [
    ["errorRate", "1.5", /error rate/],
    ["capacity", "-1", /capacity/],
    ["items", "many", /number of items/],
  ];
  for (const [name, value, message] of mistakes) {
    const good = await page.locator(`.calculator [name=${name}]`).inputValue();
    await fill(name, value);
    assert.match(await page.locator(".calculator-error").innerText(), message);
    assert.ok(await page.locator(".calculator-results").isHidden());
    await fill(name, good);
    await page.locator(".calculator-results").waitFor();
  }
  await page.locator("figure[data-chart=rate] svg").waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});
