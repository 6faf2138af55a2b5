// The pictures: timeline with queue depth, and block map. Draws what a TraceModel holds; knows no events.

import { cellHeight, shortId } from "./trace.js";

export const LABEL_WIDTH = 116;
export const LANE = 26;
export const QUEUE = 58;
export const AXIS = 18;
const FONT = "11px ui-monospace, Menlo, Consolas, monospace";

/** A context of the canvas in CSS pixels, sharp on every screen, cleared. */
export function prepare(canvas, height) {
  const width = canvas.clientWidth;
  const ratio = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  return { pen, width, height };
}

/** The page's colours, which follow its light or dark scheme. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const known = new Map(); // asking the style is slow
  return (name) => {
    if (!known.has(name)) known.set(name, style.getPropertyValue(`--${name}`).trim());
    return known.get(name);
  };
}

/** Which steps fit: `view` holds cell (width in pixels) and last (index of the right-most step). */
export function visibleRange(canvas, view, numSteps) {
  const columns = Math.max(1, Math.floor((canvas.clientWidth - LABEL_WIDTH - 8) / view.cell));
  const end = Math.min(numSteps, view.last + 1);
  return { first: Math.max(0, end - columns), end };
}

/** The index of the step under a point of the canvas, or null. */
export function stepAt(canvas, view, numSteps, x) {
  const { first, end } = visibleRange(canvas, view, numSteps);
  const index = first + Math.floor((x - LABEL_WIDTH) / view.cell);
  return x >= LABEL_WIDTH && index < end ? index : null;
}

/** The request whose cell is under a point of the live timeline, or null. */
export function requestAt(canvas, model, view, x, y) {
  const entry = model.steps[stepAt(canvas, view, model.steps.length, x) ?? -1];
  const lane = Math.floor((y - 4) / LANE);
  const id = Object.keys(entry?.tokens ?? {}).find((key) => model.requests.get(key)?.lane === lane);
  return id === undefined ? null : model.requests.get(id);
}

export function drawTimeline(canvas, model, view) {
  const { first, end } = visibleRange(canvas, view, model.steps.length);
  const shown = model.steps.slice(first, end);
  const lanes = lanesOf(model, shown);
  const numLanes = Math.max(2, ...[...lanes.keys()].map((lane) => lane + 1));
  const { pen, width } = prepare(canvas, numLanes * LANE + QUEUE + AXIS + 14);
  const colour = palette();
  const x = (index) => LABEL_WIDTH + (index - first) * view.cell;
  const bottom = numLanes * LANE + 4;

  if (view.selected !== null && view.selected >= first && view.selected < end) {
    pen.fillStyle = colour("shade");
    pen.fillRect(x(view.selected), 0, view.cell, bottom + QUEUE + 6);
  }
  pen.strokeStyle = colour("line");
  for (let lane = 0; lane <= numLanes; lane += 1) line(pen, LABEL_WIDTH, lane * LANE + 4.5, width, lane * LANE + 4.5);
  for (const [lane, request] of lanes) {
    pen.fillStyle = colour(`lane-${request.colour}`);
    pen.globalAlpha = request.finished ? 0.55 : 1;
    pen.fillText(shortId(request.id), 8, lane * LANE + LANE / 2 + 4);
    pen.globalAlpha = 1;
  }
  shown.forEach((entry, i) => {
    for (const [id, [, n]] of Object.entries(entry.tokens)) {
      const request = model.requests.get(id);
      if (request !== undefined && request.lane !== null) drawCell(pen, colour, x(first + i), request.lane, request.colour, n, view.cell);
    }
  });
  drawQueue(pen, colour, shown, (i) => x(first + i), bottom + 6, view.cell);
  drawAxis(pen, colour, shown, (i) => x(first + i), bottom + QUEUE + AXIS, view.cell);
}

/** Lane → the request that the shown steps have there last. */
function lanesOf(model, shown) {
  const lanes = new Map();
  for (const entry of shown) {
    for (const id of Object.keys(entry.tokens)) {
      const request = model.requests.get(id);
      if (request !== undefined && request.lane !== null) lanes.set(request.lane, request);
    }
  }
  return lanes;
}

/** What a step computed of a request: as tall as its tokens; several have their number, one is paler. */
export function drawCell(pen, colour, left, lane, tone, n, cell) {
  const height = (LANE - 4) * cellHeight(n);
  const top = lane * LANE + LANE - height + 3;
  pen.fillStyle = colour(`lane-${tone}`);
  pen.globalAlpha = n === 1 ? 0.6 : 1;
  pen.fillRect(left + 0.5, top, Math.max(1, cell - 1.5), height);
  pen.globalAlpha = 1;
  const text = String(n);
  if (n > 1 && cell >= text.length * 6.6 + 4) {
    pen.fillStyle = colour("card");
    pen.fillText(text, left + 3, top + height / 2);
  }
}

