"""Masks on the logits, as a kernel: one launch that reads each word of a mask once and writes only what it forbids.

Owns the launch. Does not know grammars. The plain version is ``mask_processor.apply_masks``, which unpacks the masks to
[G, vocab] first; here only forbidden logits are touched, by the same sum, so a not-a-number stays one.

vLLM: ``v1/structured_output/utils.py`` (``apply_grammar_bitmask``, whose kernel is xgrammar's).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from stage3.grammar.masks import WORD

_BLOCK = 4096  # tokens a program
_WORD: tl.constexpr = tl.constexpr(WORD)


def apply_masks(logits: torch.Tensor, masks: torch.Tensor, rows: torch.Tensor) -> None:
    """Forbid in row ``rows[i]`` what ``masks[i]`` does not allow, in place.

    Args:
        logits: [L, vocab] float32, bfloat16 or float16; rows may lie apart, the numbers of a row may not.
        masks: [G, words] int32, contiguous.
        rows: [G] int64, contiguous, each row at most once.
    """
    num_masks, words = masks.shape
    vocab_size = logits.shape[1]
    if num_masks == 0:
        return
    _mask_kernel[(num_masks, triton.cdiv(vocab_size, _BLOCK))](
        logits, masks, rows, logits.stride(0), vocab_size, words, block=_BLOCK, num_warps=4
    )


@triton.jit  # type: ignore[untyped-decorator]
def _mask_kernel(
    logits_ptr: tl.tensor,
    masks_ptr: tl.tensor,
    rows_ptr: tl.tensor,
    row_stride: int,
    vocab_size: int,
    words: int,
    block: tl.constexpr,
) -> None:
    """A program is a chunk of a guided row."""
    i = tl.program_id(0)
    token = tl.program_id(1) * block + tl.arange(0, block)
    row = tl.load(rows_ptr + i)
    word = tl.load(masks_ptr + i * words + token // _WORD, mask=token < words * _WORD, other=0)
    forbidden = ((word >> (token % _WORD)) & 1) == 0
    concerned = forbidden & (token < vocab_size)
    at = logits_ptr + row * row_stride + token
    tl.store(at, tl.load(at, mask=concerned).to(tl.float32) - float("inf"), mask=concerned)
