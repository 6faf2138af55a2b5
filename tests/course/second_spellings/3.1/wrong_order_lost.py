"""Counts how often each token is there."""

import json
from collections import Counter
from hashlib import sha256


def hash_block(parent, token_ids):
    counts = sorted(Counter(token_ids).items())
    return sha256(parent + json.dumps(counts).encode()).digest()
