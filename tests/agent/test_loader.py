"""A data loader's life is recorded: iterations, asks, batches, workers, whatever the way it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.loaders import Observed, line_of, observe, torch_version
from whyidle_agent import wire

if TYPE_CHECKING:
    from tests.agent.decoding import Record

pytestmark = pytest.mark.torch

USES = """
    class Batched(Numbers):
        def __getitems__(self, indices): return [self[index] for index in indices]

    class Failing(Numbers):
        def __getitem__(self, index):
            if index == 5:
                raise KeyError("no such sample")
            return super().__getitem__(index)

    class Interrupted(Numbers):
        def __getitem__(self, index):
            if index == 5:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    class Nested(Dataset):
        def __len__(self): return 4
        def __getitem__(self, index):
            return sum(int(batch[1].sum()) for batch in DataLoader(Numbers(6), batch_size=3))

    class SlowSampler(Sampler):
        def __init__(self): pass
        def __len__(self): return 4
        def __iter__(self):
            for index in range(4):
                time.sleep(0.002)
                yield index

    class Wrapping(DataLoader):
        def __iter__(self):
            for batch in super().__iter__():
                yield batch

    def build(dataset, **options):
        return DataLoader(dataset, batch_size=4, **options)  # build

    def asked(loader):
        return sum(1 for _ in loader)

    if __name__ == "__main__":
        for batch in build(Numbers(10)): pass  # inline
        for batch in DataLoader(Numbers(3), batch_size=None): pass  # unbatched
        for _ in range(2):
            for batch in build(Numbers(24), num_workers=2): pass  # workers
        kept = build(Numbers(24), num_workers=2, persistent_workers=True)
        for _ in range(2):
            for batch in kept: pass  # persistent
        del kept
        for batch in build(Stream(9, 2), num_workers=2): pass  # stream
        for batch in build(Stream(9)): pass  # inline stream
        for batch in build(Batched(8)): pass  # batched
        for batch in build(Subset(Subset(Numbers(10), [9, 7, 5, 3]), [3, 0])): pass  # subset
        for batch in build(ConcatDataset([Numbers(3), Numbers(5)])): pass  # concatenated
        for batch in zip(build(Numbers(8)), build(Numbers(8), num_workers=1)): pass  # zipped
        for batch in build(Numbers(8), num_workers=1):  # outer
            for other in build(Numbers(8)): pass  # inner
        for batch in build(Numbers(24), num_workers=2):  # broken off
            break
        for batch in itertools.islice(build(Numbers(24), num_workers=2), 2): pass  # sliced
        for batch in DataLoader(Nested(), batch_size=2): pass  # nested
        for batch in DataLoader(Nested(), batch_size=2, num_workers=1): pass  # nested in worker
        for batch in DataLoader(Numbers(4), batch_size=2, sampler=SlowSampler(), num_workers=1): pass  # sampler
        for batch in Wrapping(Numbers(8), batch_size=4): pass  # wrapping
        for dataset, workers in ((Failing(12), 0), (Failing(12), 1), (Interrupted(12), 0)):
            iterator = iter(build(dataset, num_workers=workers))  # failing
            next(iterator)
            try:
                next(iterator)
                raise SystemExit("no error came")
            except (KeyError, KeyboardInterrupt):
                pass
            next(iterator)
            del iterator
        assert len(iter(build(Numbers(10)))) == 3
        for batch in pickle.loads(pickle.dumps(build(Numbers(8)))): pass  # unpickled
        try:
            unordered = build(Numbers(24), num_workers=2, in_order=False)
        except TypeError:
            unordered = ()
        for batch in unordered: pass  # unordered
