"""Time the making of a batch: samples, collate, what it cost and what it weighs.

NOTE [stand-ins]
    torch's fetcher reaches the data set, its iterator and the collate function through three
    attributes of its own. For the length of one fetch they are stand-ins that pass everything on and
    look at the clock. The person's objects are not touched and never see a stand-in, with one
    exception that torch makes itself: a plain `Subset` is copied, so that the data set inside it can
    be stood in for as well.
"""

from __future__ import annotations

import os
import sys
import time

from whyidle_agent import payload, stacks, thread_state, transforms, wire, writer
from whyidle_agent.patching import IdentityMap, patch, uncounted

_MYPY = False
if _MYPY:
    from types import ModuleType
    from typing import Any, Callable

    from whyidle_agent.thread_state import ThreadState

try:
    import resource
except ImportError:  # no such account on this system
    resource = None  # type: ignore[assignment]

MAX_SUBSETS = 8
"""How many Subsets inside each other are looked through."""

HEARTBEAT_NS = 100_000_000
"""How often a process that makes batches shows that it is alive."""

WHOLE_FETCHES = 64
"""The first batches of a thread are recorded with all details; then those of short ones only now and then."""
COST_EVERY_NS = 20_000_000
"""The wait for a CPU, faults, the process' CPU time, the collate and what the batch weighs are taken once in so much
fetching: they cost six system calls and 25 us."""
MAX_COST_STRIDE = 16
SAMPLE_NS = 1_000_000
"""Samples shorter than this on average are recorded in so much fewer batches: a record costs 1.3 us."""
MAX_SAMPLE_STRIDE = 8

_capture: Any = sys.modules.get("whyidle_agent.capture")
"""Imported at the start of the interpreter, and only if a function's inputs are to be kept."""

_HEARTBEAT = wire.PROGRESS_FIELDS.index("heartbeat_ns")
_now = time.monotonic_ns
_cpu_now = time.thread_time_ns
_getrusage: Any = getattr(resource, "getrusage", None)
_of_thread = getattr(resource, "RUSAGE_THREAD", None)


class TimedItems:
    """Stands in for a map-style data set."""

    __slots__ = ("_dataset", "batched", "spans")

    def __init__(self, dataset: Any) -> None:
        """Stand in for this data set."""
        self._dataset = dataset
        self.spans: list[tuple[Any, int, int]] = []
        # Whether the fetch took the whole batch at once.
        self.batched = False

    @uncounted
    def __getitem__(self, index: Any) -> Any:
        """Get an item and note how long it took.

        Cost: about 0.35 us, and 0.6 us for its record.
        """
        start = _now()
        item = self._dataset[index]
        self.spans.append((index, start, _now()))
        return item

    def __getattr__(self, name: str) -> Any:
        """Any other attribute is the data set's own."""
        value = getattr(self._dataset, name)
        if name == "__getitems__" and value:
            self.batched = True
        return value


class TimedIterator:
    """Stands in for the iterator of an iterable-style data set."""

    __slots__ = ("_iterator", "batched", "spans")

    def __init__(self, iterator: Any) -> None:
        """Stand in for this iterator."""
        self._iterator = iterator
        self.spans: list[tuple[Any, int, int]] = []
        self.batched = False

    def __iter__(self) -> TimedIterator:
        """Stay the same."""
        return self

    @uncounted
    def __next__(self) -> Any:
        """Get an item and note how long it took."""
        start = _now()
        item = next(self._iterator)
        self.spans.append((-1, start, _now()))
        return item

    def __getattr__(self, name: str) -> Any:
        """Any other attribute is the iterator's own."""
        return getattr(self._iterator, name)


