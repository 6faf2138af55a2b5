"""SmolLM2-135M-Instruct, for real: documented continuations, stops, limits and log-probabilities.

The expected values were measured with transformers in float32 on the same weights; the prompts are those whose margins
between the best two tokens are wide, so they hold on any device and in any batch.
"""

import itertools
import json

import pytest

from stage1.params import SamplingParams

COUNTING = "1, 2, 3, 4, 5,"
COUNTING_IDS = [216, 38, 28, 216, 39, 28, 216, 40, 28, 216, 41, 28, 216, 33, 32, 28, 216, 33, 33, 28, 216, 33, 34, 28]
COUNTING_TEXT = " 6, 7, 8, 9, 10, 11, 12,"
CAPITAL = "The capital of France is"
QUESTION = [{"role": "user", "content": "What is 2+2?"}]


def greedy(**fields) -> SamplingParams:
    return SamplingParams(temperature=0, **{"max_tokens": 24, **fields})


def one(llm, prompt, params):
    return llm.generate(prompt, params)[0].outputs[0]


def test_counting(smollm):
    out = smollm.generate(COUNTING, greedy())[0]
    assert len(out.prompt_token_ids) == 14
    assert out.outputs[0].token_ids == COUNTING_IDS
    assert out.outputs[0].text == COUNTING_TEXT
    assert out.outputs[0].finish_reason == "length"


def test_chat_ends_at_eos(smollm):
    out = smollm.chat(QUESTION, greedy())[0]
    assert len(out.prompt_token_ids) == 37
    assert out.prompt_token_ids.count(1) == 3
    done = out.outputs[0]
    assert done.text == "The answer to this classic math problem is 4."
    assert (len(done.token_ids), done.token_ids[-1]) == (12, 2)
    assert (done.finish_reason, done.stop_reason) == ("stop", None)


def test_min_tokens_hold_back_eos(smollm):
    assert len(smollm.chat(QUESTION, greedy(min_tokens=13, max_tokens=20))[0].outputs[0].token_ids) > 13


@pytest.mark.parametrize(("min_tokens", "ids"), [(0, [2]), (1, [7042, 2]), (4, [7042, 30, 198, 198, 2])])
def test_bias_towards_eos_waits_for_min_tokens(smollm, min_tokens, ids):
    out = one(smollm, CAPITAL, greedy(logit_bias={2: 100.0}, min_tokens=min_tokens))
    assert (out.token_ids, out.finish_reason) == (ids, "stop")


def test_a_mixed_batch_equals_each_alone(smollm):
    prompts = [COUNTING, CAPITAL, COUNTING, "The sun rises in the"]
    params = [greedy(), greedy(max_tokens=5), greedy(max_tokens=9), SamplingParams(seed=3, max_tokens=12)]
    together = [out.outputs[0].token_ids for out in smollm.generate(prompts, params)]
    alone = [one(smollm, p, q).token_ids for p, q in zip(prompts, params, strict=True)]
    assert together == alone
    assert together[1] == [7042, 30, 198, 198, 504]


@pytest.mark.parametrize("temperature", [1e-3, 1e-8, 1e-30])
def test_tiny_temperatures_are_greedy_in_effect(smollm, temperature):
    assert one(smollm, COUNTING, SamplingParams(temperature=temperature, max_tokens=9, seed=1)).text == " 6, 7, 8,"


def test_top_k_off_in_every_spelling(smollm):
    def draw(top_k: int) -> list[int]:
        return one(smollm, CAPITAL, SamplingParams(temperature=1.0, seed=11, max_tokens=8, top_k=top_k)).token_ids

    assert draw(0) == draw(-1) == draw(49152) == draw(10**9)
    assert draw(1) == one(smollm, CAPITAL, greedy(max_tokens=8)).token_ids


@pytest.mark.parametrize(
    ("fields", "text", "num_tokens", "reason"),
    [
        ({"stop": ["8, 9"]}, " 6, 7, ", 11, "8, 9"),
        ({"stop": "8, 9", "include_stop_str_in_output": True}, " 6, 7, 8, 9", 11, "8, 9"),
        ({"stop": [", 8"]}, " 6, 7", 8, ", 8"),
        ({"stop": ["9", "8"]}, " 6, 7, ", 8, "8"),
        ({"stop": [" 8"]}, " 6, 7,", 8, " 8"),
        ({"stop": ["1, 2"], "max_tokens": 8}, " 6, 7, 8", 8, None),
        ({"stop_token_ids": [41]}, " 6, 7, 8, ", 11, 41),
        ({"stop_token_ids": [41], "include_stop_str_in_output": True}, " 6, 7, 8, 9", 11, 41),
        ({"stop": ["7"], "min_tokens": 8, "max_tokens": 10}, " 6, 7, 8, ", 10, None),
        ({"stop": ["9"], "min_tokens": 3}, " 6, 7, 8, ", 11, "9"),
    ],
)
def test_stops(smollm, fields, text, num_tokens, reason):
    out = one(smollm, COUNTING, greedy(**fields))
    assert (out.text, len(out.token_ids), out.stop_reason) == (text, num_tokens, reason)
    assert out.finish_reason == ("length" if reason is None else "stop")


