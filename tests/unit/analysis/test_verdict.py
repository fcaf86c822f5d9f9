"""From records on disk to the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.recorded import record_run
from tests.timelines import MS, SimulatedLoader
from whyidle.analysis.align import build_timeline
from whyidle.analysis.verdict import judge
from whyidle.model.findings import Activity, Limit, Regime
from whyidle.model.waits import Wait
from whyidle.store.rundir import load_tables

if TYPE_CHECKING:
    from pathlib import Path

    from whyidle.model.findings import Verdict


def _loader(
    work_ms: float = 80, step_ms: float = 10, workers: int = 2, batches: int = 200
) -> SimulatedLoader:
    return SimulatedLoader(
        np.full((batches, 1), work_ms * MS), np.full(batches, step_ms * MS), workers, 2
    )


def _judge(folder: Path, loader: SimulatedLoader, **options) -> Verdict:
    return judge(load_tables(record_run(folder / "run", loader, **options)))


@pytest.mark.parametrize(
    ("work_ms", "step_ms", "workers"), [(80, 10, 2), (400, 20, 4), (12, 1, 3)]
)
def test_verdict_of_a_slow_python_loop_names_its_line(
    tmp_path: Path, work_ms, step_ms, workers
) -> None:
    """A saturated loader that computes is bound by its input, in the function that the workers were seen in."""
    verdict = _judge(tmp_path, _loader(work_ms, step_ms, workers, batches=400))

    cause = verdict.causes[0]
    assert (verdict.limit, cause.activity, cause.where.function) == (
        Limit.INPUT,
        Activity.COMPUTE,
        "offset_map",
    )
    assert cause.where.line == 33
    assert cause.share == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("wait", "activity"),
    [
        (Wait.FILE, Activity.STORAGE),
        (Wait.SOCKET, Activity.NETWORK),
        (Wait.LOCK, Activity.LOCK),
        (Wait.SLEEP, Activity.SLEEP),
    ],
)  # fmt: skip
def test_verdict_of_blocked_workers_names_what_they_wait_for(
    tmp_path: Path, wait, activity
) -> None:
    """What the observer saw blocked workers wait for is the activity."""
    verdict = _judge(tmp_path, _loader(), cpu_share=0.05, wait=int(wait))

    assert verdict.causes[0].activity is activity
    assert verdict.causes[0].share > 0.9


def test_verdict_of_slow_files_names_the_mount(tmp_path: Path) -> None:
    """Blocked reads are charged to the file system they are on."""
    verdict = _judge(tmp_path, _loader(), cpu_share=0.05)

    assert verdict.causes[0].where.mount == "/data (fuse.sshfs)"
    assert verdict.causes[0].regime is Regime.FEW_WORKERS


def test_verdict_answers_why_half_busy_cpus_still_starve_the_loop(tmp_path: Path) -> None:
    """Half computing and half reading: both causes, and the sentence that explains the picture."""
    verdict = _judge(tmp_path, _loader(), cpu_share=0.5)

    assert {cause.activity for cause in verdict.causes[:2]} == {
        Activity.COMPUTE,
        Activity.STORAGE,
    }
    assert [cause.share for cause in verdict.causes[:2]] == pytest.approx(
        [0.5, 0.5], abs=0.02
    )
    assert "one after the other" in verdict.sentence


@pytest.mark.parametrize(
    ("work_ms", "step_ms", "workers"), [(10, 40, 2), (80, 100, 2), (5, 20, 1)]
)
def test_verdict_of_a_fed_device_is_device(
    tmp_path: Path, work_ms, step_ms, workers
) -> None:
    """A loader that keeps up is not to blame, however busy its workers look."""
    verdict = _judge(tmp_path, _loader(work_ms, step_ms, workers))

    assert verdict.limit is Limit.DEVICE
    assert (verdict.idle_ratio or 0) < 0.01


def test_verdict_of_too_few_steps_is_withheld(tmp_path: Path) -> None:
    """Five steps are an anecdote: the verdict says so."""
    verdict = _judge(tmp_path, _loader(batches=5))

    assert verdict.limit is Limit.UNRESOLVED
    assert "few-steps" in {missing.slug for missing in verdict.not_observed}
    assert "too few" in verdict.sentence
    assert (verdict.causes, verdict.unexplained_ratio) == ((), 1.0)


def test_verdict_without_observer_still_blames_by_the_agents_own_sight(
    tmp_path: Path,
) -> None:
    """A killed observer costs the mount, not the cause."""
    verdict = _judge(tmp_path, _loader(), cpu_share=0.05, observed=False)

    assert verdict.limit in (Limit.INPUT, Limit.UNRESOLVED)
    assert verdict.idle_ratio == pytest.approx(0.75, abs=0.05)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.floats(1, 200), st.floats(0.5, 100), st.integers(1, 6), st.floats(0, 1),
    st.integers(10, 80), st.integers(0, 10**6),
)  # fmt: skip
def test_ledger_closes_for_any_loader(
    tmp_path_factory, work_ms, step_ms, workers, cpu_share, batches, seed
) -> None:
    """Shares of all causes and the unexplained rest add up to 1, and the timeline is sound."""
    rng = np.random.default_rng(seed)
    loader = SimulatedLoader(
        rng.gamma(2, work_ms / 2, (batches, 1)) * MS,
        rng.gamma(4, step_ms / 4, batches) * MS,
        workers,
        2,
    )
    tables = load_tables(
        record_run(tmp_path_factory.mktemp("run") / "run", loader, cpu_share=cpu_share)
    )

    verdict = judge(tables)

    assert build_timeline(tables).check() == []
    if verdict.idle_ratio:
        whole = sum(cause.share for cause in verdict.causes) + verdict.unexplained_ratio
        assert whole == pytest.approx(1.0, abs=0.005)
