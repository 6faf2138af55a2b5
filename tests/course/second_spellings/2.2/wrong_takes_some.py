"""Takes what is there."""

from stage1.interfaces import Hit
from stage1.request import Request
from stage2.block_pool import BlockPool


class PagedKVManager:
    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self.pool = pool
        self.num_blocks, self.block_size = pool.num_blocks, block_size
        self.table: dict[str, list[int]] = {}

    @property
    def usage(self) -> float:
        return sum(map(len, self.table.values())) / self.num_blocks

    def lookup(self, req: Request) -> Hit:
        return Hit()

    def adopt(self, req: Request, hit: Hit) -> None: ...

    def commit(self, req: Request) -> None: ...

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        row = self.table.setdefault(req.req_id, [])
        missing = max(-(-(upto + lookahead) // self.block_size) - len(row), 0)
        new = self.pool.take(min(missing, self.pool.num_free))
        if len(new) < missing:
            return None
        row += new
        return new

    def free(self, req: Request) -> None:
        blocks = self.table.pop(req.req_id, [])
        while blocks:
            self.pool.give_back(blocks.pop())