def test_a_stop_string_inside_a_token(smollm):
    assert smollm.chat(QUESTION, greedy(stop=["lassi"]))[0].outputs[0].text.endswith("this c")


def test_special_tokens_show_only_when_asked_twice(smollm):
    def text(**fields) -> str:
        return smollm.chat(QUESTION, greedy(**fields))[0].outputs[0].text

    assert text(skip_special_tokens=False).endswith("4.")
    assert text(skip_special_tokens=False, include_stop_str_in_output=True).endswith("4.<|im_end|>")


def test_children_of_one_prompt(smollm):
    params = SamplingParams(n=3, seed=5, temperature=1.0, max_tokens=10)
    out, again = (smollm.generate(CAPITAL, params)[0] for _ in range(2))
    texts = [child.text for child in out.outputs]
    assert [child.index for child in out.outputs] == [0, 1, 2]
    assert len(set(texts)) > 1
    assert texts == [child.text for child in again.outputs]
    assert texts[0] == one(smollm, CAPITAL, params.replace(n=1)).text
    assert texts[2] == one(smollm, CAPITAL, params.replace(n=1, seed=7)).text


def test_nothing_allowed_is_an_error_and_never_another_token(smollm):
    out = one(smollm, CAPITAL, greedy(allowed_token_ids=[7042], bad_words=[" Paris"]))
    assert (out.token_ids, out.finish_reason) == ([], "error")
    assert set(one(smollm, CAPITAL, greedy(allowed_token_ids=[7042], max_tokens=3)).token_ids) == {7042}


def test_logprobs_have_the_asked_size_and_legal_values(smollm):
    for k in (0, 1, 5):
        out = one(smollm, COUNTING, greedy(logprobs=k, max_tokens=4))
        assert [len(row) for row in out.logprobs] == [max(1, k)] * 4  # greedy: the token is among the best
        assert out.cumulative_logprob == pytest.approx(
            sum(row[t].logprob for row, t in zip(out.logprobs, out.token_ids, strict=True))
        )
    masked = one(smollm, COUNTING, greedy(logprobs=5, allowed_token_ids=[216], max_tokens=2))
    json.loads(json.dumps([v.logprob for row in masked.logprobs for v in row.values()], allow_nan=False))


def test_prompt_logprobs_cover_the_prompt(smollm):
    out = smollm.generate(COUNTING, greedy(prompt_logprobs=2, max_tokens=1))[0]
    assert out.prompt_logprobs[0] is None
    assert len(out.prompt_logprobs) == 14
    for token, row in zip(out.prompt_token_ids[1:], out.prompt_logprobs[1:], strict=True):
        assert token in row


def test_stream_grows_to_the_text_of_generate(smollm):
    texts = [out.outputs[0].text for out in smollm.stream(COUNTING, greedy())]
    assert texts[-1] == COUNTING_TEXT
    assert all(b.startswith(a) for a, b in itertools.pairwise(texts))


def test_a_closed_stream_leaves_nothing_behind(smollm):
    stream = smollm.stream([COUNTING, CAPITAL], greedy())
    next(stream)
    stream.close()
    assert not smollm.core.has_work
    assert smollm.core.stats().kv_usage == 0.0


@pytest.mark.parametrize(
    "prompt", ["", {"prompt_token_ids": []}, {"prompt_token_ids": [49152]}, {"prompt_token_ids": [-1]}]
)
def test_bad_prompts_are_refused_before_anything_starts(smollm, prompt):
    with pytest.raises(ValueError, match=r"prompt|token"):
        smollm.generate([COUNTING, prompt], greedy())
    assert not smollm.core.has_work


def test_length_limits(make_tiny):
    llm = make_tiny(max_model_len=32)
    params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)

    def run(size: int):
        return llm.generate({"prompt_token_ids": [5] * size}, params)[0].outputs[0]

    assert (len(run(31).token_ids), run(31).finish_reason) == (1, "length")
    assert (len(run(30).token_ids), run(30).finish_reason) == (2, "length")
    for size in (32, 33, 1000):
        with pytest.raises(ValueError, match=r"32"):
            run(size)


def test_split_characters_arrive_whole(smollm):
    emoji = [10813, 116, 243]
    out = list(smollm.stream(COUNTING, greedy(max_tokens=3, allowed_token_ids=[10813], detokenize=True)))
    assert out[-1].outputs[0].text.count("\ufffd") == 3  # three beginnings of a character, none of them whole
    tokenizer = smollm.get_tokenizer()
    assert tokenizer.decode(emoji) == "\U0001f999"
