"""The target writes its own training texts, with the engine of this stage.

Owns the rounds of generation and where each prompt comes from. Does not know heads or losses.

    round 1    prompts from lists, with composed passages
               prompts that the model makes up itself: what it writes behind the opening of a user's turn
    round 2 …  the same, and now most passages and code to copy and sum up are the last answers

Heads learn what the target writes, so its own answers are the right texts whatever their worth as answers. The prompts
that a chat model makes up are what Magpie (arXiv:2406.08464) is made of.

vLLM: none (it does not train).
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from stage1.llm import Prompt
from stage1.outputs import RequestOutput
from stage1.params import RequestOutputKind, SamplingParams
from stage3.llm import LLM
from stage3.training import passages
from stage3.training.corpus import Corpus
from stage3.training.held_out import held_out_prompts, is_held_out
from stage3.training.prompts import make_prompts

MARK = "MESSAGE"  # stands for the message where the template's opening is looked for
MAGPIE_TOKENS = 128  # most tokens of a prompt that the model makes up
MAGPIE_SHARE_OF_TIME = 0.25  # at most, of what is left
ANSWER_SHARE = 0.7  # of the passages and of the code are earlier answers, once there are any
PASSAGE_CHARS = (300, 1000)  # of a passage, at least and at most
CODE_CHARS = (150, 1000)
CODE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)  # in an answer
SMALLEST_ROUND = 1 / 8  # of the usual size: below that, making the prompts takes as long as the answers
Report = Callable[[str], None]


@dataclass(frozen=True)
class GenerateSettings:
    """How much is written, and how."""

    tokens: int  # of output; at least this many, unless the time is up
    seconds: float  # time limit
    max_tokens: int = 320  # of one answer
    temperature: float = 0.7  # of the answers that are not greedy
    greedy_share: float = 0.7  # 0..1
    magpie_share: float = 0.25  # 0..1, of the prompts are the model's own
    round_size: int = 2048  # prompts given to the engine at once
    held_out_per_kind: int | None = None  # None = all
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("tokens", "seconds", "max_tokens", "round_size"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: choose above 0")
        if self.held_out_per_kind is not None and self.held_out_per_kind < 1:
            raise ValueError(
                f"held_out_per_kind is {self.held_out_per_kind}: choose 1 or more, or leave it out for all"
            )
        for name in ("greedy_share", "magpie_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}: choose 0 to 1")
        if self.temperature <= 0:
            raise ValueError(f"temperature is {self.temperature}: choose above 0, greedy answers have their own share")


class Writer:
    """Drives ``llm``; all its requests are made here."""

    def __init__(self, llm: LLM, settings: GenerateSettings, max_len: int, report: Report) -> None:
        self._llm, self._settings, self._report = llm, settings, report
        self._longest = max_len - min(settings.max_tokens, max_len // 2)  # of a prompt, so that an answer has room
        self._tokenizer: Any = llm.get_tokenizer()
        self._rng = random.Random(settings.seed)
        self._passages: list[str] = []  # of the last rounds' answers, to be copied and summed up
        self._codes: list[str] = []  # in them
        self._has_template = getattr(self._tokenizer, "chat_template", None) is not None

    def corpus(self) -> Corpus:
        """Prompts and answers until there are enough tokens or the time is up; what is unfinished then is dropped.

        After the first round, a round is made as large as the time left allows at the last round's speed, so that its
        texts finish; where that would be a very small one, the writer stops early.
        """
        settings, start = self._settings, time.perf_counter()
        deadline = start + settings.seconds
        pairs: list[tuple[Sequence[int], Sequence[int]]] = []
        total, rounds = 0, 0
        speed = float("inf")  # prompts a second, of the last round
        while total < settings.tokens and (begin := time.perf_counter()) < deadline:
            count = self._round_size(settings.tokens - total, speed * (deadline - begin))
            if count == 0:
                self._report(f"generate: {deadline - begin:.0f} s are left, too few for another round")
                break
            rounds += 1
            prompts = self._round_prompts(count, deadline)
            params = [self._params(settings.temperature, settings.max_tokens) for _ in prompts]
            greedy = self._params(0.0, settings.max_tokens)
            params = [greedy if self._rng.random() < settings.greedy_share else own for own in params]
            before = len(pairs)
            for output in self._finished(prompts, params, deadline, settings.tokens - total):
                answer = output.outputs[0].token_ids
                pairs.append((output.prompt_token_ids, answer))
                total += len(answer)
            self._keep_texts([answer for _, answer in pairs[-settings.round_size :]])
            now = time.perf_counter()
            speed = count * (len(pairs) - before) / max(1, len(prompts)) / (now - begin)
            self._report(f"generate: round {rounds}, {len(pairs):,} texts, {total:,} tokens, {now - start:.0f} s")
        return Corpus.of(pairs)

    def held_out(self) -> dict[str, Corpus]:
        """Greedy answers to the held-out prompts that fit, by kind; whole, whatever the time."""
        number, greedy = self._settings.held_out_per_kind, self._params(0.0, self._settings.max_tokens)
        kinds = {kind: self._fitting(texts[:number]) for kind, texts in held_out_prompts().items()}
        prompts = [prompt for several in kinds.values() for prompt in several]
        outputs = iter(self._llm.generate(prompts, greedy, use_tqdm=False) if prompts else [])
        return {
            kind: Corpus.of((out.prompt_token_ids, out.outputs[0].token_ids) for out in islice(outputs, len(several)))
            for kind, several in kinds.items()
        }

    # --- below: one round ------------------------------------------------------------------------------

    def _round_size(self, tokens_left: int, in_time: float) -> int:
        """How many prompts a round has of which ``in_time`` can be answered; 0 = too few for a round."""
        settings = self._settings
        # Answers have a fifth of their limit or more on average; after a round that was too small comes another.
        wanted = min(settings.round_size, max(1, 5 * tokens_left // settings.max_tokens))
        return 0 if in_time < min(wanted, SMALLEST_ROUND * settings.round_size) else int(min(wanted, max(1.0, in_time)))

    def _round_prompts(self, count: int, deadline: float) -> list[Prompt]:
        """About ``count`` prompts, as tokens: from lists, and the model's own."""
        own_count = round(count * self._settings.magpie_share)
        own = self._magpie(own_count, deadline) if self._has_template else []
        texts = make_prompts(count - len(own), self._rng, self._passage, self._code)
        texts = [text for text in dict.fromkeys((*texts, *own)) if not is_held_out(text)]
        self._rng.shuffle(texts)
        return self._fitting(texts)

    def _magpie(self, count: int, deadline: float) -> list[str]:
        """Messages that the model makes up: decent ones among ``count`` tries."""
        if count == 0:
            return []
        text: str = self._llm.render_chat([{"role": "user", "content": MARK}])["prompt"]
        opening: list[int] = self._tokenizer.encode(text[: text.index(MARK)], add_special_tokens=False)
        params = [self._params(1.0, MAGPIE_TOKENS)] * count
        now = time.perf_counter()
        deadline = now + MAGPIE_SHARE_OF_TIME * (deadline - now)  # the answers need the rest
        outputs = self._finished([opening] * count, params, deadline)
        return [
            text
            for out in outputs
            if out.outputs[0].finish_reason == "stop" and is_decent(text := self._decode(out.outputs[0].token_ids))
        ]

    def _finished(
        self, prompts: list[Prompt], params: list[SamplingParams], deadline: float, enough: int | None = None
    ) -> list[RequestOutput]:
        """The outputs that end before ``deadline``, as they end, until they have ``enough`` tokens."""
        done: list[RequestOutput] = []
        if time.perf_counter() > deadline:
            return done
        total = 0
        stream = self._llm.stream(prompts, params)
        try:
            for output in stream:
                if time.perf_counter() > deadline:
                    break  # what ends later does not count
                if output.finished and output.outputs[0].finish_reason != "error":
                    done.append(output)
                    total += len(output.outputs[0].token_ids)
                if enough is not None and total >= enough:
                    break
        finally:
            stream.close()  # type: ignore[attr-defined]
        return done

    def _fitting(self, texts: Sequence[str]) -> list[Prompt]:
        """The tokens of those messages that leave room for an answer, in the chat format where there is one."""
        prompts = [self._tokens(text) for text in texts]
        return [ids for ids in prompts if 0 < len(ids) <= self._longest]

    def _tokens(self, text: str) -> list[int]:
        if not self._has_template:
            return list(self._tokenizer.encode(text))
        return list(self._llm.render_chat([{"role": "user", "content": text}])["prompt_token_ids"])

    def _params(self, temperature: float, max_tokens: int) -> SamplingParams:
        return SamplingParams(
            temperature=temperature,
            max_tokens=max_tokens,
            detokenize=False,  # the tokens are what is wanted, and it is work for each of them
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True)).strip()

    def _keep_texts(self, answers: Sequence[Sequence[int]]) -> None:
        """Find what the next round may copy and sum up in ``answers``: their beginnings, and the code in them."""
        (least, most), (least_code, most_code) = PASSAGE_CHARS, CODE_CHARS
        texts = [self._decode(answer) for answer in answers]
        cut = [text[:most].rpartition(".")[0] + "." for text in texts]
        self._passages = [text for text in cut if len(text) >= least]
        codes = (code.rstrip() for text in texts for code in CODE.findall(text))
        self._codes = [code for code in codes if least_code <= len(code) <= most_code]

    def _passage(self, rng: random.Random) -> str:
        """A text to copy or sum up: an earlier answer, cut at a sentence, or a composed one."""
        earlier = bool(self._passages) and rng.random() < ANSWER_SHARE
        return rng.choice(self._passages) if earlier else passages.passage(rng)

    def _code(self, rng: random.Random) -> str:
        """Code to copy or change: that of an earlier answer, or composed."""
        earlier = bool(self._codes) and rng.random() < ANSWER_SHARE
        return rng.choice(self._codes) if earlier else passages.code(rng)


def is_decent(text: str) -> bool:
    """Whether a message that a model made up is one that somebody might write: some plain words, not too many.

    Example: "How do tides work?" is; "", "?" and a page of symbols are not.
    """
    words = text.split()
    plain = sum(letter.isascii() and (letter.isalnum() or letter.isspace()) for letter in text)
    return 3 <= len(words) <= 100 and plain >= 0.75 * len(text) and "<|" not in text
