"""The old content stays written down."""

from collections import deque


class CachedBlockPool:
    def __init__(self, pool):
        self.num_blocks = pool.num_blocks
        self.queue = deque(range(pool.num_blocks))
        self.owners = [0] * pool.num_blocks
        self.content = [None] * pool.num_blocks
        self.places = {}

    @property
    def num_free(self):
        return len(self.queue)

    def find(self, key):
        return next(iter(self.places.get(key, [])), None)

    def key_of(self, block):
        return self.content[block]

    def cached_blocks(self):
        return (block for block, key in enumerate(self.content) if key is not None)

    def reset(self):
        if any(self.owners):
            return False
        self.content = [None] * self.num_blocks
        self.places.clear()
        return True

    def publish(self, block, key):
        if self.content[block] is not None or self.owners[block] == 0:
            raise ValueError("not now")
        self.content[block] = key
        self.places.setdefault(key, {})[block] = True

    def forget(self, block):
        key, self.content[block] = self.content[block], None
        self.places.get(key, {}).pop(block, None)

    def take(self, count):
        if len(self.queue) < count:
            raise ValueError("too few")
        blocks = [self.queue.popleft() for _ in range(count)]
        for block in blocks:
            self.owners[block] += 1
        return blocks

    def share(self, block):
        if self.owners[block] == 0:
            self.queue.remove(block)
        self.owners[block] += 1

    def give_back(self, block):
        if self.owners[block] == 0:
            raise ValueError("no owner")
        self.owners[block] -= 1
        if self.owners[block] == 0:
            self.queue.append(block)