"""


@pytest.fixture(scope="module")
def uses(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """All the ways to use a loader, in one run."""
    return observe(tmp_path_factory.mktemp("uses"), USES)


def answered(asks: list[Record]) -> list[Record]:
    """Asks that got a batch."""
    return [one for one in asks if not one.flags & (wire.ASK_ENDED | wire.ASK_RAISED)]


def test_notes_when_torch_is_supported(uses: Observed) -> None:
    """No patch point was left alone and nothing of the agent failed."""
    assert uses.notes() == []


def test_loader_says_how_it_is_set_up(uses: Observed) -> None:
    """Workers, prefetch, batch size and flags are those of the loader."""
    loader = uses.iterations("workers")[0]
    inline = uses.iterations("inline stream")[0]
    unbatched = uses.iterations("unbatched")[0]

    assert (loader.b, loader.c, loader.d) == (2, 2, 4)
    assert loader.flags == wire.LOADER_IN_ORDER
    assert loader.t0 < loader.t1
    assert (inline.b, inline.c, inline.d) == (0, 0, 4)
    assert inline.flags == wire.LOADER_IN_ORDER | wire.LOADER_ITERABLE
    assert unbatched.d == -1


def test_place_is_where_loop_and_build_stand(uses: Observed) -> None:
    """The loop's line, the line that built the loader, the data set and the start method are named."""
    (place,) = uses.of_iteration(wire.LOADER_PLACE, "outer")
    texts = uses.main.texts

    assert texts[place.t0] == texts[place.a]
    assert texts[place.t0].endswith("target.py")
    assert place.b == line_of(uses.script, "build")
    assert (texts[place.c], texts[place.d]) == ("__main__.Numbers", "fork")


@pytest.mark.parametrize(
    ("label", "dataset"),
    [("wrapping", "Numbers"), ("subset", "Numbers"), ("nested", "Nested")],
)
def test_place_when_loop_is_further_out(uses: Observed, label: str, dataset: str) -> None:
    """A loader class of the person's own, or a Subset, does not hide the loop and the data set."""
    (place,) = uses.of_iteration(wire.LOADER_PLACE, label)

    assert uses.main.texts[place.c] == f"__main__.{dataset}"


def test_asks_without_workers(uses: Observed) -> None:
    """Each ask names its batch, nobody is awaited, and the last one ends the iteration."""
    asks = uses.of_iteration(wire.ASK, "inline")

    assert [one.a for one in answered(asks)] == [0, 1, 2]
    assert [one.flags for one in asks] == [0, 0, 0, wire.ASK_ENDED]
    assert {(one.b, one.c) for one in asks} == {(-1, 0)}
    assert all(one.t0 < one.t1 for one in asks)


def test_fetches_without_workers_lie_in_their_asks(uses: Observed) -> None:
    """A batch that the loop makes itself is made inside the ask for it."""
    asks = answered(uses.of_iteration(wire.ASK, "inline"))
    fetches = uses.of_iteration(wire.FETCH, "inline")

    assert [one.a for one in fetches] == [0, 1, 2]
    for ask, fetch in zip(asks, fetches, strict=True):
        assert ask.t0 <= fetch.t0 < fetch.t1 <= ask.t1
        assert 0 < fetch.b < fetch.t1 - fetch.t0 + 1_000_000
        assert fetch.d == 0


def test_samples_name_index_and_position(uses: Observed) -> None:
    """Each sample of a batch has its index in the data set, its place and its time."""
    samples = uses.of_iteration(wire.SAMPLE, "inline")
    fetches = {one.a: one for one in uses.of_iteration(wire.FETCH, "inline")}

    assert [one.b for one in samples] == list(range(10))
    assert [one.c for one in samples] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    for sample in samples:
        assert fetches[sample.a].t0 <= sample.t0 <= sample.t1 <= fetches[sample.a].t1


def test_cost_and_payload_of_a_batch(uses: Observed) -> None:
    """Collate lies in the fetch, and the batch weighs what its tensors weigh."""
    costs = uses.of_iteration(wire.FETCH_COST, "inline")
    payloads = uses.of_iteration(wire.PAYLOAD, "inline")
    fetches = uses.of_iteration(wire.FETCH, "inline")

    assert costs[0].d >= 0
    for cost, fetch in zip(costs, fetches, strict=True):
        assert fetch.t0 <= cost.t0 < cost.t1 <= fetch.t1
        # Of short fetches only some have what costs system calls; never a part of it.
        assert min(cost.b, cost.c, cost.d) >= 0 or cost.b == cost.c == cost.d == -1
        assert cost.d == -1 or cost.d >= fetch.b
    # Four samples of three float32 and one int64.
    assert [(one.t0, one.b, one.c, one.d) for one in payloads] == [
        (4, 80, 2, 2),
        (4, 80, 2, 2),
        (2, 40, 2, 2),
    ]
    assert uses.main.texts[payloads[0].t1].endswith("default_collate")


