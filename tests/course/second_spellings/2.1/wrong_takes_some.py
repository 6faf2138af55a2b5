"""Asks before each block whether there is one."""

from collections.abc import Iterator


class BlockPool:
    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = self.num_free = self.end = num_blocks
        self.owners = [0] * num_blocks
        self.after = [*range(1, num_blocks + 1), 0]
        self.before = [num_blocks, *range(num_blocks)]

    def ref_count(self, block: int) -> int:
        return self.owners[block]

    def free_blocks(self) -> Iterator[int]:
        block = self.after[self.end]
        while block != self.end:
            yield block
            block = self.after[block]

    def connect(self, one: int, two: int) -> None:
        self.after[one] = two
        self.before[two] = one

    def remove(self, block: int) -> None:
        self.connect(self.before[block], self.after[block])
        self.num_free -= 1

    def share(self, block: int) -> None:
        self.owners[block] += 1
        if self.owners[block] == 1:
            self.remove(block)

    def give_back(self, block: int) -> None:
        if self.owners[block] <= 0:
            raise ValueError("nobody has it")
        self.owners[block] -= 1
        if self.owners[block] == 0:
            self.insert(block)

    def insert(self, block: int) -> None:
        self.connect(self.before[self.end], block)
        self.connect(block, self.end)
        self.num_free += 1

    def take(self, count: int) -> list[int]:
        blocks: list[int] = []
        while len(blocks) < count:
            if not self.num_free:
                raise ValueError("none left")
            block = self.after[self.end]
            self.remove(block)
            self.owners[block] += 1
            blocks.append(block)
        return blocks
