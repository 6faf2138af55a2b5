"""The vocabulary as bytes, and as a tree of shared beginnings.

Owns what text each token stands for, as far as a grammar can speak of it: special tokens, and ids without a meaning,
stand for none. Does not know grammars.

The tree is kept in levels, so that one step of an automaton is one array operation for all tokens at once:

    tokens  a  ab  ac  b       level 0   a  b            parent 0 0     byte a b     ends: a, b
                               level 1   ab ac           parent 0 0     byte b c     ends: ab, ac

vLLM: ``v1/structured_output/utils.py`` (``get_outlines_vocabulary``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from stage1.detokenizer import special_ids, token_bytes
from stage1.model.byte_tokenizer import ByteTokenizer
from stage3.grammar.masks import MaskStore, num_words

Ints = npt.NDArray[np.int32]

_SPACE = "\u2581"  # how SentencePiece writes a space


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Beginnings of one length: beginning i continues beginning ``parent[i]`` of the level before."""

    parent: Ints  # [nodes]
    byte: Ints  # [nodes]
    tokens: Ints  # [ends] tokens of exactly this length
    ends: Ints  # [ends] the beginning that each is


class Vocabulary:
    """Tokens 0 … ``size - 1`` and the bytes of each; ``b""`` for a token that no grammar allows."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tuple(tokens)
        self.size = len(self.tokens)
        self.num_words = num_words(self.size)
        self.masks = MaskStore()

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The tree; 0.1 s for 50,000 tokens, when it is first asked for."""
        levels = []
        alive = np.array([i for i, token in enumerate(self.tokens) if token], dtype=np.int32)
        lengths = np.array([len(token) for token in self.tokens], dtype=np.int32)
        node = np.zeros(len(alive), dtype=np.int64)  # of each token: its beginning in the level before
        depth = 0
        while len(alive):
            byte = np.array([self.tokens[i][depth] for i in alive.tolist()], dtype=np.int64)
            keys, at = np.unique(node * 256 + byte, return_inverse=True)
            is_end = lengths[alive] == depth + 1
            ends = at[is_end].astype(np.int32)
            levels.append(Level((keys // 256).astype(np.int32), (keys % 256).astype(np.int32), alive[is_end], ends))
            alive, node = alive[~is_end], at[~is_end].astype(np.int64)
            depth += 1
        return tuple(levels)


def load_vocabulary(tokenizer: Any, vocab_size: int) -> Vocabulary:
    """The vocabulary of a Hugging Face tokenizer or of ours, for a model of ``vocab_size`` ids, some of them padding.

    Raises:
        ValueError: there is no tokenizer, or it has more tokens than the model.
    """
    if tokenizer is None:
        raise ValueError("guided decoding needs to know what tokens stand for: name a --tokenizer")
    if len(tokenizer) > vocab_size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer):,} tokens, the model {vocab_size:,}: name its own --tokenizer"
        )
    return Vocabulary([*_token_texts(tokenizer), *[b""] * (vocab_size - len(tokenizer))])


def _token_texts(tokenizer: Any) -> list[bytes]:
    if isinstance(tokenizer, ByteTokenizer):
        return [bytes([i]) if i < 256 else b"" for i in range(len(tokenizer))]
    silent = special_ids(tokenizer)
    table = token_bytes(tokenizer)
    if table is not None:
        return [b"" if i in silent else table[i] for i in range(len(tokenizer))]
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    return [b"" if i in silent or name is None else _sentencepiece(name) for i, name in enumerate(names)]


def _sentencepiece(name: str) -> bytes:
    """``▁the`` is `` the``, ``<0x0A>`` a newline."""
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        return bytes([int(name[3:5], 16)])
    return name.replace(_SPACE, " ").encode()
