// The live picture: follows /live, keeps a TraceModel, and lets one look at any step with mouse, finger or keys.

import { blockGrid, drawBlocks, drawTimeline, requestAt, shownBlocks, stepAt } from "./draw.js";
import { number, showPrefix, showSpeculation } from "./gains.js";
import { describeLife, drawLife, lifeOf } from "./life.js";
import { describeMask, drawMask } from "./mask.js";
import { stepRows } from "./step_table.js";
import { TraceModel, describeDrafts, describeStep, shortId } from "./trace.js";

const byId = (id) => document.getElementById(id);
const timeline = byId("timeline");
const blocks = byId("blocks");
// cell: width of a step in pixels · last: index of the right-most step · pointer: x of the mouse over the timeline ·
// request: whose life is shown
const view = { cell: 14, last: 0, selected: null, follow: true, pointer: null, request: null };
let model = new TraceModel();
let dirty = true;

function connect() {
  const source = new EventSource("/live");
  source.addEventListener("open", () => {
    model = new TraceModel(); // the feed begins with what it still has, also after a reconnection
    Object.assign(view, { last: 0, selected: null, request: null });
    byId("live_state").textContent = "connected: send something, here or with curl";
    dirty = true;
  });
  source.addEventListener("message", (event) => {
    if (event.data === "[DONE]") {
      source.close();
      byId("live_state").textContent = "the engine has ended its trace";
      return;
    }
    model.apply(JSON.parse(event.data));
    dirty = true;
  });
  source.addEventListener("error", () => {
    byId("live_state").textContent =
      source.readyState === EventSource.CLOSED ? "this server sends no trace" : "connection lost, trying again …";
  });
}

function render() {
  if (dirty) {
    dirty = false;
    const newest = model.steps.length - 1;
    if (view.follow) Object.assign(view, { last: newest, selected: newest >= 0 ? newest : null });
    if (view.selected !== null && view.selected > newest) view.selected = newest >= 0 ? newest : null;
    view.last = Math.min(view.last, Math.max(newest, 0));
    const hovered = view.pointer === null ? null : stepAt(timeline, view, model.steps.length, view.pointer);
    const looked = hovered ?? view.selected;
    drawTimeline(timeline, model, { ...view, selected: looked });
    drawBlocks(blocks, model);
    showNumbers(model.steps[newest]);
    showStep(model.steps[looked ?? -1], looked);
    showLife();
    showSpeculation(byId("speculation"), model.speculation);
    showPrefix(byId("prefix"), model.prefix);
  }
  requestAnimationFrame(render);
}

function showNumbers(entry) {
  if (entry === undefined) return;
  byId("step_now").textContent = entry.step.toLocaleString("en");
  byId("running_now").textContent = Math.max(0, entry.running - model.numEnded).toLocaleString("en");
  byId("waiting_now").textContent = entry.waiting.toLocaleString("en");
  byId("tokens_now").textContent = Object.values(entry.tokens).reduce((sum, [, n]) => sum + n, 0).toLocaleString("en");
  const lost = model.numLost === 0 ? "" : `; ${model.numLost.toLocaleString("en")} older events are gone`;
  const who = model.start === null ? "" : `stage ${model.start.stage} · ${model.start.model} · `;
  byId("live_state").textContent = `${who}${model.steps.length.toLocaleString("en")} steps seen${lost}`;
  if (byId("block_note").dataset.hovered !== "yes") byId("block_note").textContent = blockSummary();
}

function showStep(entry, index) {
  timeline.setAttribute("aria-valuemax", String(Math.max(0, model.steps.length - 1)));
  if (entry === undefined) return;
  timeline.setAttribute("aria-valuenow", String(index));
  timeline.setAttribute("aria-valuetext", describeStep(entry));
  const drafts = describeDrafts(entry);
  byId("step_title").textContent = `Step ${entry.step} at ${entry.t.toFixed(3)} s${drafts === "" ? "" : ` · ${drafts}`}`;
  byId("step_table").tBodies[0].replaceChildren(...stepRows(model, entry));
  drawMask(byId("mask"), model, entry);
  byId("mask_note").textContent = describeMask(entry);
}

