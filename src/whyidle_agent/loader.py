"""Watch torch's data loader in the process that asks it for batches.

Each patch point is one that has kept its shape since torch 1.7; where one looks different it is left
alone, a note says so, and the records that it would give are missing.

NOTE [which batch an ask got]
    In order, the batch that comes is the one before `_rcvd_idx` after the call, in every version.
    With `in_order=False` it is the one received last. Without workers batches are counted here,
    because `_num_yielded` does not count a batch whose making failed.
"""

from __future__ import annotations

import itertools
import select
import sys
import time
import weakref

from whyidle_agent import (
    control,
    device,
    fetching,
    places,
    stacks,
    thread_state,
    trial,
    wire,
    worker,
    writer,
)
from whyidle_agent.patching import IdentityMap, patch

_MYPY = False
if _MYPY:
    from types import ModuleType
    from typing import Any, Callable

    from whyidle_agent.thread_state import ThreadState

INDEX_MIN_NS = 50_000
"""Shorter draws of indices are counted in ASK.d only."""
_ITERABLE = 1
"""`_DatasetKind.Iterable`."""
_MAX_ENDED_TASKS = 4096
"""How far the tasks of ended workers are looked through for the awaited one."""

_now = time.monotonic_ns
_cpu_now = time.thread_time_ns

_iteration_numbers = itertools.count(1)
_loader_numbers = itertools.count(1)
_iterations = IdentityMap()
_loader_ids = IdentityMap()
_build_places = IdentityMap()


class _Iteration:
    """What is known of one iterator of a loader, and of the call of its next() under way."""

    __slots__ = (
        "ask_ns",
        "asked",
        "awaited",
        "batch",
        "context",
        "depth",
        "has_workers",
        "is_creating",
        "is_in_order",
        "is_iterable",
        "is_ready",
        "iterator",
        "number",
        "passes",
        "poller",
        "received",
        "sampler_ns",
        "start_ns",
    )

    def __init__(self, iterator: Any) -> None:
        self.iterator = weakref.ref(iterator)
        self.number = next(_iteration_numbers)
        # How often the workers have begun an iteration before this one.
        self.passes = 0
        self.asked = 0
        self.received = -1
        self.sampler_ns = 0
        self.start_ns = _now()
        self.poller: Any = None
        self.is_creating = False
        self.has_workers = self.is_iterable = False
        self.is_in_order = True
        # The call of next() under way: when, what it is going to wait for, what the thread was in before.
        self.ask_ns = 0
        self.batch = 0
        self.awaited = self.depth = -1
        self.is_ready = False
        self.context = 0

    def learn(self, iterator: Any) -> None:
        """Look at what stays the same for all passes of the iterator."""
        self.has_workers = getattr(iterator, "_num_workers", 0) > 0
        self.is_iterable = getattr(iterator, "_dataset_kind", 0) == _ITERABLE
        self.is_in_order = bool(getattr(iterator, "_in_order", True))

    def begin_again(self) -> None:
        """Begin the next pass of the same workers."""
        self.number = next(_iteration_numbers)
        self.passes += 1
        self.asked = 0
        self.received = -1
        self.start_ns = _now()


def install(module: ModuleType) -> None:
    """Watch the classes of `torch.utils.data.dataloader`, which was just executed."""
    names: Any = vars(module)
    utils = names["_utils"]
    base, several = names["_BaseDataLoaderIter"], names["_MultiProcessingDataLoaderIter"]
    single = names["_SingleProcessDataLoaderIter"]
    fetching.install(utils.fetch, sys.modules.get("torch.utils.data.dataset"))
    worker.install(utils.worker, getattr(utils, "pin_memory", None), _iteration_of_queue)
    patch("build", names["DataLoader"], "__init__", ("self", "dataset"), _build_wrapper)
    for owner in (single, several):
        patch("create", owner, "__init__", ("self", "loader"), _create_wrapper)
    patch("reset", several, "_reset", ("self", "loader", "first_iter"), _reset_wrapper)
    patch("receive", several, "_try_get_data", ("self", "timeout"), _receive_wrapper)
    patch("index", base, "_next_index", ("self",), _index_wrapper, exactly=True)
    original = vars(base).get("__next__")
    wrapped = patch("next", base, "__next__", ("self",), _next_wrapper, exactly=True)
    # Old versions have the same function under its name in Python 2.
    if wrapped and vars(base).get("next") is original:
        base.next = vars(base)["__next__"]


