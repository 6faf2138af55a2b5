"""Prompts to requests: everything that happens to a request before the core sees it.

Owns the forms of a prompt, tokenising, the checks that need the model or its tokenizer, and the split of ``n``
completions into ``n`` core requests. Safe to call from several threads. Does not know the engine's state: a request
that passes here can be served, sooner or later.

vLLM: ``v1/engine/processor.py``, ``v1/engine/parallel_sampling.py``, ``inputs/parse.py``.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stage1.chat import render_messages
from stage1.params import SamplingParams
from stage1.params_check import check_against_vocab, check_fields
from stage1.records import EngineCoreRequest
from stage1.seeds import child_seed, drawn_seed
from stage1.token_floor import TokenFloor

if TYPE_CHECKING:
    from stage1.model.source import ModelSource

# Request features beyond the common ones, and the stage that brings each.
FIRST_STAGE = {
    "priority": 2,
    "cache_salt": 3,
    "structured_outputs": 3,
    "kv_transfer_params": 5,
    "data_parallel_rank": 5,
}
OLDER_NAMES = {"structured_outputs": " (also called guided_decoding)"}  # a user may know only that one
SETTINGS = {"priority": " with --scheduling-policy priority"}  # what some of them need besides
_USUAL_CHARACTERS = 16  # a token; a text with no more of them is tokenised without a second look
_PROMPT_KEYS = frozenset({"prompt", "prompt_token_ids", "cache_salt"})


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that has been checked: what the user is shown, and what the core gets."""

    request_id: str  # the user's
    prompt: str | None  # None where only tokens were given
    prompt_ids: list[int]
    params: SamplingParams  # the user's; each child has its own
    arrival_time: float  # seconds, ``time.time()``
    children: list[EngineCoreRequest]  # [n], one a completion


