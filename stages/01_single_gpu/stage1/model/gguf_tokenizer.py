"""Builds a tokenizer from the vocabulary that a GGUF file carries.

Owns how vocabulary, merges and the name of the pre-tokenizer become a ``tokenizers.Tokenizer``. Does not know models.

vLLM: none (it takes the tokenizer from another repository or converts it through transformers).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from stage1.model.checkpoint import CheckpointError

# How each family cuts text into words before it merges bytes; the names are llama.cpp's (``tokenizer.ggml.pre``).
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS = {
    "llama3": "|".join((CONTRACTIONS, LETTERS, r"\p{N}{1,3}", OTHERS)),
    "qwen2": "|".join((CONTRACTIONS, LETTERS, r"\p{N}", OTHERS)),
}
FAMILIES = {
    "gpt-2": "gpt2",
    "gpt2": "gpt2",
    "smollm": "smollm",
    "llama-bpe": "llama3",
    "llama3": "llama3",
    "llama-v3": "llama3",
    "qwen2": "qwen2",
    "deepseek-r1-qwen": "qwen2",
}
ADDED_TYPES = (3, 4)  # llama.cpp's token types: control, user-defined
CONTROL = 3

SPACE = "\u2581"  # how sentencepiece writes a space
TOKEN_ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def tokenizer_from_gguf(metadata: Mapping[str, Any], path: Path) -> tuple[Tokenizer, dict[str, Any]]:
    """The tokenizer of a GGUF file, and the rest of what belongs in ``tokenizer_config.json``.

    Args:
        metadata: the file's.
        path: the file, for errors.

    Raises:
        CheckpointError: the file has no vocabulary, a damaged one, or one of a kind that is not known here.
    """
    vocabulary = _Vocabulary(metadata, path)
    kind = metadata.get("tokenizer.ggml.model")
    kind = kind if isinstance(kind, str) else None
    if kind == "gpt2":
        tokenizer, adds_bos = _byte_level(vocabulary)
    elif kind == "llama":
        tokenizer, adds_bos = _sentencepiece(vocabulary), True
    else:
        raise vocabulary.error(f"has a vocabulary of kind {kind!r}; known: gpt2, llama")
    kinds = zip(vocabulary.tokens, vocabulary.types, strict=True)
    tokenizer.add_tokens(
        [
            AddedToken(token, normalized=False, special=type_ == CONTROL)
            for token, type_ in kinds
            if type_ in ADDED_TYPES
        ]
    )
    config = vocabulary.roles()
    if vocabulary.flag("add_bos_token", adds_bos) and "bos_token" in config:
        bos = config["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[f"{bos}:0", "$A:0"],
            pair=[f"{bos}:0", "$A:0", f"{bos}:1", "$B:1"],
            special_tokens=[(bos, vocabulary.ids[bos])],
        )
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        config["chat_template"] = template
    return tokenizer, config | {"clean_up_tokenization_spaces": False}


class _Vocabulary:
    """The lists of ``tokenizer.ggml.*``, checked against each other."""

    def __init__(self, metadata: Mapping[str, Any], path: Path) -> None:
        self.metadata = metadata
        self.path = path
        self.tokens = self.strings("tokens")
        self.ids = {token: id_ for id_, token in enumerate(self.tokens)}
        if len(self.ids) != len(self.tokens):
            raise self.error("has a token twice in its vocabulary")
        types = metadata.get("tokenizer.ggml.token_type")
        self.types = [1] * len(self.tokens) if types is None else list(types)
        if len(self.types) != len(self.tokens):
            raise self.error(f"has {len(self.tokens):,} tokens and {len(self.types):,} token types")

    def strings(self, name: str) -> list[str]:
        value = self.metadata.get(f"tokenizer.ggml.{name}")
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(f"has no list of strings tokenizer.ggml.{name}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return self.metadata.get(f"tokenizer.ggml.{name}", default) is True

    def merges(self) -> list[tuple[str, str]]:
        pairs = []
        for merge in self.strings("merges"):
            left, _, right = merge.partition(" ")
            if not {left, right, left + right} <= self.ids.keys():
                raise self.error(f"merges {merge!r}, of which a part is not in the vocabulary")
            pairs.append((left, right))
        return pairs

    def roles(self) -> dict[str, Any]:
        """Which tokens begin, end, pad and stand for the unknown."""
        roles = {}
        for role, name in TOKEN_ROLES.items():
            id_ = self.metadata.get(f"tokenizer.ggml.{name}_token_id")
            if id_ is not None:
                if type(id_) is not int or not 0 <= id_ < len(self.tokens):
                    raise self.error(f"has {name}_token_id {id_!r} and a vocabulary of {len(self.tokens):,}")
                roles[role] = self.tokens[id_]
        return roles

    def error(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path} {what}: name a folder or hub id with its tokenizer (--tokenizer)")


def _byte_level(vocabulary: _Vocabulary) -> tuple[Tokenizer, bool]:
    """Byte-level BPE, and whether it begins a text with BOS where the file does not say."""
    name = vocabulary.metadata.get("tokenizer.ggml.pre")
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        raise vocabulary.error(f"has a vocabulary with pre-tokenizer {name!r}; known: {', '.join(FAMILIES)}")
    # Llama 3 looks a word up whole before it merges: some of its tokens cannot be reached by merges.
    model = models.BPE(vocab=vocabulary.ids, merges=vocabulary.merges(), ignore_merges=family == "llama3")
    tokenizer = Tokenizer(model)
    if family in WORDS:
        cut = pre_tokenizers.Split(Regex(WORDS[family]), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    else:
        words = pre_tokenizers.ByteLevel(add_prefix_space=False)
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words]) if family == "smollm" else words
    if family == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer, family == "llama3"


def _sentencepiece(vocabulary: _Vocabulary) -> Tokenizer:
    """Sentencepiece's BPE: merge the pair whose piece scores best; what is no piece becomes bytes."""
    scores = vocabulary.metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(vocabulary.tokens):
        raise vocabulary.error("has a vocabulary without a score for each token")
    unknown = vocabulary.roles().get("unk_token")
    model = models.BPE(
        vocab=vocabulary.ids,
        merges=_merges_from_scores(vocabulary.ids, [float(score) for score in scores]),
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    prefix = vocabulary.flag("add_space_prefix", True)
    steps: list[Any] = [normalizers.Prepend(SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    undo: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*undo, decoders.Strip(" ", 1, 0)] if prefix else undo)
    return tokenizer


def _merges_from_scores(ids: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every way to put a piece together from two others, the best piece first."""
    ranked = sorted(ids.items(), key=lambda item: (-scores[item[1]], item[1]))
    return [
        (piece[:cut], piece[cut:])
        for piece, _ in ranked
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
