// The flattened batch of a step, and what each of its tokens attends to. Knows a step's plan, nothing else.

import { palette, prepare } from "./draw.js";
import { counted, shortId } from "./trace.js";

const LEFT = 116;
const STRIP = 22; // the batch as one row
const HIGHEST = 300;
const CELL = 16; // pixels of a token where there is room

/** Where each request of a plan stands: rows [row, row + n) are its queries, columns [column, column + keys) its keys. */
export function maskLayout(tokens) {
  let row = 0;
  let column = 0;
  const parts = Object.entries(tokens).map(([id, [start, n]]) => {
    const part = { id, start, n, row, column, keys: start + n };
    row += n;
    column += part.keys;
    return part;
  });
  return { parts, rows: row, columns: column };
}

/** Rows are query tokens, columns the keys of each request: no token sees another request's, or a later one. */
export function drawMask(canvas, model, entry) {
  const { parts, rows, columns } = maskLayout(entry?.tokens ?? {});
  const high = Math.min(CELL, HIGHEST / Math.max(1, rows));
  const { pen, width } = prepare(canvas, STRIP + 34 + Math.max(24, rows * high));
  const colour = palette();
  const wide = Math.min(CELL, (width - LEFT - 10) / Math.max(1, columns));
  pen.fillStyle = colour("soft");
  pen.fillText("batch", 8, 4 + STRIP / 2);
  if (rows === 0) return;
  drawStrip(pen, colour, model, parts, rows, width);
  const top = STRIP + 30;
  pen.fillStyle = colour("soft");
  pen.fillText("queries ↓  keys →", LEFT, STRIP + 18);
  let labelled = -Infinity;
  for (const part of parts) {
    const box = { x: LEFT + part.column * wide, y: top + part.row * high, wide, high };
    pen.fillStyle = colour(`lane-${model.requests.get(part.id)?.colour ?? 0}`);
    drawPart(pen, colour, part, box);
    const middle = box.y + (part.n * high) / 2;
    if (middle - labelled >= 12) {
      pen.fillText(shortId(part.id), 8, middle);
      labelled = middle;
    }
  }
}

/** The batch as the model gets it: one row of tokens, request after request. */
function drawStrip(pen, colour, model, parts, rows, width) {
  const each = Math.min(CELL, (width - LEFT - 10) / rows);
  for (const part of parts) {
    pen.fillStyle = colour(`lane-${model.requests.get(part.id)?.colour ?? 0}`);
    const left = LEFT + part.row * each;
    if (each >= 4) for (let i = 0; i < part.n; i += 1) pen.fillRect(left + i * each, 6, each - 1, STRIP - 6);
    else pen.fillRect(left, 6, Math.max(1, part.n * each), STRIP - 6);
  }
}

/** A request's queries against its keys: a rectangle of what is cached, then the triangle of what is new. */
function drawPart(pen, colour, { start, n, keys }, { x, y, wide, high }) {
  pen.globalAlpha = 0.16;
  pen.fillRect(x, y, keys * wide, Math.max(1.5, n * high));
  pen.globalAlpha = 1;
  if (wide >= 3 && high >= 3) {
    for (let i = 0; i < n; i += 1) {
      for (let key = 0; key <= start + i; key += 1) {
        pen.globalAlpha = key < start ? 0.55 : 1;
        pen.fillRect(x + key * wide, y + i * high, wide - 1, high - 1);
      }
    }
    pen.globalAlpha = 1;
    return;
  }
  pen.globalAlpha = 0.55;
  pen.fillRect(x, y, start * wide, Math.max(1.5, n * high));
  pen.globalAlpha = 1;
  pen.beginPath();
  pen.moveTo(x + start * wide, y);
  pen.lineTo(x + start * wide + Math.max(1, wide), y);
  pen.lineTo(x + Math.max(keys * wide, start * wide + 1.5), y + Math.max(1.5, n * high));
  pen.lineTo(x + start * wide, y + Math.max(1.5, n * high));
  pen.fill();
}

/** The same in words. */
export function describeMask(entry) {
  const { parts, rows, columns } = maskLayout(entry?.tokens ?? {});
  if (rows === 0) return "This step computes nothing.";
  const pairs = parts.reduce((sum, { start, n }) => sum + n * start + (n * (n + 1)) / 2, 0);
  return `${counted(rows, "query token")} of ${counted(parts.length, "request")} over ${counted(columns, "key")}: ` +
    `${counted(pairs, "pair")} of ${(rows * columns).toLocaleString("en")} are computed, the rest is masked.`;
}