class InputProcessor:
    """Checks and tokenises prompts for one model.

    Args:
        source: the model's limits, EOS tokens and vocabulary.
        tokenizer: a Hugging Face tokenizer or one with its methods; ``None`` = prompts come as tokens.
        max_logprobs: most log-probabilities a token; -1 = the whole vocabulary.
        seed: where the seeds of requests without one come from: equal engines give equal requests equal seeds.
        supported: names of ``FIRST_STAGE`` that this engine understands; the others are refused.
        check: raises ``ValueError`` for parameters that a later stage knows to be wrong.
    """

    def __init__(
        self,
        source: ModelSource,
        tokenizer: Any,
        *,
        max_logprobs: int = 20,
        seed: int = 0,
        supported: frozenset[str] = frozenset(),
        check: Callable[[SamplingParams], None] = lambda params: None,
    ) -> None:
        self.source = source
        self.tokenizer = tokenizer
        self.max_logprobs = max_logprobs
        self._seed = seed
        self._supported = supported
        self._check = check
        self._counter = itertools.count()  # next() of it is atomic
        self._floor = TokenFloor(tokenizer)
        ids = {*source.eos_token_ids, getattr(tokenizer, "eos_token_id", None)}
        # An id beyond the vocabulary is never sampled, and no mask may be indexed by it.
        self._eos_token_ids = sorted(i for i in ids if i is not None and 0 <= i < source.shape.vocab_size)

    def process(
        self,
        prompt: Any,
        params: SamplingParams,
        *,
        request_id: str,
        priority: int = 0,
        arrival_time: float | None = None,
        cache_salt: str | None = None,
        kv_transfer_params: dict[str, Any] | None = None,
        data_parallel_rank: int | None = None,
        add_special_tokens: bool = True,
        strict_length: bool = False,
    ) -> Admission:
        """Make a request of ``prompt``: text, ``{"prompt": text}``, ``{"prompt_token_ids": ids}`` or a list of ids.

        A mapping may hold its ``cache_salt``. Ids given together with a text are used as they are, and the text is only
        shown. ``truncate_prompt_tokens`` keeps the last tokens; -1 keeps as many as fit. With ``strict_length`` a
        ``max_tokens`` that does not fit behind the prompt is refused, as the server does; without it, the output ends
        at ``max_model_len``.

        Raises:
            ValueError: anything that is wrong with the request; the message names the value, the limit and the remedy.
        """
        if cache_salt is None and isinstance(prompt, Mapping):
            cache_salt = prompt.get("cache_salt")
        if not isinstance(params, SamplingParams):
            raise ValueError(f"the sampling parameters must be SamplingParams, not {type(params).__name__}")
        check_fields(request_id, priority, arrival_time, cache_salt, kv_transfer_params, data_parallel_rank)
        self._refuse_unsupported(
            priority=priority or None,
            cache_salt=cache_salt,
            structured_outputs=params.structured_outputs,
            kv_transfer_params=kv_transfer_params,
            data_parallel_rank=data_parallel_rank,
        )
        self._check(params)
        text, ids = self._tokenise(prompt, params, add_special_tokens)
        ids = self._fit(ids, params, strict_length)
        number = next(self._counter)
        arrival_time = time.time() if arrival_time is None else arrival_time
        children = [
            EngineCoreRequest(
                req_id=f"{request_id}-{index}-{number}",  # unique, whatever the user's id is
                prompt_ids=ids,
                params=child_params,
                priority=priority,
                arrival_time=arrival_time,
                cache_salt=cache_salt,
                kv_transfer_params=kv_transfer_params,
                data_parallel_rank=data_parallel_rank,
            )
            for index, child_params in enumerate(self._child_params(params, number))
        ]
        return Admission(request_id, text, ids, params, arrival_time, children)

    def render_chat(
        self,
        messages: Any,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> tuple[str, list[int]]:
        """The text and the tokens of a conversation; see ``chat.render_messages``.

        Nothing is added when it is tokenised: the template has written BOS already, if the model wants one.
        """
        text = render_messages(
            self._need_tokenizer(),
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            chat_template=chat_template,
            chat_template_kwargs=chat_template_kwargs,
        )
        self._check_floor(text)
        return text, self._encode(text, add_special_tokens=False)

    # --- the prompt ----------------------------------------------------------------------------------

    def _tokenise(self, prompt: Any, params: SamplingParams, add_special_tokens: bool) -> tuple[str | None, list[int]]:
        """Text, where there is one, and tokens of any form of prompt."""
        if isinstance(prompt, Mapping):
            if unknown := sorted(map(str, prompt.keys() - _PROMPT_KEYS)):
                known = ", ".join(sorted(_PROMPT_KEYS))
                raise ValueError(f"prompt has unknown keys {', '.join(unknown):.200}; known: {known}")
            text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
        else:
            text, ids = (prompt, None) if isinstance(prompt, str) else (None, prompt)
        if text is not None and not isinstance(text, str):
            raise ValueError(f"prompt text must be a string, not {type(text).__name__}")
        if ids is not None:
            return text, self._check_ids(ids)
        if text is None:
            raise ValueError("prompt is missing: give a string or a list of token ids")
        if params.truncate_prompt_tokens is None:
            self._check_floor(text)
        return text, self._encode(text, add_special_tokens)

    def _check_ids(self, ids: Any) -> list[int]:
        if not isinstance(ids, Sequence) or isinstance(ids, str | bytes):
            raise ValueError(f"prompt must be a string or a list of token ids, not {type(ids).__name__}")
        vocab_size = self.source.shape.vocab_size
        for token_id in ids:
            if isinstance(token_id, bool) or not isinstance(token_id, int):
                raise ValueError(f"prompt token ids must be integers, not {token_id!r:.60}: send one prompt a request")
            if not 0 <= token_id < vocab_size:
                raise ValueError(f"prompt has token id {token_id}; ids of this model are 0 to {vocab_size - 1:,}")
        return list(ids)

    def _check_floor(self, text: str) -> None:
        """Refuse what cannot fit before any time is spent on it."""
        limit = self.source.max_model_len
        if len(text) > _USUAL_CHARACTERS * limit and (at_least := self._floor(text)) >= limit:
            raise ValueError(
                f"prompt has at least {at_least:,} tokens ({len(text):,} characters); max_model_len is {limit:,}: "
                "shorten it or raise --max-model-len"
            )

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        tokenizer = self._need_tokenizer()
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"prompt is no text: half of a surrogate pair at character {error.start:,}") from None
        return list(tokenizer.encode(text, add_special_tokens=add_special_tokens))

    def _need_tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise ValueError("this engine has no tokenizer: send prompt_token_ids")
        return self.tokenizer

    def _fit(self, ids: list[int], params: SamplingParams, strict_length: bool) -> list[int]:
        """Truncate where that is wanted, and check the length. Generation needs a free position behind the prompt."""
        limit, max_tokens = self.source.max_model_len, params.max_tokens
        if (keep := params.truncate_prompt_tokens) is not None:
            if keep == -1:
                keep = max(1, limit - (max_tokens if strict_length and max_tokens else 1))
            ids = ids[-keep:]
        if not ids:
            raise ValueError("prompt has 0 tokens; generation needs at least 1: send some text")
        if len(ids) >= limit:
            raise ValueError(
                f"prompt has {len(ids):,} tokens; max_model_len is {limit:,}, of which at least one must stay free to "
                f"generate: shorten it to {limit - 1:,} or raise --max-model-len"
            )
        if strict_length and max_tokens is not None and len(ids) + max_tokens > limit:
            raise ValueError(
                f"prompt has {len(ids):,} tokens and max_tokens is {max_tokens:,}; max_model_len is {limit:,}: "
                f"shorten the prompt, lower max_tokens to {limit - len(ids):,} or raise --max-model-len"
            )
        return ids

    # --- the parameters ------------------------------------------------------------------------------

    def _child_params(self, params: SamplingParams, number: int) -> list[SamplingParams]:
        """The parameters of each completion: child ``i`` samples with ``seed + i``."""
        seed = drawn_seed(self._seed, number) if params.seed is None else params.seed
        base = params.replace(
            n=1,
            seed=seed,
            eos_token_ids=sorted({*self._eos_token_ids, *params.eos_token_ids}),
            bad_words_ids=self._bad_words_ids(params.bad_words),
        )
        check_against_vocab(base, self.source.shape.vocab_size, self.max_logprobs)
        if params.n == 1:
            return [base]
        # The prompt is the same for all: its log-probabilities are computed for the first alone.
        rest = base.replace(prompt_logprobs=None)
        return [base, *(rest.replace(seed=child_seed(seed, index)) for index in range(1, params.n))]

    def _bad_words_ids(self, words: Sequence[str]) -> list[list[int]]:
        """The tokens of each word at the start of a text and behind a space: both forms are forbidden."""
        found: list[list[int]] = []
        for word in words:
            bare = word.lstrip() or word
            forms = [self._encode(form, add_special_tokens=False) for form in (bare, f" {bare}")]
            if not forms[0]:
                raise ValueError(f"bad_words has {word!r:.60}, which has no tokens: remove it")
            found += [form for form in forms if form not in found]
        return found

    def _refuse_unsupported(self, **wanted: Any) -> None:
        for name, value in wanted.items():
            if value is not None and name not in self._supported:
                where = f"stage {FIRST_STAGE[name]} or later{SETTINGS.get(name, '')}"
                called = name + OLDER_NAMES.get(name, "")
                raise ValueError(f"{called} is not supported by this engine: leave it out, or run {where}")
