"""Keeps a table of owners by block, and looks for a free row."""

from stage1.kv_manager import OneBlockKVManager as Reference


class OneBlockKVManager(Reference):
    """The lowest free block goes first."""

    def __init__(self, num_blocks, block_size):
        super().__init__(num_blocks, block_size)
        self.owner_of = [None] * num_blocks

    @property
    def usage(self):
        """Share of the rows that have an owner."""
        return 1 - self.owner_of.count(None) / self.num_blocks

    def allocate_slots(self, req, upto, lookahead=0):
        """The first row without an owner."""
        if upto + lookahead > self.block_size:
            raise ValueError(f"{req.req_id} asks for {upto + lookahead} tokens; a block has {self.block_size}")
        if req.req_id in self.owner_of:
            return []
        if None not in self.owner_of:
            return None
        block = self.owner_of.index(None)
        self.owner_of[block] = req.req_id
        return [block]

    def free(self, req):
        """Clear the rows of ``req``."""
        self.owner_of = [None if owner == req.req_id else owner for owner in self.owner_of]
