"""Which model drafts for which.

Owns the checks that a draft model can guess for another one. Does not load it.

vLLM: ``vllm/config/speculative.py`` (``_verify_and_get_draft_tp``, the comparison of vocabularies).
"""

from __future__ import annotations

from stage1.config import ModelConfig
from stage1.model.shape import PRESETS
from stage1.model.source import ModelSource, resolve
from stage1.model.tokenizer import load_tokenizer


def resolve_draft(name: str, config: ModelConfig, target: ModelSource) -> ModelSource:
    """The draft model ``name``, which may be anything that ``--model`` may; a preset has random weights.

    Raises:
        ValueError: no such model, or its tokens are not those of ``target``.
    """
    is_dummy = name in PRESETS and config.load_format == "dummy"
    source = resolve(
        ModelConfig(model=name, load_format="dummy" if is_dummy else "auto", download_dir=config.download_dir)
    )
    ours, theirs = target.shape.vocab_size, source.shape.vocab_size
    if ours != theirs:
        raise ValueError(
            f"the draft model {name} has a vocabulary of {theirs:,} tokens and {target.name} has {ours:,}: their ids "
            "must mean the same; name a model of the same family"
        )
    if target.tokenizer != source.tokenizer:
        # Equal sizes can still be different tokens, and then no guess would ever be right.
        words, guessed = load_tokenizer(target).get_vocab(), load_tokenizer(source).get_vocab()
        if words != guessed:
            raise ValueError(
                f"the draft model {name} has other tokens than {target.name} ({len(words.items() ^ guessed.items()):,} "
                "differ): name a model of the same family"
            )
    return source
