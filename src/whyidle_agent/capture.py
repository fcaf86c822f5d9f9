"""Keep real inputs and outputs of one function of the person's, so that a replacement can be checked on them.

Only on request (`whyidle run --capture file.py:function`).

NOTE [the code is swapped, not the function]
    Whoever imported the function by name holds the function object itself. So its `__code__` is replaced by one that
    hands all arguments to a recorder; the recorder calls a second function object made of the first one's old code,
    globals, defaults and closure. Identity, name and pickling by name stay as they were.

NOTE [which calls are kept]
    Every stride-th call. When a slot has MAX_KEPT calls, or keeping takes too much of the time, every second of them is
    dropped and the stride doubles: what is kept is spread evenly over the run, whatever its length, and no random
    number is drawn. A slot belongs to one
    process at a time (a file lock, released by its death, however it dies); the workers of the next epoch go on in
    the slots of the last, so that the folder's size is bounded by the number of workers alive at once.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import pickle
import sys
import threading
import time
import types

from whyidle_agent import snapshot, writer
from whyidle_agent.patching import uncounted
from whyidle_agent.snapshot import MAX_RECORD_BYTES, RefusedError

_MYPY = False
if _MYPY:
    from types import FunctionType, ModuleType
    from typing import Any, Iterator

ENV_CAPTURE = "WHYIDLE_CAPTURE"
"""One `file.py:function` or `file.py:Class.method` a line. A file that is no absolute path matches by its end."""
FOLDER = "capture"
"""In the run folder: one folder for each function, in it one for each slot."""
SUMMARY = "summary.json"
LOCK = "lock"
RECORD_SUFFIX = ".pickle"
FORMAT_VERSION = 1

MAX_KEPT = 256
"""Kept calls of a slot are between half of this and this: about 200; a quarter at least where keeping is costly."""
MAX_SLOT_BYTES = 4 * MAX_RECORD_BYTES
"""Of the kept calls of a slot, so that it holds several of the largest."""
MAX_SLOTS = 64
"""Processes that capture at once; a node of eight ranks with eight workers each."""
MAX_REFUSED_IN_A_ROW = 32
"""After so many calls without one that could be kept, a process stops trying: each try costs a pickling."""
MAX_REASONS = 16
"""Different reasons that are counted apart."""
FREE_NS, MAX_COST_RATIO = 100_000_000, 0.03
"""CPU time that keeping may take in a process: so much at once, and this part of the time since; beyond that the
stride doubles. A run in which calls are kept is to be like others: its stacks are what a forecast rests on."""
SUMMARY_EVERY_NS = 1_000_000_000
"""How old the counts of a process may be when it is killed."""
_MAX_WRAPPERS = 8
"""Decorators that are looked through."""

_COMPILED = "_torchdynamo_orig_callable"
"""Attribute of what torch.compile gives."""
_GENERATOR_FLAGS = 0x20 | 0x80 | 0x100 | 0x200
"""inspect's CO_GENERATOR, CO_COROUTINE, CO_ITERABLE_COROUTINE, CO_ASYNC_GENERATOR."""
_HOOK_CONSTANT = 8_675_309_271_828

_now = time.monotonic_ns
_cpu_now = time.thread_time_ns


class _Wanted:
    """A function that was asked for."""

    __slots__ = ("file", "folder", "name", "spec")

    def __init__(self, number: int, spec: str, run_dir: str) -> None:
        self.spec = spec
        self.file, _, self.name = spec.rpartition(":")
        self.folder = os.path.join(run_dir, FOLDER, "%d-%s" % (number, self.name))

    def is_in(self, path: str) -> bool:
        """Whether a source file is the one that was named."""
        if os.path.basename(path) != os.path.basename(self.file):
            return False
        real = os.path.realpath(os.path.join(_start_folder, path))
        if os.path.isabs(self.file):
            return real == os.path.realpath(self.file)
        return real.endswith(os.sep + os.path.normpath(self.file))


_wanted: list[_Wanted] = []
_start_folder = ""
_looked: tuple[int, int] = (0, 0)


def start(run_dir: str) -> None:
    """Note what is asked for, at the start of the interpreter: the script may change its folder later."""
    global _start_folder
    specs = os.environ.get(ENV_CAPTURE, "").splitlines()
    if specs and not _wanted:
        _start_folder = os.getcwd()
        _wanted.extend(_Wanted(number, spec, run_dir) for number, spec in enumerate(specs))


