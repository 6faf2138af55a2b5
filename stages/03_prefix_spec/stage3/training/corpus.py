"""The text that heads are trained on: prompts and the target's own answers, as tokens.

Owns the sequences and their file. Does not know how they were written or how they are batched.

    tokens       p p p o o | p p o o o o        all sequences behind each other
    offsets      0           5            11    sequence i owns [offsets[i], offsets[i + 1])
    prompt_lens  3           2                  its first tokens are the prompt

vLLM: none (it does not train).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

FORMAT = "sixfold-corpus-1"


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sequences of prompt and output, on the CPU."""

    tokens: torch.Tensor  # int32 [N]
    offsets: torch.Tensor  # int64 [num_seqs + 1]
    prompt_lens: torch.Tensor  # int64 [num_seqs]

    @classmethod
    def of(cls, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Corpus:
        """Of pairs (prompt tokens, output tokens); pairs without an output are left out."""
        kept = [(prompt, output) for prompt, output in pairs if len(output) > 0]
        flat = [token for prompt, output in kept for part in (prompt, output) for token in part]
        lengths = torch.tensor([len(prompt) + len(output) for prompt, output in kept], dtype=torch.int64)
        return cls(
            torch.tensor(flat, dtype=torch.int32),
            torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0))),
            torch.tensor([len(prompt) for prompt, _ in kept], dtype=torch.int64),
        )

    @property
    def num_seqs(self) -> int:
        """How many sequences there are."""
        return len(self.prompt_lens)

    @property
    def lengths(self) -> torch.Tensor:
        """Tokens of each sequence, int64 [num_seqs]."""
        return self.offsets.diff()

    @property
    def num_output_tokens(self) -> int:
        """Tokens that the target wrote."""
        return len(self.tokens) - int(self.prompt_lens.sum())

    def save(self, path: Path) -> None:
        """Write all of it to a safetensors file."""
        from safetensors.torch import save_file

        tensors = {
            "tokens": self.tokens,
            "offsets": self.offsets.to(torch.int32),
            "prompt_lens": self.prompt_lens.to(torch.int32),
        }
        save_file(tensors, path, metadata={"format": FORMAT})

    @classmethod
    def load(cls, path: Path, vocab_size: int) -> Corpus:
        """Read what ``save`` wrote.

        Raises:
            ValueError: no such file, another format, or tokens outside the vocabulary.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                names = ("tokens", "offsets", "prompt_lens")
                found = [file.get_tensor(name) for name in names] if metadata.get("format") == FORMAT else []
        except (OSError, SafetensorError) as error:
            raise ValueError(f"the corpus {path} cannot be read ({error}): make one with --save-corpus") from None
        if not found:
            raise ValueError(f"{path} has the format {metadata.get('format')!r}, not {FORMAT!r}: use --save-corpus")
        corpus = cls(found[0].to(torch.int32), found[1].to(torch.int64), found[2].to(torch.int64))
        corpus.check(path, vocab_size)
        return corpus

    def check(self, path: Path, vocab_size: int) -> None:
        """Raise ``ValueError`` where the numbers contradict each other or the vocabulary."""
        lengths, ends = self.lengths, (int(self.offsets[0]), int(self.offsets[-1])) if len(self.offsets) else (0, -1)
        fits = len(self.offsets) == self.num_seqs + 1 and ends == (0, len(self.tokens))
        if not fits or bool((self.prompt_lens < 1).any() | (lengths <= self.prompt_lens).any()):
            raise ValueError(f"the corpus {path} contradicts itself: make it anew with --save-corpus")
        if self.num_seqs and not 0 <= int(self.tokens.min()) <= int(self.tokens.max()) < vocab_size:
            raise ValueError(
                f"the corpus {path} has the token {int(self.tokens.max()):,}; the model has {vocab_size:,} tokens: "
                "make one with this model (--save-corpus)"
            )
