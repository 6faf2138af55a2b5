// From the text of a trace to its events. Knows what a file may have wrong, and keeps what is wrong out of the pictures.

const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
const isTime = (value) => Number.isFinite(value);
const isText = (value) => typeof value === "string";
const isCounts = (value) => Array.isArray(value) && value.every(isCount);
const isMap = (check) => (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && Object.values(value).every(check);
const isSpan = (value) => isCounts(value) && value.length === 2;

const FIELDS = {
  trace_start: { stage: isCount, model: isText, block_size: isCount, num_blocks: isCount },
  request_added: { req_id: isText, num_prompt_tokens: isCount },
  step_scheduled: { step: isCount, tokens: isMap(isSpan), num_running: isCount, num_waiting: isCount },
  tokens_sampled: { step: isCount, ids: isMap(isCounts) },
  blocks_taken: { req_id: isText, block_ids: isCounts },
  blocks_shared: { req_id: isText, block_ids: isCounts },
  blocks_freed: { req_id: isText, block_ids: isCounts },
  request_preempted: { req_id: isText },
  request_finished: { req_id: isText, reason: isText },
  events_lost: { num_events: isCount },
};
const MOST_BLOCKS = 1_000_000;
const MOST_PROBLEMS = 20;

/** `{events, problems}`: what can be shown, and sentences about what cannot. */
export function readEvents(text) {
  const problems = [];
  let numProblems = 0;
  const complain = (problem) => {
    numProblems += 1;
    if (numProblems <= MOST_PROBLEMS) problems.push(problem);
  };
  const lines = text.split("\n");
  if (lines.pop() !== "") complain("The last line is cut off, as after a crash: it is left out.");
  const events = [];
  lines.forEach((line, i) => {
    let event = null;
    try {
      event = JSON.parse(line);
    } catch {
      complain(`Line ${i + 1} is not JSON.`);
      return;
    }
    const problem = problemOf(event);
    if (problem === null) events.push(event);
    else complain(`Line ${i + 1}: ${problem}`);
  });
  if (events.length > 0 && events[0].kind !== "trace_start") {
    complain("The file does not begin with trace_start: its model and its number of blocks are not known.");
  }
  if (numProblems > MOST_PROBLEMS) problems.push(`… and ${numProblems - MOST_PROBLEMS} more problems.`);
  return { events, problems };
}

function problemOf(event) {
  if (typeof event !== "object" || event === null || !isText(event.kind)) return "an event is an object with a kind.";
  if (!isTime(event.t)) return "t is not a time.";
  if (!Object.hasOwn(FIELDS, event.kind)) return null;
  for (const [name, check] of Object.entries(FIELDS[event.kind])) {
    if (!Object.hasOwn(event, name) || !check(event[name])) return `${event.kind} without a proper ${name}.`;
  }
  if (event.num_blocks > MOST_BLOCKS) return `${event.num_blocks} blocks; at most ${MOST_BLOCKS} can be shown.`;
  return null;
}
