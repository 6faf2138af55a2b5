"""What every route of one app shares.

Owns the bundle of client, settings and app-wide facts that the routes are built over. Does not know the routes.

vLLM: ``app.state`` in ``vllm/entrypoints/openai/api_server.py``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stage1.server.config import ServerConfig
from stage1.server.errors import ApiError

if TYPE_CHECKING:
    from stage1.text_client import TextClient

# Adds metrics to GET /metrics: Prometheus text, each line ended by a newline.
Collector = Callable[[], Awaitable[str]]


@dataclass(frozen=True)
class Context:
    """One app's client, settings and facts."""

    client: TextClient
    config: ServerConfig = field(default_factory=ServerConfig)
    collectors: Sequence[Collector] = ()
    parts: Mapping[str, str] = field(default_factory=dict)  # replaceable part → "yours" or "reference"
    started: int = field(default_factory=lambda: int(time.time()))  # Unix seconds
    stopping: asyncio.Event = field(default_factory=asyncio.Event)  # ends streams that would never end

    def check_model(self, name: str) -> None:
        """Raise a 404 unless ``name`` is empty or the served model."""
        if name and name != self.client.model_name:
            raise ApiError(
                f"The model `{name[:200]}` does not exist; this server has `{self.client.model_name}`.",
                status=404,
                param="model",
            )
