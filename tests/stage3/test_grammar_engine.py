"""Guided decoding in the engine, beside free requests, with prefix cache, speculation, preemption and the server."""

import json
import re

import httpx
import pytest

from stage1.params import SamplingParams
from stage1.server.serve import serve_in_thread
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage2.llm import LLM as PagedLLM
from stage3.grammar.structured_outputs import GuidedDecodingParams, StructuredOutputsParams
from stage3.llm import LLM, AsyncLLM

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 160, "dtype": "float32"}
LOOP = [5, 6, 7, 8, 9, 10, 11] * 6
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
FREE = [
    SamplingParams(temperature=0, max_tokens=40, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=1, max_tokens=30, ignore_eos=True),
]
DATE = r"(19|20)\d\d-[01]\d-[0-3]\d"


def guided(seed: int, **constraint) -> SamplingParams:
    return SamplingParams(
        temperature=1.0, seed=seed, max_tokens=90, structured_outputs=StructuredOutputsParams(**constraint)
    )


GUIDED = [
    guided(3, regex=DATE),
    guided(4, choice=["Positive", "Negative"]),
    guided(5, json={"type": "object", "properties": {"n": {"enum": [1, 22, 333]}}, "required": ["n"]}),
    guided(6, grammar='root ::= "a" root "b" | "c"'),
    SamplingParams(temperature=1.0, seed=7, ignore_eos=True, guided_decoding=GuidedDecodingParams(regex="x{3}")),
]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"speculative_config": NGRAM},
        {"speculative_config": NGRAM, "enable_prefix_caching": False, "max_num_seqs": 3, "max_num_batched_tokens": 11},
        {"num_gpu_blocks_override": 24, "block_size": 8, "max_num_seqs": 7, "speculative_config": NGRAM},
    ],
)
def test_constraints_hold_and_free_requests_do_not_notice(settings) -> None:
    prompts = [{"prompt_token_ids": LOOP[i:]} for i in range(7)]
    with PagedLLM(**TINY) as plain:
        expected = [o.outputs[0].token_ids for o in plain.generate(prompts[:2], FREE)]
    sink = MemorySink()
    with LLM(**{**TINY, **settings}, sinks=[sink]) as llm:
        outputs = [o.outputs[0] for o in llm.generate(prompts, [*FREE, *GUIDED])]
        assert llm.core.stats().kv_usage == 0.0
    assert [o.token_ids for o in outputs[:2]] == expected
    date, choice, data, nested, threes = (o.text for o in outputs[2:])
    assert re.fullmatch(DATE, date)
    assert choice in ("Positive", "Negative")
    assert json.loads(data)["n"] in (1, 22, 333)
    assert re.fullmatch(r"a*cb*", nested)
    assert nested.count("a") == nested.count("b")
    assert threes == "xxx"
    assert {o.finish_reason for o in outputs[2:]} == {"stop"}
    assert check_trace(Trace(sink.events)) == []


def test_drafts_of_a_guided_request_are_cut_and_verified_under_its_masks() -> None:
    """A pattern that repeats itself is guessed well, and what comes out is what comes out without drafts."""
    params = [
        guided(seed, regex="(ab?c?){12}").replace(temperature=temperature) for seed, temperature in ((1, 0), (2, 1))
    ]
    prompts = [{"prompt_token_ids": LOOP[i:]} for i in range(2)]
    texts = []
    for config in (None, NGRAM):
        with LLM(**TINY, speculative_config=config) as llm:
            outputs = llm.generate([*prompts, {"prompt_token_ids": LOOP}], [*params, FREE[1]])
            texts.append([output.outputs[0].token_ids for output in outputs])
            stats = llm.core.stats()
    assert texts[0] == texts[1]
    assert re.fullmatch("(ab?c?){12}", outputs[0].outputs[0].text)
    assert sum(stats.accepted_per_position) > 5


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": "foo**"},
        {"regex": "("},
        {"choice": []},
        {"json": {"type": "nope"}},
        {"grammar": "root ::= missing"},
        {"regex": "a", "choice": ["b"]},
        {"words": 1},
    ],
)
def test_what_cannot_be_compiled_is_refused_before_it_starts(constraint) -> None:
    with LLM(**TINY) as llm:
        with pytest.raises(ValueError, match=r".+"):
            llm.generate("a", SamplingParams(structured_outputs=constraint))
        assert not llm.core.has_work


def test_the_stage_before_refuses_a_constraint_by_either_name() -> None:
    with PagedLLM(**TINY) as llm:
        for name in ("structured_outputs", "guided_decoding"):
            with pytest.raises(ValueError, match=rf"{name}.* not supported by this engine.*stage 3"):
                llm.generate("a", SamplingParams(**{name: {"regex": "a"}}))


def test_the_server_takes_response_format_and_refuses_bad_schemas() -> None:
    llm = AsyncLLM(**TINY)
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 60, "seed": 1}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    try:
        with serve_in_thread(llm) as address, httpx.Client(base_url=address, timeout=60) as http:
            good = http.post("/v1/chat/completions", json={**body, "response_format": form})
            text = good.json()["choices"][0]["message"]["content"]  # of a random model, perhaps blanks without end
            assert re.match(r'\s*\{\s*("ok"|$)', text)
            form["json_schema"]["schema"] = {"type": "nope"}
            assert http.post("/v1/chat/completions", json={**body, "response_format": form}).status_code == 400
            bad = http.post("/v1/completions", json={"prompt": "a", "structured_outputs": {"regex": "("}})
            assert bad.status_code == 400
            assert http.get("/health").status_code == 200
    finally:
        llm.shutdown()


def test_an_end_that_the_grammar_chose_has_no_stop_reason() -> None:
    """With ``ignore_eos`` too: nobody asked for that token."""
    settings = {"model": "tiny", "load_format": "dummy", "device": "cpu", "dtype": "float32", "max_model_len": 64}
    asked = {"structured_outputs": {"choice": ["Paris"]}, "max_tokens": 20, "temperature": 0.0}
    with LLM(**settings) as llm:
        eos = llm._inputs.source.eos_token_ids[0]
        for ids, reason in (([], None), ([eos], eos)):
            params = SamplingParams(**asked, ignore_eos=True, stop_token_ids=ids)
            completion = llm.generate([[1, 2]], params)[0].outputs[0]
            assert (completion.text, completion.finish_reason, completion.stop_reason) == ("Paris", "stop", reason)
