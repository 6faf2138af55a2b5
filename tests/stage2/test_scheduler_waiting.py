"""Both queues against a plain list: who is next, whoever came, gave way or ended in between."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stage1.params import SamplingParams
from stage1.request import Request, Status
from stage2.waiting import FcfsQueue, PriorityQueue

ACTIONS = st.tuples(
    st.sampled_from(["add", "add", "put back", "pop", "end", "drop"]), st.integers(-2, 2), st.integers(0, 3)
)


def urgency(req: Request) -> tuple[int, float, str]:
    return (req.priority, req.arrival_time, req.req_id)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([FcfsQueue, PriorityQueue]), st.lists(ACTIONS, min_size=15, max_size=60))
def test_the_next_one_is_always_right(queue_type, actions):
    queue, plain, popped = queue_type(), [], []
    for number, (action, priority, arrival) in enumerate(actions):
        living = [req for req in plain if not req.status.is_finished]
        if action == "add":
            req = Request(f"{number:02}", [1], SamplingParams(), 9, priority, float(arrival))
            queue.add(req)
            plain.append(req)
        elif action == "put back" and popped:
            req = popped.pop()
            queue.put_back(req)
            plain.insert(0, req)
        elif action == "pop" and living:
            first = living[0]
            assert queue.peek() is first
            assert queue.pop() is first
            plain.remove(first)
            popped.append(first)
        elif action == "end" and living:
            living[(priority + arrival) % len(living)].status = Status.ABORTED
        elif action == "drop":
            queue.drop_ended()
            assert len(queue) == len(living)
        if queue_type is PriorityQueue:
            plain.sort(key=urgency)
    rest = [req for req in plain if not req.status.is_finished]
    while (req := queue.peek()) is not None:
        assert queue.pop() is req is rest.pop(0)
    assert rest == []


@pytest.mark.parametrize(("queue", "worst"), [(FcfsQueue(), "c"), (PriorityQueue(), "b")])
def test_the_last_or_the_least_urgent_gives_way_first(queue, worst):
    running = [
        Request(name, [1], SamplingParams(), 9, priority, 1.0) for name, priority in (("a", 0), ("b", 7), ("c", 7))
    ]
    running[1].arrival_time = 2.0
    assert queue.worst(running).req_id == worst