def test_payload_without_batching(uses: Observed) -> None:
    """With batch_size=None every sample is a batch of one."""
    assert [one.t0 for one in uses.of_iteration(wire.PAYLOAD, "unbatched")] == [1, 1, 1]
    assert [one.b for one in uses.of_iteration(wire.SAMPLE, "unbatched")] == [0, 1, 2]


def test_workers_are_awaited_in_turn(uses: Observed) -> None:
    """Each ask awaits the worker that makes the batch it gets."""
    asks = answered(uses.of_iteration(wire.ASK, "workers"))
    made = uses.made_by_workers(wire.FETCH, "workers")

    assert [(one.a, one.b) for one in asks] == [(batch, batch % 2) for batch in range(6)]
    assert {worker: [one.a for one in records] for worker, records in made.items()} == {
        0: [0, 2, 4],
        1: [1, 3, 5],
    }


def test_depth_counts_batches_that_came_early(uses: Observed) -> None:
    """An ask whose batch had come says so, and it is counted among those that had."""
    for ask in answered(uses.of_iteration(wire.ASK, "workers")):
        assert ask.c >= bool(ask.flags & wire.ASK_READY)
        assert ask.c < 4


def test_every_batch_is_received_once(uses: Observed) -> None:
    """The receives of an iteration are its batches, before the ask for each has ended."""
    receives = uses.of_iteration(wire.RECEIVE, "workers")
    asks = {one.a: one for one in answered(uses.of_iteration(wire.ASK, "workers"))}

    assert sorted(one.a for one in receives) == list(range(6))
    for receive in receives:
        assert receive.t1 <= asks[receive.a].t1
        assert receive.b >= 0


def test_workers_anew_when_not_persistent(uses: Observed) -> None:
    """Every pass has workers of its own, which begin with pass 0."""
    first = uses.of_iteration(wire.WORKER, "workers", 0)
    second = uses.of_iteration(wire.WORKER, "workers", 1)

    assert not {one.b for one in first} & {one.b for one in second}
    assert {one.c for one in first + second} == {0}


def test_workers_stay_when_persistent(uses: Observed) -> None:
    """A second pass is an iteration of its own with the same workers, whose batches begin at 0 again."""
    first, second = uses.iterations("persistent")
    workers = [uses.of_iteration(wire.WORKER, "persistent", turn) for turn in (0, 1)]
    made = uses.made_by_workers(wire.FETCH, "persistent", 1)

    assert first.a == second.a
    assert first.flags | wire.LOADER_RESUMED == second.flags
    assert [one.b for one in workers[0]] == [one.b for one in workers[1]]
    assert [[one.c for one in turn] for turn in workers] == [[0, 0], [1, 1]]
    assert [one.a for one in made[0]] == [0, 2, 4]
    asks = answered(uses.of_iteration(wire.ASK, "persistent", 1))
    assert [one.a for one in asks] == list(range(6))


def test_worker_start_is_ordered(uses: Observed) -> None:
    """A worker's process began before its loop, and its loop before its first question."""
    for journal in uses.workers:
        (start,) = journal.of(wire.WORKER_START)
        assert start.b <= start.t0 + 10_000_000
        assert start.b > 0
        assert start.t0 <= start.t1
        assert start.c == uses.main.header["pid"]


def test_fetch_follows_its_indices(uses: Observed) -> None:
    """A worker learns the indices before it makes the batch, and hands it off after that."""
    fetches = uses.made_by_workers(wire.FETCH, "workers")
    handoffs = uses.made_by_workers(wire.HANDOFF, "workers")

    for worker, made in fetches.items():
        assert [one.a for one in handoffs[worker]] == [one.a for one in made]
        for fetch, handoff in zip(made, handoffs[worker], strict=True):
            assert 0 < fetch.d <= fetch.t0 < fetch.t1
            assert fetch.t1 <= handoff.t0 <= handoff.b <= handoff.t1
            assert handoff.c >= 0
            assert handoff.d > 0


