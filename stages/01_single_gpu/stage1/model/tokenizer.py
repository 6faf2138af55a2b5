"""The tokenizer of a model.

Owns the choice: bytes for shapes without a vocabulary, the GGUF file's own, or a folder's through transformers.
Never runs a repository's code. Does not know requests.

vLLM: ``vllm/transformers_utils/tokenizer.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stage1.model import hub
from stage1.model.byte_tokenizer import ByteTokenizer
from stage1.model.checkpoint import CheckpointError
from stage1.model.gguf_file import open_gguf
from stage1.model.gguf_tokenizer import tokenizer_from_gguf
from stage1.model.source import ModelSource

# Classes that add nothing to tokenizer.json: reading it directly takes a quarter of AutoTokenizer's time.
PLAIN_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")


def load_tokenizer(source: ModelSource) -> Any:
    """A Hugging Face tokenizer, or one with the same methods; as large as the model's vocabulary at most.

    Raises:
        ValueError: its files are missing, damaged, need code of their own, or have more tokens than the model.
    """
    place = source.tokenizer
    if place is None:
        return ByteTokenizer(source.shape.vocab_size)
    path = Path(place).expanduser()
    if not path.exists():
        path = hub.download(str(place), hub.TOKENIZER_FILES)
    try:
        tokenizer = _from_gguf(path) if path.is_file() else _from_folder(path)
    except CheckpointError:
        raise
    except Exception as error:  # transformers and tokenizers raise whatever they meet in the files
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"the tokenizer in {place} is unreadable ({reason}): name another (--tokenizer)") from error
    if len(tokenizer) > source.shape.vocab_size:
        raise ValueError(
            f"the tokenizer in {place} has {len(tokenizer):,} tokens; {source.name} knows {source.shape.vocab_size:,}: "
            "name the model's own with --tokenizer"
        )
    return tokenizer


def _from_gguf(path: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    tokenizer, settings = tokenizer_from_gguf(open_gguf(path).metadata, path)
    cls: Any = PreTrainedTokenizerFast  # its constructor is not typed
    return cls(tokenizer_object=tokenizer, **settings)


def _from_folder(folder: Path) -> Any:
    if _is_plain(folder):
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(folder)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def _is_plain(folder: Path) -> bool:
    settings = folder / "tokenizer_config.json"
    if not (folder / "tokenizer.json").is_file() or not settings.is_file():
        return False
    return json.loads(settings.read_text(encoding="utf-8")).get("tokenizer_class") in PLAIN_CLASSES
