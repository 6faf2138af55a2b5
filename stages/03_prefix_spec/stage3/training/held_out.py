"""The prompts that acceptance is measured on. Nothing about their topics is ever trained on.

Owns the messages by kind and the check that keeps them apart from the training. The passages are in
``held_out_passages``.

vLLM: none (it does not train).
"""

from __future__ import annotations

import re

from stage3.training.held_out_passages import CODES, COPIED, RENAMED, SUMMED_UP, TYPOS

# Words of the topics below: a training prompt with one of them is thrown away.
TOPICS = (
    "lichen", "sourdough", "bagpipe", "tardigrade", "aurora", "chess clock", "saffron", "samurai", "sundial",
    "kombucha", "espresso", "haiku", "otter", "typewriter", "hot-air balloon", "violin maker", "astronaut",
    "beetle", "tram driver", "snow globe", "cactus", "roman numeral", "leap year", "anagram", "palindrome",
    "fizzbuzz", "fibonacci", "caesar cipher", "bubble sort", "temperature log", "tic-tac-toe", "pascal's triangle",
    "collatz", "run-length", "iceland", "kayak", "lisbon", "telescope mirror", "board game night", "picnic", "moth",
    "trombone", "bonsai", "paella", "scuba", "thunder god", "lemonade", "ukulele", "hedgehog", "parallel parking",
    "ferry", "quilt",
)  # fmt: skip

CHAT = (
    "What are lichens, and why do they grow on stones?",
    "How do I keep a sourdough starter alive when I am away for two weeks?",
    "Why do bagpipes sound so loud?",
    "Can tardigrades really survive in space?",
    "What causes the aurora, and when is the best time to see one?",
    "I have never used a chess clock. How does it work?",
    "Why is saffron so expensive?",
    "What did a samurai do in times of peace?",
    "How accurate can a sundial be?",
    "Is kombucha good for me? Please tell me what is known.",
    "My espresso tastes sour. What can I change?",
    "Do hedgehogs make good neighbours in a garden?",
)
WRITING = (
    "Write a haiku about an otter, and then explain it.",
    "Write a short story about a typewriter that finishes its owner's sentences.",
    "Write a letter from a hot-air balloon pilot to her grandmother.",
    "Write the first page of a novel about a violin maker who loses his hearing.",
    "Write a conversation between an astronaut and a beetle.",
    "Tell a bedtime story about a tram driver who takes a wrong turn.",
    "Write a poem in three stanzas about a snow globe.",
    "Write an email that invites colleagues to a board game night.",
    "Write a monologue of a cactus that has to move to a colder flat.",
    "Write a funny review of a lemonade stand that is run by two very serious children.",
    "Write a story in which a moth and a trombone become friends.",
    "Write a speech of a thunder god who apologises for the weather.",
)
CODE = (
    "Write a Python function that turns a Roman numeral into a number.",
    "Write a Python function that tells whether a year is a leap year, with a docstring.",
    "Write a Python function that groups words which are anagrams of each other.",
    "Write a JavaScript function that checks whether a word is a palindrome.",
    "Write FizzBuzz in Python and explain every line.",
    "Write a Python generator of the Fibonacci numbers and print the first ten.",
    "Implement a Caesar cipher in Python with functions to encrypt and decrypt.",
    "Write bubble sort in C, with comments.",
    "Write a Python class TemperatureLog (a temperature log) with methods add, average and hottest.",
    "Write a Python program for two players of tic-tac-toe in the terminal.",
    "Write a Python function that returns the first n rows of Pascal's triangle.",
    "Write a Python function for run-length encoding of a string, and its inverse.",
)
LISTS = (
    "List ten things to pack for a week in Iceland.",
    "Give me seven tips for a first trip in a kayak.",
    "Make a plan for three days in Lisbon, as a list with morning, afternoon and evening.",
    "List eight steps to clean a telescope mirror.",
    "List twelve things to bring to a picnic, in alphabetical order.",
    "What are five ways to keep a bonsai healthy?",
    "List the ingredients and the steps of a simple paella.",
    "Make a checklist of ten points before a scuba dive.",
    "Give me six exercises for somebody who learns the ukulele.",
    "List eight mistakes in parallel parking and how to avoid each.",
    "Name nine things that a ferry captain checks before leaving.",
    "List seven patterns for a quilt and describe each in one sentence.",
)


_TOPIC = re.compile(rf"\b(?:{'|'.join(map(re.escape, TOPICS))})s?\b", re.IGNORECASE)


def held_out_prompts() -> dict[str, list[str]]:
    """User messages by kind, at least 12 a kind, the same each time."""
    copy = [f"Repeat this text exactly:\n\n{text}" for text in COPIED]
    copy += [f"Fix the typos in this paragraph and change nothing else:\n\n{text}" for text in TYPOS]
    copy += [f"Repeat this code exactly:\n\n```python\n{text}\n```" for text in CODES]
    copy += [
        f"Rename the variable {old} to {new} in this code and print all of it:\n\n```python\n{text}\n```"
        for text, old, new in RENAMED
    ]
    summary = [f"Summarize the following text in three sentences:\n\n{text}" for text in SUMMED_UP]
    return {
        "chat": list(CHAT),
        "writing": list(WRITING),
        "code": list(CODE),
        "lists": list(LISTS),
        "summary": summary,
        "copy": copy,
    }


def is_held_out(text: str) -> bool:
    """Whether ``text`` touches a topic or holds a sentence that is kept back for the evaluation."""
    if _TOPIC.search(text):
        return True
    whole = (*COPIED, *SUMMED_UP, *CODES, *(code for code, _, _ in RENAMED))
    return any(sentence.strip() in text for passage in whole for sentence in passage.split(". "))