def test_stream_ends_worker_by_worker(uses: Observed) -> None:
    """With uneven workers every answered ask still names the batch that it got.

    It awaits the worker that made the batch, or one that turned out to have no more.
    """
    asks = answered(uses.of_iteration(wire.ASK, "stream"))
    made = uses.made_by_workers(wire.FETCH, "stream")
    whole = {
        (one.a, worker)
        for worker, records in made.items()
        for one in records
        if not one.flags & wire.FETCH_RAISED
    }

    assert len(asks) == 4  # 4 + 4 + 1 samples of the first worker, 2 of the second
    assert {one.a for one in asks} == {batch for batch, _ in whole}
    ended = {
        worker
        for worker, records in made.items()
        if any(one.flags & wire.FETCH_RAISED for one in records)
    }
    assert all((one.a, one.b) in whole or one.b in ended for one in asks)
    assert uses.of_iteration(wire.ASK, "stream")[-1].flags & wire.ASK_ENDED


def test_stream_samples_have_no_index(uses: Observed) -> None:
    """Samples of an iterable data set are timed; they have a position and no index."""
    samples = uses.of_iteration(wire.SAMPLE, "inline stream")

    assert [one.c for one in samples] == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert {one.b for one in samples} == {-1}


def test_batched_fetch_has_no_samples(uses: Observed) -> None:
    """A data set that gives a whole batch at once is recorded as that."""
    if torch_version(uses) < (1, 13):
        pytest.skip("torch before 1.13 asks for one sample after another")
    fetches = uses.of_iteration(wire.FETCH, "batched")

    assert {one.flags for one in fetches} == {wire.FETCH_BATCHED}
    assert uses.of_iteration(wire.SAMPLE, "batched") == []


def test_subset_samples_are_those_inside(uses: Observed) -> None:
    """Samples of a Subset of a Subset carry the index of the data set inside."""
    assert [one.b for one in uses.of_iteration(wire.SAMPLE, "subset")] == [3, 9]


def test_concatenated_samples_are_timed(uses: Observed) -> None:
    """Data sets put together are timed as one."""
    assert [one.b for one in uses.of_iteration(wire.SAMPLE, "concatenated")] == list(
        range(8)
    )


@pytest.mark.parametrize("label", ["zipped", "outer", "inner"])
def test_loaders_side_by_side_keep_apart(uses: Observed, label: str) -> None:
    """Loaders that are used at the same time each have all their asks and batches."""
    for turn in range(2 if label != "outer" else 1):
        asks = answered(uses.of_iteration(wire.ASK, label, turn))
        assert [one.a for one in asks] == [0, 1]


def test_iteration_broken_off_has_no_end(uses: Observed) -> None:
    """A loop that breaks has the asks it made, and none that ended."""
    broken = uses.of_iteration(wire.ASK, "broken off")
    sliced = uses.of_iteration(wire.ASK, "sliced")

    assert [(one.a, one.flags & wire.ASK_ENDED) for one in broken] == [(0, 0)]
    assert [(one.a, one.flags & wire.ASK_ENDED) for one in sliced] == [(0, 0), (1, 0)]


def test_loader_in_a_data_set_is_part_of_the_sample(uses: Observed) -> None:
    """Loaders that a data set uses inside make no asks, in the main process and in a worker."""
    assert [one.a for one in uses.of_iteration(wire.ASK, "nested")] == [0, 1, 2]
    assert len(uses.of_iteration(wire.SAMPLE, "nested")) == 4
    made = uses.made_by_workers(wire.SAMPLE, "nested in worker")
    assert [one.b for one in made[0]] == [0, 1, 2, 3]
    assert all(not one.of(wire.ASK) and not one.of(wire.LOADER) for one in uses.workers)


def test_sampler_time_is_recorded(uses: Observed) -> None:
    """Slow draws of indices are records of their own, and their sum is part of the ask."""
    draws = uses.of_iteration(wire.INDEX, "sampler")
    loader = uses.iterations("sampler")[0]
    asks = uses.of_iteration(wire.ASK, "sampler")

    slow = [one for one in draws if one.t1 - one.t0 >= 4_000_000]
    assert [one.a for one in slow] == [0, 1]
    assert all(loader.t0 <= one.t0 <= one.t1 <= loader.t1 for one in slow)
    assert all(0 <= one.d <= one.t1 - one.t0 for one in asks)


