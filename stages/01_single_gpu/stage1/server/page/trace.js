// The engine's state, rebuilt from its trace: requests, steps and blocks. Pure data; the drawing is elsewhere.

const KEPT_STEPS = 3000; // older ones are forgotten

export class TraceModel {
  constructor() {
    this.start = null; // the trace_start event
    this.steps = []; // {step, t, tokens, running, waiting, ids}, oldest first
    this.requests = new Map(); // id → {id, lane, colour, promptTokens, computed, finished, reason, lastStep, blocks}
    this.owners = new Map(); // block → set of request ids
    this.numLost = 0;
    this.numSeen = 0;
  }

  /** Take in one event; kinds that are not known are skipped, because later stages have more of them. */
  apply(event) {
    TraceModel.handlers[event.kind]?.call(this, event);
  }

  static handlers = {
    trace_start(event) {
      this.start = event;
    },
    request_added(event) {
      this.request(event.req_id).promptTokens = event.num_prompt_tokens;
    },
    step_scheduled(event) {
      this.steps.push({
        step: event.step, t: event.t, tokens: event.tokens, running: event.num_running, waiting: event.num_waiting, ids: {},
      });
      for (const [id, [start, n]] of Object.entries(event.tokens)) {
        const request = this.request(id);
        if (request.lane === null) request.lane = this.freeLane();
        request.computed = start + n;
        request.lastStep = event.step;
      }
      if (this.steps.length > KEPT_STEPS + 500) this.forget();
    },
    tokens_sampled(event) {
      const step = this.steps.findLast((entry) => entry.step === event.step);
      if (step !== undefined) step.ids = event.ids;
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
      this.request(event.req_id).computed = 0;
    },
    request_finished(event) {
      const request = this.request(event.req_id);
      request.finished = true;
      request.reason = event.reason;
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
        lastStep: -1, blocks: [],
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
    this.steps.splice(0, this.steps.length - KEPT_STEPS);
    const oldest = this.steps[0].step;
    for (const [id, request] of this.requests) if (request.finished && request.lastStep < oldest) this.requests.delete(id);
  }

  /** How full a request's k-th block is, 0 to 1. */
  fill(request, k) {
    const size = this.start?.block_size ?? 1;
    return Math.min(1, Math.max(0, (request.computed - k * size) / size));
  }
}

/** One sentence about a step, for those who listen. */
export function describeStep(entry) {
  const counts = Object.values(entry.tokens).map(([, n]) => n);
  const total = counts.reduce((sum, n) => sum + n, 0);
  return `step ${entry.step}: ${total} token${total === 1 ? "" : "s"} of ${counts.length} request${counts.length === 1 ? "" : "s"}, ` +
    `${entry.waiting} waiting`;
}

/** A request's id, short enough for a label: its end tells more than its beginning. */
export function shortId(id) {
  return id.length <= 14 ? id : `…${id.slice(-13)}`;
}

/** Height of a cell, 0 to 1: logarithmic in its tokens, so that 1 and 1,000 fit into one picture. */
export function cellHeight(n) {
  return Math.min(1, 0.22 + 0.78 * Math.log2(Math.max(1, n)) / 10);
}
