"""No automaton: the texts themselves, and which of them the output may still become."""

from __future__ import annotations

from collections.abc import Collection, Sequence


class PlainMatcher:
    """Says what ``Matcher`` must do for an output that is one of ``texts``."""

    def __init__(self, texts: Sequence[bytes], tokens: Sequence[bytes], ending_ids: Collection[int]) -> None:
        self.texts, self.tokens, self.ending_ids = texts, tokens, ending_ids
        self.accepted: list[int] = []

    @property
    def has_ended(self) -> bool:
        """Whether the last token was an ending one."""
        return bool(self.accepted) and self.accepted[-1] in self.ending_ids

    @property
    def is_complete(self) -> bool:
        """Whether the output is one of the texts."""
        return self.has_ended or self.text() in self.texts

    def text(self) -> bytes:
        """The output."""
        return b"".join(self.tokens[i] for i in self.accepted if i not in self.ending_ids)

    def may_follow(self, token: int) -> bool:
        """Whether ``token`` may come next, while nothing has ended."""
        if token in self.ending_ids:
            return self.text() in self.texts
        text = self.tokens[token]
        return bool(text) and any(other.startswith(self.text() + text) for other in self.texts)

    def allowed(self) -> list[int]:
        """The tokens that a mask allows."""
        if self.has_ended:
            return sorted(self.ending_ids)
        return [token for token in range(len(self.tokens)) if self.may_follow(token)]

    def accept(self, ids: Sequence[int]) -> int:
        """How many of ``ids`` follow."""
        for count, token in enumerate(ids):
            if self.has_ended or not self.may_follow(token):
                return count
            self.accepted.append(token)
        return len(ids)

    def rollback(self, count: int) -> None:
        """Undo."""
        del self.accepted[len(self.accepted) - count :]