def test_error_of_a_sample_is_recorded(uses: Observed) -> None:
    """An ask that raises says so and keeps its batch number, as does the fetch; the next goes on."""
    for turn in range(3):
        asks = uses.of_iteration(wire.ASK, "failing", turn)
        raised = [bool(one.flags & wire.ASK_RAISED) for one in asks]
        assert raised == [False, True, False]
        assert [one.a for one in asks] == [0, 1, 2]
    made = uses.made_by_workers(wire.FETCH, "failing", 1)[0]
    assert [bool(one.flags & wire.FETCH_RAISED) for one in made[:3]] == [False, True, False]


def test_unpickled_loader_is_recorded(uses: Observed) -> None:
    """A loader that went through pickle is watched; where it was built is not known."""
    (place,) = uses.of_iteration(wire.LOADER_PLACE, "unpickled")

    assert len(answered(uses.of_iteration(wire.ASK, "unpickled"))) == 2
    assert (place.a, place.b) == (0, 0)


def test_unordered_loader_awaits_nobody(uses: Observed) -> None:
    """With in_order=False asks name the batch that came, whichever it was, and no worker."""
    if torch_version(uses) < (2, 6):
        pytest.skip("torch before 2.6 keeps every loader in order")
    loader = uses.iterations("unordered")[0]
    asks = answered(uses.of_iteration(wire.ASK, "unordered"))

    assert not loader.flags & wire.LOADER_IN_ORDER
    assert sorted(one.a for one in asks) == list(range(6))
    assert {one.b for one in asks} == {-1}


def test_samples_are_thinned_when_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    """At a stride of 2 every other batch has its samples, and the rest say that they have not."""
    observed = observe(
        tmp_path_factory.mktemp("thinned"),
        """
        from whyidle_agent import writer
        writer.sample_stride = lambda: 2
        for batch in DataLoader(Numbers(8), batch_size=2): pass  # thinned
        """,
    )
    fetches = observed.of_iteration(wire.FETCH, "thinned")
    samples = observed.of_iteration(wire.SAMPLE, "thinned")

    assert [one.flags for one in fetches] == [wire.FETCH_THINNED, 0, wire.FETCH_THINNED, 0]
    assert [one.b for one in samples] == [2, 3, 6, 7]


PINNED = """
    torch.cuda.is_available = lambda: True
    torch.cuda.current_device = lambda: 0
    torch.cuda.set_device = lambda number: None
    if hasattr(torch, "accelerator"):
        torch.accelerator.is_available = lambda: True
        torch.accelerator.current_accelerator = lambda *args: torch.device("cpu")
        torch.accelerator.current_device_index = lambda: 0
        torch.accelerator.set_device_index = lambda number: None
    if hasattr(torch, "multiprocessing"):
        torch.multiprocessing._set_thread_name = lambda name: None
    from torch.utils.data._utils import pin_memory
    def slow_pin(data, device=None):
        time.sleep(0.003)
        return data
    pin_memory.pin_memory = slow_pin
    # In torch 1.7 persistent workers and a pin thread do not go together.
    persistent = not torch.__version__.startswith("1.7")
    options = dict(num_workers=1, pin_memory=True, persistent_workers=persistent)
    loader = DataLoader(Numbers(16), batch_size=4, **options)
    for _ in range(2):
        for batch in loader: pass  # pinned
"""


def test_pin_thread_is_recorded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With a (simulated) pin thread each batch has a record of its pinning, pass by pass."""
    observed = observe(tmp_path_factory.mktemp("pinned"), PINNED)

    assert observed.notes() == []
    for turn in (0, 1):
        assert observed.iterations("pinned")[turn].flags & wire.LOADER_PIN
        pins = observed.of_iteration(wire.PIN, "pinned", turn)
        assert [one.a for one in pins] == [0, 1, 2, 3]
        assert all(one.t1 - one.t0 >= 3_000_000 for one in pins)
        assert all(0 <= one.b < one.t1 - one.t0 for one in pins)
        asks = answered(observed.of_iteration(wire.ASK, "pinned", turn))
        assert [one.a for one in asks] == [0, 1, 2, 3]
