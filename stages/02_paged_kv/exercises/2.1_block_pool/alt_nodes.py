"""A node for each block and two guards, as one would write it in another language."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(eq=False)
class Node:
    """A block, its neighbours on the list, and its owners."""

    block: int
    owners: int = 0
    links: list[Node] = field(default_factory=list)  # before, after


class BlockPool:
    """``_head`` and ``_tail`` belong to no block."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks, self.num_free = num_blocks, 0
        self._head, self._tail = Node(-1), Node(-1)
        self._head.links, self._tail.links = [self._head, self._tail], [self._head, self._tail]
        self._nodes = [Node(block) for block in range(num_blocks)]
        for node in self._nodes:
            self._in(node)

    def take(self, count: int) -> list[int]:
        """Walk from the head."""
        if count > self.num_free:
            raise ValueError("too few")
        blocks = []
        while len(blocks) < count:
            node = self._head.links[1]
            self._out(node)
            node.owners = 1
            blocks.append(node.block)
        return blocks

    def share(self, block: int) -> None:
        """Out, unless it is."""
        node = self._nodes[block]
        node.owners += 1
        if node.owners == 1:
            self._out(node)

    def give_back(self, block: int) -> None:
        """In, if it was the last."""
        node = self._nodes[block]
        if node.owners < 1:
            raise ValueError("not taken")
        node.owners -= 1
        if node.owners == 0:
            self._in(node)

    def ref_count(self, block: int) -> int:
        """Owners."""
        return self._nodes[block].owners

    def free_blocks(self) -> Iterator[int]:
        """From head to tail."""
        node = self._head.links[1]
        while node is not self._tail:
            yield node.block
            node = node.links[1]

    def _in(self, node: Node) -> None:
        last = self._tail.links[0]
        node.links = [last, self._tail]
        last.links[1] = self._tail.links[0] = node
        self.num_free += 1

    def _out(self, node: Node) -> None:
        before, after = node.links
        before.links[1], after.links[0] = after, before
        self.num_free -= 1
