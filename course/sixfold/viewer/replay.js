// Who held which block while a step computed: replayed from the nearest checkpoint. Knows events, draws nothing.

const EVERY = 256; // steps between checkpoints

/** What is held at one moment; it has the face of a TraceModel that the block map needs. */
class Holdings {
  constructor(start) {
    this.start = start;
    this.owners = new Map(); // block → set of request ids
    this.requests = new Map(); // id → {colour, blocks, computed}
    this.changed = new Set(); // blocks that changed hands since the step before
    this.finished = 0; // requests that have ended
    this.drawn = 0; // tokens so far
    this.preemptions = 0;
  }

  copy() {
    const made = new Holdings(this.start);
    for (const [block, owners] of this.owners) made.owners.set(block, new Set(owners));
    for (const [id, request] of this.requests) made.requests.set(id, { ...request, blocks: [...request.blocks] });
    return Object.assign(made, {
      changed: new Set(this.changed), finished: this.finished, drawn: this.drawn, preemptions: this.preemptions,
    });
  }

  apply(event, colourOf) {
    switch (event.kind) {
      case "blocks_taken":
      case "blocks_shared":
        this.take(event, colourOf);
        break;
      case "blocks_freed":
        for (const block of event.block_ids) this.free(block, event.req_id);
        this.requests.delete(event.req_id);
        break;
      case "step_scheduled":
        for (const [id, [start, n]] of Object.entries(event.tokens)) {
          if (this.requests.has(id)) this.requests.get(id).computed = start + n;
        }
        break;
      case "tokens_sampled":
        for (const ids of Object.values(event.ids)) this.drawn += ids.length;
        break;
      case "request_finished":
        this.finished += 1;
        break;
      case "request_preempted":
        this.preemptions += 1;
        break;
    }
  }

  take({ req_id: id, block_ids: blocks }, colourOf) {
    if (!this.requests.has(id)) this.requests.set(id, { colour: colourOf(id), blocks: [], computed: 0 });
    this.requests.get(id).blocks.push(...blocks);
    for (const block of blocks) {
      if (!this.owners.has(block)) this.owners.set(block, new Set());
      this.owners.get(block).add(id);
      this.changed.add(block);
    }
  }

  free(block, id) {
    const owners = this.owners.get(block);
    owners?.delete(id);
    if (owners?.size === 0) this.owners.delete(block);
    this.changed.add(block);
  }

  /** How full a request's k-th block is, 0 to 1. */
  fill(request, k) {
    const size = this.start?.block_size || 1;
    return Math.min(1, Math.max(0, (request.computed - k * size) / size));
  }
}

/** Answers `at(index)` for any step of a trace, in any order. */
export class Replay {
  constructor(events, colourOf) {
    this.events = events;
    this.colourOf = colourOf;
    this.planned = []; // index of a step → index of its event
    events.forEach((event, i) => {
      if (event.kind === "step_scheduled") this.planned.push(i);
    });
    this.start = events.find((event) => event.kind === "trace_start") ?? null;
    this.checkpoints = [];
  }

  /** The holdings while the step at `index` computes; before the first step, those after all events without steps. */
  at(index) {
    const nearest = Math.min(Math.floor(index / EVERY), this.checkpoints.length - 1);
    let state = nearest < 0 ? new Holdings(this.start) : this.checkpoints[nearest].copy();
    let step = nearest < 0 ? -1 : nearest * EVERY;
    while (step < index && step + 1 < this.planned.length) {
      const from = step < 0 ? 0 : this.planned[step] + 1;
      state.changed.clear();
      step += 1;
      for (let i = from; i <= this.planned[step]; i += 1) state.apply(this.events[i], this.colourOf);
      if (step === this.checkpoints.length * EVERY) this.checkpoints.push(state.copy());
    }
    return state;
  }
}
