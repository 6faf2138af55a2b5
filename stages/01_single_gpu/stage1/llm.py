"""The offline engine: prompts in, finished outputs out, in the caller's own thread.

Owns nothing but the loop around the core. Later stages subclass it to name their own wiring and settings.

vLLM: ``vllm/entrypoints/llm.py``, ``v1/engine/llm_engine.py``.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Self

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stage1 import build as stage1_build
from stage1.config import Settings
from stage1.core import EngineCore
from stage1.frontend import load_processors
from stage1.input_processor import Admission
from stage1.outputs import RequestOutput
from stage1.params import RequestOutputKind, SamplingParams
from stage1.trace.sinks import Sink

Prompt = str | Sequence[int] | Mapping[str, Any]
Message = Mapping[str, Any]
Params = SamplingParams | Sequence[SamplingParams] | None


class LLM:
    """A model, ready to generate.

    Args:
        model: a hub id, a local folder, a ``.gguf`` file or a preset shape; the embedded model by default.
        parts: replacements for parts of the engine (the stage's ``Parts``).
        sinks: receivers of the engine's events.
        settings: every other setting of the stage by its name, as on the command line (``max_model_len=1024``).

    Raises:
        ValueError: an unknown setting, or a model that cannot be loaded; the message says how to mend it.
    """

    configs: Sequence[type[Any]] = stage1_build.CONFIGS
    supported: Callable[[Settings], frozenset[str]] = staticmethod(lambda settings: stage1_build.SUPPORTED)
    build: Callable[..., EngineCore] = staticmethod(stage1_build.build)
    check: Callable[[SamplingParams], None] = staticmethod(lambda params: None)

    def __init__(
        self, model: str | None = None, *, parts: Any = None, sinks: Sequence[Sink] = (), **settings: Any
    ) -> None:
        keywords = settings if model is None else {"model": model, **settings}
        self.settings = Settings.from_keywords(self.configs, keywords)
        self._inputs, self._outputs = load_processors(self.settings, self.supported(self.settings), self.check)
        self.core = self.build(self.settings, **({} if parts is None else {"parts": parts}), sinks=sinks)
        self._ids = itertools.count()
        self._waiting: dict[str, list[RequestOutput]] = {}  # for calls in progress, while another took the steps

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Complete each prompt.

        Args:
            prompts: one or a list of strings, ``{"prompt_token_ids": [...]}`` or lists of token ids.
            sampling_params: one for all or one a prompt; ``None`` = the checkpoint's defaults.
            use_tqdm: show a progress bar where stderr is a terminal.
            priority: one number a prompt, lower first, where the stage supports it.

        Returns:
            One output a prompt, in the order of the prompts. A request that failed at run time has the
            finish_reason ``"error"`` and says why in ``outputs[i].error``; the others are not affected.

        Raises:
            ValueError: a prompt or its parameters cannot be served; nothing has been started then.
        """
        admissions = self._admit(_as_list(prompts), sampling_params, RequestOutputKind.FINAL_ONLY, priority)
        finished = {out.request_id: out for out in self._progress(self._run(admissions), len(admissions), use_tqdm)}
        return [finished[admission.request_id] for admission in admissions]

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: Params = None,
        *,
        use_tqdm: bool = True,
        **template: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation, or each of a list of them, through the model's chat template.

        ``template`` takes ``add_generation_prompt``, ``continue_final_message``, ``chat_template`` and
        ``chat_template_kwargs``. Otherwise like ``generate``.
        """
        conversations = [messages] if messages and isinstance(messages[0], Mapping) else list(messages)
        prompts = [self.render_chat(conversation, **template) for conversation in conversations]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def stream(self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None) -> Iterator[RequestOutput]:
        """Like ``generate``, but yields each request's output as it grows; closing the iterator aborts the rest."""
        return self._run(self._admit(_as_list(prompts), sampling_params, None, None))

    def render_chat(self, messages: Any, **template: Any) -> dict[str, Any]:
        """The prompt that a conversation becomes: its text and its tokens, ready for ``generate``."""
        text, ids = self._inputs.render_chat(messages, **template)
        return {"prompt": text, "prompt_token_ids": ids}

    def get_tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self._inputs.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What ``sampling_params=None`` means for this checkpoint."""
        return SamplingParams(**self._inputs.source.default_sampling)

    def shutdown(self) -> None:
        """Free the device; a second call does nothing."""
        self.core.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # --- below: the loop -----------------------------------------------------------------------------

    def _admit(
        self, prompts: list[Any], params: Params, kind: RequestOutputKind | None, priority: Sequence[int] | None
    ) -> list[Admission]:
        """Check and tokenise everything before anything starts."""
        if params is None:
            params = self.get_default_sampling_params()
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        priorities = [0] * len(prompts) if priority is None else list(priority)
        for name, values in (("sampling_params", each), ("priority", priorities)):
            if len(values) != len(prompts):
                raise ValueError(
                    f"{name} has {len(values)} entries for {len(prompts)} prompts: give one each, or one for all"
                )
        if strange := [type(own).__name__ for own in each if not isinstance(own, SamplingParams)]:
            raise ValueError(f"sampling_params must be SamplingParams, one or a list of them, not {strange[0]}")
        return [
            self._inputs.process(
                prompt,
                own if kind is None else own.replace(output_kind=kind),
                request_id=str(next(self._ids)),
                priority=rank,
            )
            for prompt, own, rank in zip(prompts, each, priorities, strict=True)
        ]

    def _run(self, admissions: list[Admission]) -> Iterator[RequestOutput]:
        """Step until all of ``admissions`` have ended."""
        open_ids = {admission.request_id for admission in admissions}
        try:
            for admission in admissions:
                self._outputs.add(admission)
                for child in admission.children:
                    self.core.add_request(child)
            while open_ids:
                for output in self._next(open_ids):
                    if output.finished:
                        open_ids.discard(output.request_id)
                    yield output
        finally:
            for request_id in open_ids:
                self.core.abort(self._outputs.abort(request_id).aborts)
                self._waiting.pop(request_id, None)

    def _next(self, open_ids: Collection[str]) -> list[RequestOutput]:
        """Outputs for ``open_ids``: those that came while another call took steps, else those of a step.

        What the step brings for other calls in progress waits for them.
        """
        if waiting := [output for request_id in open_ids for output in self._waiting.pop(request_id, [])]:
            return waiting
        processed = self._outputs.process(self.core.step())
        self.core.abort(processed.aborts)
        for output in processed.outputs:
            if output.request_id not in open_ids:
                self._waiting.setdefault(output.request_id, []).append(output)
        return [output for output in processed.outputs if output.request_id in open_ids]

    @staticmethod
    def _progress(outputs: Iterator[RequestOutput], total: int, show: bool) -> Iterator[RequestOutput]:
        """Pass ``outputs`` on, counting the finished ones on a terminal."""
        console = Console(stderr=True)
        columns = (TextColumn("prompts"), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[rate]}"))
        with Progress(*columns, console=console, disable=not (show and sys.stderr.isatty()), transient=True) as bar:
            task = bar.add_task("", total=total, rate="")
            for output in outputs:
                bar.advance(task, int(output.finished))
                yield output


def _as_list(prompts: Any) -> list[Any]:
    """One prompt as a list of one; a flat list of integers is one prompt of token ids."""
    if isinstance(prompts, str | Mapping):
        return [prompts]
    listed = list(prompts)
    return [listed] if listed and all(isinstance(item, int) for item in listed) else listed
