"""Stop strings: where a text ends, and how much of it may be shown before that is known.

Owns the search in a text that arrives in pieces. Does not know tokens: the caller pushes one token's text at a time, so
that the token that completed a stop string is the one it pushed last.

    stops ["8, 9"]    pushed   " 7"   ","   " "   "8"   ","      " "       "9"
                      released " 7"   ","   " "   ""    ""       ""        ""       → hit "8, 9"
                      held                        "8"   "8,"     "8, "

vLLM: ``v1/engine/detokenizer.py`` (``check_stop_strings``), ``BaseIncrementalDetokenizer.get_next_output_text``.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopChecker:
    """Finds the first of ``stops`` in a growing text.

    Held back is the longest end of the text that a stop string could begin with: at most ``max(len(stop)) - 1``
    characters, and nothing at all while no match is under way. What was released is never taken back or sent again.
    """

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        self._stops = tuple(stops)
        self._include_stop = include_stop
        self._longest = max(map(len, self._stops), default=0)
        self._firsts = frozenset(stop[0] for stop in self._stops)
        self._held = ""
        self._exempt = 0  # characters at the start of _held in which no match may end

    def push(self, text: str, *, counts: bool = True) -> tuple[str, str | None]:
        """Add the text of one token; what may be shown now, and the stop string that it completed.

        Among the stop strings that this text completes, the one that begins first wins; of several that begin at one
        place, the first listed. After a hit the checker is done: the rest of the text is dropped.

        Args:
            text: may be empty.
            counts: ``False`` for the first ``min_tokens`` tokens: a stop string that ends in their text is none,
                neither now nor later.
        """
        if not self._stops:
            return text, None
        text = self._held + text
        if not counts:
            self._exempt = len(text)
        elif (hit := self._find(text)) is not None:
            start, stop = hit
            self._held = ""
            return text[: start + len(stop) * self._include_stop], stop
        cut = self._start_of_partial_match(text)
        self._held = text[cut:]
        self._exempt = max(0, self._exempt - cut)
        return text[:cut], None

    def flush(self) -> str:
        """The text has ended without a hit: what was held back."""
        held, self._held = self._held, ""
        return held

    def _find(self, text: str) -> tuple[int, str] | None:
        """Start and stop string of the earliest match that ends behind the exempt characters."""
        best: tuple[int, str] | None = None
        for stop in self._stops:
            start = text.find(stop, max(0, self._exempt - len(stop) + 1))
            if start >= 0 and (best is None or start < best[0]):
                best = start, stop
        return best

    def _start_of_partial_match(self, text: str) -> int:
        """The smallest index from which the rest of ``text`` is the beginning of a stop string; else its length."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start] in self._firsts:
                rest = text[start:]
                if any(stop.startswith(rest) for stop in self._stops):
                    return start
        return len(text)
