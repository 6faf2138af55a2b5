"""Never asks whether there is a block."""

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
        if upto + lookahead > self.block_size:
            raise ValueError(f"{upto} tokens do not fit")
        try:
            block = min(self.free_blocks)
        except ValueError:
            return None
        self.free_blocks.discard(block)
        self.block_of[req.req_id] = block
        return [block]

    def free(self, req: Request) -> None:
        if req.req_id in self.block_of:
            self.free_blocks.add(self.block_of.pop(req.req_id))