def look() -> None:
    """Find the functions among the modules of this process; called before each batch is made.

    Cost: 0.2 us while no module was imported since the last look.
    """
    global _looked
    try:
        seen = (os.getpid(), len(sys.modules))
        if not _wanted or seen == _looked:
            return
        _looked = seen
        for wanted in _wanted:
            for module in _modules_of(wanted):
                _capture_in(module, wanted)
    except Exception as error:
        writer.note("capture-failed", repr(error))


def _modules_of(wanted: _Wanted) -> Iterator[ModuleType]:
    modules: list[Any] = list(sys.modules.values())
    for module in modules:
        if not isinstance(module, types.ModuleType):
            continue
        # Not getattr: a lazy module would be imported by it.
        file = types.ModuleType.__getattribute__(module, "__dict__").get("__file__")
        if isinstance(file, str) and wanted.is_in(file):
            yield module


def _capture_in(module: ModuleType, wanted: _Wanted) -> None:
    function = _function_of(module, wanted.name)
    if isinstance(function, str):
        writer.note("capture-failed", "%s: %s" % (wanted.spec, function))
        return
    if not _is_ours(function):
        _swap(function, _Recorder(wanted, function, _origin_of(module, wanted)))


def _origin_of(module: ModuleType, wanted: _Wanted) -> dict[str, str]:
    file = os.path.realpath(os.path.join(_start_folder, str(module.__file__)))
    return {"file": file, "function": wanted.name, "module": module.__name__}


def _function_of(module: ModuleType, name: str) -> FunctionType | str:
    """The function behind plain decorators; a text that says why there is none."""
    found: Any = module
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
        if found is None:
            return "there is no %s" % name
    for _ in range(_MAX_WRAPPERS):
        inner = _inner_of(found)
        if inner is None:
            break
        found = inner
    if not isinstance(found, types.FunctionType) or hasattr(found, _COMPILED):
        return "%s is a %s, not a plain Python function" % (name, type(found).__name__)
    if found.__code__.co_flags & _GENERATOR_FLAGS:
        return (
            "%s is a generator or a coroutine: what it gives is used up by looking" % name
        )
    return found


def _inner_of(found: Any) -> Any:
    """What a plain decorator has wrapped; None for anything else.

    A compiler (numba, torch.compile) also keeps the function it was given, and would compile what is put into it.
    """
    if isinstance(found, (staticmethod, classmethod)):
        return found.__func__
    is_plain = isinstance(found, (types.FunctionType, functools._lru_cache_wrapper))
    return (
        getattr(found, "__wrapped__", None)
        if is_plain and not hasattr(found, _COMPILED)
        else None
    )


def _template(*args: Any, **kwargs: Any) -> Any:
    hook: Any = 8_675_309_271_828
    return hook(args, kwargs)


def _is_ours(function: FunctionType) -> bool:
    return any(isinstance(one, _Recorder) for one in function.__code__.co_consts)


def _swap(function: FunctionType, recorder: _Recorder) -> None:
    """See NOTE [the code is swapped, not the function]."""
    code = uncounted(_template).__code__
    constants = tuple(
        recorder if one == _HOOK_CONSTANT and type(one) is int else one
        for one in code.co_consts
    )
    function.__code__ = code.replace(
        co_consts=constants,
        co_name=function.__code__.co_name,
        co_freevars=function.__code__.co_freevars,
    )


def _copy_of(function: FunctionType) -> FunctionType:
    copied = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__qualname__ = function.__qualname__
    return copied


# --- recording ------------------------------------------------------------------------------------