def _is_part_of_a_fetch(state: ThreadState) -> bool:
    return thread_state.in_worker or state.inside


# --- building and creating ----------------------------------------------------------------------


def _build_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    construct = trial.changing(original)

    def build(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        try:
            if writer.enabled():
                _build_places.set(self, places.calling_place(2))
        except Exception as error:
            writer.note("loader-failed", repr(error))

    return build


def _create_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        iteration = _begin_creation(self)
        original(self, loader, *args, **kwargs)
        if iteration is not None:
            _end_creation(iteration, self, loader, 0)

    return create


def _reset_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    def _reset(self: Any, *args: Any, **kwargs: Any) -> Any:
        iteration = _begin_pass(self)
        result = original(self, *args, **kwargs)
        if iteration is not None:
            loader = args[0] if args else kwargs.get("loader")
            _end_creation(iteration, self, loader, wire.LOADER_RESUMED)
        return result

    return _reset


def _begin_creation(iterator: Any) -> _Iteration | None:
    try:
        if not writer.enabled() or _is_part_of_a_fetch(thread_state.current()):
            return None
        iteration = _Iteration(iterator)
        # The wrapper of _reset is called from within.
        iteration.is_creating = True
        _iterations.set(iterator, iteration)
    except Exception as error:
        writer.note("loader-failed", repr(error))
        return None
    return iteration


def _begin_pass(iterator: Any) -> _Iteration | None:
    """Begin another pass of an iterator that is re-used; None while it is being created."""
    try:
        iteration: _Iteration | None = _iterations.get(iterator)
        if iteration is None or iteration.is_creating:
            return None
        iteration.begin_again()
    except Exception as error:
        writer.note("loader-failed", repr(error))
        return None
    return iteration


def _end_creation(iteration: _Iteration, iterator: Any, loader: Any, flags: int) -> None:
    try:
        end_ns = _now()
        iteration.is_creating = False
        iteration.learn(iterator)
        _record_loader(iteration, iterator, loader, flags, end_ns)
        _record_place(iteration, iterator, loader)
        for number, process in enumerate(getattr(iterator, "_workers", ())):
            pid, pass_ = getattr(process, "pid", None) or 0, iteration.passes
            writer.emit(wire.WORKER, 0, iteration.number, end_ns, 0, number, pid, pass_, 0)
    except Exception as error:
        writer.note("loader-failed", repr(error))


def _record_loader(
    iteration: _Iteration, iterator: Any, loader: Any, flags: int, end_ns: int
) -> None:
    number = _loader_ids.get(loader)
    if number is None:
        number = next(_loader_numbers)
        _loader_ids.set(loader, number)
    workers = getattr(iterator, "_num_workers", 0)
    prefetch = getattr(loader, "prefetch_factor", None) if workers else 0
    batch_size = getattr(loader, "batch_size", None)
    if batch_size is None:
        batch_size = getattr(getattr(loader, "batch_sampler", None), "batch_size", -1)
    flags |= wire.LOADER_PIN if getattr(iterator, "_pin_memory", False) else 0
    persistent = getattr(iterator, "_persistent_workers", False)
    flags |= wire.LOADER_PERSISTENT if persistent else 0
    flags |= wire.LOADER_IN_ORDER if iteration.is_in_order else 0
    flags |= wire.LOADER_ITERABLE if iteration.is_iterable else 0
    writer.emit(
        wire.LOADER,
        flags,
        iteration.number,
        iteration.start_ns,
        end_ns,
        number,
        workers,
        prefetch if type(prefetch) is int else 0,
        batch_size if type(batch_size) is int else -1,
    )


def _record_place(iteration: _Iteration, iterator: Any, loader: Any) -> None:
    loop_file, loop_line = places.calling_place(4)
    build_file, build_line = _build_places.get(loader) or ("", 0)
    writer.emit(
        wire.LOADER_PLACE,
        0,
        iteration.number,
        writer.text(loop_file),
        loop_line,
        writer.text(build_file),
        build_line,
        writer.text(_dataset_name(getattr(loader, "dataset", None))),
        writer.text(_start_method(iterator)),
    )


def _dataset_name(dataset: Any) -> str:
    """Class of the data set; of the one inside, for torch's own Subsets."""
    for _ in range(fetching.MAX_SUBSETS):
        cls = type(dataset)
        if cls.__name__ != "Subset" or cls.__module__ != "torch.utils.data.dataset":
            break
        dataset = vars(dataset).get("dataset")
    return fetching.name_of(type(dataset))


def _start_method(iterator: Any) -> str:
    workers = getattr(iterator, "_workers", None)
    if not workers:
        return ""
    method = getattr(workers[0], "_start_method", None)
    if method is None:
        multiprocessing = sys.modules.get("multiprocessing")
        ask = getattr(multiprocessing, "get_start_method", None)
        method = ask(allow_none=True) if ask is not None else None
    return method or ""


def _begin_in_the_midst(iterator: Any) -> _Iteration:
    """Begin with an iterator whose creation was not seen.

    Raises:
        TypeError: the iterator cannot be referenced weakly.
    """
    iteration = _Iteration(iterator)
    iteration.learn(iterator)
    _iterations.set(iterator, iteration)
    workers = getattr(iterator, "_num_workers", 0)
    flags = wire.LOADER_IN_ORDER if iteration.is_in_order else 0
    number, start_ns = iteration.number, iteration.start_ns
    writer.emit(wire.LOADER, flags, number, start_ns, start_ns, 0, workers, 0, -1)
    return iteration


def _iteration_of_queue(result_queue: Any) -> Callable[[], int]:
    """Give the function that tells the current iteration id of a result queue; 0: unknown."""
    found: list[_Iteration] = []

    def current() -> int:
        if not found:
            for iteration in _iterations.values():
                iterator = iteration.iterator()
                if getattr(iterator, "_worker_result_queue", None) is result_queue:
                    found.append(iteration)
        return found[0].number if found else 0

    return current


# --- asking ---------------------------------------------------------------------------------------


def _next_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    def ask(self: Any) -> Any:
        state = thread_state.current()
        if _is_part_of_a_fetch(state):
            return original(self)
        # May end the training, which is the one exception of ours that the target sees.
        control.on_step()
        iteration = _begin_ask(self, state)
        try:
            data = original(self)
        except StopIteration:
            _end_ask(iteration, self, state, wire.ASK_ENDED)
            raise
        except BaseException as error:
            _end_ask(iteration, self, state, wire.ASK_RAISED)
            _clean_traceback(error)
            raise
        _end_ask(iteration, self, state, 0)
        return data

    return ask


def _begin_ask(iterator: Any, state: ThreadState) -> _Iteration | None:
    """Note what the iterator is going to wait for; None when nothing is to be recorded.

    Cost, with `_end_ask`: 5 us, twice that where the work between two asks has used up the caches.
    """
    if not writer.enabled():
        return None
    try:
        stacks.watch(wire.STACK_ROLE_LOOP)
        iteration = _iterations.get(iterator) or _begin_in_the_midst(iterator)
        iteration.sampler_ns = 0
        iteration.received = iteration.awaited = -1
        if iteration.has_workers:
            _look_at_tasks(iteration, iterator)
        else:
            iteration.depth, iteration.is_ready = 0, False
            iteration.batch = state.batch = iteration.asked
            state.reference, state.index_ns = iteration.number, 0
            iteration.asked += 1
        device.before_ask(iteration.number, iteration.batch)
        iteration.context = stacks.context.get(state.native_id, 0)
        stacks.context[state.native_id] = iteration.context | wire.STACK_IN_NEXT
        iteration.ask_ns = _now()
    except Exception as error:
        writer.note("ask-failed", repr(error))
        return None
    return iteration


def _look_at_tasks(iteration: _Iteration, iterator: Any) -> None:
    """Find the task that the iterator is going to wait for, as `_next_data` will."""
    tasks, number = iterator._task_info, iterator._rcvd_idx
    task = tasks.get(number)
    if iteration.is_iterable:
        # Tasks of workers that have ended stay in the table without ever getting data.
        iteration.depth = sum([len(one) == 2 for one in tasks.values()])
        alive = iterator._workers_status
        end = min(iterator._send_idx, number + _MAX_ENDED_TASKS)
        while number < end and not (task and (len(task) == 2 or alive[task[0]])):
            number += 1
            task = tasks.get(number)
    else:
        iteration.depth = len(tasks) - iterator._tasks_outstanding
    iteration.batch = number
    iteration.is_ready = task is not None and len(task) == 2
    if task and (iteration.is_in_order or iterator._num_workers == 1):
        iteration.awaited = task[0]


def _end_ask(
    iteration: _Iteration | None, iterator: Any, state: ThreadState, flags: int
) -> None:
    if iteration is None:
        return
    try:
        end_ns = _now()
        state.reference = thread_state.NO_BATCH
        stacks.context[state.native_id] = iteration.context
        if iteration.is_ready:
            flags |= wire.ASK_READY
        batch = _batch_got(iteration, iterator, flags)
        number, ask_ns = iteration.number, iteration.ask_ns
        awaited, depth, sampler_ns = (
            iteration.awaited,
            iteration.depth,
            iteration.sampler_ns,
        )
        emit, kind = writer.emit, wire.ASK
        emit(kind, flags, number, ask_ns, end_ns, batch, awaited, depth, sampler_ns)
        device.after_ask(number, batch)
    except Exception as error:
        writer.note("ask-failed", repr(error))


def _batch_got(iteration: _Iteration, iterator: Any, flags: int) -> int:
    """See NOTE [which batch an ask got]."""
    if not iteration.has_workers or flags & wire.ASK_ENDED:
        return iteration.batch
    if not iteration.is_in_order:
        return iteration.received if iteration.received >= 0 else iteration.batch
    if flags & wire.ASK_RAISED and iterator._rcvd_idx <= iteration.batch:
        return iteration.batch
    return int(iterator._rcvd_idx) - 1


def _clean_traceback(error: BaseException) -> None:
    try:
        fetching.forget_our_frames(error)
    except Exception as problem:
        writer.note("ask-failed", repr(problem))


# --- receiving and drawing indices ------------------------------------------------------------------


def _receive_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    def _try_get_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        iteration = None if thread_state.in_worker else _iterations.get(self)
        if iteration is None:
            return original(self, *args, **kwargs)
        was_there = _is_item_there(iteration, self)
        cpu_ns, start_ns = _cpu_now(), _now()
        result = original(self, *args, **kwargs)
        _record_receive(iteration, result, start_ns, cpu_ns, was_there)
        return result

    return _try_get_data


def _is_item_there(iteration: _Iteration, iterator: Any) -> bool:
    """Whether the queue that the main process takes from has an item.

    Cost: 0.7 us.
    """
    try:
        queue = iterator._data_queue
        if iteration.poller is None:
            reader = getattr(queue, "_reader", None)
            if reader is None:
                # The pin thread's queue: a deque behind a lock that we need not take.
                return len(queue.queue) > 0
            iteration.poller = select.poll()
            iteration.poller.register(reader.fileno(), select.POLLIN)
        return bool(iteration.poller.poll(0))
    except Exception:
        return False


def _record_receive(
    iteration: _Iteration, result: Any, start_ns: int, cpu_ns: int, was_there: bool
) -> None:
    try:
        end_ns = _now()
        flags = wire.RECEIVE_WAS_THERE if was_there else 0
        batch = -1
        success, data = result
        if not success:
            flags |= wire.RECEIVE_EMPTY
        elif type(data) is tuple and len(data) == 2 and type(data[0]) is int:
            # Anything else is a worker's word that it begins another pass.
            batch = iteration.received = data[0]
        used_ns = _cpu_now() - cpu_ns
        emit, kind = writer.emit, wire.RECEIVE
        emit(kind, flags, iteration.number, start_ns, end_ns, batch, used_ns, 0, 0)
    except Exception as error:
        writer.note("receive-failed", repr(error))


def _index_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    def _next_index(self: Any) -> Any:
        iteration = None if thread_state.in_worker else _iterations.get(self)
        if iteration is None:
            return original(self)
        start_ns = _now()
        try:
            return original(self)
        finally:
            _record_index(iteration, self, start_ns)

    return _next_index


def _record_index(iteration: _Iteration, iterator: Any, start_ns: int) -> None:
    try:
        end_ns = _now()
        iteration.sampler_ns += end_ns - start_ns
        if end_ns - start_ns < INDEX_MIN_NS:
            return
        # While the iterator is being created, what it is has not been looked at yet.
        batch = getattr(iterator, "_send_idx", iteration.asked - 1)
        writer.emit(wire.INDEX, 0, iteration.number, start_ns, end_ns, batch, -1, 0, 0)
    except Exception as error:
        writer.note("index-failed", repr(error))
