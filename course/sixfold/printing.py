"""How growing texts reach a terminal: one after the other, each as it comes.

Owns the order and the labels. Requests run together in the engine, but two texts cannot grow on one screen: the first
unfinished one is printed live, the others wait in memory and follow when it has ended. Does not know the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

# What a terminal would obey instead of showing: a model's text must not move the cursor or rename the window.
_CONTROLS = {code: "�" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


@dataclass
class _Text:
    label: str
    text: str = ""
    num_printed: int = 0
    finished: bool = False


class Printer:
    """Prints ``n`` texts for each of ``prompts``; with more than one in all, each gets a line that names it."""

    def __init__(self, prompts: Sequence[str], n: int, out: TextIO, asked: Sequence[Any] | None = None) -> None:
        total = len(prompts) * n
        labels = [prompt if n == 1 else f"{prompt} ({i + 1} of {n})" for prompt in prompts for i in range(n)]
        self._texts = [_Text(f"--- {place} of {total}: {label}\n") for place, label in enumerate(labels, 1)]
        self._asked = list(prompts if asked is None else asked)  # as the engine got them: texts or token ids
        self._n = n
        self._out = out
        self._current = 0
        self._places: dict[str, int] = {}  # request id → its prompt's place

    def show(self, output: Any) -> None:
        """Take in a cumulative ``RequestOutput``, and print what may be printed by now."""
        place = self._place_of(output)
        for completion in output.outputs:
            text = self._texts[place * self._n + completion.index]
            text.text = completion.text
            text.finished = completion.finished()
        self._advance()

    def end(self) -> None:
        """No more will come: print what is left."""
        for text in self._texts:
            text.finished = True
        self._advance()

    def _place_of(self, output: Any) -> int:
        """Which prompt a request belongs to. Equal prompts are interchangeable, so the first free one will do."""
        if output.request_id not in self._places:
            taken = set(self._places.values())
            free = (i for i, asked in enumerate(self._asked) if i not in taken and _is_answer_to(asked, output))
            self._places[output.request_id] = next(free)
        return self._places[output.request_id]

    def _advance(self) -> None:
        while self._current < len(self._texts):
            current = self._texts[self._current]
            self._print(current)
            if not current.finished:
                break
            self._out.write("\n")
            self._current += 1
        self._out.flush()

    def _print(self, current: _Text) -> None:
        if current.num_printed == 0 and current.label and len(self._texts) > 1:
            self._out.write(current.label)
            current.label = ""
        new = current.text[current.num_printed :]
        self._out.write(new.translate(_CONTROLS) if self._out.isatty() else new)
        current.num_printed = len(current.text)


def _is_answer_to(asked: Any, output: Any) -> bool:
    if isinstance(asked, str):
        return bool(asked == output.prompt)
    return list(asked["prompt_token_ids"]) == list(output.prompt_token_ids)
