"""Conversations to prompts: templates, parts, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from stage1.input_processor import InputProcessor
from stage1.model.byte_tokenizer import BOS, ByteTokenizer

F2 = [{"role": "user", "content": "What is 2+2?"}]


class NoTemplate(ByteTokenizer):
    chat_template = None


@pytest.fixture
def smollm_inputs(smollm_source: Any, smollm_tokenizer: Any) -> InputProcessor:
    return InputProcessor(smollm_source, smollm_tokenizer)


@pytest.fixture
def byte_inputs(smollm_source: Any) -> InputProcessor:
    """A tokenizer that adds BOS."""
    return InputProcessor(smollm_source, ByteTokenizer())


def test_chat(smollm_inputs: InputProcessor, byte_inputs: InputProcessor) -> None:
    text, ids = smollm_inputs.render_chat(F2)
    assert text.endswith("What is 2+2?<|im_end|>\n<|im_start|>assistant\n")
    assert (len(ids), ids.count(1)) == (37, 3)
    parts = [{"role": "user", "content": [{"type": "text", "text": "What is 2+2?"}]}]
    assert smollm_inputs.render_chat(parts) == (text, ids)
    assert smollm_inputs.render_chat(F2, add_generation_prompt=False)[0].endswith("2+2?<|im_end|>\n")
    assert BOS not in byte_inputs.render_chat(F2)[1]  # the template's text is complete


def test_chat_continues_the_final_message(smollm_inputs: InputProcessor) -> None:
    begun = [*F2, {"role": "assistant", "content": "It is"}]
    text, _ = smollm_inputs.render_chat(begun, add_generation_prompt=False, continue_final_message=True)
    assert text.endswith("<|im_start|>assistant\nIt is")
    with pytest.raises(ValueError, match="exclude each other"):
        smollm_inputs.render_chat(begun, continue_final_message=True)


@pytest.mark.parametrize(
    "messages",
    [
        *(
            [],
            None,
            "hello",
            {"role": "user", "content": "a"},
            ["hello"],
            [None],
            [{"content": "a"}],
            [{"role": "user"}],
        ),
        *([{"role": "user", "content": None}], [{"role": 5, "content": "a"}], [{"role": "", "content": "a"}]),
        *([{"role": "user", "content": []}], [{"role": "user", "content": ["a"]}], [{"role": "user", "content": 5}]),
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}],
        [{"role": "user", "content": [{"type": "text", "text": None}]}],
    ],
)
def test_bad_messages(smollm_inputs: InputProcessor, messages: Any) -> None:
    with pytest.raises(ValueError, match="messages"):
        smollm_inputs.render_chat(messages)


def test_template_variables(smollm_inputs: InputProcessor, byte_inputs: InputProcessor) -> None:
    template = "{{ mood }}{% for m in messages %}{{ m.content }}{% endfor %}"
    rendered = smollm_inputs.render_chat(F2, chat_template=template, chat_template_kwargs={"mood": "calm: "})
    assert rendered[0] == "calm: What is 2+2?"
    for name in (
        "tokenize",
        "messages",
        "conversation",
        "chat_template",
        "add_generation_prompt",
        "return_dict",
        "tools",
    ):
        for inputs in (smollm_inputs, byte_inputs):
            with pytest.raises(ValueError, match=f"may not set {name}"):
                inputs.render_chat(F2, chat_template_kwargs={name: True})


@pytest.mark.parametrize(
    "template",
    [
        *(
            "{{ raise_exception('no') }}",
            "{{ ''.__class__.__mro__ }}",
            "{% for %}",
            "{{ 1 / 0 }}",
            "{{ missing.field }}",
        ),
        "{% for i in range(1000000000) %}{% endfor %}",
    ],
)
def test_template_errors(smollm_inputs: InputProcessor, template: str) -> None:
    with pytest.raises(ValueError, match="chat template refuses"):
        smollm_inputs.render_chat(F2, chat_template=template)


def test_no_template(smollm_source: Any) -> None:
    with pytest.raises(ValueError, match="no chat template"):
        InputProcessor(smollm_source, NoTemplate()).render_chat(F2)
