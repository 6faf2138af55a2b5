"""The offline API, as users of vLLM know it, and the write-up's offline listing."""

import pytest

from stage1.llm import LLM
from stage1.outputs import RequestOutput
from stage1.params import SamplingParams


def test_the_running_example_of_the_write_up(smollm):
    """Two prompts, temperature 0.8, top_p 0.95: an LLM, generate, and the outputs in the order of the prompts."""
    prompts = ["Hello, my name is", "The president of the United States is"]
    sampling_params = SamplingParams(temperature=0.8, top_p=0.95)
    outputs = smollm.generate(prompts, sampling_params)
    assert [output.prompt for output in outputs] == prompts
    for output in outputs:
        assert isinstance(output, RequestOutput)
        assert output.finished
        assert len(output.outputs[0].token_ids) == 16 or output.outputs[0].finish_reason == "stop"
        assert output.outputs[0].text.strip()


def test_prompt_forms(make_tiny):
    llm = make_tiny()
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    ids = llm.get_tokenizer().encode("abc")
    forms = ["abc", {"prompt": "abc"}, {"prompt_token_ids": ids}, ids]
    results = [llm.generate(form, params)[0].outputs[0].token_ids for form in forms]
    assert len({tuple(r) for r in results}) == 1
    many = llm.generate(["abc", ids, {"prompt_token_ids": ids}], params)
    assert [out.outputs[0].token_ids for out in many] == results[:3]


def test_one_set_of_parameters_a_prompt(make_tiny):
    llm = make_tiny()
    lengths = [1, 4, 2]
    outs = llm.generate(
        ["a", "b", "c"], [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in lengths]
    )
    assert [len(out.outputs[0].token_ids) for out in outs] == lengths
    with pytest.raises(ValueError, match="2 entries for 3 prompts"):
        llm.generate(["a", "b", "c"], [SamplingParams()] * 2)


def test_chat_takes_one_conversation_or_several(make_tiny):
    llm = make_tiny()
    talk = [{"role": "user", "content": "hi"}]
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
    single = llm.chat(talk, params)
    several = llm.chat([talk, talk], params)
    assert len(single) == 1
    assert [o.outputs[0].token_ids for o in several] == [single[0].outputs[0].token_ids] * 2


def test_no_prompts_give_no_outputs(make_tiny):
    assert make_tiny().generate([]) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_model_length": 8}, "max_model_len"),
        ({"dtype": "int3"}, "float32"),
        ({"max_model_len": "long"}, "max_model_len"),
        ({"max_model_len": 10**9}, "2,048"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_num_batched_tokens": 10}, "max_num_batched_tokens"),
        ({"device": "tpu"}, "device"),
        ({"model": "no/such/folder/anywhere"}, "no/such/folder/anywhere"),
    ],
)
def test_wrong_settings_say_what_is_wrong(settings, message):
    with pytest.raises(ValueError, match=message):
        LLM(**{"model": "tiny", "load_format": "dummy", **settings})


def test_what_later_stages_bring_is_refused_by_name(make_tiny):
    llm = make_tiny()
    with pytest.raises(ValueError, match=r"structured_outputs.*stage 3"):
        llm.generate("a", SamplingParams(structured_outputs={"choice": ["a"]}))
    with pytest.raises(ValueError, match=r"guided_decoding.*stage 3"):
        llm.generate("a", SamplingParams(guided_decoding={"choice": ["a"]}))
    with pytest.raises(ValueError, match=r"priority.*stage 2"):
        llm.generate("a", SamplingParams(), priority=[1])


def test_every_part_is_really_the_one_that_runs():
    """Each factory of Parts, replaced by one that raises, stops the engine: what a learner puts there would run."""
    import dataclasses

    from stage1.build import Parts

    class Planted(Exception):
        pass

    def raising(*args, **kwargs):
        raise Planted

    for name in [f.name for f in dataclasses.fields(Parts)]:
        parts = dataclasses.replace(Parts(), **{name: raising})
        try:
            with LLM("tiny", load_format="dummy", max_model_len=64, parts=parts) as llm:
                output = llm.generate("a", SamplingParams(temperature=0))[0].outputs[0]
        except Planted:
            continue
        assert output.finish_reason == "error", name
        assert "Planted" in output.error, name


def test_calls_that_take_turns_each_get_their_own(make_tiny):
    llm = make_tiny()
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    alone = [llm.generate([ids], params)[0].outputs[0].token_ids for ids in ([1, 2], [3], [4, 5])]
    first, second = llm.stream([[1, 2]], params), llm.stream([[3]], params)
    next(first)
    next(second)
    between = llm.generate([[4, 5]], params)
    found = [list(second)[-1], list(first)[-1]]
    assert [out.outputs[0].token_ids for out in (found[1], found[0], between[0])] == alone
    assert not llm.core.has_work
    assert not llm._waiting


def test_a_closed_stream_leaves_nothing_behind(make_tiny):
    llm = make_tiny()
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    stream = llm.stream([[1, 2]], params)
    next(stream)
    llm.generate([[4, 5]], params)
    stream.close()
    assert not llm._waiting
    assert not llm.core.has_work
