"""Stage 3's demo server: stage 1's application over this stage's engine.

vLLM: ``vllm/entrypoints/cli/serve.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stage1 import serving
from stage1.config import Settings
from stage1.server.config import ServerConfig
from stage3.build import CONFIGS, build
from stage3.grammar.structured_outputs import check_request
from stage3.llm import supported
from stage3.prefix.reset_route import reset_router

SERVER_CONFIGS = (*CONFIGS, ServerConfig)


def serve(settings: Settings, *, parts: Any = None, owners: Mapping[str, str] | None = None) -> None:
    """Serve the engine of ``settings`` until a signal ends it; the arguments are those of stage 1's ``serve``."""
    serving.serve(
        settings,
        parts=parts,
        owners=owners,
        routers=(reset_router(),),
        build_core=build,
        supported=supported(settings),
        check=check_request,
        stage=3,
    )
