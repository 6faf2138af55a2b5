"""Takes in the first line, thinks in the last."""

from stage1.interfaces import Hit
from stage1.request import Request


class OneBlockKVManager:
    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.free_blocks = set(range(num_blocks))
        self.block_of: dict[str, int] = {}

    @property
    def usage(self) -> float:
        return len(self.block_of) / self.num_blocks

    def lookup(self, req: Request) -> Hit:
        return Hit()

    def adopt(self, req: Request, hit: Hit) -> None: ...

    def commit(self, req: Request) -> None: ...

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        new = []
        if req.req_id not in self.block_of:
            if not self.free_blocks:
                return None
            new = [self.free_blocks.pop()]
            self.block_of[req.req_id] = new[0]
        if self.block_size < upto + lookahead:
            raise ValueError("too many tokens for a block")
        return new

    def free(self, req: Request) -> None:
        if req.req_id in self.block_of:
            self.free_blocks.add(self.block_of.pop(req.req_id))
