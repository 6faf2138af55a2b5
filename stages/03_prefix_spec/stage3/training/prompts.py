"""The prompts that training texts answer: user messages put together from lists, by a seed.

Owns the templates and the mixture of kinds. Does not know tokens or models. The texts that a message asks to copy,
correct or sum up come from the caller: the target's own earlier answers, or ``passages``.

    "Give me five tips about {topic}."  +  "beekeeping"  →  "Give me five tips about beekeeping."

vLLM: none (it does not train).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from stage3.training import topics

CHAT = (
    "What is interesting about {topic}?",
    "Can you tell me more about {topic}?",
    "I am new to {topic}. Where should I start?",
    "Why do people care about {topic}?",
    "What are common mistakes with {topic}?",
    "How has {topic} changed over the last hundred years?",
    "What would you say to somebody who is afraid of {topic}?",
    "Hi! My friend {name} keeps talking about {topic}. What do I need to know?",
    "Is it hard to learn about {topic}? Give me an honest answer.",
    "What is the most important fact about {topic}?",
    "How do {topic} and {other} relate to each other?",
    "Compare {topic} and {other}.",
)
EXPLAIN = (
    "Explain {topic} to a ten-year-old.",
    "Explain how {topic} works, step by step.",
    "Explain {topic} in simple terms and give an example.",
    "Describe {topic} in one paragraph.",
    "Write a short article about {topic}.",
    "Give a short history of {topic}.",
    "What are the advantages and disadvantages of {topic}?",
    "Define {topic} and describe why it matters.",
)
WRITING = (
    "Write a short story about {name}, who finds {thing} in {place}.",
    "Write a poem about {topic}.",
    "Write a letter from {name} to {friend} about {topic}.",
    "Write a dialogue between {name} and {friend} about {topic}.",
    "Continue this story: {name} opened the door and saw {thing}.",
    "Write an email in which {name} invites {friend} to a talk on {topic}.",
    "Write the beginning of a novel that takes place in {place}.",
    "Write a diary entry of {name}, who spent a day in {place}.",
    "Write a speech about {topic} for a school event.",
    "Write a product description for a book about {topic}.",
)
LISTS = (
    "List {count} facts about {topic}.",
    "Give me {count} tips about {topic}.",
    "List {count} questions to ask about {topic}.",
    "Make a numbered list of {count} words that belong to {topic}.",
    "What are {count} good books or subjects to learn about {topic}?",
    "Name {count} reasons why {topic} matters.",
    "Make a table with {count} rows about {topic} and {other}.",
    "Give {count} ideas for a project on {topic}, with one sentence each.",
    "Make a checklist of {count} points for somebody who starts with {topic}.",
    "Count from {number} to {end}, one number a line.",
)
CODE = (
    "Write a {language} function that {task}.",
    "Write {language} code that {task}, with comments.",
    "Show me in {language}: a program that {task}. Explain it afterwards.",
    "How do I write a {language} program that {task}?",
    "Write a {language} class for {topic} with three methods.",
    "Write a {language} function that {task}, and a test for it.",
    "Write a {language} example that uses a loop and is about {topic}.",
)
ARITHMETIC = (
    "What is {number} + {end}?",
    "What is {number} times {count}? Show each step.",
    "{name} has {number} apples and gives {count} of them to {friend}. How many are left?",
    "A train goes {number} kilometres an hour. How far does it get in {count} hours?",
    "A book costs {count} dollars. What do {number} books cost?",
)
COPY = (
    "Repeat the following text exactly:\n\n{passage}",
    "Repeat this text, word for word:\n\n{passage}",
    "Copy this text word for word:\n\n{passage}",
    "Correct the spelling in this text and change nothing else:\n\n{typos}",
    "Fix the typos:\n\n{typos}",
    "Fix the typos in this text. Change nothing else.\n\n{typos}",
    "Rewrite this text and replace {name} by {friend}:\n\n{passage}",
    "Print this text again, and add one sentence at the end:\n\n{passage}",
    "Write this text in the past tense:\n\n{passage}",
    "{passage}\n\nPlease repeat the text above.",
)
COPY_CODE = (
    "Repeat this code exactly:\n\n```\n{code}\n```",
    "Print this Python code once more, without changes:\n\n```python\n{code}\n```",
    "Rename the variable {variable} to {renamed} in this code and print all of it:\n\n```\n{code}\n```",
    "Replace the name {variable} by {renamed} in this Python code and show the whole code:\n\n```python\n{code}\n```",
    "Add a comment to this code and print all of it:\n\n```\n{code}\n```",
    "Find the bug in this code, if there is one, and print the corrected code:\n\n```\n{code}\n```",
    "Translate this code to JavaScript:\n\n```\n{code}\n```",
)
SUMMARY = (
    "Summarize this text in two sentences:\n\n{passage}",
    "Summarize the text below in {few} sentences.\n\n{passage}",
    "Write a summary of this text, {few} sentences long:\n\n{passage}",
    "What are the main points of this text?\n\n{passage}",
    "Sum up the following in one paragraph:\n\n{passage}",
    "Give this text a title and say what it is about:\n\n{passage}",
    "Answer with quotes from the text: what does it say?\n\n{passage}",
    "{passage}\n\nSummarize the text above in {few} sentences.",
)
# Name, templates, share in percent. Copies and summaries are a third and more: most of their answer is in the prompt,
# where drafts are worth most, and it takes many examples to learn to look there.
KINDS: tuple[tuple[str, Sequence[str], int], ...] = (
    ("chat", CHAT, 15),
    ("explain", EXPLAIN, 9),
    ("writing", WRITING, 12),
    ("lists", LISTS, 11),
    ("code", CODE, 11),
    ("arithmetic", ARITHMETIC, 2),
    ("copy of a text", COPY, 14),
    ("copy of code", COPY_CODE, 9),
    ("summary", SUMMARY, 17),
)

VARIABLE = re.compile(r"^ *([a-z_]{3,}) [-+]?= |\bfor ([a-z_]{3,}) in ", re.MULTILINE)  # assigned, or of a loop

Texts = Callable[[random.Random], str]  # gives another text each time


def make_prompts(count: int, rng: random.Random, passage: Texts, code: Texts) -> list[str]:
    """``count`` user messages of mixed kinds.

    Args:
        rng: decides everything; equal ones give equal prompts.
        passage: gives a paragraph.
        code: gives some lines of Python.
    """
    kinds = rng.choices([templates for _, templates, _ in KINDS], [share for _, _, share in KINDS], k=count)
    return [_fill(rng.choice(templates), rng, passage, code) for templates in kinds]


def misspell(text: str, rng: random.Random, share: float = 0.08) -> str:
    """``text`` with two neighbouring letters exchanged in about ``share`` of its longer words."""
    words = text.split(" ")
    for i, word in enumerate(words):
        if len(word) > 4 and word.isalpha() and rng.random() < share:
            at = rng.randrange(1, len(word) - 2)
            words[i] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return " ".join(words)


def _fill(template: str, rng: random.Random, passage: Texts, code: Texts) -> str:
    topic, other = rng.sample(topics.TOPICS, 2)
    name, friend = rng.sample(topics.NAMES, 2)
    number = rng.randrange(2, 90)
    values = {
        "topic": topic,
        "other": other,
        "name": name,
        "friend": friend,
        "place": rng.choice(topics.PLACES),
        "thing": rng.choice(topics.THINGS),
        "task": rng.choice(topics.TASKS),
        "language": rng.choice(topics.LANGUAGES),
        "count": str(rng.randrange(3, 13)),
        "number": str(number),
        "end": str(number + rng.randrange(5, 40)),
        "few": rng.choice(("two", "three", "four")),
    }
    if "{passage}" in template or "{typos}" in template:
        values["passage"] = passage(rng)
        values["typos"] = misspell(values["passage"], rng)
    if "{code}" in template:
        values["code"] = code(rng)
        found = sorted({a or b for a, b in VARIABLE.findall(values["code"])}) or ["values"]
        values["variable"] = rng.choice(found)
        values["renamed"] = rng.choice([name for name in topics.VARIABLES if name not in values["code"]] or ["renamed"])
    return template.format_map(values)
