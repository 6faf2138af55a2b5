"""The scheduler between its sockets: hooks that hold requests back, and a cache that knows prefixes."""

from pathlib import Path

from sixfold.exercises.importer import load_file
from stage1.interfaces import Hit
from stage1.params import SamplingParams
from stage1.request import Status

bed = load_file(Path(__file__).with_name("scheduler_bed.py"))
Bed, expected_output = bed.Bed, bed.expected_output


class Gate:
    """A hook that parks every request until it is told."""

    def __init__(self):
        self.ready = []

    def admit(self, req):
        return False

    def released(self):
        ready, self.ready = self.ready, []
        return ready

    def annotate(self, plan):
        pass

    def on_result(self, plan, out):
        pass

    def on_finish(self, req):
        return False


def test_parked_requests_wait_for_all_hooks_and_may_end_there():
    gates = [Gate(), Gate()]
    bed = Bed(hooks=gates)
    for name in "abc":
        bed.add(name, [1, 2], max_tokens=2, ignore_eos=True)
    assert not bed.step().num_scheduled
    assert bed.scheduler.stats().num_waiting == 3
    gates[0].ready = ["c", "a", "b"]
    assert not bed.step().num_scheduled
    bed.scheduler.abort(["b"])
    gates[1].ready = ["b", "c", "a", "unknown"]
    assert list(bed.step().num_scheduled) == ["c", "a"]  # in the order in which they became ready
    bed.run()
    assert bed.reasons == {"a": "length", "c": "length"}
    bed.assert_clean()


class PrefixKV(bed.CommitCheckingKV):
    """Knows one prompt prefix of whole blocks, computed long ago and free."""

    def __init__(self, pool, block_size):
        super().__init__(pool, block_size)
        self.known, self.hits, self.is_ready = (), (), True

    def remember(self, prompt, blocks):
        self.known, self.hits = tuple(prompt), tuple(blocks)

    def lookup(self, req):
        if not self.is_ready:
            return None
        size = len(self.known)
        same = size and tuple(req.prompt_ids[:size]) == self.known and req.num_tokens > size
        return Hit(self.hits, size) if same else Hit()

    def adopt(self, req, hit):
        for block in hit.block_ids:
            self._pool.share(block)
        if hit.block_ids:
            self._blocks[req.req_id] = list(hit.block_ids)


def prefix_bed(**settings):
    """A bed whose cache holds the KV of eight tokens in blocks 0 and 1."""
    made = Bed(kv_type=PrefixKV, **settings)
    made.add("first", list(range(8)), max_tokens=1)
    made.run()
    made.plain_kv.remember(range(8), [0, 1])
    return made


def test_what_a_hit_covers_is_not_computed_again():
    bed = prefix_bed(num_blocks=12)
    bed.add("again", list(range(15)), max_tokens=6, ignore_eos=True)
    plan = bed.step()
    assert plan.num_scheduled == {"again": 7}
    assert (plan.new[0].num_computed, plan.new[0].block_ids[:2]) == (8, [0, 1])
    bed.run()
    assert bed.received["again"] == expected_output(list(range(15)), SamplingParams(max_tokens=6, ignore_eos=True))
    bed.assert_clean()


def test_a_hit_that_cannot_be_admitted_takes_nothing():
    bed = prefix_bed(num_blocks=6, seats=3)
    bed.add("large", [9] * 13, max_tokens=7, ignore_eos=True)
    bed.step()
    bed.step()
    before = sorted(bed.pool.free_blocks())
    bed.add("again", list(range(15)), max_tokens=2)
    for _ in range(2):  # asked for in both steps
        assert list(bed.step().num_scheduled) == ["large"]
    bed.scheduler.abort(["again"])
    assert sorted(bed.pool.free_blocks()) == before
    bed.run()
    bed.assert_clean()


def test_a_hit_that_is_not_known_yet_is_asked_for_again():
    bed = prefix_bed(num_blocks=12)
    bed.plain_kv.is_ready = False
    bed.add("again", list(range(12)), max_tokens=2, ignore_eos=True)
    assert not bed.scheduler.schedule().num_scheduled
    assert bed.lifecycle.requests["again"].status is Status.WAITING
    bed.plain_kv.is_ready = True
    assert bed.step().num_scheduled == {"again": 4}
    bed.run()
    bed.assert_clean()
