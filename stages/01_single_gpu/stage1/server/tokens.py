"""``/tokenize`` and ``/detokenize``: the tokenizer, for clients that count.

vLLM: ``vllm/entrypoints/openai/serving_tokenization.py``.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request

from stage1.server.body import read_body
from stage1.server.chat import render_messages
from stage1.server.context import Context
from stage1.server.errors import ApiError
from stage1.server.protocol import DetokenizeRequest, TokenizeRequest


def tokens_router(context: Context) -> APIRouter:
    """The routes over ``context``."""
    router = APIRouter()
    tokenizer = context.client.tokenizer

    @router.post("/tokenize")
    async def tokenize(request: Request) -> dict[str, Any]:
        """Text or messages to token ids."""
        body = await read_body(request, TokenizeRequest, context.config)
        context.check_model(body.model)
        ids = await _tokenize(context, body)
        strings = [str(token) for token in tokenizer.convert_ids_to_tokens(ids)] if body.return_token_strs else None
        return {"count": len(ids), "max_model_len": context.client.max_model_len, "tokens": ids, "token_strs": strings}

    @router.post("/detokenize")
    async def detokenize(request: Request) -> dict[str, Any]:
        """Token ids to text."""
        body = await read_body(request, DetokenizeRequest, context.config)
        context.check_model(body.model)
        largest = max(body.tokens, default=0)
        if largest >= len(tokenizer):
            raise ApiError(f"tokens has the id {largest}; ids go up to {len(tokenizer) - 1}", param="tokens")
        return {"prompt": await asyncio.to_thread(tokenizer.decode, body.tokens, skip_special_tokens=False)}

    return router


async def _tokenize(context: Context, body: TokenizeRequest) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise ApiError("prompt or messages is required, and only one of them", param="prompt")
    if body.prompt is not None:
        special = body.add_special_tokens is not False
        text = body.prompt
    else:
        text, ids = await render_messages(context, body)
        special = bool(body.add_special_tokens)
        if not special:
            return ids
    return list(await asyncio.to_thread(context.client.tokenizer.encode, text, add_special_tokens=special))
