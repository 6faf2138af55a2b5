// The viewer: opens a trace, goes to any of its steps, and keeps all pictures at that step.

import { blockGrid, drawBlocks, shownBlocks, stepAt, LANE } from "./draw.js";
import { readEvents } from "./events.js";
import { drawLanes, drawOverview, overviewStep } from "./lanes.js";
import { describeLife, drawLife, lifeOf, milliseconds } from "./life.js";
import { describeMask, drawMask } from "./mask.js";
import { Replay } from "./replay.js";
import { stepRows } from "./step_table.js";
import { TraceModel, counted, describeStep, shortId } from "./trace.js";

const byId = (id) => document.getElementById(id);
const count = (number) => number.toLocaleString("en");
// cell: width of a step in pixels · last: index of the right-most step · selected: index · request: id whose life is shown ·
// top: first of the living requests that is drawn
const view = { cell: 14, last: 0, selected: 0, request: null, top: 0 };
let model = new TraceModel(Infinity);
let replay = new Replay([], () => 0);
let holdings = null; // of the selected step
let layout = null; // of the lanes as drawn
let dirty = false;
let playing = null; // {since, from} while it plays
const linking = { timer: 0, written: "" }; // the address as this page wrote it last

function open(text, name) {
  const { events, problems } = readEvents(text);
  model = new TraceModel(Infinity);
  for (const event of events) model.apply(event);
  const colours = new Map([...model.requests.values()].map((request) => [request.id, request.colour]));
  replay = new Replay(events, (id) => colours.get(id) ?? 0);
  if (events.length === 0) problems.unshift("There is no event in this file: it is not a trace.");
  for (const [kind, number] of model.unknown) problems.push(`Not drawn, because its kind is not known here: ${kind}, ${number} ×.`);
  if (model.numLost > 0) problems.push(`${count(model.numLost)} events were lost before they were written.`);
  byId("note_list").replaceChildren(...problems.map((problem) => make("li", problem)));
  byId("notes").hidden = problems.length === 0;
  byId("empty").hidden = events.length > 0;
  for (const picture of document.querySelectorAll(".picture")) picture.hidden = model.steps.length === 0;
  byId("about").textContent = describeTrace(name);
  document.title = name === "" ? "Sixfold trace" : `${name} · Sixfold trace`;
  byId("slider").max = String(Math.max(0, model.steps.length - 1));
  byId("request").replaceChildren(...[...model.requests.keys()].map((id) => Object.assign(make("option", shortId(id)), { value: id })));
  Object.assign(view, { request: model.requests.keys().next().value ?? null, selected: -1, last: -1, top: 0 });
  select(linkedStep() ?? 0);
}

function describeTrace(name) {
  const who = model.start === null ? [] : [`stage ${model.start.stage}`, model.start.model];
  const parts = [name, ...who, counted(model.steps.length, "step"), counted(model.requests.size, "request")];
  return parts.filter((part) => part !== "").join(" · ");
}

function make(tag, text) {
  return Object.assign(document.createElement(tag), { textContent: text });
}

/** Go to the step at `index`; the pictures follow with the next frame. */
function select(index) {
  const target = Math.min(model.steps.length - 1, Math.max(0, index));
  if (model.steps.length === 0 || target === view.selected) return;
  view.selected = target;
  const columns = Math.max(1, Math.floor((byId("lanes").clientWidth - 124) / view.cell));
  if (target > view.last || target <= view.last - columns) {
    view.last = Math.min(model.steps.length - 1, target + Math.floor(columns / 2));
    if (view.last < columns - 1) view.last = Math.min(model.steps.length, columns) - 1;
  }
  byId("slider").value = String(target);
  dirty = true;
}

function render(now) {
  if (playing !== null) advance(now);
  if (dirty && model.steps.length > 0) {
    dirty = false;
    const entry = model.steps[view.selected];
    holdings = replay.at(view.selected);
    layout = drawLanes(byId("lanes"), model, view);
    drawOverview(byId("overview"), model, view, layout);
    drawMask(byId("mask"), model, entry);
    drawBlocks(byId("blocks"), holdings);
    showWords(entry);
    showLife();
  }
  requestAnimationFrame(render);
}

