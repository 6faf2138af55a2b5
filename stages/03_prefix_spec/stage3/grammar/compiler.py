"""From constraints to grammars, beside the step loop.

Owns the thread that compiles, and the grammars that were compiled last: a service asks for a few schemas over and
over. Does not know requests.

vLLM: ``v1/structured_output/__init__.py`` (``StructuredOutputManager``, its executor).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property

from stage3.grammar.llguidance_backend import TRIAL, ParserGrammar, ParserVocabulary
from stage3.grammar.matcher import Grammar
from stage3.grammar.structured_outputs import Constraint, choices_of, grammar_text
from stage3.grammar.token_fsm import MakeMask, choice_grammar, mask_maker, regex_grammar
from stage3.grammar.vocabulary import Vocabulary

MAX_GRAMMARS = 64  # the largest have tables of some 40 MB, nearly all far less than one


class GrammarCompiler:
    """Compiles constraints for one vocabulary. ``submit`` is for one thread, the step loop's.

    One thread compiles: the patterns' part is Python, which two threads would not do faster. A ``vocabulary`` that is a
    function is called by that thread, when the first constraint comes: an engine that is asked for none starts sooner.
    """

    def __init__(
        self,
        vocabulary: Vocabulary | Callable[[], Vocabulary],
        max_grammars: int = MAX_GRAMMARS,
        make_mask: MakeMask = mask_maker(),
    ) -> None:
        self._make_mask = make_mask
        self._make_vocabulary = vocabulary if callable(vocabulary) else lambda: vocabulary
        self._max_grammars = max_grammars
        self._grammars: OrderedDict[Constraint, Future[Grammar]] = OrderedDict()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")
        self._is_open = True
        TRIAL.hold()

    def __len__(self) -> int:
        return len(self._grammars)

    def submit(self, constraint: Constraint) -> Future[Grammar]:
        """The grammar of ``constraint``, at some time; the same future for an equal one, while it is remembered."""
        future = self._grammars.get(constraint)
        if future is None:
            future = self._grammars[constraint] = self._pool.submit(self.compile, constraint)
            if len(self._grammars) > self._max_grammars:
                self._grammars.popitem(last=False)  # whoever waits for it still gets it
        self._grammars.move_to_end(constraint)
        return future

    def withdraw(self, future: Future[Grammar]) -> None:
        """Nobody waits for ``future`` any longer: it is not compiled, if that has not begun."""
        if future.cancel():
            for constraint in [constraint for constraint, known in self._grammars.items() if known is future]:
                del self._grammars[constraint]

    def compile(self, constraint: Constraint) -> Grammar:
        """The grammar of ``constraint``, now.

        Raises:
            GrammarError: it is not usable with this vocabulary.
        """
        if constraint.kind == "choice":
            return choice_grammar(choices_of(constraint), self.vocabulary, self._make_mask)
        if constraint.kind == "regex":
            return regex_grammar(constraint.text, self.vocabulary, self._make_mask)
        return ParserGrammar(grammar_text(constraint), self._parser_vocabulary)

    def shutdown(self) -> None:
        """Compile nothing more; what waits is cancelled. A second call does nothing."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._is_open:
            self._is_open = False
            TRIAL.release()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The model's tokens as bytes."""
        return self._make_vocabulary()

    @cached_property
    def _parser_vocabulary(self) -> ParserVocabulary:
        return ParserVocabulary(self.vocabulary)
