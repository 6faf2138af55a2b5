"""The engines that this stage's scripts measure: the embedded model, without drafts and with several kinds of them.

Owns how each speculates, and its sizes. What they are given to do is the scripts' matter, the clock is
``stage1.measuring``.

vLLM: none; its benchmarks take every setting from the command line.
"""

from __future__ import annotations

from typing import Any

from stage3.llm import LLM

CACHE_BYTES = 8 << 30  # of each engine
ARMS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "ngram": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4},
    "medusa": {"method": "medusa", "num_speculative_tokens": 2, "disable_by_batch_size": 64},
    "eagle": {"method": "eagle", "num_speculative_tokens": 3},
}


def make_llm(arm: str, **settings: Any) -> LLM:
    """An engine that speculates as ``ARMS`` says, with 256 seats and no prefix cache; ``settings`` are added."""
    return LLM(
        speculative_config=ARMS[arm],
        kv_cache_memory_bytes=CACHE_BYTES,
        max_model_len=1024,
        max_num_seqs=256,
        max_num_batched_tokens=4096,
        enable_prefix_caching=False,
        **settings,
    )