function showWords(entry) {
  byId("time-title").textContent = `Step ${count(entry.step)} at ${entry.t.toFixed(3)} s`;
  byId("slider").setAttribute("aria-valuetext", describeStep(entry));
  byId("counters").replaceChildren(...pairs(countersOf(entry)));
  byId("step_table").tBodies[0].replaceChildren(...stepRows(model, entry));
  byId("mask_note").textContent = describeMask(entry);
  byId("block_note").textContent = blockSummary();
  const changed = [...holdings.changed].sort((a, b) => a - b);
  const some = changed.slice(0, 24).join(", ") + (changed.length > 24 ? ", …" : "");
  byId("change_note").textContent = changed.length === 0 ? "No block changed hands since the step before."
    : `Changed hands since the step before (framed): ${some}.`;
  const hidden = layout.numAlive - layout.shown.length;
  byId("lanes_note").textContent = hidden > 0
    ? `${layout.shown.length} of the ${count(layout.numAlive)} requests that live in these steps; the wheel, or ↑ and ↓ once it has the focus, show the others.`
    : "Tall cells with a number compute a prompt, flat ones a single token; a dotted line waits. Click one for its life.";
  clearTimeout(linking.timer);
  linking.timer = setTimeout(() => { // later, because browsers limit how often an address may change
    linking.written = `#step=${entry.step}`;
    location.replace(linking.written);
  }, 200);
}

function countersOf(entry) {
  const spans = Object.values(entry.tokens);
  const many = spans.filter(([, n]) => n > 1).reduce((sum, [, n]) => sum + n, 0);
  const single = spans.filter(([, n]) => n === 1).length;
  const total = model.start?.num_blocks;
  return [
    ["running", count(entry.running)],
    ["waiting", count(entry.waiting)],
    ["prompt work", counted(many, "token")],
    ["single tokens", count(single)],
    ["step took", milliseconds(entry.done === null ? null : entry.done - entry.t)],
    ["blocks held", total === undefined ? count(holdings.owners.size) : `${count(holdings.owners.size)} of ${count(total)}`],
    ["drawn so far", counted(holdings.drawn, "token")],
    ["ended so far", counted(holdings.finished, "request")],
    ...(holdings.preemptions > 0 ? [["preempted so far", `${count(holdings.preemptions)} ×`]] : []),
  ];
}

function pairs(rows) {
  return rows.map(([name, value]) => {
    const box = document.createElement("div");
    box.append(make("dt", name), make("dd", value));
    return box;
  });
}

function showLife() {
  const request = model.requests.get(view.request);
  if (request === undefined) return;
  byId("life-title").textContent = `Life of ${shortId(request.id)}`;
  byId("life-title").title = request.id;
  byId("request").value = request.id;
  const life = lifeOf(model, request);
  drawLife(byId("life"), life);
  byId("life_numbers").replaceChildren(...pairs(describeLife(life)));
}

function blockSummary() {
  if (model.start === null) return "How many blocks there are is not known.";
  const { num_blocks: total, block_size: size } = model.start;
  const shown = shownBlocks(holdings).length;
  const part = shown < total ? ` ${count(shown)} of those are drawn, in order.` : "";
  return `${count(holdings.owners.size)} of ${count(total)} blocks are held; each has room for ${count(size)} tokens.${part} Point at one for more.`;
}

function describeBlock(block) {
  const owners = [...(holdings.owners.get(block) ?? [])];
  if (owners.length === 0) return `Block ${block} is free.`;
  const request = holdings.requests.get(owners[0]);
  const tokens = Math.round(holdings.fill(request, request.blocks.indexOf(block)) * holdings.start.block_size);
  return `Block ${block}: ${count(tokens)} of ${count(holdings.start.block_size)} tokens of ${owners.join(" and ")}.`;
}

// --- playing, and the address ------------------------------------------------------------------------

function setPlaying(on) {
  if (on && view.selected === model.steps.length - 1) select(0);
  playing = on ? { since: performance.now(), from: view.selected } : null;
  byId("play").textContent = on ? "Pause" : "Play";
  byId("play").setAttribute("aria-pressed", String(on));
  byId("announce").textContent = on || model.steps.length === 0 ? "" : describeStep(model.steps[view.selected]);
}

function advance(now) {
  const speed = Number(byId("speed").value);
  select(playing.from + Math.max(0, Math.floor(((now - playing.since) / 1000) * speed)));
  if (view.selected === model.steps.length - 1) setPlaying(false);
}

