"""Four requests, two seats: what a complete engine does with them, and what static batching wastes.

Run it with ``python stages/01_single_gpu/demo.py``. It prints each text, then a lane for each request: a cell a step,
``#`` for the step that computes the prompt, ``o`` for one token, ``-`` for a wait.
"""

from __future__ import annotations

from stage1 import LLM, SamplingParams
from stage1.trace.reader import RequestLife, Trace
from stage1.trace.sinks import MemorySink

SEATS = 2
ASKED = [  # prompt, most tokens
    ("1, 2, 3, 4, 5,", 24),
    ("The capital of France is", 6),
    ("Monday, Tuesday,", 12),
    ("The opposite of hot is", 5),
]


def main() -> None:
    """Generate, then show the steps."""
    sink = MemorySink()
    params = [SamplingParams(temperature=0.0, max_tokens=limit) for _, limit in ASKED]
    with LLM(max_num_seqs=SEATS, max_model_len=256, sinks=[sink]) as llm:
        outputs = llm.generate([prompt for prompt, _ in ASKED], params)

    for output in outputs:
        print(f"{output.prompt!r} → {output.outputs[0].text!r}")
    print()
    print(picture(Trace(sink.events)))


def picture(trace: Trace) -> str:
    """A lane a request, and the share of seats that computed something."""
    lanes = [f"request {number}  {lane(trace, life)}" for number, life in enumerate(trace.requests.values())]
    busy = sum(len(step.tokens) for step in trace.steps.values())
    seats = SEATS * len(trace.steps)
    share = f"{busy} of {seats} seats computed something ({busy / seats:.0%}); the rest stood empty until a batch ended"
    return "\n".join([*lanes, "", share])


def lane(trace: Trace, life: RequestLife) -> str:
    """One cell a step, up to the request's last one."""
    cells = ""
    for step in trace.steps.values():
        if step.step > life.steps[-1]:
            break
        _, n = step.tokens.get(life.req_id, (0, 0))
        cells += "-" if n == 0 else "o" if n == 1 else "#"
    return cells


if __name__ == "__main__":
    main()
