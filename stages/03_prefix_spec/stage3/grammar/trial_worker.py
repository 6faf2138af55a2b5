"""The program that ``trial.py`` starts: it reads grammars, tries each, and says what is wrong.

Owns what is tried: whether llguidance can read a grammar, begin in it, and take a first byte. It may die of a grammar,
which is what it is for. It imports nothing of Sixfold, so that it starts in a tenth of a second.

    in and out    length in four bytes, then UTF-8: a grammar; the reason to refuse it, or nothing

vLLM: none; its grammars are tried in the server's own process.
"""

import json
import struct
import sys
import threading

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

# Less than any thread has that compiles later: what is too deep for it is too deep here.
STACK_BYTES = 2 << 20
END = 256  # the token behind the bytes


class Bytes:
    """A vocabulary of all bytes, as llguidance reads one."""

    tokens = [*(bytes([i]) for i in range(256)), b"<end>"]
    special_token_ids = [END]
    eos_token_id = END
    bos_token_id = None

    def __call__(self, text: bytes) -> list[int]:
        """Tokens of ``text``."""
        return list(text)


def find_fault(grammar: str, tokenizer: LLTokenizer, limits: LLParserLimits) -> str:
    """Why ``grammar`` cannot be used; empty if it can."""
    is_error, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=limits)
    if is_error:
        return str(messages[0])
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
    if not matcher.is_error():
        mask = int.from_bytes(matcher.compute_bitmask(), "little") & ((1 << END) - 1)
        if mask:
            matcher.consume_token((mask & -mask).bit_length() - 1)  # the lowest byte that may come first
        elif not matcher.is_error() and not matcher.is_accepting():
            return "no text matches it"
    error = str(matcher.get_error()) if matcher.is_error() else ""
    return "no text matches it" if "NoExtensionBias" in error else error


def limit_memory(more_bytes: int) -> None:
    """Let this process have so much more address space than it has, where the system knows how."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more_bytes, now + more_bytes))
    except (ImportError, OSError, ValueError):
        pass


def serve() -> None:
    """Until the input ends."""
    asked = json.loads(sys.argv[1])
    limits = LLParserLimits(**asked["limits"])
    tokenizer = LLTokenizer(TokenizerWrapper(Bytes()))
    limit_memory(asked["memory_bytes"])
    source, target = sys.stdin.buffer, sys.stdout.buffer
    answer(target, "")  # ready
    while head := source.read(4):
        grammar = source.read(*struct.unpack("<I", head)).decode()
        answer(target, find_fault(grammar, tokenizer, limits))


def answer(target, text: str) -> None:  # type: ignore[no-untyped-def]
    """Write one message."""
    data = text.encode(errors="replace")
    target.write(struct.pack("<I", len(data)) + data)
    target.flush()


if __name__ == "__main__":
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
