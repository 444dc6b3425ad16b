// Draws what /state says, twice a second. It asks again by itself, whatever happens.
"use strict";

const EVERY = 500, PATIENCE = 3000, WINDOW = 30;
const WIDTH = 300, HEIGHT = 60, LETTER = 8;

const byId = (id) => document.getElementById(id);

/** Makes an element: `make("p", { class: "hint" }, "text", child)`. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function makeSvg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// ---- the charts

const count = (value) => (value == null ? "–" : value.toFixed(0));
const percent = (value) => (value == null ? "–" : `${(value * 100).toFixed(0)} %`);
const millis = (value) => (value == null ? "–" : `${value.toFixed(value < 10 ? 1 : 0)} ms`);
const tokens = (value) => (value == null ? "–" : value.toFixed(1));

/** `top` is the least that the top of the chart stands for. */
const CHARTS = [
  { id: "rate", title: "Per second", top: 20, show: count, series: [["calls_per_second", "calls"], ["attempts_per_second", "attempts"]] },
  { id: "success", title: "Calls with a price", top: 1, show: percent, series: [["answered", "any"], ["fresh", "fresh"]] },
  { id: "latency", title: "Time of a call", top: 50, show: millis, series: [["median_ms", "median"], ["slowest_ms", "slowest"]] },
  { id: "budget", title: "Retries in the budget", top: 10, show: tokens, series: [["budget", "left"]] },
];

for (const chart of CHARTS) {
  chart.bands = makeSvg("g", {});
  chart.paths = chart.series.map((_, nth) => makeSvg("path", nth ? { class: "second" } : {}));
  chart.cursor = makeSvg("line", { class: "cursor", y1: 0, y2: HEIGHT, visibility: "hidden" });
  chart.svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  chart.svg.append(chart.bands, makeSvg("line", { x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }), ...chart.paths, chart.cursor);
  chart.values = chart.series.map(([, name], nth) => make("span", { class: nth ? "key second" : "key" }, name));
  chart.highest = make("span");
  byId("charts").append(make("figure", { id: chart.id },
    make("figcaption", {}, chart.title, make("span", { class: "values" }, ...chart.values)),
    make("p", { class: "scale", "aria-hidden": "true" }, chart.highest), chart.svg));
}
const cursors = ["phases", "states"].map(() => make("span", { class: "cursor" }));

/** Where a moment is, from 0 to 1: the right end is the last sample. */
const place = (at, samples) => 1 - (samples.at(-1).at - at) / WINDOW;

function drawChart(chart, samples) {
  const values = samples.flatMap((sample) => chart.series.map(([key]) => sample[key] ?? 0));
  const top = Math.max(chart.top, ...values);
  chart.highest.textContent = chart.show(top);
  chart.series.forEach(([key], nth) => {
    let pen = "M", path = "";
    for (const sample of samples) {
      if (sample[key] == null) { pen = "M"; continue; }
      const x = place(sample.at, samples) * WIDTH, y = HEIGHT - 1 - (sample[key] / top) * (HEIGHT - 2);
      path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = "L";
    }
    chart.paths[nth].setAttribute("d", path);
  });
  chart.bands.replaceChildren(...stretches(samples, "phase").filter(({ value }) => isTrouble(value)).map(({ from, to }) => {
    const [x, end] = [from, to].map((at) => place(at, samples) * WIDTH);
    return makeSvg("rect", { x, width: Math.max(0, end - x), y: 0, height: HEIGHT });
  }));
}

const isTrouble = (phase) => !["healthy", "healed"].includes(phase);

/** Neighbours with the same value are one stretch of time. */
function stretches(samples, key) {
  const found = [];
  samples.forEach((sample, nth) => {
    const from = nth ? samples[nth - 1].at : sample.at;
    if (found.at(-1)?.value === sample[key]) found.at(-1).to = sample.at;
    else found.push({ value: sample[key], from, to: sample.at });
  });
  return found;
}

function drawStrip(id, samples, key, cursor) {
  const found = stretches(samples, key);
  const before = WINDOW - (samples.at(-1).at - samples[0].at);
  const perSecond = byId(id).clientWidth / WINDOW;
  const spans = found.map(({ value, from, to }) => {
    const name = key === "phase" ? (isTrouble(value) ? "trouble" : "well") : value;
    // Half a word says less than none.
    const fits = key === "phase" && (to - from) * perSecond > value.length * LETTER;
    const span = make("span", { class: name }, fits ? value : "");
    span.style.flexGrow = to - from;
    return span;
  });
  const empty = make("span");
  empty.style.flexGrow = Math.max(0, before);
  byId(id).replaceChildren(empty, ...spans, cursor);
}

