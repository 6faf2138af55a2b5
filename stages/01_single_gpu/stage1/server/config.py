"""The server's settings.

Owns names and defaults. Does not know how flags are made of them: that is ``stage1.config``.

vLLM: ``vllm/entrypoints/openai/cli_args.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stage1.config import setting


@dataclass(frozen=True)
class ServerConfig:
    """Where the server listens, and what it grants."""

    # Loopback, unlike vLLM: a demo that anyone on the network can reach should be a decision, not a default.
    host: str = setting("127.0.0.1", "address to listen on; 0.0.0.0 = every interface, for everyone on the network")
    port: int = setting(8000, "port to listen on; 0 = any free one")
    api_key: str | None = setting(None, "key, or several with commas, that requests under /v1 must carry")
    max_body_mib: int = setting(8, "largest request body in MiB")
    # A value of a few bytes becomes an object of a hundred: the size alone does not limit the memory.
    max_body_values: int = setting(300_000, "most values in a request body: each comma, colon, [ and { counts")
    body_timeout: float = setting(30.0, "seconds within which a request body must have arrived")
    max_choices: int = setting(1024, "most completions in one request, prompts x n")
    response_role: str = setting("assistant", "role of the answers in a chat")
    trust_request_chat_template: bool = setting(False, "allow requests to bring their own chat template")
    enable_request_id_headers: bool = setting(False, "answer with the request's id in X-Request-Id")
    enable_prompt_tokens_details: bool = setting(False, "tell in usage how many prompt tokens came from the cache")
    uvicorn_log_level: Literal["critical", "error", "warning", "info", "debug"] = setting("info", "what uvicorn logs")
    disable_uvicorn_access_log: bool = setting(False, "no log line a request")

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port is {self.port}; it must be between 0 and 65535: choose another with --port")
        for name in ("max_body_mib", "max_body_values", "max_choices", "body_timeout"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be positive")