class _Recorder:
    """Stands in for the code of a function."""

    __slots__ = ("_lock", "_origin", "_pid", "_slot", "_wanted", "original")

    def __init__(
        self, wanted: _Wanted, function: FunctionType, origin: dict[str, str]
    ) -> None:
        self.original = _copy_of(function)
        self._origin = origin
        self._wanted = wanted
        self._pid = 0
        self._slot: _Slot | None = None
        self._lock = threading.Lock()

    @uncounted
    def __call__(self, args: Any, kwargs: Any) -> Any:
        """Call the function; keep the call if its turn has come. Cost: about 3 us for a call that is not kept."""
        call = self._begin(args, kwargs)
        if call is None:
            return self.original(*args, **kwargs)
        try:
            result = self.original(*args, **kwargs)
        except BaseException:
            self._end(call, None, raised=True)
            raise
        self._end(call, result, raised=False)
        return result

    def _begin(self, args: Any, kwargs: Any) -> _Call | None:
        try:
            if self._pid != os.getpid():
                self._renew()
            slot = self._slot
            if slot is None:
                return None
            # Nested calls, and those of other threads meanwhile, are only passed on.
            if not self._lock.acquire(False):
                slot.overlapping += 1
                return None
        except Exception as error:
            writer.note("capture-failed", repr(error))
            return None
        try:
            call = slot.begin(args, kwargs)
        except Exception as error:
            writer.note("capture-failed", repr(error))
            self._lock.release()
            return None
        except BaseException:
            self._lock.release()
            raise
        return call

    def _end(self, call: _Call, result: Any, *, raised: bool) -> None:
        try:
            call.stop()
            if self._slot is not None:
                self._slot.end(call, result, raised=raised)
        except Exception as error:
            writer.note("capture-failed", repr(error))
        finally:
            if self._lock.locked():
                self._lock.release()

    def _renew(self) -> None:
        """Take a slot in this process, once; None when there is none to be had."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._slot = None
        slot = _Slot.take(self._wanted.folder, self._origin)
        if slot is None:
            writer.note("capture-failed", "%s: no slot is free" % self._wanted.spec)
        self._slot = slot


class _Call:
    """One call under way."""

    __slots__ = (
        "args",
        "cpu_ns",
        "inputs",
        "io_after",
        "io_before",
        "is_tried",
        "kwargs",
        "number",
        "random",
        "start_ns",
        "wall_ns",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.args: Any = None
        self.kwargs: Any = None
        self.is_tried = False
        # None: not to be kept.
        self.inputs: bytes | None = None
        self.random: dict[str, bytes] = {}
        self.io_before: Any = None
        self.io_after: Any = None
        self.cpu_ns = self.wall_ns = self.start_ns = 0

    def start(self) -> None:
        if self.inputs is not None:
            self.io_before = snapshot.io_counts()
        self.cpu_ns = _cpu_now()
        self.start_ns = _now()

    def stop(self) -> None:
        self.wall_ns = _now() - self.start_ns
        self.cpu_ns = _cpu_now() - self.cpu_ns
        if self.io_before is not None:
            self.io_after = snapshot.io_counts()


class _Slot:
    """The folder of one process at a time, and what it counts."""

    def __init__(self, folder: str, lock: int, origin: dict[str, str]) -> None:
        self.folder = folder
        self.lock = lock
        self.overlapping = 0
        self.refused_in_a_row = 0
        self.written_ns = 0
        # CPU time that keeping has taken in this process, and when that began.
        self.spent_ns = 0
        self.start_ns = _now()
        self.counts: dict[str, Any] = {
            "version": FORMAT_VERSION,
            **origin,
            "calls": 0,
            "wall_ns": 0,
            "cpu_ns": 0,
            "stride": 1,
            "raised": 0,
            "refused": {},
            "processes": 0,
            "overlapping": 0,
        }
        self.kept: dict[int, int] = {}
        self._resume()
        self.counts["processes"] += 1
        self.counts["target"] = _describe_target()

    @classmethod
    def take(cls, parent: str, origin: dict[str, str]) -> _Slot | None:
        """Take the first slot that no living process has.

        Raises:
            OSError: the run folder cannot be written or locked.
        """
        for number in range(MAX_SLOTS):
            folder = os.path.join(parent, str(number))
            os.makedirs(folder, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            lock = os.open(os.path.join(folder, LOCK), flags, 0o644)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(lock)
                if not isinstance(error, BlockingIOError):
                    raise
                continue
            return cls(folder, lock, origin)
        return None

    def begin(self, args: Any, kwargs: Any) -> _Call:
        """Count a call and pickle its arguments if it is to be kept."""
        counts = self.counts
        call = _Call(counts["calls"])
        counts["calls"] += 1
        tries = self.refused_in_a_row < MAX_REFUSED_IN_A_ROW
        if tries and call.number % counts["stride"] == 0:
            call.is_tried = True
            start_ns = _cpu_now()
            try:
                call.inputs = snapshot.dump((args, kwargs))
                call.args, call.kwargs = args, kwargs
                call.random = snapshot.random_states()
            except Exception as error:
                self._refuse("arguments", error)
            self.spent_ns += _cpu_now() - start_ns
        call.start()
        return call

    def end(self, call: _Call, result: Any, *, raised: bool) -> None:
        """Count what a call took and keep it."""
        start_ns = _cpu_now()
        counts = self.counts
        counts["wall_ns"] += call.wall_ns
        counts["cpu_ns"] += call.cpu_ns
        counts["raised"] += raised
        if call.inputs is not None and not raised:
            try:
                self._keep(call, result)
                self.refused_in_a_row = 0
            except Exception as error:
                self._refuse("result", error)
        if call.is_tried or _now() - self.written_ns > SUMMARY_EVERY_NS:
            self._write_summary()
        if call.is_tried:
            self.spent_ns += _cpu_now() - start_ns
            affordable_ns = FREE_NS + MAX_COST_RATIO * (_now() - self.start_ns)
            if self.spent_ns > affordable_ns and len(self.kept) > MAX_KEPT // 2:
                self._double_stride()

    def _keep(self, call: _Call, result: Any) -> None:
        moved = snapshot.moved(call.random, snapshot.random_states())
        if isinstance(result, types.GeneratorType) or hasattr(type(result), "__next__"):
            raise RefusedError("an iterator, which looking at would use up")
        content = {
            "version": FORMAT_VERSION,
            "call": call.number,
            "inputs": call.inputs,
            "output": snapshot.dump(result),
            "changed": snapshot.dump((call.args, call.kwargs)) != call.inputs,
            "random": {name: call.random[name] for name in moved},
            "effects": snapshot.effects_of(call.io_before, call.io_after),
            "wall_ns": call.wall_ns,
            "cpu_ns": call.cpu_ns,
        }
        data = pickle.dumps(content, 4)
        if len(data) > MAX_RECORD_BYTES:
            raise RefusedError("more than %d MB" % (MAX_RECORD_BYTES // 1_000_000))
        _write(self._path(call.number), data)
        self.kept[call.number] = len(data)
        self._thin()

    def _thin(self) -> None:
        while len(self.kept) >= MAX_KEPT or sum(self.kept.values()) > MAX_SLOT_BYTES:
            self._double_stride()
            if len(self.kept) <= 1:
                return

    def _double_stride(self) -> None:
        self.counts["stride"] *= 2
        for number in [one for one in self.kept if one % self.counts["stride"]]:
            os.unlink(self._path(number))
            del self.kept[number]

    def _refuse(self, what: str, error: Exception) -> None:
        self.refused_in_a_row += 1
        said = (
            str(error)
            if isinstance(error, RefusedError)
            else "%s: %s" % (type(error).__name__, error)
        )
        reason = "%s: %s" % (what, said[:200])
        refused = self.counts["refused"]
        if reason not in refused and len(refused) >= MAX_REASONS:
            reason = "other"
        refused[reason] = refused.get(reason, 0) + 1

    def _resume(self) -> None:
        """Go on where the process before has ended."""
        try:
            with open(os.path.join(self.folder, SUMMARY), "rb") as file:
                self.counts.update(json.loads(file.read()))
        except (OSError, ValueError):
            pass
        for name in os.listdir(self.folder):
            number = name.partition(".")[0]
            if name.endswith(RECORD_SUFFIX) and number.isdigit():
                path = os.path.join(self.folder, name)
                self.kept[int(number)] = os.stat(path).st_size
        # Killed between a record and its summary: numbers are not given twice.
        self.counts["calls"] = max([self.counts["calls"], *(one + 1 for one in self.kept)])

    def _write_summary(self) -> None:
        self.written_ns = _now()
        self.counts["overlapping"] += self.overlapping
        self.overlapping = 0
        text = json.dumps(self.counts)
        _write(os.path.join(self.folder, SUMMARY), text.encode("utf-8"))

    def _path(self, number: int) -> str:
        return os.path.join(self.folder, "%012d%s" % (number, RECORD_SUFFIX))


def _describe_target() -> dict[str, Any]:
    """What a replay needs to import the same code: no environment."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    parent = getattr(sys.modules.get("multiprocessing"), "parent_process", None)
    return {
        "executable": sys.executable,
        "folder": _start_folder,
        "path": [os.path.join(_start_folder, str(one)) for one in sys.path],
        "argv": [str(one) for one in sys.argv],
        "main": os.path.join(_start_folder, file) if isinstance(file, str) else None,
        "package": getattr(main, "__package__", None),
        "is_worker": parent is not None and parent() is not None,
        "threads": _torch_threads(),
    }


def _torch_threads() -> int | None:
    ask = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return None if ask is None else int(ask())


def _write(path: str, data: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    temporary = path + ".new"
    with open(temporary, "wb") as file:
        file.write(data)
    os.replace(temporary, path)
