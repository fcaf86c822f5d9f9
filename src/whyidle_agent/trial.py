"""Trials: build loaders and run workers with other settings than the script's, without touching it.

The launcher says what to change in the environment, as JSON:

    {"loader": {"num_workers": 4}, "file": "/job/train.py", "line": 71,   arguments for loaders built in that line
     "sharing_strategy": "file_system", "worker_threads": 1, "cpus": [0, 1, 2, 3], "losses": 50}

Each key may be absent. Both arms of a trial get it, the unchanged one with nothing to change.

NOTE [all or nothing]
    A loader gets all the arguments or, on any surprise (an argument that this torch does not have, a constructor
    that raises), exactly those of the script. Notes say which loaders were changed and why others were not, so
    that a remedy which was never applied is not taken for one without effect.
"""

from __future__ import annotations

import inspect
import itertools
import json
import os
import sys

from whyidle_agent import boot, places, wire, writer

_MYPY = False
if _MYPY:
    from typing import Any, Callable

APPLIED = "remedy-applied"
REFUSED = "remedy-refused"
"""Slugs of the notes that say what became of a change."""
MAX_NOTED_LOADERS = 20
"""A script that builds a loader an epoch would fill the journal with notes."""
NEED_WORKERS = ("prefetch_factor", "persistent_workers")
"""Arguments that a loader without workers must not have."""
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)
"""What libraries that a worker has yet to load go by."""

_built = itertools.count(1)


def _read_wish() -> dict[str, Any]:
    try:
        wish = json.loads(os.environ.get(wire.ENV_TRIAL) or "{}")
        return wish if isinstance(wish, dict) else {}
    except ValueError as error:
        writer.note(REFUSED, repr(error))
        return {}


_wish = _read_wish()


def loss_count() -> int:
    """How many losses are to be recorded; 0 outside of trials."""
    count = _wish.get("losses")
    return count if type(count) is int and count > 0 else 0


# --- loaders ------------------------------------------------------------------------------------


def changing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give the constructor of loaders that applies the trial's arguments where they belong."""
    if not (_wish.get("loader") or _wish.get("sharing_strategy") or _wish.get("cpus")):
        return original

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        prepare_process()
        arguments = _arguments_for(original, self, args, kwargs)
        if arguments is None or not _build_changed(original, self, *arguments):
            original(self, *args, **kwargs)

    return construct


