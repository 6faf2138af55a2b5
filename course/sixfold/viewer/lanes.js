// The viewer's timeline, a lane a request, and the overview of all steps. Draws only what is visible.

import { AXIS, LABEL_WIDTH, LANE, QUEUE, drawAxis, drawCell, drawQueue, line, palette, prepare, visibleRange } from "./draw.js";
import { shortId } from "./trace.js";

const MOST_LANES = 18;
const OVERVIEW = 46;

/** The requests that wait or run in the steps [first, end), in the order of their arrival. */
export function aliveIn(model, first, end) {
  const alive = [];
  for (const request of model.requests.values()) {
    if (request.addedAt < end && (request.endedAt ?? Infinity) >= first) alive.push(request);
  }
  return alive;
}

/**
 * Which lanes are shown. `view` holds cell, last and selected as the live timeline's does, and top: how many of the living
 * requests are above the picture.
 */
export function laneLayout(canvas, model, view) {
  const { first, end } = visibleRange(canvas, view, model.steps.length);
  const alive = aliveIn(model, first, end);
  const top = Math.max(0, Math.min(view.top, alive.length - MOST_LANES));
  return { first, end, top, numAlive: alive.length, shown: alive.slice(top, top + MOST_LANES) };
}

export function drawLanes(canvas, model, view) {
  const layout = laneLayout(canvas, model, view);
  const { first, end, shown } = layout;
  const bottom = Math.max(2, shown.length) * LANE + 4;
  const { pen, width } = prepare(canvas, bottom + QUEUE + AXIS + 12);
  const colour = palette();
  const x = (index) => LABEL_WIDTH + (index - first) * view.cell;
  pen.fillStyle = colour("shade");
  pen.fillRect(x(view.selected), 0, view.cell, bottom + QUEUE + 6);
  const entries = model.steps.slice(first, end);
  shown.forEach((request, lane) => {
    const chosen = request.id === view.request;
    pen.strokeStyle = colour("line");
    line(pen, LABEL_WIDTH, lane * LANE + LANE + 3.5, width, lane * LANE + LANE + 3.5);
    if (chosen) {
      pen.fillStyle = colour("shade");
      pen.fillRect(0, lane * LANE + 4, LABEL_WIDTH - 4, LANE);
    }
    pen.fillStyle = colour(`lane-${request.colour}`);
    pen.fillText(shortId(request.id), 8, lane * LANE + LANE / 2 + 4);
    drawWaiting(pen, colour, request, lane, entries, first, x);
    entries.forEach((entry, i) => {
      if (!Object.hasOwn(entry.tokens, request.id)) return;
      drawCell(pen, colour, x(first + i), lane, request.colour, entry.tokens[request.id][1], view.cell);
    });
  });
  drawQueue(pen, colour, entries, (i) => x(first + i), bottom + 6, view.cell);
  drawAxis(pen, colour, entries, (i) => x(first + i), bottom + QUEUE + AXIS, view.cell);
  return layout;
}

/** A thin line through the steps in which a request lives but nothing of it is computed. */
function drawWaiting(pen, colour, request, lane, entries, first, x) {
  pen.strokeStyle = colour("waiting");
  pen.setLineDash([2, 3]);
  const y = lane * LANE + LANE - 0.5;
  entries.forEach((entry, i) => {
    const index = first + i;
    if (index < request.addedAt || index > (request.endedAt ?? Infinity) || Object.hasOwn(entry.tokens, request.id)) return;
    line(pen, x(index), y, x(index + 1), y);
  });
  pen.setLineDash([]);
}

/** All steps at once: the most that ran and waited in the steps of each pixel, and a frame around those shown below. */
export function drawOverview(canvas, model, view, range) {
  const { pen, width } = prepare(canvas, OVERVIEW);
  const colour = palette();
  const numSteps = model.steps.length;
  const room = width - LABEL_WIDTH - 8;
  const columns = Math.max(1, Math.min(Math.floor(room), numSteps));
  const each = room / columns;
  const bins = Array.from({ length: columns }, (_, i) => {
    let [running, waiting] = [0, 0];
    const end = Math.max(Math.floor(((i + 1) * numSteps) / columns), Math.floor((i * numSteps) / columns) + 1);
    for (let k = Math.floor((i * numSteps) / columns); k < end; k += 1) {
      running = Math.max(running, model.steps[k].running);
      waiting = Math.max(waiting, model.steps[k].waiting);
    }
    return { running, waiting };
  });
  const most = Math.max(1, ...bins.map(({ running, waiting }) => running + waiting));
  bins.forEach(({ running, waiting }, i) => {
    const [ran, waited] = [running, waiting].map((count) => (count / most) * (OVERVIEW - 14));
    pen.fillStyle = colour("running");
    pen.fillRect(LABEL_WIDTH + i * each, OVERVIEW - 6 - ran, each + 0.3, ran);
    pen.fillStyle = colour("waiting");
    pen.fillRect(LABEL_WIDTH + i * each, OVERVIEW - 6 - ran - waited, each + 0.3, waited);
  });
  const x = (index) => LABEL_WIDTH + (index / numSteps) * room;
  pen.strokeStyle = colour("ink");
  pen.strokeRect(x(range.first) + 0.5, 3.5, Math.max(2, x(range.end) - x(range.first) - 1), OVERVIEW - 7);
  pen.fillStyle = colour("bad");
  pen.fillRect(x(view.selected + 0.5) - 1, 2, 2, OVERVIEW - 4);
  pen.fillStyle = colour("soft");
  pen.fillText("all steps", 8, OVERVIEW / 2);
}

/** The index of the step under a point of the overview. */
export function overviewStep(canvas, numSteps, x) {
  const share = (x - LABEL_WIDTH) / (canvas.clientWidth - LABEL_WIDTH - 8);
  return Math.min(numSteps - 1, Math.max(0, Math.floor(share * numSteps)));
}
