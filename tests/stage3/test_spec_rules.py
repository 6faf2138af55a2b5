"""What a user may write into ``speculative_config``."""

import numpy as np
import pytest

from stage3.llm import LLM
from stage3.spec.rules import KEYS, read_rules

NGRAM = {"method": "ngram", "num_speculative_tokens": 3}


@pytest.mark.parametrize("config", [NGRAM, {"method": "eagle", "model": "x", "num_speculative_tokens": 3}], ids=str)
def test_null_is_as_good_as_nothing(config: dict) -> None:
    """Most of vLLM's defaults are null, and a config may be written out in full."""
    rules = read_rules(config)
    for key in KEYS:
        if key not in config:
            assert read_rules({**config, key: None}) == rules
    assert read_rules({key: config.get(key) for key in KEYS}) == rules


def test_a_model_without_a_method_drafts() -> None:
    rules = read_rules({"model": "tiny", "method": None, "num_speculative_tokens": 2})
    assert (rules.method, rules.model) == ("draft_model", "tiny")


def test_numbers_may_be_numpys_and_other_things_are_refused() -> None:
    tiny = {"model": "tiny", "load_format": "dummy", "device": "cpu", "max_model_len": 64}
    with LLM(**tiny, speculative_config={**NGRAM, "num_speculative_tokens": np.int64(3)}) as llm:
        assert len(llm.generate([[1, 2]])) == 1
    with pytest.raises(ValueError, match="speculative_config holds"):
        LLM(**tiny, speculative_config={**NGRAM, "num_speculative_tokens": object()})