/** The life of the request that was clicked, or of the newest one. */
function showLife() {
  const request = view.request ?? [...model.requests.values()].at(-1);
  if (request === undefined) return;
  const life = lifeOf(model, request);
  byId("life_title").textContent = `Life of ${shortId(request.id)}`;
  byId("life_title").title = request.id;
  drawLife(byId("life"), life);
  byId("life_numbers").replaceChildren(...describeLife(life).map(number));
}

function blockSummary() {
  if (model.start === null) return "No block is known yet.";
  const { num_blocks: total, block_size: size } = model.start;
  const taken = model.owners.size;
  const shown = shownBlocks(model).length;
  const part = shown < total ? ` ${shown.toLocaleString("en")} of those are drawn, in order.` : "";
  return `${taken} of ${total} blocks are taken; each holds ${size.toLocaleString("en")} tokens.${part} Point at one for more.`;
}

function hoverBlock(event) {
  const note = byId("block_note");
  const shown = shownBlocks(model);
  const { size, columns } = blockGrid(blocks, shown.length);
  const column = Math.floor((event.offsetX - 8) / size);
  const block = shown[Math.floor((event.offsetY - 8) / size) * columns + column];
  const isBlock = column >= 0 && column < columns && block !== undefined;
  note.dataset.hovered = isBlock ? "yes" : "no";
  note.textContent = isBlock ? describeBlock(block) : blockSummary();
}

function describeBlock(block) {
  const owners = [...(model.owners.get(block) ?? [])];
  if (owners.length === 0) return `Block ${block} is free.`;
  const request = model.requests.get(owners[0]);
  const size = model.start.block_size;
  const tokens = request === undefined ? 0 : Math.round(model.fill(request, request.blocks.indexOf(block)) * size);
  return `Block ${block}: ${tokens.toLocaleString("en")} of ${size.toLocaleString("en")} tokens of ${owners.join(" and ")}.`;
}

/** Look at step `index`, which ends following unless it is the newest. */
function select(index) {
  const newest = model.steps.length - 1;
  if (newest < 0) return;
  view.selected = Math.min(newest, Math.max(0, index));
  view.last = Math.max(view.last, view.selected);
  if (stepIsLeftOfView()) view.last = Math.min(newest, view.selected + 20);
  setFollow(view.selected === newest && index >= newest);
}

function stepIsLeftOfView() {
  const columns = Math.floor((timeline.clientWidth - 124) / view.cell);
  return view.selected <= view.last - columns;
}

function setFollow(on) {
  view.follow = on;
  byId("follow").setAttribute("aria-pressed", String(on));
  dirty = true;
}

function zoom(factor) {
  view.cell = Math.min(48, Math.max(3, view.cell * factor));
  dirty = true;
}

timeline.addEventListener("pointermove", (event) => {
  view.pointer = event.offsetX;
  dirty = true;
});
timeline.addEventListener("pointerleave", () => {
  view.pointer = null;
  dirty = true;
});
timeline.addEventListener("pointerdown", (event) => {
  const index = stepAt(timeline, view, model.steps.length, event.offsetX);
  if (index !== null) select(index);
  view.request = requestAt(timeline, model, view, event.offsetX, event.offsetY) ?? view.request;
});
timeline.addEventListener("wheel", (event) => {
  const by = event.deltaX || (event.shiftKey ? event.deltaY : 0);
  if (by === 0) return;
  event.preventDefault();
  view.last = Math.min(model.steps.length - 1, Math.max(0, view.last + Math.sign(by) * 4));
  setFollow(false);
}, { passive: false });
timeline.addEventListener("keydown", (event) => {
  const at = view.selected ?? model.steps.length - 1;
  const target = {
    ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageUp: at + 20, PageDown: at - 20, Home: 0,
    End: model.steps.length - 1,
  }[event.key];
  if (target === undefined) return;
  event.preventDefault();
  select(target);
});
blocks.addEventListener("pointermove", hoverBlock);
blocks.addEventListener("pointerleave", () => {
  byId("block_note").dataset.hovered = "no";
  byId("block_note").textContent = blockSummary();
});
byId("follow").addEventListener("click", () => setFollow(!view.follow));
byId("zoom_in").addEventListener("click", () => zoom(1.4));
byId("zoom_out").addEventListener("click", () => zoom(1 / 1.4));
window.addEventListener("resize", () => { dirty = true; });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { dirty = true; });
connect();
requestAnimationFrame(render);
