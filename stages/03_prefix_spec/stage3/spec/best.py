"""The likeliest token of each row: what a drafter guesses.

Owns nothing but the name of the function, and its plain version. Drafts are guessed greedily whatever the request's
temperature is: an exact verification keeps a draft with the target's probability of it, which is largest there.

vLLM: ``v1/spec_decode/eagle.py`` (``logits.argmax``).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Best = Callable[[torch.Tensor], torch.Tensor]  # [N, vocab] → [N] int64


def best_tokens(logits: torch.Tensor) -> torch.Tensor:
    """[N, vocab] → the first of the likeliest, [N] int64."""
    return logits.argmax(dim=1)
