"""One beginning, four questions, and a second turn: what a prefix cache changes.

Run it with ``python stages/03_prefix_spec/demo.py``. It serves the same requests one after the other, with stage 2 and
with stage 3. A line is a request, a character two tokens of its prompt: ``=`` was found in the cache, ``#`` was
computed. Behind it stands how many steps of at most 32 tokens passed before the first new token.
"""

from __future__ import annotations

from typing import Any

from stage1 import llm as stage1_llm
from stage1.params import SamplingParams
from stage1.trace.events import BlocksShared
from stage1.trace.reader import RequestLife, Trace
from stage1.trace.sinks import MemorySink
from stage2 import llm as stage2_llm
from stage3 import llm as stage3_llm

COMMON: dict[str, Any] = {
    "max_num_seqs": 4, "max_num_batched_tokens": 32, "max_model_len": 512, "block_size": 16,
    "num_gpu_blocks_override": 64,
}  # fmt: skip
RULES = (
    "You are a friendly assistant in a small library. You answer every question in one short sentence. You never make "
    "anything up: where you do not know the answer, you say so, and you name a book or a person that might know more. "
)
QUESTIONS = ["The capital of France is", "The opposite of hot is", "The colour of the sky is", "Two and two is"]
NEXT_TURN = " And why is that?"
TOKENS_A_CHARACTER = 2


def main() -> None:
    """Serve twice and show both; the texts do not depend on who served them."""
    paged, texts = run(stage2_llm.LLM)
    print(picture("stage 2: every prompt is computed", paged))
    cached, same = run(stage3_llm.LLM)
    verdict = "the same texts" if same == texts else "OTHER TEXTS (in bfloat16 a close decision may fall differently)"
    print(f"\n{picture('stage 3: what was computed is found again', cached)} · {verdict}\n")
    for question, text in zip([*QUESTIONS, QUESTIONS[0] + " …" + NEXT_TURN], texts, strict=True):
        print(f"{question!r} → {text!r}")


def run(engine: type[stage1_llm.LLM]) -> tuple[Trace, list[str]]:
    """Serve the questions and a second turn of the first one with ``engine``: the trace and the texts."""
    sink, texts = MemorySink(), []
    params = SamplingParams(temperature=0.0, max_tokens=8)
    with engine(**COMMON, sinks=[sink]) as llm:
        for question in QUESTIONS:
            texts.append(ask(llm, RULES + question, params))
        texts.append(ask(llm, RULES + QUESTIONS[0] + texts[0] + NEXT_TURN, params))
    return Trace(sink.events), texts


def ask(llm: stage1_llm.LLM, prompt: str, params: SamplingParams) -> str:
    """The answer to one prompt."""
    return str(llm.generate(prompt, params, use_tqdm=False)[0].outputs[0].text)


def picture(title: str, trace: Trace) -> str:
    """A line a request, and what it comes to."""
    found = {event.req_id: event.num_tokens for event in trace.events if isinstance(event, BlocksShared)}
    lines = [f"request {i}  {line(life, found.get(life.req_id, 0))}" for i, life in enumerate(trace.requests.values())]
    computed = sum(step.num_tokens for step in trace.steps.values())
    return "\n".join([title, *lines, f"{len(trace.steps)} steps · {computed:,} tokens computed"])


def line(life: RequestLife, found: int) -> str:
    """The prompt, a character every few tokens, and the steps that its first token took."""
    computed = life.num_prompt_tokens - found
    bar = "=" * round(found / TOKENS_A_CHARACTER) + "#" * -(-computed // TOKENS_A_CHARACTER)
    steps = len(life.steps) - len(life.token_ids) + 1
    return f"{bar}  {found} found, {computed} computed, {steps} {'step' if steps == 1 else 'steps'}"


if __name__ == "__main__":
    main()
