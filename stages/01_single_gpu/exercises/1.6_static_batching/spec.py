"""Static batching over plain numbers: what each step computes of which request."""

from __future__ import annotations

Arrival = tuple[int, str, int, int]  # before which step, request id, prompt tokens, output tokens


def steps(
    seats: int, blocks: int, budget: int, arrivals: list[Arrival], aborts: dict[int, str]
) -> list[dict[str, int]]:
    """For each step the tokens that every request computes, in order; stops when nothing is left."""
    waiting: list[str] = []
    batch: list[str] = []
    gap: dict[str, int] = {}  # tokens known and not computed
    to_come: dict[str, int] = {}  # output tokens that are still to be sampled
    plans: list[dict[str, int]] = []
    while arrivals or waiting or batch:
        step = len(plans) + 1
        for _, req_id, num_prompt, num_output in [a for a in arrivals if a[0] <= step]:
            waiting.append(req_id)
            gap[req_id], to_come[req_id] = num_prompt, num_output
        arrivals = [a for a in arrivals if a[0] > step]
        waiting = [r for r in waiting if r != aborts.get(step)]
        batch = [r for r in batch if r != aborts.get(step)]
        if not batch:
            room = min(seats, blocks)
            batch, waiting = waiting[:room], waiting[room:]
        plan: dict[str, int] = {}
        for req_id in batch:
            if gap[req_id] <= budget - sum(plan.values()):
                plan[req_id] = gap[req_id]
        for req_id in plan:  # each has closed its gap, so each samples a token
            gap[req_id] = 1
            to_come[req_id] -= 1
        batch = [r for r in batch if to_come[r]]
        plans.append(plan)
    return plans
