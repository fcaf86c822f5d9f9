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

COST_EVERY_NS = 20_000_000
"""Faults and the process' CPU time are taken once in so much fetching: they cost four system calls a batch."""
MAX_COST_STRIDE = 16

SAMPLE_NS, WHOLE_FETCHES = 1_000_000, 64
"""Samples shorter than this on average are recorded in so much fewer batches (a record costs 1.3 us), once the first
64 batches of a process are recorded whole."""
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


class _Plan:
    """The stand-ins of one fetcher, made once."""

    __slots__ = (
        "attribute",
        "batched",
        "collate",
        "collate_target",
        "source",
        "source_stand_in",
        "timed",
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
        transforms.watch(fetcher.dataset)


class _Watch:
    """One fetch under way."""

    __slots__ = (
        "context",
        "cpu_ns",
        "end_ns",
        "faults_after",
        "faults_before",
        "fetcher",
        "plan",
        "process_ns",
        "queued_ns",
        "sampled",
        "start_ns",
        "state",
        "transforms",
    )

    def __init__(self, fetcher: Any, state: ThreadState) -> None:
        self.fetcher = fetcher
        self.state = state
        self.plan: _Plan | None = None
        self.context = 0
        self.sampled = False
        self.start_ns = 0
        self.end_ns = 0
        self.cpu_ns = self.queued_ns = 0
        self.process_ns = -1
        self.faults_before: Any = None
        self.faults_after: Any = None
        self.transforms: list[tuple[int, int, int, int, int]] | None = None


_plans = IdentityMap()
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
            watch = _Watch(self, state)
            try:
                _begin(watch, attribute)
                data = original(self, possibly_batched_index)
            except BaseException:
                _end(watch)
                _record(watch, None, wire.FETCH_RAISED)
                raise
            _end(watch)
            _record(watch, data, 0)
            return data

        return fetch

    return make


def _begin(watch: _Watch, attribute: str) -> None:
    """Put the stand-ins in and start the clocks."""
    try:
        if _capture is not None:
            _capture.look()
        fetcher, state = watch.fetcher, watch.state
        plan = _plan_of(fetcher, attribute)
        state.fetch_count += 1
        stride = max(writer.sample_stride(), state.sample_stride)
        watch.sampled = state.fetch_count % stride == 0
        state.inside = True
        watch.plan = plan
        fetcher.collate_fn = plan.collate
        if watch.sampled:
            setattr(fetcher, attribute, plan.source_stand_in)
            state.spans = plan.timed.spans
            state.transforms = []
        watch.context = stacks.context.get(state.native_id, 0)
        stacks.context[state.native_id] = watch.context | wire.STACK_IN_FETCH
        # In a worker the wait for indices lies between two fetches, and nobody queues in it for long.
        known = thread_state.in_worker and state.queued_ns >= 0
        watch.queued_ns = state.queued_ns if known else state.schedule.queued_ns()
        if state.fetch_count % state.cost_stride == 0:
            watch.faults_before = _getrusage(_of_thread) if _of_thread is not None else None
            watch.process_ns = time.process_time_ns()
        watch.cpu_ns = _cpu_now()
        watch.start_ns = _now()
    except Exception as error:
        writer.note("fetch-failed", repr(error))


def _plan_of(fetcher: Any, attribute: str) -> _Plan:
    plan: _Plan | None = _plans.get(fetcher)
    if (
        plan is None
        or plan.source is not getattr(fetcher, attribute)
        or plan.collate_target is not fetcher.collate_fn
    ):
        plan = _Plan(fetcher, attribute)
        _plans.set(fetcher, plan)
    return plan


def _end(watch: _Watch) -> None:
    """Stop the clocks and take the stand-ins out again."""
    try:
        watch.end_ns = _now()
        plan, state, fetcher = watch.plan, watch.state, watch.fetcher
        state.inside = False
        state.spans = None
        watch.transforms, state.transforms = state.transforms, None
        if plan is not None:
            fetcher.collate_fn = plan.collate_target
            setattr(fetcher, plan.attribute, plan.source)
        if not watch.start_ns:
            return
        watch.cpu_ns = _cpu_now() - watch.cpu_ns
        if watch.process_ns >= 0:
            watch.process_ns = time.process_time_ns() - watch.process_ns
        if watch.faults_before is not None:
            watch.faults_after = _getrusage(_of_thread)
        length_ns = max(watch.end_ns - watch.start_ns, 1)
        state.cost_stride = min(COST_EVERY_NS // length_ns + 1, MAX_COST_STRIDE)
        if state.fetch_count >= WHOLE_FETCHES and plan is not None:
            sample_ns = length_ns // max(plan.collate.sample_count, 1)
            state.sample_stride = min(SAMPLE_NS // max(sample_ns, 1) + 1, MAX_SAMPLE_STRIDE)
        before_ns, queued_ns = watch.queued_ns, state.schedule.queued_ns()
        state.queued_ns = queued_ns
        watch.queued_ns = queued_ns - before_ns if min(before_ns, queued_ns) >= 0 else -1
        stacks.context[state.native_id] = watch.context
    except Exception as error:
        writer.note("fetch-failed", repr(error))


def _record(watch: _Watch, data: Any, flags: int) -> None:
    """Write what is known of a fetch that has ended."""
    try:
        plan, state = watch.plan, watch.state
        if plan is None or not watch.start_ns:
            return
        timed, collate = plan.timed, plan.collate
        if watch.sampled:
            plan.batched = timed.batched
        else:
            flags |= wire.FETCH_THINNED
        if plan.batched:
            flags |= wire.FETCH_BATCHED
        _record_fetch(watch, collate, flags)
        pass_, batch = state.reference, state.batch
        if collate.start_ns and not flags & wire.FETCH_RAISED:
            _record_payload(data, collate, pass_, batch)
        collate.start_ns = collate.end_ns = 0
        if watch.sampled:
            _record_samples(timed, pass_, batch)
            _record_transforms(watch, pass_, batch)
        if watch.end_ns - state.heartbeat_ns > HEARTBEAT_NS:
            state.heartbeat_ns = watch.end_ns
            writer.progress(_HEARTBEAT, watch.end_ns)
    except Exception as error:
        writer.note("fetch-failed", repr(error))


def _record_fetch(watch: _Watch, collate: TimedCollate, flags: int) -> None:
    state = watch.state
    pass_, batch = state.reference, state.batch
    t0, t1 = watch.start_ns, watch.end_ns
    cpu_ns, queued_ns, index_ns = watch.cpu_ns, watch.queued_ns, state.index_ns
    writer.emit(wire.FETCH, flags, pass_, t0, t1, batch, cpu_ns, queued_ns, index_ns)
    minor = major = -1
    before, after = watch.faults_before, watch.faults_after
    if before is not None and after is not None:
        minor = after.ru_minflt - before.ru_minflt
        major = after.ru_majflt - before.ru_majflt
    t0, t1 = collate.start_ns, collate.end_ns
    writer.emit(wire.FETCH_COST, 0, pass_, t0, t1, batch, minor, major, watch.process_ns)


def _record_payload(data: Any, collate: TimedCollate, pass_: int, batch: int) -> None:
    byte_count, tensor_count, leaf_count, whole = payload.weigh(data)
    flags = 0 if whole else wire.PAYLOAD_PARTIAL
    writer.emit(
        wire.PAYLOAD,
        flags,
        pass_,
        collate.sample_count,
        collate.name,
        batch,
        byte_count,
        tensor_count,
        leaf_count,
    )


def _record_samples(timed: TimedItems | TimedIterator, pass_: int, batch: int) -> None:
    emit, kind = writer.emit, wire.SAMPLE
    for position, (index, t0, t1) in enumerate(timed.spans):
        number = index if type(index) is int else _number(index)
        emit(kind, 0, pass_, t0, t1, batch, number, position, -1)
    timed.spans.clear()
    timed.batched = False


def _record_transforms(watch: _Watch, pass_: int, batch: int) -> None:
    emit, kind = writer.emit, wire.TRANSFORM
    batched = watch.plan is not None and watch.plan.batched
    for name, t0, t1, position, depth in watch.transforms or ():
        emit(kind, 0, pass_, t0, t1, batch, name, -1 if batched else position, depth)


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
    os.register_at_fork(after_in_child=_plans.clear)
