"""Is NEW equal to OLD on captured inputs, and how much faster is it where the training would call it?

NOTE [measured like the job]
    As many processes as the training had workers take their turns together: all call OLD on their inputs, then all
    call NEW on the same ones, the next time the other way round. What others do on the machine meanwhile meets both.
    Time is that of the call on a CPU or blocked; waiting for a free CPU is left out, since the forecast adds it anew.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from whyidle.model.proof import CaptureCounts, Findings, Timing
from whyidle.trial.replaying import CALL_SECONDS, SLOWER, ask_all, open_replayers
from whyidle.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from whyidle.store.captures import CapturedFunction, FunctionName
    from whyidle.trial.replaying import Replayer

MAX_CALLS = 256
"""Calls that a process replays: what a worker keeps at most."""
CHECK_NS = 60 * NS_PER_S
"""Checking takes about this long at most: each call runs three times (OLD, NEW, OLD again where it differs)."""
BLOCK_NS = NS_PER_S // 4
"""Length of a block of OLD: many time slices of the kernel's, and short beside the drifts of a machine."""
MIN_ROUNDS = 6
"""Fewer rounds do not tell the spread."""
MAX_ROUNDS = 400
MAX_EXAMPLES = 3
_Z90 = 2.015
"""95 % point of Student's t with MIN_ROUNDS - 1 degrees of freedom: a little wide for more rounds."""

_WALL, _CPU, _QUEUED = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be proved."""

    capture: CapturedFunction
    new: FunctionName
    """With an absolute path."""
    processes: int
    """Workers of the training; 1 for a loop without."""
    rtol: float
    atol: float
    seconds: float
    """How long to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What replaying showed."""

    capture: CaptureCounts
    not_reproduced: Findings
    different: Findings
    not_comparable: Findings
    timing: Timing | None


def replay(request: Request, say: Callable[[str], None]) -> Replayed:
    """Check equality, and measure if nothing differs.

    Args:
        request: Functions, processes, tolerance and time.
        say: Is told what goes on, for a person who waits.

    Raises:
        WhyidleError: `replay-failed`.
    """
    capture = request.capture
    shares = _share_out(len(capture.records), request.processes, capture.mean_wall_ns)
    with open_replayers(capture, len(shares), _load_question(request)) as replayers:
        say(f"checking {sum(map(len, shares))} calls")
        answers = _check(replayers, shares, _patience(capture, 3))
        different = _findings(answers, "differences")
        timing = None
        if not different.count:
            say(f"measuring for {request.seconds:g} s in {len(shares)} process(es) at once")
            timing = _measure(replayers, shares, request)
    return Replayed(
        capture=_count(capture, answers),
        not_reproduced=_findings(answers, "not_reproduced"),
        different=different,
        not_comparable=_findings(answers, "not_comparable"),
        timing=timing,
    )


def _share_out(count: int, processes: int, mean_ns: float) -> list[list[int]]:
    """Give each process its records, evenly spread over all; as many as can be checked in CHECK_NS."""
    affordable = int(CHECK_NS * processes / max(3 * mean_ns, 1.0))
    wanted = min(count, processes * MAX_CALLS, max(affordable, processes))
    chosen = [position * count // wanted for position in range(wanted)]
    shares = [chosen[number::processes] for number in range(processes)]
    return [share or chosen[:1] for share in shares]


def _load_question(request: Request) -> dict[str, Any]:
    capture = request.capture
    old, new = capture.name, request.new
    return {
        "do": "load",
        "target": capture.target,
        "old": {"file": old.file, "function": old.function, "module": capture.module},
        "new": {"file": new.file, "function": new.function, "module": None},
        "records": [str(path.absolute()) for path in capture.records],
        "rtol": request.rtol,
        "atol": request.atol,
    }


def _patience(capture: CapturedFunction, calls: int) -> float:
    return CALL_SECONDS + SLOWER * calls * capture.mean_wall_ns / NS_PER_S


# --- equality -------------------------------------------------------------------------------------


def _check(
    replayers: Sequence[Replayer], shares: Sequence[Sequence[int]], seconds: float
) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    for turn in range(max(map(len, shares))):
        questions = [
            {"do": "check", "record": share[turn]} for share in shares if turn < len(share)
        ]
        asked = [
            one for one, share in zip(replayers, shares, strict=True) if turn < len(share)
        ]
        answers += ask_all(asked, questions, seconds)
    return answers


def _findings(answers: Sequence[dict[str, Any]], name: str) -> Findings:
    found = [one for one in answers if one[name]]
    examples = [f"call {one['call']}: {_joined(one[name])}" for one in found[:MAX_EXAMPLES]]
    return Findings(count=len(found), examples=tuple(examples))


def _joined(said: str | list[str]) -> str:
    return said if isinstance(said, str) else "; ".join(said)


def _count(capture: CapturedFunction, answers: Sequence[dict[str, Any]]) -> CaptureCounts:
    effects = Counter(effect for one in answers for effect in one["effects"])
    return CaptureCounts(
        calls=capture.calls,
        mean_wall_ns=capture.mean_wall_ns,
        mean_cpu_ns=capture.cpu_ns / max(capture.calls, 1),
        kept=len(capture.records),
        checked=len(answers),
        raised=capture.raised,
        refused=capture.refused,
        drew_random=sum(bool(one["random"]) for one in answers),
        changed_arguments=sum(bool(one["changed"]) for one in answers),
        effects=dict(effects),
    )


# --- speed ----------------------------------------------------------------------------------------


def _measure(
    replayers: Sequence[Replayer], shares: Sequence[Sequence[int]], request: Request
) -> Timing:
    """See NOTE [measured like the job]. The first round only warms up."""
    mean_ns = max(request.capture.mean_wall_ns, 1.0)
    size = max(1, min(int(BLOCK_NS / mean_ns), max(map(len, shares))))
    samples = _Samples()
    seconds = _patience(request.capture, size)
    end = time.monotonic() + request.seconds
    for turn in range(-1, MAX_ROUNDS):
        if turn >= MIN_ROUNDS and time.monotonic() > end:
            break
        blocks = [_block_of(share, size, turn + 1) for share in shares]
        for arm in ("old", "new") if turn % 2 else ("new", "old"):
            questions = [{"do": "time", "arm": arm, "records": block} for block in blocks]
            answers = ask_all(replayers, questions, seconds)
            if turn >= 0:
                samples.add(arm, blocks, [one["times"] for one in answers])
    return samples.timing(len(shares))


def _block_of(share: Sequence[int], size: int, turn: int) -> list[int]:
    """Give the next few records of a process, going round."""
    start = turn * size
    return [share[(start + offset) % len(share)] for offset in range(min(size, len(share)))]


class _Samples:
    """Measured calls, by arm: rounds of (record, wall, CPU, queued)."""

    def __init__(self) -> None:
        self._rounds: dict[str, list[NDArray[np.float64]]] = {"old": [], "new": []}

    def add(self, arm: str, blocks: Sequence[Sequence[int]], times: Sequence[Any]) -> None:
        rows = [
            (record, *measured)
            for block, answer in zip(blocks, times, strict=True)
            for record, measured in zip(block, answer, strict=True)
        ]
        self._rounds[arm].append(np.array(rows, dtype=np.float64))

    def timing(self, processes: int) -> Timing:
        old, new = self._rounds["old"], self._rounds["new"]
        rounds = [estimate_round(*pair) for pair in zip(old, new, strict=True)]
        speedup, low, high = estimate_speedup(np.vstack(old), np.vstack(new), rounds)
        means = {arm: _means(np.vstack(rows)) for arm, rows in self._rounds.items()}
        return Timing(
            processes=processes,
            rounds=len(old),
            old_ns=means["old"][0],
            new_ns=means["new"][0],
            speedup=speedup,
            low=low,
            high=high,
            old_wall_ns=means["old"][1],
            new_wall_ns=means["new"][1],
            old_cpu_ns=means["old"][2],
            new_cpu_ns=means["new"][2],
        )


def _means(rows: NDArray[np.float64]) -> tuple[float, float, float]:
    return (
        float(_busy(rows).mean()),
        float(rows[:, 1 + _WALL].mean()),
        float(rows[:, 1 + _CPU].mean()),
    )


def _busy(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Time on a CPU or blocked, ns: wall time without the wait for a CPU, at least the CPU time, never 0."""
    wall, cpu, queued = rows[:, 1 + _WALL], rows[:, 1 + _CPU], rows[:, 1 + _QUEUED]
    return np.maximum(
        np.maximum(wall - np.maximum(queued, 0.0), np.minimum(cpu, wall)), 1.0
    )


