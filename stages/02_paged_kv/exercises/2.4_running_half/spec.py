"""Continuous batching over plain numbers: what each step computes of which request, and who was sent back."""

from __future__ import annotations

from dataclasses import dataclass, field

Arrival = tuple[int, str, int, int]  # before which step, request id, prompt tokens, output tokens
Step = dict[str, object]


@dataclass
class Person:
    """A request, in four numbers."""

    known: int
    to_come: int  # output tokens that are still to be sampled
    computed: int = 0
    blocks: int = 0


@dataclass
class World:
    """Who waits, who runs, and who everybody is."""

    num_blocks: int
    block_size: int
    budget: int
    threshold: int
    people: dict[str, Person] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    plan: dict[str, int] = field(default_factory=dict)  # of this step
    sent_back: list[str] = field(default_factory=list)  # in this step

    def share(self, name: str) -> int:
        """Tokens that ``name`` gets now."""
        left = self.budget - sum(self.plan.values())
        return min(self.people[name].known - self.people[name].computed, left, self.threshold or left)

    def free(self) -> int:
        """Blocks that nobody has."""
        return self.num_blocks - sum(person.blocks for person in self.people.values())

    def blocks_for(self, tokens: int) -> int:
        """Blocks that so many tokens fill."""
        return -(-tokens // self.block_size)

    def run_on(self) -> None:
        """The running half."""
        for name in list(self.running):
            person = self.people[name]
            tokens = self.share(name) if name in self.running else 0
            if not tokens:
                continue
            more = self.blocks_for(person.computed + tokens) - person.blocks
            while more > self.free() and name in self.running:
                last = self.running.pop()  # perhaps this very one
                self.people[last].computed = self.people[last].blocks = 0
                self.waiting.insert(0, last)
                self.sent_back.append(last)
            if name in self.running:
                self.plan[name] = tokens
                person.blocks += max(more, 0)

    def let_in(self, seats: int) -> None:
        """The waiting half."""
        while (
            self.waiting and not self.sent_back and len(self.running) < seats and sum(self.plan.values()) < self.budget
        ):
            name = self.waiting[0]
            needed = self.blocks_for(self.people[name].known)
            if needed > self.free():
                break
            self.people[name].blocks = needed
            self.running.append(self.waiting.pop(0))
            self.plan[name] = self.share(name)

    def compute(self) -> None:
        """Whoever closes its gap gets a token; whoever has its last one leaves."""
        for name, tokens in self.plan.items():
            person = self.people[name]
            person.computed += tokens
            if person.computed == person.known:
                person.known += 1
                person.to_come -= 1
        for name in [name for name in self.running if not self.people[name].to_come]:
            self.running.remove(name)
            self.people.pop(name)


def steps(
    seats: int, num_blocks: int, block_size: int, budget: int, threshold: int, arrivals: list[Arrival]
) -> list[Step]:
    """For each step the tokens that every request computes; stops when nothing is left."""
    world = World(num_blocks, block_size, budget, threshold)
    found: list[Step] = []
    while arrivals or world.waiting or world.running:
        for _, name, num_prompt, num_output in [a for a in arrivals if a[0] <= len(found) + 1]:
            world.people[name] = Person(num_prompt, num_output)
            world.waiting.append(name)
        arrivals = [a for a in arrivals if a[0] > len(found) + 1]
        world.plan, world.sent_back = {}, []
        world.run_on()
        world.let_in(seats)
        world.compute()
        found.append({"computed": world.plan, "sent back": world.sent_back})
    return found
