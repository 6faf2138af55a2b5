"""Four requests, two seats, and a cache of a few blocks: what paging and continuous batching change.

Run it with ``python stages/02_paged_kv/demo.py``. It serves the same requests with stage 1 and with stage 2, then with
stage 2 again and too few blocks. A lane is a request, a cell a step: ``#`` computes several tokens, ``o`` one, ``-``
waits, ``x`` waits because it was preempted. The last line of a picture says how many blocks have an owner.
"""

from __future__ import annotations

from typing import Any

from stage1 import llm as stage1_llm
from stage1.params import SamplingParams
from stage1.trace.reader import RequestLife, Trace
from stage1.trace.sinks import MemorySink
from stage2 import LLM

COMMON: dict[str, Any] = {"max_num_seqs": 2, "max_model_len": 48}
ASKED = [  # prompt, most tokens
    ("1, 2, 3, 4, 5,", 24),
    ("The capital of France is", 6),
    ("Monday, Tuesday,", 12),
    ("The opposite of hot is", 5),
]
DIGITS = " 123456789"


def main() -> None:
    """Serve three times and show each; the texts do not depend on who served them."""
    static, texts = run(stage1_llm.LLM)
    print(picture("stage 1: two seats, each with one block of 48 tokens", static))
    for title, blocks in (("stage 2: the same memory in blocks of 16", 6), ("stage 2: with 3 blocks of 16", 3)):
        trace, same = run(LLM, block_size=16, num_gpu_blocks_override=blocks)
        verdict = (
            "the same texts" if same == texts else "OTHER TEXTS (in bfloat16 a close decision may fall differently)"
        )
        print(f"\n{picture(title, trace)} · {verdict}")
    print()
    for (prompt, _), text in zip(ASKED, texts, strict=True):
        print(f"{prompt!r} → {text!r}")


def run(engine: type[stage1_llm.LLM], **settings: Any) -> tuple[Trace, list[str]]:
    """Serve the four requests with ``engine``: the trace and the texts."""
    sink = MemorySink()
    params = [SamplingParams(temperature=0.0, max_tokens=limit) for _, limit in ASKED]
    with engine(**COMMON, **settings, sinks=[sink]) as llm:
        outputs = llm.generate([prompt for prompt, _ in ASKED], params, use_tqdm=False)
    return Trace(sink.events), [output.outputs[0].text for output in outputs]


def picture(title: str, trace: Trace) -> str:
    """A lane a request, a line of blocks in use, and what it comes to."""
    lanes = [f"request {number}  {lane(trace, life)}" for number, life in enumerate(trace.requests.values())]
    in_use = [len(trace.blocks_at(step)) for step in trace.steps]
    total, preempted = trace.start.num_blocks, sum(len(life.preempted) for life in trace.requests.values())
    blocks = "blocks     " + "".join(DIGITS[count] for count in in_use)
    summary = f"{len(trace.steps)} steps · at most {max(in_use)} of {total} blocks in use · preempted: {preempted}"
    return "\n".join([title, *lanes, blocks, summary])


def lane(trace: Trace, life: RequestLife) -> str:
    """One cell a step, up to the request's last one."""
    cells = ""
    for step in trace.steps.values():
        if step.step > life.steps[-1]:
            break
        _, n = step.tokens.get(life.req_id, (0, 0))
        waits = "x" if life.preempted and step.step > life.steps[0] else "-"
        cells += waits if n == 0 else "o" if n == 1 else "#"
    return cells


if __name__ == "__main__":
    main()
