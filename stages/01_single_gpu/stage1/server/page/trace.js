// The engine's state, rebuilt from its trace: requests, steps and blocks. Pure data; the drawing is elsewhere.

const KEPT_STEPS = 3000; // older ones are forgotten

export class TraceModel {
  constructor(keptSteps = KEPT_STEPS) {
    this.keptSteps = keptSteps;
    this.start = null; // the trace_start event
    // {step, t, done, tokens, drafts, running, waiting, ids, stayed}, oldest first; done: when the result came, or null;
    // drafts: how many of its tokens are speculated; stayed: id → how many of a request's drafts became output
    this.steps = [];
    this.requests = new Map(); // id → what request() makes
    this.owners = new Map(); // block → set of request ids
    this.unknown = new Map(); // kind of event that is not known → how many: later stages have more kinds
    this.numLost = 0;
    // Verifications of a request's drafts, each step anew; of the drafts those that stayed, in all and at each place; and
    // the tokens that came of it.
    this.speculation = { verifications: 0, drafts: 0, stayed: 0, places: [], tokens: 0 };
    this.prefix = { looked: 0, found: 0 }; // tokens of prompts, in the prefix cache
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
        step: event.step, t: event.t, done: null, tokens: event.tokens, drafts: event.drafts ?? {},
        running: event.num_running, waiting: event.num_waiting, ids: {}, stayed: new Map(),
      });
      this.numEnded = 0;
      for (const [id, [start, n]] of Object.entries(event.tokens)) {
        const request = this.request(id);
        if (request.lane === null) this.admit(request);
        request.computed = start + n;
        request.lastStep = event.step;
      }
      if (this.steps.length > this.keptSteps + 500) this.forget();
    },
    tokens_sampled(event) {
      const step = this.steps.findLast((entry) => entry.step === event.step);
      if (step === undefined) return;
      Object.assign(step, { ids: event.ids, done: event.t });
      for (const [id, ids] of Object.entries(event.ids)) this.draw(this.request(id), step, ids.length);
    },
    blocks_taken(event) {
      this.own(event.req_id, event.block_ids);
    },
    blocks_shared(event) {
      this.own(event.req_id, event.block_ids);
      const request = this.request(event.req_id);
      if (request.lane === null) request.cached = event.num_tokens; // later it finds again what it computed itself
    },
    blocks_freed(event) {
      for (const block of event.block_ids) {
        const owners = this.owners.get(block);
        owners?.delete(event.req_id);
        if (owners?.size === 0) this.owners.delete(block);
      }
      const request = this.requests.get(event.req_id);
      if (request === undefined) return;
      request.blocks = request.blocks.filter((block) => !event.block_ids.includes(block));
      if (request.lane === null) request.cached = 0; // there was no room for it: it will look again
    },
    request_preempted(event) {
      const request = this.request(event.req_id);
      request.computed = 0;
      request.preempted.push(event.t);
    },
    request_finished(event) {
      const request = this.request(event.req_id);
      if (!request.finished && request.lane !== null) this.numEnded += 1;
      if (!request.finished) this.drop(request, request.output - event.num_output_tokens);
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
        cached: 0, // tokens of its prompt that were found in the prefix cache
        drafts: 0, stayed: 0, output: 0, verified: null, // its drafts and tokens; the step that verified drafts of it last
        added: null, ended: null, // seconds
        addedAt: this.steps.length, endedAt: null, // indices of the steps between which it lives
      };
      this.requests.set(id, request);
    }
    return request;
  }

  /**
   * The first step with a request: its prompt has been looked up by now. A request that asks for the log-probabilities
   * of its prompt finds nothing; the trace does not tell, so it counts as looked up all the same.
   */
  admit(request) {
    request.lane = this.freeLane();
    if (request.promptTokens === null) return; // its beginning is not known
    this.prefix.looked += request.promptTokens;
    this.prefix.found += request.cached;
  }

  /** A step drew `count` tokens for a request: of drafts those that stayed, and one more. */
  draw(request, step, count) {
    request.output += count;
    request.verified = null;
    const drafts = entryOf(step.drafts, request.id) ?? 0;
    if (drafts === 0) return;
    request.verified = step;
    request.drafts += drafts;
    if (request.lastStep === step.step) request.computed -= drafts + 1 - count; // what was rejected is computed anew
    const { speculation } = this;
    speculation.verifications += 1;
    speculation.drafts += drafts;
    speculation.tokens += count;
    while (speculation.places.length < drafts) speculation.places.push(0);
    this.stay(request, step, count - 1);
  }

  /** `count` of a request's drafts in a step became output. */
  stay(request, step, count) {
    const before = step.stayed.get(request.id) ?? 0;
    step.stayed.set(request.id, count);
    request.stayed += count - before;
    this.speculation.stayed += count - before;
    for (let place = before; place < count; place += 1) this.speculation.places[place] += 1;
    for (let place = count; place < before; place += 1) this.speculation.places[place] -= 1;
  }

  /** A request ended with `count` tokens fewer than were drawn for it: accepted drafts behind the end are no gain. */
  drop(request, count) {
    const step = request.verified;
    if (step === null || count <= 0) return;
    this.speculation.tokens -= count;
    this.stay(request, step, Math.min(step.stayed.get(request.id), Math.max(0, drawn(step, request.id).length - count)));
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
  const drafts = describeDrafts(entry);
  return `step ${entry.step}: ${counted(total, "token")} of ${counted(counts.length, "request")}, ${entry.waiting} waiting` +
    (drafts === "" ? "" : `, ${drafts}`);
}

/** A step's drafts in words, or those of request `id` alone; nothing where there are none. */
export function describeDrafts(entry, id = null) {
  const ids = id === null ? Object.keys(entry.drafts) : [id];
  const sum = (of) => ids.reduce((total, key) => total + (of(key) ?? 0), 0);
  const drafts = sum((key) => entryOf(entry.drafts, key));
  if (drafts === 0) return "";
  const stayed = entry.done === null ? "" : `, ${sum((key) => entry.stayed.get(key)).toLocaleString("en")} stayed`;
  return `${counted(drafts, "draft")}${stayed}`;
}

/** What a dictionary of a trace has of a request. Ids are a client's words: "constructor" is one like any other. */
export function entryOf(dictionary, id) {
  return Object.hasOwn(dictionary, id) ? dictionary[id] : undefined;
}

/** The token ids that a step drew for a request. */
export function drawn(entry, id) {
  return entryOf(entry.ids, id) ?? [];
}

/** A request's id, short enough for a label: its end tells more than its beginning. */
export function shortId(id) {
  return id.length <= 14 ? id : `…${id.slice(-13)}`;
}

/** Height of a cell, 0 to 1: logarithmic in its tokens, so that 1 and 1,000 fit into one picture. */
export function cellHeight(n) {
  return Math.min(1, 0.22 + 0.78 * Math.log2(Math.max(1, n)) / 10);
}
