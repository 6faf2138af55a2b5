"""Conversations to text, through the model's chat template.

Owns the check of the messages and of what may be handed to a template. Does not know tokens.

A template marks the turns with special tokens such as ``<|im_start|>``, and its result is tokenised with them. So a
message that *contains* ``<|im_start|>`` opens a turn: as in vLLM and transformers, whoever may write a message may
write these, and an application that shows other people's text to the model must take them out.

vLLM: ``entrypoints/chat_utils.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

# What the engine itself decides, under every name that a template or a tokenizer has for it.
_RESERVED = frozenset(
    {
        *("self", "messages", "conversation", "chat_template", "add_generation_prompt", "continue_final_message"),
        *("tokenize", "tools", "documents", "padding", "truncation", "max_length", "return_tensors", "return_dict"),
        *("return_assistant_tokens_mask", "tokenizer_kwargs", "processor_kwargs"),
    }
)


def render_messages(
    tokenizer: Any,
    messages: Any,
    *,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    chat_template: str | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> str:
    """The text of a conversation.

    Args:
        tokenizer: with ``apply_chat_template``.
        messages: ``{"role": str, "content": str or [{"type": "text", "text": str}, …]}`` each; parts are joined by
            a newline. Further keys are passed on to the template.
        add_generation_prompt: end with the opening of the assistant's turn.
        continue_final_message: leave the last message open, so that the model goes on with it.
        chat_template: Jinja instead of the checkpoint's; runs in a sandbox, but is as slow as its author likes.
        chat_template_kwargs: further variables of the template; none may replace the arguments above.

    Raises:
        ValueError: a malformed message, a reserved variable, no template, or an error inside the template.
    """
    if add_generation_prompt and continue_final_message:
        raise ValueError(
            "add_generation_prompt and continue_final_message exclude each other: open a turn or continue one"
        )
    if chat_template is None and getattr(tokenizer, "chat_template", None) is None:
        raise ValueError("this model has no chat template: give one with chat_template, or use a plain prompt")
    variables = dict(chat_template_kwargs or {})
    if reserved := sorted((_RESERVED | _named_arguments(tokenizer)).intersection(variables)):
        raise ValueError(f"chat_template_kwargs may not set {', '.join(reserved)}: remove it")
    if continue_final_message:
        variables["continue_final_message"] = True
    conversation = check_messages(messages)
    try:
        text = tokenizer.apply_chat_template(
            conversation,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            chat_template=chat_template,
            **variables,
        )
    except Exception as error:  # a template is a program of somebody else's: anything may come out of it
        raise ValueError(f"the chat template refuses these messages: {type(error).__name__}: {error}") from error
    return str(text)


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """A copy of ``messages`` in which every content is a string.

    Raises:
        ValueError: no messages, or one without a role or without text; the message says which.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise ValueError(f"messages must be a list of {{role, content}}, not {type(messages).__name__}")
    if not messages:
        raise ValueError("messages must not be empty: send at least one")
    return [_check_message(index, message) for index, message in enumerate(messages)]


def _check_message(index: int, message: Any) -> dict[str, Any]:
    place = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise ValueError(f"{place} must be an object with role and content, not {type(message).__name__}")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ValueError(f"{place}.role must be a non-empty string such as 'user'")
    return {**message, "content": _check_content(f"{place}.content", message.get("content"))}


def _check_content(place: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes) or not content:
        raise ValueError(f"{place} must be a string or a non-empty list of text parts")
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(part, Mapping) or kind != "text":
            raise ValueError(f"{place}[{index}] has the type {kind!r:.60}; only 'text' parts are understood: remove it")
        if not isinstance(part.get("text"), str):
            raise ValueError(f"{place}[{index}].text must be a string")
        texts.append(part["text"])
    return "\n".join(texts)


def _named_arguments(tokenizer: Any) -> set[str]:
    """The arguments that this tokenizer's ``apply_chat_template`` takes for itself."""
    return set(inspect.signature(tokenizer.apply_chat_template).parameters)