def estimate_round(old: NDArray[np.float64], new: NDArray[np.float64]) -> float:
    """Give the logarithm of the speedup of one round."""
    return math.log(float(_busy(old).sum()) / float(_busy(new).sum()))


def estimate_speedup(
    old: NDArray[np.float64], new: NDArray[np.float64], rounds: Sequence[float]
) -> tuple[float, float, float]:
    """Give the ratio of mean times with a 90 % interval.

    The interval holds two spreads, added up: that of the ratio over the inputs (others would have been captured
    another time; linearised, each input with its mean over the rounds), and that of the rounds (what others did on
    the machine).

    Args:
        old: (n, 4) float64: record, wall, CPU, queued ns of each call of OLD.
        new: (n, 4) of NEW, the same records.
        rounds: Logarithm of the speedup of each round.

    Returns:
        Speedup, low and high end.
    """
    records = np.unique(old[:, 0])
    old_ns = np.array([_busy(old[old[:, 0] == record]).mean() for record in records])
    new_ns = np.array([_busy(new[new[:, 0] == record]).mean() for record in records])
    ratio = float(old_ns.sum() / new_ns.sum())
    count = len(records)
    inputs = 0.0
    if count > 1:
        residuals = old_ns / old_ns.mean() - new_ns / new_ns.mean()
        inputs = float((residuals**2).sum()) / (count * (count - 1))
    spread = float(np.var(rounds, ddof=1)) / len(rounds) if len(rounds) > 1 else 0.0
    reach = _Z90 * math.sqrt(inputs + spread)
    return ratio, ratio * math.exp(-reach), ratio * math.exp(reach)
