// The engine's state, rebuilt from its trace: requests, steps and blocks. Pure data; the drawing is elsewhere.

const KEPT_STEPS = 3000; // older ones are forgotten

export class TraceModel {
  constructor(keptSteps = KEPT_STEPS) {
    this.keptSteps = keptSteps;
    this.start = null; // the trace_start event
    this.steps = []; // {step, t, done, tokens, running, waiting, ids}, oldest first; done: when the result came, or null
    this.requests = new Map(); // id → what request() makes
    this.owners = new Map(); // block → set of request ids
    this.unknown = new Map(); // kind of event that is not known → how many: later stages have more kinds
    this.numLost = 0;
    this.numSeen = 0; // requests
    this.numEnded = 0; // requests since the newest step
  }

  /** Take in one event; kinds that are not known are only counted. */
  apply(event) {
    if (Object.hasOwn(TraceModel.handlers, event.kind)) TraceModel.handlers[event.kind].call(this, event);
    else this.unknown.set(event.kind, (this.unknown.get(event.kind) ?? 0) + 1);
  }

  static handlers = {
    trace_start(event) {
      this.start = event;
    },
    request_added(event) {
      const known = this.requests.get(event.req_id);
      if (known?.finished) this.requests.delete(event.req_id); // an id used again is another request
      const request = this.request(event.req_id);
      request.promptTokens = event.num_prompt_tokens;
      request.added = event.t;
      request.addedAt = this.steps.length;
    },
    step_scheduled(event) {
      this.steps.push({
        step: event.step, t: event.t, done: null, tokens: event.tokens, running: event.num_running,
        waiting: event.num_waiting, ids: {},
      });
      this.numEnded = 0;
      for (const [id, [start, n]] of Object.entries(event.tokens)) {
        const request = this.request(id);
        if (request.lane === null) request.lane = this.freeLane();
        request.computed = start + n;
        request.lastStep = event.step;
      }
      if (this.steps.length > this.keptSteps + 500) this.forget();
    },
    tokens_sampled(event) {
      const step = this.steps.findLast((entry) => entry.step === event.step);
      if (step !== undefined) Object.assign(step, { ids: event.ids, done: event.t });
    },
    blocks_taken(event) {
      this.own(event.req_id, event.block_ids);
    },
    blocks_shared(event) {
      this.own(event.req_id, event.block_ids);
    },
    blocks_freed(event) {
      for (const block of event.block_ids) {
        const owners = this.owners.get(block);
        owners?.delete(event.req_id);
        if (owners?.size === 0) this.owners.delete(block);
      }
      const request = this.requests.get(event.req_id);
      if (request !== undefined) request.blocks = request.blocks.filter((block) => !event.block_ids.includes(block));
    },
    request_preempted(event) {
      const request = this.request(event.req_id);
      request.computed = 0;
      request.preempted.push(event.t);
    },
    request_finished(event) {
      const request = this.request(event.req_id);
      if (!request.finished && request.lane !== null) this.numEnded += 1;
      Object.assign(request, { finished: true, reason: event.reason, ended: event.t, endedAt: this.steps.length - 1 });
    },
    events_lost(event) {
      this.numLost += event.num_events;
    },
  };

  request(id) {
    let request = this.requests.get(id);
    if (request === undefined) {
      request = {
        id, lane: null, colour: this.numSeen++ % 8, promptTokens: null, computed: 0, finished: false, reason: null,
        lastStep: -1, blocks: [], preempted: [],
        added: null, ended: null, // seconds
        addedAt: this.steps.length, endedAt: null, // indices of the steps between which it lives
      };
      this.requests.set(id, request);
    }
    return request;
  }

  own(id, blocks) {
    this.request(id).blocks.push(...blocks);
    for (const block of blocks) {
      if (!this.owners.has(block)) this.owners.set(block, new Set());
      this.owners.get(block).add(id);
    }
  }

  /** The lowest lane that no unfinished request has: a picture of few requests stays low. */
  freeLane() {
    const taken = new Set();
    for (const request of this.requests.values()) if (!request.finished && request.lane !== null) taken.add(request.lane);
    let lane = 0;
    while (taken.has(lane)) lane += 1;
    return lane;
  }

  forget() {
    this.steps.splice(0, this.steps.length - this.keptSteps);
    const oldest = this.steps[0].step;
    for (const [id, request] of this.requests) if (request.finished && request.lastStep < oldest) this.requests.delete(id);
  }

  /** How full a request's k-th block is, 0 to 1. */
  fill(request, k) {
    const size = this.start?.block_size ?? 1;
    return Math.min(1, Math.max(0, (request.computed - k * size) / size));
  }
}

/** `1 token`, `2,000 tokens`. */
export function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** One sentence about a step, for those who listen. */
export function describeStep(entry) {
  const counts = Object.values(entry.tokens).map(([, n]) => n);
  const total = counts.reduce((sum, n) => sum + n, 0);
  return `step ${entry.step}: ${counted(total, "token")} of ${counted(counts.length, "request")}, ${entry.waiting} waiting`;
}

/** The token ids that a step drew for a request. Ids are a client's words: "constructor" is one like any other. */
export function drawn(entry, id) {
  return Object.hasOwn(entry.ids, id) ? entry.ids[id] : [];
}

/** A request's id, short enough for a label: its end tells more than its beginning. */
export function shortId(id) {
  return id.length <= 14 ? id : `…${id.slice(-13)}`;
}

/** Height of a cell, 0 to 1: logarithmic in its tokens, so that 1 and 1,000 fit into one picture. */
export function cellHeight(n) {
  return Math.min(1, 0.22 + 0.78 * Math.log2(Math.max(1, n)) / 10);
}
