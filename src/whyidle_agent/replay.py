"""Call a function and its replacement on captured inputs, in a process of its own, for `whyidle prove`.

Runs after the training, in the training's interpreter: one JSON object a line comes on stdin, one goes back for each.

    {"do": "load", "target": {...}, "old": {"file", "function", "module"}, "new": {...}, "records": [path, ...],
     "rtol": 1e-5, "atol": 1e-8}
    {"do": "check", "record": 3}
    {"do": "time", "arm": "old", "records": [0, 1, ...]}

NOTE [the same inputs, the same random numbers]
    Each call gets its arguments unpickled afresh, outside of the time that is measured. The global random generators
    stand as they stood before the captured call where that moved them, and otherwise the same before each call.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import time
import traceback

from whyidle_agent import snapshot
from whyidle_agent.equality import NotComparableError, Tolerance, differences
from whyidle_agent.loading import find_function, install_target, load_main

_MYPY = False
if _MYPY:
    from typing import Any, Callable

MAX_DIFFERENCES = 3
"""Of one call: more say nothing new."""
_OLD, _NEW = "old", "new"
_now = time.monotonic_ns
_cpu_now = time.thread_time_ns


def main() -> None:
    """Answer until stdin ends."""
    answers = _private_stdout()
    session = _Session()
    for line in sys.stdin:
        try:
            answer = session.answer(json.loads(line))
        except Exception as error:
            answer = {"error": _describe(error), "trace": traceback.format_exc()}
        except SystemExit as error:
            answer = {"error": "SystemExit: %s" % error, "trace": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _private_stdout() -> Any:
    """Take stdout for the answers; what the functions print goes to stderr."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


class _Outcome:
    """What one call led to."""

    __slots__ = ("arguments", "error", "random", "result")

    def __init__(self) -> None:
        self.result: Any = None
        self.arguments: Any = None
        self.error: str | None = None
        self.random: dict[str, bytes] = {}


