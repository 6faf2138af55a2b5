// A request's life: when it waited, when its prompt was computed, when its tokens came. Knows a TraceModel.

import { palette, prepare } from "./draw.js";
import { counted, drawn, entryOf } from "./trace.js";

const LEFT = 116;
const BAR = 22;
const GAPS = 56; // height of the picture of inter-token latencies

/** Its times, in seconds; what did not happen, or is no longer known, is null. */
export function lifeOf(model, request) {
  const spans = []; // the steps that computed some of it: {t, done, start, n, drafts}
  const arrivals = []; // {t, n}: tokens that came
  const from = request.added ?? -Infinity;
  for (const entry of model.steps) {
    if (entry.t < from || !Object.hasOwn(entry.tokens, request.id)) continue;
    if (request.ended !== null && entry.t > request.ended) break;
    const [start, n] = entry.tokens[request.id];
    spans.push({ t: entry.t, done: entry.done, start, n, drafts: entryOf(entry.drafts, request.id) ?? 0 });
    const count = drawn(entry, request.id).length;
    if (count > 0 && entry.done !== null) arrivals.push({ t: entry.done, n: count });
  }
  const begin = request.added ?? spans[0]?.t ?? 0;
  const newest = model.steps.at(-1);
  const since = (t) => (request.added === null || t === undefined ? null : t - request.added);
  return {
    request, spans, arrivals,
    waited: since(spans[0]?.t),
    ttft: since(arrivals[0]?.t),
    itl: arrivals.slice(1).map(({ t }, i) => t - arrivals[i].t),
    begin,
    end: request.ended ?? Math.max(begin, newest?.done ?? newest?.t ?? begin),
    tokens: arrivals.reduce((sum, { n }) => sum + n, 0),
    speculates: model.speculation.verifications > 0,
    caches: model.prefix.found > 0,
  };
}

/** Rows of name and value. */
export function describeLife(life) {
  const { request } = life;
  const sorted = [...life.itl].sort((a, b) => a - b);
  return [
    ["prompt", request.promptTokens === null ? "–" : counted(request.promptTokens, "token")],
    ...(life.caches ? [["from the cache", counted(request.cached, "token")]] : []),
    ["waited", milliseconds(life.waited)],
    ["TTFT", milliseconds(life.ttft)],
    ["ITL, median", milliseconds(sorted[sorted.length >> 1] ?? null)],
    ["ITL, longest", milliseconds(sorted.at(-1) ?? null)],
    ["output", counted(life.tokens, "token")],
    ...(life.speculates ? [["drafts stayed", `${request.stayed.toLocaleString("en")} of ${request.drafts.toLocaleString("en")}`]] : []),
    ["preempted", request.preempted.length === 0 ? "never" : `${request.preempted.length} ×`],
    ["ended by", request.reason ?? "not yet"],
  ];
}

/** Seconds as milliseconds, in words. */
export function milliseconds(seconds) {
  if (seconds === null) return "–";
  return `${(seconds * 1000).toLocaleString("en", { maximumFractionDigits: seconds < 0.1 ? 1 : 0 })} ms`;
}

/** Above its time line, below how long it waited for each token. */
export function drawLife(canvas, life) {
  const { pen, width } = prepare(canvas, BAR + GAPS + 62);
  const colour = palette();
  const { request, spans, arrivals } = life;
  const long = Math.max(1e-9, life.end - life.begin);
  const x = (t) => LEFT + ((t - life.begin) / long) * (width - LEFT - 12);
  pen.fillStyle = colour("waiting");
  pen.globalAlpha = 0.5;
  pen.fillRect(x(life.begin), 12, Math.max(0, x(spans[0]?.t ?? life.end) - x(life.begin)), BAR);
  pen.fillStyle = colour(`lane-${request.colour}`);
  for (const { t, done, n, drafts } of spans) {
    pen.globalAlpha = n - drafts > 1 ? 1 : 0.45;
    pen.fillRect(x(t), 12, Math.max(1, x(done ?? t) - x(t) - 0.5), BAR);
  }
  pen.globalAlpha = 1;
  pen.fillStyle = colour("ink");
  for (const { t } of arrivals) pen.fillRect(x(t) - 0.5, 12 + BAR, 1, 5);
  pen.fillStyle = colour("bad");
  for (const t of request.preempted) pen.fillRect(x(t) - 1, 8, 2, BAR + 8);
  pen.fillStyle = colour("soft");
  pen.fillText("life", 8, 12 + BAR / 2);
  pen.fillText("TTFT, ITL", 8, BAR + 38 + GAPS / 2);
  drawGaps(pen, colour, life, x, BAR + 30);
  pen.fillStyle = colour("soft");
  pen.fillText(`${life.begin.toFixed(3)} s`, LEFT, BAR + GAPS + 48);
  const last = `${life.end.toFixed(3)} s`;
  pen.fillText(last, width - 12 - last.length * 6.7, BAR + GAPS + 48);
}

/** A bar a token: as wide and as tall as the wait for it. The first one, TTFT, is drawn in another tone. */
function drawGaps(pen, colour, life, x, top) {
  const gaps = life.arrivals.map(({ t }, i) => ({ from: i === 0 ? life.begin : life.arrivals[i - 1].t, to: t }));
  const longest = Math.max(1e-9, ...gaps.map(({ from, to }) => to - from));
  gaps.forEach(({ from, to }, i) => {
    const high = Math.max(1, ((to - from) / longest) * GAPS);
    pen.fillStyle = colour(i === 0 ? "waiting" : "running");
    pen.fillRect(x(from), top + GAPS - high, Math.max(1, x(to) - x(from) - 0.5), high);
  });
}
