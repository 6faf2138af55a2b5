"""Settings: small frozen dataclasses, one for each part, and how keywords and flags become them.

A stage's ``CONFIGS`` lists the classes it understands. The keywords of ``LLM`` and the flags of the command line
are derived from their fields, so a setting is written once. Names and defaults are vLLM's where it has them.

vLLM: ``vllm/config/``, ``vllm/engine/arg_utils.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, cast

T = TypeVar("T")


def setting(default: Any, help: str, *, json: bool = False) -> Any:
    """A field with its help text, which flags print; with ``json`` it holds a JSON object, and flags may give keys."""
    return field(default=default, metadata={"help": help, "json": json})


@dataclass(frozen=True)
class ModelConfig:
    """Which model, in which precision, how long."""

    model: str = setting(
        "smollm2-135m-instruct", "hub id, folder, .gguf file or preset shape (with --load-format dummy)"
    )
    tokenizer: str | None = setting(None, "hub id or folder of the tokenizer; the model's own by default")
    served_model_name: str | None = setting(None, "name in the API; the model's by default")
    load_format: Literal["auto", "safetensors", "gguf", "dummy"] = setting("auto", "dummy = random weights")
    download_dir: str | None = setting(None, "where hub models are kept")
    dtype: Literal["auto", "float32", "float", "bfloat16", "float16", "half"] = setting(
        "auto", "auto = float32 on a CPU, bfloat16 on a GPU"
    )
    max_model_len: int | None = setting(None, "longest prompt + output in tokens; the model's limit by default")
    max_logprobs: int = setting(20, "most log-probabilities a request may ask for; -1 = no limit")
    seed: int = setting(0, "where the seeds of unseeded requests and random weights come from")
    generation_config: Literal["auto", "vllm"] = setting(
        "auto", "auto = sampling defaults of the checkpoint; vllm = none"
    )


@dataclass(frozen=True)
class DeviceConfig:
    """Where it runs."""

    device: str = setting("auto", "auto, cpu, cuda or cuda:N")


@dataclass(frozen=True)
class SchedulerConfig:
    """How much runs at once."""

    max_num_seqs: int = setting(8, "requests in one batch; each reserves room for max_model_len tokens")
    max_num_batched_tokens: int | None = setting(
        None, "tokens in one step; at least max_model_len, the default adds max_num_seqs"
    )

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise ValueError(f"max_num_seqs is {self.max_num_seqs}; at least 1 request must fit: raise --max-num-seqs")

    def token_budget(self, max_model_len: int) -> int:
        """Tokens of one step. A prompt is computed in one piece here, so the longest must fit."""
        budget = (
            max_model_len + self.max_num_seqs if self.max_num_batched_tokens is None else self.max_num_batched_tokens
        )
        if budget < max_model_len:
            raise ValueError(
                f"max_num_batched_tokens is {budget:,} and max_model_len {max_model_len:,}, but stage 1 computes a "
                "prompt in one piece: raise --max-num-batched-tokens or lower --max-model-len (stage 2 splits prompts)"
            )
        return budget


@dataclass(frozen=True)
class TraceConfig:
    """What is written down about each step."""

    trace: str | None = setting(None, "write the engine's events to this file, as JSON lines")


class Settings:
    """One instance of each configuration class, found by its class: ``settings[ModelConfig].dtype``."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._by_class: dict[type, Any] = {type(part): part for part in parts}

    def __getitem__(self, cls: type[T]) -> T:
        return cast(T, self._by_class[cls])

    def replace(self, cls: type[Any], **changes: Any) -> Settings:
        """A copy in which ``cls`` has ``changes``."""
        changed = dataclasses.replace(self._by_class[cls], **changes)
        return Settings([changed if type(p) is cls else p for p in self._by_class.values()])

    @classmethod
    def from_keywords(cls, configs: Sequence[type[Any]], keywords: Mapping[str, Any]) -> Settings:
        """Build every class of ``configs``; each keyword goes to the class that has the field.

        Raises:
            ValueError: a keyword that no class has, with the nearest names, or a value of the wrong type.
        """
        fields = {f.name: f for config in configs for f in dataclasses.fields(config)}
        for name, value in keywords.items():
            if name not in fields:
                near = get_close_matches(name, fields, 3)
                hint = f"; did you mean {' or '.join(near)}?" if near else f"; known: {', '.join(sorted(fields))}"
                raise ValueError(f"unknown setting {name!r}{hint}")
            check_type(name, value, field_type(fields[name]))
        return cls(
            [
                config(**{f.name: keywords[f.name] for f in dataclasses.fields(config) if f.name in keywords})
                for config in configs
            ]
        )


@dataclass(frozen=True)
class FieldType:
    """A field's type, taken apart: ``choices`` for a Literal, ``optional`` where None is allowed."""

    base: type
    optional: bool
    choices: tuple[str, ...] = ()


def field_type(f: dataclasses.Field[Any]) -> FieldType:
    """Read the annotation of ``f``, which is a string such as ``int | None`` or ``Literal["a", "b"]``."""
    text = str(f.type)
    if text.startswith("Literal["):
        return FieldType(str, False, tuple(part.strip(" \"'") for part in text[8:-1].split(",")))
    names = [part.strip() for part in text.split("|")]
    base = {"str": str, "int": int, "float": float, "bool": bool}[names[0]]
    return FieldType(base, "None" in names)


def check_type(name: str, value: Any, kind: FieldType) -> None:
    """Raise ``ValueError`` unless ``value`` fits ``kind``."""
    if value is None and kind.optional:
        return
    allowed: tuple[type, ...] = (int, float) if kind.base is float else (kind.base,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind.base is not bool):
        raise ValueError(f"{name} must be {kind.base.__name__}{' or None' if kind.optional else ''}, not {value!r}")
    if kind.choices and value not in kind.choices:
        raise ValueError(f"{name} must be one of {', '.join(kind.choices)}, not {value!r}")