/** How many requests ran and waited in each of the shown steps. */
export function drawQueue(pen, colour, shown, x, top, cell) {
  const most = Math.max(1, ...shown.map((entry) => entry.running + entry.waiting));
  const scale = (QUEUE - 12) / most;
  const floor = top + QUEUE - 8;
  shown.forEach((entry, i) => {
    const running = entry.running * scale;
    const waiting = entry.waiting * scale;
    pen.fillStyle = colour("running");
    pen.fillRect(x(i), floor - running, cell - 0.5, running);
    pen.fillStyle = colour("waiting");
    pen.fillRect(x(i), floor - running - waiting, cell - 0.5, waiting);
  });
  pen.fillStyle = colour("running");
  pen.fillText("■ running", 8, floor - 6);
  pen.fillStyle = colour("waiting");
  pen.fillText("■ waiting", 8, floor - 22);
  pen.fillStyle = colour("soft");
  pen.fillText(`at most ${most}`, 8, floor - 38);
}

/** Step numbers below. */
export function drawAxis(pen, colour, shown, x, y, cell) {
  const every = Math.max(1, Math.ceil(60 / cell / 5) * 5);
  pen.fillStyle = colour("soft");
  pen.fillText("step", 8, y);
  shown.forEach((entry, i) => {
    if (entry.step % every === 0) pen.fillText(String(entry.step), x(i) + 1, y);
  });
}

const MOST_BLOCKS = 4096;

/** The blocks that the map shows: all of a small cache; of a large one those that are taken, as many as can be drawn. */
export function shownBlocks(model) {
  const numBlocks = model.start?.num_blocks ?? 0;
  if (numBlocks <= MOST_BLOCKS) return Array.from({ length: numBlocks }, (_, block) => block);
  const taken = [...model.owners.keys(), ...(model.changed ?? [])];
  return [...new Set(taken)].sort((a, b) => a - b).slice(0, MOST_BLOCKS);
}

/** Sizes of the block map: few blocks get wide boxes, many get small ones. */
export function blockGrid(canvas, numBlocks) {
  const size = numBlocks <= 64 ? 58 : numBlocks <= 512 ? 26 : 12;
  const columns = Math.max(1, Math.floor((canvas.clientWidth - 12) / size));
  return { size, columns, rows: Math.max(1, Math.ceil(numBlocks / columns)) };
}

/**
 * A block is as full as its tokens; its colour is its owner's, shared ones are framed twice, and those that changed hands
 * are marked. `model` is a TraceModel, or what it holds of one step: start, owners, requests, fill and changed.
 */
export function drawBlocks(canvas, model) {
  const shown = shownBlocks(model);
  const { size, columns, rows } = blockGrid(canvas, shown.length);
  const { pen } = prepare(canvas, rows * size + 12);
  const colour = palette();
  const inner = size - (size > 20 ? 6 : 2);
  shown.forEach((block, place) => {
    const left = 8 + (place % columns) * size;
    const top = 8 + Math.floor(place / columns) * size;
    pen.strokeStyle = colour("line");
    pen.strokeRect(left + 0.5, top + 0.5, inner, inner);
    const owners = [...(model.owners.get(block) ?? [])];
    const request = model.requests.get(owners[0]);
    if (request !== undefined) drawOwned(pen, colour, model, request, block, owners.length, left, top, inner);
    if (model.changed?.has(block)) {
      pen.strokeStyle = colour("ink");
      pen.lineWidth = size > 20 ? 3 : 1.5;
      pen.strokeRect(left + 0.5, top + 0.5, inner, inner);
      pen.lineWidth = 1;
    }
    if (size >= 40) {
      pen.fillStyle = colour("ink");
      pen.fillText(String(block), left + 5, top + 10);
    }
  });
}

function drawOwned(pen, colour, model, request, block, numOwners, left, top, inner) {
  const tone = colour(`lane-${request.colour}`);
  const full = inner * model.fill(request, request.blocks.indexOf(block));
  pen.fillStyle = tone;
  pen.globalAlpha = 0.18;
  pen.fillRect(left, top, inner, inner);
  pen.globalAlpha = 0.9;
  pen.fillRect(left, top + inner - full, inner, full);
  pen.globalAlpha = 1;
  pen.strokeStyle = tone;
  pen.strokeRect(left + 0.5, top + 0.5, inner, inner);
  if (numOwners > 1) pen.strokeRect(left + 2.5, top + 2.5, inner - 4, inner - 4);
}

/** A straight line. */
export function line(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}
