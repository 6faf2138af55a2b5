// What a step computed, as rows of a table. All text goes through textContent: a request's id is a client's words.

import { describeDrafts, drawn, shortId } from "./trace.js";

/** A row a request: who, which positions and drafts, and the tokens that were drawn. */
export function stepRows(model, entry) {
  return Object.entries(entry.tokens).map(([id, [start, n]]) => {
    const row = document.createElement("tr");
    const tone = model.requests.get(id)?.colour;
    row.append(cell(shortId(id), id, tone), cell(span(start, n, describeDrafts(entry, id))), cell(drawn(entry, id).join(", ") || "–"));
    return row;
  });
}

function cell(text, title = "", tone = undefined) {
  const made = document.createElement("td");
  made.textContent = text;
  made.title = title;
  if (tone !== undefined) made.style.color = `var(--lane-${tone})`;
  return made;
}

function span(start, n, drafts) {
  const where = n === 1 ? `1: position ${start}` : `${n.toLocaleString("en")}: positions ${start} to ${start + n - 1}`;
  return drafts === "" ? where : `${where} (${drafts})`;
}