// ---- the moment that is looked at

let looking = null;

function drawCursor(samples) {
  const nth = looking == null ? samples.length - 1 : Math.max(0, Math.min(looking, samples.length - 1));
  const sample = samples[nth], x = place(sample.at, samples);
  const past = looking != null;
  for (const chart of CHARTS) {
    chart.cursor.setAttribute("visibility", past ? "visible" : "hidden");
    for (const end of ["x1", "x2"]) chart.cursor.setAttribute(end, x * WIDTH);
    const said = chart.series.map(([key, name]) => `${name} ${chart.show(sample[key])}`);
    chart.values.forEach((value, at) => { value.textContent = said[at]; });
    chart.svg.setAttribute("aria-label", `${chart.title}: ${said.join(", ")}`);
  }
  for (const cursor of cursors) {
    cursor.hidden = !past;
    cursor.style.left = `${x * 100}%`;
  }
  const when = past ? `${(samples.at(-1).at - sample.at).toFixed(1)} s ago: ` : "";
  byId("moment").textContent = `${when}${sample.phase}, breaker ${sample.state}`;
}

/** Before there are samples, and when a service that was started anew has none yet. */
function drawNothing() {
  for (const chart of CHARTS) {
    chart.highest.textContent = "";
    chart.bands.replaceChildren();
    chart.paths.forEach((path) => path.setAttribute("d", ""));
    chart.series.forEach(([, name], nth) => { chart.values[nth].textContent = `${name} –`; });
    chart.cursor.setAttribute("visibility", "hidden");
    chart.svg.setAttribute("aria-label", `${chart.title}: nothing yet`);
  }
  for (const id of ["phases", "states"]) byId(id).replaceChildren();
  byId("moment").textContent = "nothing yet";
}

/** What was looked at with a key is read aloud; what changes by itself, twice a second, is not. */
function speak() {
  const charts = CHARTS.map((chart) => chart.svg.getAttribute("aria-label"));
  byId("spoken").textContent = [byId("moment").textContent, ...charts].join("; ");
}

function look(nth) {
  looking = nth;
  if (last?.samples.length) drawCursor(last.samples);
}

byId("charts").addEventListener("keydown", (event) => {
  const end = (last?.samples.length ?? 0) - 1, from = looking ?? end;
  const steps = { ArrowLeft: from - 1, ArrowRight: from + 1, PageUp: from - 10, PageDown: from + 10, Home: 0, End: end };
  if (event.key === "Escape") look(null);
  else if (event.key in steps) look(Math.max(0, Math.min(end, steps[event.key])));
  else return;
  speak();
  event.preventDefault();
});
byId("charts").addEventListener("pointermove", (event) => {
  const drawn = event.target.closest("svg, .strip");
  if (!drawn || !last?.samples.length) return;
  const { left, width } = drawn.getBoundingClientRect();
  const at = last.samples.at(-1).at - (1 - (event.clientX - left) / width) * WINDOW;
  look(last.samples.findLastIndex((sample) => sample.at <= at));
});
byId("charts").addEventListener("pointerleave", () => look(null));
byId("charts").addEventListener("blur", () => look(null));

// ---- the policies