class TimedCollate:
    """Stands in for the collate function."""

    __slots__ = ("_collate", "end_ns", "name", "sample_count", "start_ns")

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        """Stand in for this function."""
        self._collate = collate
        self.name = writer.text(name_of(collate))
        self.start_ns = self.end_ns = 0
        self.sample_count = 0

    @uncounted
    def __call__(self, samples: Any) -> Any:
        """Collate the samples and note how long it took."""
        native_id = thread_state.current().native_id
        context = stacks.context
        flags = context.get(native_id, 0)
        context[native_id] = flags | wire.STACK_IN_COLLATE
        self.sample_count = len(samples) if type(samples) is list else 1
        self.start_ns = _now()
        try:
            return self._collate(samples)
        finally:
            self.end_ns = _now()
            context[native_id] = flags

    def __getattr__(self, name: str) -> Any:
        """Any other attribute is the function's own."""
        return getattr(self._collate, name)


class _WatchedFetcher:
    """The stand-ins of one fetcher, made once, and what is known of its fetch under way."""

    __slots__ = (
        "attribute",
        "batched",
        "collate",
        "collate_target",
        "context",
        "cpu_ns",
        "end_ns",
        "faults_after",
        "faults_before",
        "is_costed",
        "is_sampled",
        "process_ns",
        "queued_ns",
        "source",
        "source_stand_in",
        "start_ns",
        "timed",
        "transforms",
    )

    def __init__(self, fetcher: Any, attribute: str) -> None:
        self.attribute = attribute
        self.batched = False
        self.source = getattr(fetcher, attribute)
        self.collate_target = fetcher.collate_fn
        self.collate = TimedCollate(self.collate_target)
        if attribute == "dataset_iter":
            self.timed: TimedItems | TimedIterator = TimedIterator(self.source)
            self.source_stand_in: Any = self.timed
        else:
            self.source_stand_in, self.timed = _stand_in(self.source)
        # Of the fetch under way; its samples and transforms, its costs are recorded now and then only.
        self.context = 0
        self.is_sampled = self.is_costed = False
        self.start_ns = self.end_ns = 0
        self.cpu_ns = self.queued_ns = self.process_ns = 0
        self.faults_before: Any = None
        self.faults_after: Any = None
        self.transforms: list[tuple[int, int, int, int, int]] | None = None
        transforms.watch(fetcher.dataset)


_fetchers = IdentityMap()
_subset_class: Any = None


def install(fetch_module: ModuleType, dataset_module: Any) -> None:
    """Wrap both fetchers of `torch.utils.data._utils.fetch`."""
    global _subset_class
    _subset_class = getattr(dataset_module, "Subset", None)
    parameters = ("self", "possibly_batched_index")
    for name, attribute in (
        ("_MapDatasetFetcher", "dataset"),
        ("_IterableDatasetFetcher", "dataset_iter"),
    ):
        owner = getattr(fetch_module, name, None)
        patch("fetch", owner, "fetch", parameters, _wrapper_for(attribute), exactly=True)


def name_of(target: Any) -> str:
    """`module.qualified.name` of a function, or of the class of anything else."""
    function = getattr(target, "func", target)
    if not isinstance(getattr(function, "__qualname__", None), str):
        function = type(function)
    return "%s.%s" % (getattr(function, "__module__", ""), function.__qualname__)