/** The index of the step that the address names, or null. */
function linkedStep() {
  const number = Number(/^#step=(\d{1,15})$/.exec(location.hash)?.[1] ?? NaN);
  const index = model.steps.findIndex((entry) => entry.step === number);
  return index < 0 ? null : index;
}

// --- hands -------------------------------------------------------------------------------------------

/** A step chosen by hand ends playing. */
function go(index) {
  if (playing !== null) setPlaying(false);
  select(index);
}

function look(id) {
  view.request = id;
  dirty = true;
}

/** Show other lanes; false where there are none in that direction, so that the page itself can move. */
function moveLanes(by) {
  if (layout === null) return false;
  view.top = Math.max(0, Math.min(layout.top + by, layout.numAlive - layout.shown.length));
  dirty = true;
  return view.top !== layout.top;
}

async function openFile(file) {
  if (file !== undefined) open(await file.text(), file.name);
}

const KEYS = {
  ArrowLeft: () => view.selected - 1, ArrowRight: () => view.selected + 1, PageUp: () => view.selected - 20,
  PageDown: () => view.selected + 20, Home: () => 0, End: () => model.steps.length - 1,
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("select, input[type=file]")) return;
  if (event.key === " " && !event.target.matches("button")) setPlaying(playing === null);
  else if (Object.hasOwn(KEYS, event.key)) go(KEYS[event.key]());
  else return;
  event.preventDefault();
});
byId("slider").addEventListener("input", (event) => go(Number(event.target.value)));
byId("first").addEventListener("click", () => go(0));
byId("back").addEventListener("click", () => go(view.selected - 1));
byId("next").addEventListener("click", () => go(view.selected + 1));
byId("final").addEventListener("click", () => go(model.steps.length - 1));
byId("play").addEventListener("click", () => setPlaying(playing === null));
byId("speed").addEventListener("change", () => { if (playing !== null) setPlaying(true); });
for (const [id, factor] of [["zoom_in", 1.4], ["zoom_out", 1 / 1.4]]) {
  byId(id).addEventListener("click", () => {
    view.cell = Math.min(48, Math.max(3, view.cell * factor));
    dirty = true;
  });
}
byId("lanes").addEventListener("pointerdown", (event) => {
  const index = stepAt(byId("lanes"), view, model.steps.length, event.offsetX);
  if (index !== null) go(index);
  const request = layout?.shown[Math.floor((event.offsetY - 4) / LANE)];
  if (request !== undefined) look(request.id);
});
byId("lanes").addEventListener("wheel", (event) => {
  if (!event.ctrlKey && moveLanes(Math.sign(event.deltaY) * 3)) event.preventDefault();
}, { passive: false });
byId("lanes").addEventListener("keydown", (event) => {
  const by = { ArrowUp: -3, ArrowDown: 3 }[event.key];
  if (by !== undefined && moveLanes(by)) event.preventDefault();
});
for (const kind of ["pointerdown", "pointermove"]) {
  byId("overview").addEventListener(kind, (event) => {
    if (event.buttons === 1) go(overviewStep(byId("overview"), model.steps.length, event.offsetX));
  });
}
byId("blocks").addEventListener("pointermove", (event) => {
  if (holdings === null) return;
  const shown = shownBlocks(holdings);
  const { size, columns } = blockGrid(byId("blocks"), shown.length);
  const [column, row] = [event.offsetX, event.offsetY].map((place) => Math.floor((place - 8) / size));
  const block = shown[row * columns + column];
  const isBlock = column >= 0 && column < columns && row >= 0 && block !== undefined;
  byId("block_note").textContent = isBlock ? describeBlock(block) : blockSummary();
});
byId("request").addEventListener("change", (event) => look(event.target.value));
byId("file").addEventListener("change", (event) => openFile(event.target.files[0]));
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
document.addEventListener("dragleave", () => document.body.classList.remove("dropping"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  openFile(event.dataTransfer.files[0]);
});
window.addEventListener("hashchange", () => {
  if (location.hash !== linking.written) go(linkedStep() ?? view.selected);
});
window.addEventListener("resize", () => { dirty = true; });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { dirty = true; });

const { text, name } = JSON.parse(byId("data").textContent);
for (const picture of document.querySelectorAll(".picture")) picture.hidden = true;
if (text !== "") open(text, name);
requestAnimationFrame(render);