const time = (seconds) => (seconds == null ? "none" : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${+seconds.toFixed(1)} s`);

/** What is shown of each kind: rows, and a part of a whole. The others show all that they have. */
const KINDS = {
  bulkhead: (it) => ({ rows: [["in flight", `${it.in_flight} of ${it.permits}`], ["waiting", it.queued]], part: [it.in_flight, it.permits] }),
  timeout: (it) => ({ rows: [["limit", time(it.limit_seconds)]] }),
  retry: (it) => ({ rows: [["attempts", it.max_attempts ?? "any"], ["waits from", time(it.base_seconds)], ["to", time(it.cap_seconds)]] }),
  breaker: (it) => ({ state: it.state, rows: [["failures", `${it.counts.failures} of ${it.counts.calls}`], ["refused", it.counts.rejected], ["open for", it.state === "open" ? time(it.remaining_open_seconds) : "–"]] }),
  rate_limiter: (it) => ({ rows: [["tokens", `${it.available} of ${it.burst}`], ["a second", +it.per_second.toFixed(1)], ["waiting", it.queued]], part: [it.available, it.burst] }),
  budget: (it) => ({ rows: [["retries", `${it.available.toFixed(1)} of ${it.cap ?? "–"}`], ["form", it.form]], part: it.cap && [it.available, it.cap] }),
};
const generic = (it) => ({ rows: Object.entries(it).filter(([key]) => key !== "policy").map(([key, value]) => [key.replaceAll("_", " "), JSON.stringify(value)]) });

function drawPolicy(policy, title) {
  const { rows, part, state } = (KINDS[policy.policy] ?? generic)(policy);
  const item = make("li", { "data-policy": policy.policy }, make("h3", {}, title));
  if (state) item.append(make("p", { class: "badge", "data-state": state }, state));
  item.append(make("dl", {}, ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))])));
  if (part) item.append(make("meter", { min: 0, value: part[0], max: part[1], "aria-label": rows[0][0] }));
  return item;
}

function drawPolicies({ policies, budget }) {
  const retry = policies.findIndex(({ policy }) => policy === "retry");
  const title = ({ policy, backoff }, nth) => {
    if (policy === "timeout") return nth < retry ? "timeout (total)" : "timeout (attempt)";
    return backoff ? `${policy} (${backoff})` : policy.replaceAll("_", " ");
  };
  const items = policies.map((policy, nth) => drawPolicy(policy, title(policy, nth)));
  if (budget) items.push(drawPolicy({ policy: "budget", ...budget }, "budget"));
  byId("policies").replaceChildren(...items);
}

// ---- the page

function drawLog(log) {
  byId("log").replaceChildren(...log.toReversed().map(({ at, kind, text, count }) => make("tr", { "data-kind": kind },
    make("td", {}, `${at.toFixed(1)} s`), make("td", { class: "number" }, count > 1 ? String(count) : ""), make("td", {}, text))));
}

function draw({ executor, phase, samples, log, totals }) {
  const breaker = executor.policies.find(({ policy }) => policy === "breaker");
  const badge = byId("breaker");
  if (badge.dataset.state !== breaker.state) {
    badge.dataset.state = breaker.state;
    badge.textContent = `breaker ${breaker.state}`;
  }
  title = `${executor.name}: ${breaker.state}`;
  byId("name").textContent = executor.name;
  byId("phase").textContent = `the dependency is ${phase}`;
  drawPolicies(executor);
  drawLog(log);
  byId("totals").textContent = `${totals.calls} calls: ${totals.fresh} got a fresh price, ${totals.old} an old one, `
    + `${totals.calls - totals.fresh - totals.old} none; the dependency was asked ${totals.attempts} times.`;
  if (!samples.length) return drawNothing();
  CHARTS.forEach((chart) => drawChart(chart, samples));
  drawStrip("phases", samples, "phase", cursors[0]);
  drawStrip("states", samples, "state", cursors[1]);
  drawCursor(samples);
}

// ---- the connection

let last = null, paused = false, title = document.title;

function say(connection, text, notice = "") {
  document.body.dataset.connection = connection;
  document.title = ["disconnected", "error"].includes(connection) ? `${title} (stale)` : title;
  // These two are read aloud: they change only when there is news.
  if (byId("connection").textContent !== text) byId("connection").textContent = text;
  if (byId("notice").textContent !== notice) byId("notice").textContent = notice;
  byId("notice").hidden = !notice;
}

/** Asks once; a problem is told to the reader and never thrown. */
async function ask() {
  // An answer that was under way when somebody paused is for nobody.
  const tell = (...words) => { if (!paused) say(...words); };
  let answer;
  try {
    answer = await fetch("state", { signal: AbortSignal.timeout(PATIENCE) });
    if (!answer.ok) return tell("error", "error", `The service answered ${answer.status}. Asking again.`);
    answer = await answer.text();
  } catch {
    return tell("disconnected", "disconnected", last ? "The service does not answer. What is shown is what it said last; asking again." : "The service does not answer. Asking again.");
  }
  if (paused) return;
  try {
    const state = JSON.parse(answer);
    draw(state);
    last = state;
    tell("live", "live", state.totals.calls ? "" : "No calls yet: there is nothing to draw.");
  } catch (problem) {
    tell("error", "error", `The answer of the service cannot be read (${problem.message}). Asking again.`);
  }
}

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
  if (paused) say("paused", "paused");
});

addEventListener("resize", () => last && draw(last));

(async () => {
  for (;;) {
    if (!paused && !document.hidden) await ask();
    await new Promise((done) => setTimeout(done, EVERY));
  }
})();