def _wrapper_for(attribute: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(self: Any, possibly_batched_index: Any) -> Any:
            state = thread_state.current()
            if state.reference < 0 or state.inside or not writer.enabled():
                return original(self, possibly_batched_index)
            watched = _begin(self, state, attribute)
            if watched is None:
                return original(self, possibly_batched_index)
            try:
                data = original(self, possibly_batched_index)
            except BaseException:
                _end(watched, self, state)
                _record(watched, state, None, wire.FETCH_RAISED)
                raise
            _end(watched, self, state)
            _record(watched, state, data, 0)
            return data

        return fetch

    return make


def _begin(fetcher: Any, state: ThreadState, attribute: str) -> _WatchedFetcher | None:
    """Put the stand-ins in and start the clocks; None when that failed and nothing was changed."""
    try:
        if _capture is not None:
            _capture.look()
        watched = _watched_of(fetcher, attribute)
        count = state.fetch_count = state.fetch_count + 1
        stride = max(writer.sample_stride(), state.sample_stride)
        watched.is_sampled = count % stride == 0
        watched.is_costed = count % state.cost_stride == 0
        watched.transforms = None
        watched.end_ns = 0
        watched.queued_ns = -1
        if watched.is_costed:
            watched.faults_before = (
                _getrusage(_of_thread) if _of_thread is not None else None
            )
            watched.process_ns = time.process_time_ns()
            watched.queued_ns = state.schedule.queued_ns()
        watched.context = stacks.context.get(state.native_id, 0)
        if watched.is_sampled:
            setattr(fetcher, attribute, watched.source_stand_in)
            state.spans = watched.timed.spans
            state.transforms = []
        fetcher.collate_fn = watched.collate
        state.inside = True
        stacks.context[state.native_id] = watched.context | wire.STACK_IN_FETCH
        watched.cpu_ns = _cpu_now()
        watched.start_ns = _now()
    except Exception as error:
        writer.note("fetch-failed", repr(error))
        return None
    return watched


def _watched_of(fetcher: Any, attribute: str) -> _WatchedFetcher:
    watched: _WatchedFetcher | None = _fetchers.get(fetcher)
    if (
        watched is None
        or watched.source is not getattr(fetcher, attribute)
        or watched.collate_target is not fetcher.collate_fn
    ):
        watched = _WatchedFetcher(fetcher, attribute)
        _fetchers.set(fetcher, watched)
    return watched


def _end(watched: _WatchedFetcher, fetcher: Any, state: ThreadState) -> None:
    """Stop the clocks and take the stand-ins out again."""
    try:
        end_ns = _now()
        watched.cpu_ns = _cpu_now() - watched.cpu_ns
        state.inside = False
        fetcher.collate_fn = watched.collate_target
        if watched.is_sampled:
            setattr(fetcher, watched.attribute, watched.source)
            state.spans = None
            watched.transforms, state.transforms = state.transforms, None
        stacks.context[state.native_id] = watched.context
        if watched.is_costed:
            watched.process_ns = time.process_time_ns() - watched.process_ns
            if watched.faults_before is not None:
                watched.faults_after = _getrusage(_of_thread)
            before_ns, queued_ns = watched.queued_ns, state.schedule.queued_ns()
            is_known = before_ns >= 0 and queued_ns >= 0
            watched.queued_ns = queued_ns - before_ns if is_known else -1
        if state.fetch_count >= WHOLE_FETCHES:
            _set_strides(state, end_ns - watched.start_ns, watched.collate.sample_count)
        watched.end_ns = end_ns
    except Exception as error:
        writer.note("fetch-failed", repr(error))


def _set_strides(state: ThreadState, length_ns: int, sample_count: int) -> None:
    """Choose how often details are recorded, by how long the last fetch took."""
    length_ns = max(length_ns, 1)
    sample_ns = length_ns // max(sample_count, 1)
    state.cost_stride = min(COST_EVERY_NS // length_ns + 1, MAX_COST_STRIDE)
    state.sample_stride = min(SAMPLE_NS // max(sample_ns, 1) + 1, MAX_SAMPLE_STRIDE)


def _record(watched: _WatchedFetcher, state: ThreadState, data: Any, flags: int) -> None:
    """Write what is known of a fetch that has ended."""
    try:
        t0, t1 = watched.start_ns, watched.end_ns
        if not t1:
            return
        timed, collate = watched.timed, watched.collate
        if watched.is_sampled:
            watched.batched = timed.batched
        else:
            flags |= wire.FETCH_THINNED
        if watched.batched:
            flags |= wire.FETCH_BATCHED
        pass_, batch, index_ns = state.reference, state.batch, state.index_ns
        cpu_ns, queued_ns = watched.cpu_ns, watched.queued_ns
        writer.emit(wire.FETCH, flags, pass_, t0, t1, batch, cpu_ns, queued_ns, index_ns)
        if watched.is_costed:
            _record_cost(watched, pass_, batch)
            if collate.start_ns and not flags & wire.FETCH_RAISED:
                _record_payload(data, collate, pass_, batch)
        collate.start_ns = collate.end_ns = 0
        if watched.is_sampled:
            _record_samples(timed, pass_, batch)
            _record_transforms(watched, pass_, batch)
        if t1 - state.heartbeat_ns > HEARTBEAT_NS:
            state.heartbeat_ns = t1
            writer.progress(_HEARTBEAT, t1)
    except Exception as error:
        writer.note("fetch-failed", repr(error))


def _record_cost(watched: _WatchedFetcher, pass_: int, batch: int) -> None:
    minor = major = -1
    before, after = watched.faults_before, watched.faults_after
    if before is not None and after is not None:
        minor = after.ru_minflt - before.ru_minflt
        major = after.ru_majflt - before.ru_majflt
    process_ns, t0, t1 = (
        watched.process_ns,
        watched.collate.start_ns,
        watched.collate.end_ns,
    )
    writer.emit(wire.FETCH_COST, 0, pass_, t0, t1, batch, minor, major, process_ns)


def _record_payload(data: Any, collate: TimedCollate, pass_: int, batch: int) -> None:
    size, tensors, leaves, whole = payload.weigh(data)
    flags = 0 if whole else wire.PAYLOAD_PARTIAL
    count, name = collate.sample_count, collate.name
    writer.emit(wire.PAYLOAD, flags, pass_, count, name, batch, size, tensors, leaves)


def _record_samples(timed: TimedItems | TimedIterator, pass_: int, batch: int) -> None:
    emit, kind = writer.emit, wire.SAMPLE
    for position, (index, t0, t1) in enumerate(timed.spans):
        number = index if type(index) is int else _number(index)
        emit(kind, 0, pass_, t0, t1, batch, number, position, -1)
    timed.spans.clear()
    timed.batched = False


def _record_transforms(watched: _WatchedFetcher, pass_: int, batch: int) -> None:
    emit, kind = writer.emit, wire.TRANSFORM
    for name, t0, t1, position, depth in watched.transforms or ():
        place = -1 if watched.batched else position
        emit(kind, 0, pass_, t0, t1, batch, name, place, depth)


def _number(index: Any) -> int:
    """Data set index as a number; -1 for anything that is none."""
    numpy_number = type(index).__module__ == "numpy" and hasattr(index, "__index__")
    if type(index) is bool or not numpy_number:
        return -1
    try:
        return int(index)
    except (TypeError, ValueError):
        return -1


def _stand_in(dataset: Any) -> tuple[Any, TimedItems]:
    """What takes the place of a data set, and the part of it that keeps the times.

    See NOTE [stand-ins]: Subsets are copied around the stand-in of the data set inside.
    """
    subsets: list[Any] = []
    inner = dataset
    while (
        type(inner) is _subset_class
        and vars(inner).keys() == {"dataset", "indices"}
        and len(subsets) < MAX_SUBSETS
    ):
        subsets.append(inner)
        inner = inner.dataset
    timed = TimedItems(inner)
    outer: Any = timed
    for subset in reversed(subsets):
        copied = object.__new__(type(subset))
        copied.__dict__.update(vars(subset), dataset=outer)
        outer = copied
    return outer, timed


_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def without_our_frames(text: str) -> str:
    """A formatted traceback as it would read without us."""
    if _OURS not in text:
        return text
    kept, ours = [], False
    for line in text.splitlines(keepends=True):
        if line.startswith("  File "):
            ours = line.startswith('  File "' + _OURS)
        elif not line.startswith("    "):
            ours = False
        if not ours:
            kept.append(line)
    return "".join(kept)


def forget_our_frames(error: BaseException) -> None:
    """Take the frames of this package that lie between others out of a traceback."""
    before = error.__traceback__
    while before is not None:
        after = before.tb_next
        while after is not None and after.tb_frame.f_code.co_filename.startswith(_OURS):
            after = after.tb_next
        before.tb_next = after
        before = after


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fetchers.clear)
