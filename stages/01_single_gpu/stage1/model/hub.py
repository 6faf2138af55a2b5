"""Models and tokenizers by Hugging Face id.

Owns what is downloaded and what is said when that fails. Never runs code of a repository. Does not know models.

vLLM: ``vllm/model_executor/model_loader/weight_utils.py`` (``download_weights_from_hf``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

TOKENIZER_FILES = ("*.json", "*.jinja", "tokenizer.model")
MODEL_FILES = ("*.safetensors", *TOKENIZER_FILES)
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
PATIENCE = 3.0  # seconds for the hub's first answer; without a network an id must fail at once


def download(hub_id: str, patterns: Sequence[str], folder: str | None = None) -> Path:
    """The local folder with the files of ``hub_id`` that match ``patterns``, in the hub's cache or in ``folder``.

    What the cache holds already is used where the hub cannot be reached.

    Raises:
        ValueError: unknown or closed repository, no network, full disk; one line, with what to do.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(patterns), cache_dir=folder, etag_timeout=PATIENCE))
    except GatedRepoError as error:
        raise ValueError(f"{hub_id} asks for consent on huggingface.co: give it there, then set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise ValueError(
            f"{hub_id} is not on the Hugging Face hub, or is private: check the name or HF_TOKEN"
        ) from error
    except LocalEntryNotFoundError as error:
        raise ValueError(
            f"{hub_id} is not in the cache and the Hugging Face hub cannot be reached: "
            "name a local folder or .gguf file, or the embedded model smollm2-135m-instruct"
        ) from error
    except (OSError, ValueError) as error:  # a full disk; a name that is no id
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{hub_id} could not be downloaded: {first_line}") from error