def _arguments_for(
    original: Callable[..., Any],
    loader: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The changed call, without the loader itself; None when the loader stays as it is."""
    try:
        wanted = _wish.get("loader")
        # Frames: this one, `construct`, the wrapper that calls it.
        if not wanted or not _is_meant(*places.calling_place(4)):
            return None
        signature = inspect.signature(original)
        bound = signature.bind(loader, *args, **kwargs)
        reason = change_arguments(bound.arguments, wanted, frozenset(signature.parameters))
        if reason is not None:
            writer.note(REFUSED, reason)
            return None
        return bound.args[1:], bound.kwargs
    except Exception as error:
        writer.note(REFUSED, repr(error))
        return None


def _is_meant(file: str, line: int) -> bool:
    """Whether the loader of this line is to be changed; without a known line, every loader is."""
    meant = _wish.get("file")
    if not meant or not file:
        return True
    same_file = file == meant or os.path.abspath(file) == os.path.abspath(meant)
    return same_file and line == _wish.get("line")


def change_arguments(
    arguments: dict[str, Any], wanted: dict[str, Any], known: frozenset[str]
) -> str | None:
    """Change a loader's arguments in place.

    Args:
        arguments: Those that the script gave, by name.
        wanted: Those to give instead.
        known: Names that the constructor takes.

    Returns:
        Why nothing can be changed; None when it was.
    """
    unknown = sorted(set(wanted) - known)
    if unknown:
        return "this torch has no DataLoader argument " + ", ".join(unknown)
    workers = wanted.get("num_workers", arguments.get("num_workers", 0))
    if workers == 0:
        lost = [name for name in NEED_WORKERS if wanted.get(name)]
        if lost:
            return "%s needs workers, and there are none" % lost[0]
        if arguments.get("timeout"):
            return "the loader has a timeout, which needs workers"
        for name in NEED_WORKERS:
            arguments.pop(name, None)
    arguments.update(wanted)
    return None


def _build_changed(
    original: Callable[..., Any], loader: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Build with the changed arguments; False when that failed and the loader is as before."""
    before = dict(vars(loader))
    try:
        original(loader, *args, **kwargs)
    except Exception as error:
        # A half-built loader takes no more attributes: empty it for the script's own arguments.
        vars(loader).clear()
        vars(loader).update(before)
        writer.note(REFUSED, "the DataLoader refuses the change: %r" % error)
        return False
    number = next(_built)
    if number <= MAX_NOTED_LOADERS:
        writer.note(APPLIED, "loader %d: %s" % (number, _render(_wish["loader"])))
    return True


def _render(values: dict[str, Any]) -> str:
    return ", ".join("%s=%r" % item for item in values.items())


# --- processes ------------------------------------------------------------------------------------


def prepare_process() -> None:
    """Apply what concerns the whole process. Again at each chance: the script may have undone it."""
    try:
        if _wish.get("cpus"):
            _use_cpus(_wish["cpus"])
        if _wish.get("sharing_strategy"):
            _share_by(_wish["sharing_strategy"])
    except Exception as error:
        writer.note(REFUSED, repr(error))


def prepare_worker() -> None:
    """Apply what concerns a worker: before its data set is used, and again behind `worker_init_fn`."""
    prepare_process()
    try:
        count = _wish.get("worker_threads")
        if type(count) is int and count > 0:
            writer.note(APPLIED, "worker threads: " + ", ".join(_limit_threads(count)))
    except Exception as error:
        writer.note(REFUSED, repr(error))


def _use_cpus(cpus: list[int]) -> None:
    before = os.sched_getaffinity(0)
    if before >= set(cpus):
        return
    for name in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(name), cpus)
        except ProcessLookupError:
            continue  # a thread that has just ended
    after = os.sched_getaffinity(0)
    if len(after) > len(before):
        writer.note(APPLIED, "CPUs: %d instead of %d" % (len(after), len(before)))
    else:
        writer.note(REFUSED, "the cpuset allows no more than %d CPUs" % len(after))


def _share_by(strategy: str) -> None:
    module = sys.modules.get("torch.multiprocessing")
    if module is None or module.get_sharing_strategy() == strategy:
        return
    module.set_sharing_strategy(strategy)
    if not boot.is_data_worker():
        writer.note(APPLIED, "sharing strategy: " + strategy)


def _limit_threads(count: int) -> list[str]:
    """Limit the threads of libraries in this process; gives the names of those that were there."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(count)
    limited = ["environment"]
    for module_name, function in (
        ("torch", "set_num_threads"),
        ("cv2", "setNumThreads"),
        ("numba", "set_num_threads"),
    ):
        limit = getattr(sys.modules.get(module_name), function, None)
        if limit is not None:
            limit(count)
            limited.append(module_name)
    return limited + _limit_native_threads(count)


_NATIVE = {
    "libgomp": ("omp_set_num_threads",),
    "libiomp": ("omp_set_num_threads",),
    "libomp": ("omp_set_num_threads",),
    "libmkl_rt": ("MKL_Set_Num_Threads",),
    "openblas": (
        "openblas_set_num_threads",
        "scipy_openblas_set_num_threads64_",
        "openblas_set_num_threads64_",
    ),
}
"""Part of a library's file name to the functions, of which it has one, that limit its threads."""


def _limit_native_threads(count: int) -> list[str]:
    import ctypes

    limited = []
    for path in _loaded_libraries():
        base = os.path.basename(path)
        for part, functions in _NATIVE.items():
            if part not in base:
                continue
            library = ctypes.CDLL(path)
            names = [one for one in functions if hasattr(library, one)]
            if names:
                getattr(library, names[0])(ctypes.c_int(count))
                limited.append(base)
    return limited


def _loaded_libraries() -> list[str]:
    """Paths of the shared libraries of this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        # 7f1c00000000-7f1c00021000 r-xp 00000000 08:01 1234   /usr/lib/libgomp.so.1
        rows = [line.split(None, 5) for line in file]
    paths = {row[5].strip() for row in rows if len(row) == 6}
    return sorted(one for one in paths if ".so" in os.path.basename(one))
