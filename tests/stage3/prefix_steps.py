"""What the scheduler asks of a prefix cache, step by step and without a scheduler."""

from stage1.params import SamplingParams
from stage1.request import Request, Status
from stage3.prefix.kv_manager import PrefixKVManager


def request(name: str, prompt: list[int], **params) -> Request:
    return Request(name, prompt, SamplingParams(**params), 10_000)


def admit(kv: PrefixKVManager, req: Request) -> int | None:
    """As the scheduler does it; the tokens that were cached, or ``None`` when there is no room."""
    hit = kv.lookup(req)
    kv.adopt(req, hit)
    if kv.allocate_slots(req, req.num_tokens) is None:
        kv.free(req)
        return None
    req.status = Status.RUNNING
    req.num_computed_tokens = hit.num_tokens
    return hit.num_tokens


def compute(kv: PrefixKVManager, req: Request, num_tokens: int | None = None) -> None:
    """A step over ``num_tokens`` of the gap, with its result: behind the last one a token 1 is sampled."""
    req.num_computed_tokens += req.num_tokens_to_compute if num_tokens is None else num_tokens
    if req.num_computed_tokens == req.num_tokens:
        req.output_ids.append(1)
    kv.commit(req)


def end(kv: PrefixKVManager, req: Request, status: Status = Status.STOPPED) -> None:
    req.status = status
    kv.free(req)


def run(kv: PrefixKVManager, name: str, prompt: list[int], salt: str | None = None, **params) -> int:
    """One request from beginning to end; its cached tokens."""
    if salt is not None:
        kv.set_extra_keys(name, {"cache_salt": salt})
    req = request(name, prompt, **params)
    hit = admit(kv, req)
    assert hit is not None
    compute(kv, req)
    end(kv, req)
    return hit