class _Session:
    """Both functions, and the records they are called on."""

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        self._paths: list[str] = []
        self._records: dict[int, dict[str, Any]] = {}
        self._tolerance = Tolerance(0.0, 0.0)
        self._random: dict[str, bytes] = {}
        # Of torch in the training, until it is set here; None: set, or not known.
        self._threads: int | None = None

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked.

        Raises:
            Exception: whatever the person's modules raise when they are imported.
        """
        if asked["do"] == "load":
            return self._load(asked)
        if asked["do"] == "check":
            return self._check(self._record(asked["record"]))
        function = self._functions[asked["arm"]]
        records = [self._record(number) for number in asked["records"]]
        return {"times": [self._time(function, record) for record in records]}

    def _load(self, asked: dict[str, Any]) -> dict[str, Any]:
        install_target(asked["target"])
        self._tolerance = Tolerance(asked["rtol"], asked["atol"])
        self._paths = asked["records"]
        for arm in (_OLD, _NEW):
            try:
                self._functions[arm] = find_function(asked[arm], is_captured=arm == _OLD)
            except (Exception, SystemExit) as error:
                return {
                    "error": _describe(error),
                    "arm": arm,
                    "trace": traceback.format_exc(),
                }
        self._threads = asked["target"].get("threads")
        self._limit_threads()
        self._random = snapshot.random_states()
        return {"loaded": len(self._paths)}

    def _record(self, number: int) -> dict[str, Any]:
        if number not in self._records:
            with open(self._paths[number], "rb") as file:
                self._records[number] = pickle.load(file)
        return self._records[number]

    def _limit_threads(self) -> None:
        """Have torch compute in as many threads as in the training, as soon as it is there."""
        torch = sys.modules.get("torch")
        if self._threads is not None and torch is not None:
            torch.set_num_threads(self._threads)
            self._threads = None

    def _arguments_of(self, record: dict[str, Any]) -> Any:
        restored = _restore(record["inputs"])
        self._limit_threads()
        return restored

    def _call(self, arm: str, record: dict[str, Any]) -> _Outcome:
        outcome = _Outcome()
        args, kwargs = self._arguments_of(record)
        self._set_random(record)
        try:
            outcome.result = self._functions[arm](*args, **kwargs)
        except Exception as error:
            outcome.error = _describe(error)
        outcome.random = snapshot.random_states()
        outcome.arguments = (args, kwargs)
        return outcome

    def _check(self, record: dict[str, Any]) -> dict[str, Any]:
        """Compare one call: OLD with what was recorded, then NEW with OLD if that gives the same each time."""
        old = self._call(_OLD, record)
        answer: dict[str, Any] = {
            "call": record["call"],
            "random": sorted(record["random"]),
            "changed": record["changed"],
            "effects": record["effects"],
            "not_reproduced": None,
            "differences": [],
            "not_comparable": None,
        }
        try:
            answer["not_reproduced"], is_steady = self._reproduce(old, record)
            if is_steady:
                answer["differences"] = self._compare(old, self._call(_NEW, record))
        except NotComparableError as error:
            answer["not_comparable"] = str(error)
        return answer

    def _reproduce(self, old: _Outcome, record: dict[str, Any]) -> tuple[str | None, bool]:
        """Say why OLD does not give what it gave in the training (None: it does), and if it is the same each time."""
        if old.error is not None:
            return "raises %s" % old.error, False
        recorded = _restore(record["output"])
        for difference in differences(recorded, old.result, self._tolerance):
            again = self._call(_OLD, record)
            for _ in differences(old.result, again.result, self._tolerance):
                return "gives something else each time: %s" % difference, False
            return "depends on more than its arguments: %s" % difference, True
        return None, True

    def _compare(self, old: _Outcome, new: _Outcome) -> list[str]:
        if new.error is not None:
            return ["raises %s" % new.error]
        found = list(differences(old.result, new.result, self._tolerance))
        for place, expected, got in _arguments(old.arguments, new.arguments):
            label = "argument %s after the call" % place
            found.extend(differences(expected, got, self._tolerance, label))
        found.extend(
            "leaves the random generator of %s in another state" % name
            for name in snapshot.moved(old.random, new.random)
        )
        return found[:MAX_DIFFERENCES]

    def _time(self, function: Callable[..., Any], record: dict[str, Any]) -> list[int]:
        """Wall time, CPU time of the thread, and time ready without a CPU, ns; -1 where it is not known."""
        args, kwargs = self._arguments_of(record)
        if record["random"]:
            self._set_random(record)
        forget = getattr(function, "cache_clear", None)
        if forget is not None:
            forget()
        queued_ns, cpu_ns, start_ns = _queued_ns(), _cpu_now(), _now()
        try:
            function(*args, **kwargs)
        except Exception:  # counted by the check
            pass
        wall_ns = _now() - start_ns
        cpu_ns = _cpu_now() - cpu_ns
        queued_ns = _queued_ns() - queued_ns if queued_ns >= 0 else -1
        return [wall_ns, cpu_ns, queued_ns]

    def _set_random(self, record: dict[str, Any]) -> None:
        snapshot.set_random_states({**self._random, **record["random"]})


def _arguments(old: Any, new: Any) -> list[tuple[str, Any, Any]]:
    pairs = [(str(number), *both) for number, both in enumerate(zip(old[0], new[0]))]
    return pairs + [(name, old[1][name], new[1][name]) for name in old[1]]


def _describe(error: BaseException) -> str:
    return "%s: %s" % (type(error).__name__, error)


def _queued_ns() -> int:
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return -1


class _Unpickler(pickle.Unpickler):
    """Reads what `snapshot.dump` wrote."""

    def find_class(self, module: str, name: str) -> Any:
        """Find a class; those of the script are in the module that stands for it."""
        if module in ("__main__", "__mp_main__"):
            found: Any = load_main(name.partition(".")[0])
            for part in name.split("."):
                found = getattr(found, part)
            return found
        return super().find_class(module, name)

    def persistent_load(self, parts: Any) -> Any:
        """Make a tensor."""
        return snapshot.tensor_of(parts)


def _restore(data: bytes) -> Any:
    return _Unpickler(io.BytesIO(data)).load()
