"""What stage 3 changes: a beginning that is found again, and answers of which a step gives several tokens.

Run it with ``python stages/03_prefix_spec/demo.py``. First it serves four questions with one beginning, and a second
turn, with stage 2 and with stage 3. A line is a request, a character two tokens of its prompt: ``=`` was found in the
cache, ``#`` was computed. Behind it stands how many steps of at most 32 tokens passed before the first new token.

Then it answers two messages without drafts and with three kinds of them. A group of characters is a step: ``+`` is a
draft that stayed, ``o`` the model's own token behind it, ``.`` a draft that was computed in vain.
"""

from __future__ import annotations

from typing import Any

from stage1 import llm as stage1_llm
from stage1.params import SamplingParams
from stage1.trace.events import BlocksShared, StepScheduled
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

MESSAGES = [
    "Write a Python function that adds two numbers.",
    "Repeat this sentence three times: The red fox and the red hen sat on the red roof.",
]
NUM_TOKENS = 32
DRAFTERS: dict[str, dict[str, Any] | None] = {
    "no drafts": None,
    "n-gram": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2},
    "Medusa": {"method": "medusa", "num_speculative_tokens": 2},
    "EAGLE": {"method": "eagle", "num_speculative_tokens": 3},
}


def main() -> None:
    """Serve twice and show both; the texts do not depend on who served them."""
    paged, texts = run(stage2_llm.LLM)
    print(picture("stage 2: every prompt is computed", paged))
    cached, same = run(stage3_llm.LLM)
    verdict = "the same texts" if same == texts else "OTHER TEXTS (in bfloat16 a close decision may fall differently)"
    print(f"\n{picture('stage 3: what was computed is found again', cached)} · {verdict}\n")
    for question, text in zip([*QUESTIONS, QUESTIONS[0] + " …" + NEXT_TURN], texts, strict=True):
        print(f"{question!r} → {text!r}")
    answers = {name: answer(config) for name, config in DRAFTERS.items()}
    for number, message in enumerate(MESSAGES):
        first = answers["no drafts"][number][1]
        print(f"\n{message!r} → {first!r}")
        for name, found in answers.items():
            steps, text = found[number]
            print(f"{name:9}  {steps}" + ("" if text == first else " · ANOTHER TEXT"))


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


def answer(config: dict[str, Any] | None) -> list[tuple[str, str]]:
    """The steps of each answer, in a line, and its text; speculated by ``config``."""
    found, params = [], SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    sink = MemorySink()
    with stage3_llm.LLM(max_num_seqs=4, max_model_len=512, speculative_config=config, sinks=[sink]) as llm:
        for message in MESSAGES:
            output = llm.chat([{"role": "user", "content": message}], params, use_tqdm=False)[0]
            found.append(output.outputs[0].text)
    trace = Trace(sink.events)
    return [(drafted(trace, req_id), text) for req_id, text in zip(trace.requests, found, strict=True)]


def drafted(trace: Trace, req_id: str) -> str:
    """A group of characters for each step that gave the request tokens, and how many groups there are."""
    groups = []
    for event in trace.events:
        if isinstance(event, StepScheduled) and (ids := trace.steps[event.step].sampled.get(req_id)):
            vain = max(event.drafts.get(req_id, 0) + 1 - len(ids), 0)
            groups.append("+" * (len(ids) - 1) + "o" + "." * vain)
    return f"{' '.join(groups)}  {len(groups)} steps"


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
