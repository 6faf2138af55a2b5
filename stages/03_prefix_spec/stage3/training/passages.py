"""Texts to copy, correct and sum up, for as long as the target has written none: sentences and code from parts.

Owns the parts. Does not know prompts or what is kept back for the evaluation.

vLLM: none (it does not train).
"""

from __future__ import annotations

import random

from stage3.training import topics

SENTENCES = (
    "{name} has read a lot about {topic} and likes to talk about it.",
    "In {place}, people still remember the year {year}, when everything changed.",
    "Most visitors come for {topic}, but they stay for {other}.",
    "According to a report of {year}, about {number} percent of the people know little about {topic}.",
    "{name} and {friend} met in {place} and found {thing}.",
    "There are many ways to look at {topic}, and none of them is complete.",
    "The work took {number} days and cost more than anybody had expected.",
    "First, it helps to understand {topic}; after that, {other} is much easier.",
    "At {number} minutes past nine, {name} closed the shop and walked home.",
    "Nobody knew where {thing} had come from, and {friend} did not ask.",
    "Since {year}, a group of {number} volunteers has met every week to discuss {topic}.",
    "{friend} said that {topic} is a matter of patience, and {name} agreed.",
    "The second part of the plan was about {other}, which many had forgotten.",
    "It was a cold morning in {place}, and the streets were almost empty.",
    "Some say that {topic} and {other} have nothing in common, but that is not quite true.",
    "For {number} years the house stood empty, until {name} bought it.",
    "The teacher wrote three questions about {topic} on the board.",
    "However, the results were better than expected, and the group decided to go on.",
    "On the last day, {name} wrote a long letter about {thing} and sent it to {friend}.",
    "A good start is to spend {number} minutes a day on {topic}.",
    "In {year}, {name} opened a school for {topic}, which had only {number} pupils at first.",
    "What makes {topic} difficult is not the rules but the exceptions.",
    "The museum in {place} shows {number} objects, among them {thing}.",
    "Before {year}, hardly anybody had heard of {topic}; today it is part of daily life.",
    "{name} prefers {topic}, while {friend} would rather hear about {other}.",
    "The price rose by {number} percent within a year, so many people looked for something cheaper.",
    "Experts agree that {topic} will become more important, but they disagree about the reasons.",
    "When the rain stopped, {name} and {friend} walked to {place} and waited for the others.",
    "Two things are needed for {topic}: time, and somebody who explains it well.",
    "The letter was {number} pages long and did not mention {thing} at all.",
    "Later, {friend} became known for a book on {other}, which was translated {number} times.",
    "This is why the council decided in {year} to spend more on {topic}.",
)
FUNCTIONS = (
    """def {verb}_{noun}(values):
    total = 0
    for value in values:
        total += value * {number}
    return total""",
    """def {verb}_{noun}(values, limit={number}):
    return [value for value in values if value < limit]""",
    """def {verb}_{noun}(values):
    result = {{}}
    for key in values:
        result[key] = result.get(key, 0) + 1
    return result""",
    """class {Noun}:
    def __init__(self, values):
        self.values = list(values)

    def {verb}(self, value):
        self.values.append(value)
        return len(self.values)""",
    """def {verb}_{noun}(values):
    if not values:
        return None
    best = values[0]
    for value in values[1:]:
        if value > best:
            best = value
    return best""",
    """def {verb}_{noun}(path):
    values = []
    with open(path) as file:
        for line in file:
            if line.strip():
                values.append(line.strip().split(','))
    return values""",
    """def {verb}_{noun}(values):
    i = 0
    while i < len(values) and values[i] != {number}:
        i += 1
    return i""",
)
USES = ("values = [{number}, 3, 8]\nprint({verb}_{noun}(values))", "if __name__ == '__main__':\n    print('{noun}')")
VERBS = ("count", "find", "load", "merge", "filter", "update", "print", "collect", "check", "build", "add", "scale")
NOUNS = ("orders", "scores", "names", "prices", "points", "books", "users", "rows", "words", "tasks", "cards", "cells")


def passage(rng: random.Random) -> str:
    """Five to eleven sentences about one or two topics."""
    topic, other = rng.sample(topics.TOPICS, 2)
    name, friend = rng.sample(topics.NAMES, 2)
    chosen = rng.sample(SENTENCES, rng.randrange(5, 12))
    return " ".join(
        sentence.format(
            topic=topic,
            other=other,
            name=name,
            friend=friend,
            place=rng.choice(topics.PLACES),
            thing=rng.choice(topics.THINGS),
            year=rng.randrange(1850, 2024),
            number=rng.randrange(3, 60),
        )
        for sentence in chosen
    )


def code(rng: random.Random) -> str:
    """Two to four functions or classes, and perhaps a use of one."""
    parts = []
    for template in rng.sample(FUNCTIONS, rng.randrange(2, 5)) + rng.sample(USES, rng.randrange(2)):
        noun = rng.choice(NOUNS)
        values = {"verb": rng.choice(VERBS), "noun": noun, "Noun": noun.title(), "number": rng.randrange(2, 40)}
        parts.append(template.format_map(values))
    return "\n\n\n".join(parts)
