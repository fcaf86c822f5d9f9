"""The verdict on a terminal: golden screens, and what holds for every verdict and width."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from tests.verdicts import MS, S, make_cause, make_run, make_split, make_verdict, missing
from whyidle.model.findings import Activity, Limit, Regime
from whyidle.views.terminal import render_verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from whyidle.model.findings import Verdict

FOLDER = Path("whyidle-runs/20260131-093000-1")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
ONE_SCREEN = 30


def _python_loop() -> Verdict:
    on_cpu = "2 of 2 workers active, on a CPU 94 % of the time"
    return make_verdict(
        make_cause(
            Activity.COMPUTE,
            Regime.THROUGHPUT,
            0.41,
            on_cpu,
            "the run uses 2.0 of 2 CPUs: more workers would only queue",
            file="/home/me/polygons/targets.py",
            line=33,
            function="offset_map",
        ),
        make_cause(
            Activity.COMPUTE,
            Regime.THROUGHPUT,
            0.38,
            on_cpu,
            file="/home/me/polygons/augment.py",
            line=71,
            function="add_noise",
            transform="GaussianNoise",
        ),
        make_cause(Activity.STARTUP, Regime.EPOCH_START, 0.15),
        make_cause(Activity.TRANSPORT, Regime.THROUGHPUT, 0.02),
        sentence=(
            "The device was idle 63 % of the time, 41 % of that because of computing in offset_map, line 33: all "
            "workers busy, and still too slow. Close behind: computing in add_noise, line 71, 38 %."
        ),
        not_observed=(
            missing(
                "no-pressure",
                "/proc/pressure is not there; how long tasks were held up by I/O or memory is unknown",
            ),
        ),
    )


def _slow_reads() -> Verdict:
    return make_verdict(
        make_cause(
            Activity.STORAGE,
            Regime.HEAD_OF_LINE,
            0.83,
            "in 97 % of the waiting another worker had nothing to do",
            "batch 117 took 1.25 s, 14.2 × the median",
            file="/home/me/train.py",
            line=18,
            function="__getitem__",
            mount="/data (fuse.sshfs)",
        ),
        make_cause(Activity.PYTHON, Regime.PERIODIC, 0.12, function="save_checkpoint"),
        run=make_run(device_kind="cuda", device_name="Tesla V100-SXM2-16GB", workers=16),
        sentence=(
            "The device was idle 63 % of the time, 83 % of that because of reading files (__getitem__, line 18): one "
            "slow batch holds up those already made."
        ),
        workers=tuple(
            make_split(at, 0.1, 0.02, 0.3 + 0.02 * at, rank=0) for at in range(16)
        ),
    )


def _neighbour() -> Verdict:
    return make_verdict(
        make_cause(
            Activity.CPU_QUEUE,
            Regime.CONTENDED,
            0.99,
            "other processes used 1.8 of 2 CPUs, most of it make",
            process="make",
        ),
        run=make_run(device_kind="cpu", exit_status=137),
        sentence="The loop waited for data 63 % of the time, 99 % of that because of waiting for a free CPU.",
    )


def _healthy() -> Verdict:
    return make_verdict(
        make_cause(Activity.TRANSPORT, Regime.STEADY, 0.6, idle_ns=90 * MS),
        make_cause(Activity.STARTUP, Regime.EPOCH_START, 0.4, idle_ns=60 * MS),
        limit=Limit.DEVICE,
        sentence="The device is the limit: it was idle only 1.0 % of the time. Feeding it faster would gain nothing.",
        idle_ratio=0.01,
        idle_series=(0.2, *[0.0] * 59),
        workers=(make_split(0, 0.2, 0.0, 0.0), make_split(1, 0.19, 0.0, 0.01)),
    )


def _outside_only() -> Verdict:
    return make_verdict(
        limit=Limit.UNRESOLVED,
        run=make_run(
            steps=0,
            warmup_steps=0,
            ranks=0,
            duration_ns=0,
            device_kind="cpu",
            workers=None,
            exit_status=None,
        ),
        sentence=(
            "Unresolved: no training step was seen from inside. From outside: its workers spent 93 % reading or "
            "writing files and 5.0 % on a CPU or waiting for one."
        ),
        step_median_ns=None,
        step_p90_ns=None,
        idle_ratio=None,
        unexplained_ratio=0.0,
        idle_series=(),
        workers=(),
        not_observed=tuple(missing(f"no-{name}", "it is not there") for name in "abcdef"),
    )


def _no_workers() -> Verdict:
    return make_verdict(
        make_cause(
            Activity.COMPUTE,
            Regime.SERIAL,
            1.0,
            "the loop makes each batch itself (num_workers=0)",
            file="/very/long/" + "folder/" * 20 + "dataset.py",
            line=1203,
            function="read_annotation_and_draw_the_mask_of_every_polygon",
        ),
        run=make_run(command=("python", "-c", "import x; x.go()"), workers=0),
        workers=(),
    )


def _many_ranks() -> Verdict:
    return make_verdict(
        make_cause(Activity.COLLECTIVE, Regime.STRAGGLER, 0.7, rank=1),
        make_cause(Activity.LOCK, Regime.LOCK_BOUND, 0.14, function="read", rank=0),
        limit=Limit.PEERS,
        run=make_run(
            ranks=2, steps=400, command=("torchrun", "--nproc-per-node", "2", "t.py")
        ),
        workers=tuple(make_split(0, 0.5, 0.1, 0.2, rank=rank) for rank in (0, 1)),
    )


def _wide_characters() -> Verdict:
    return make_verdict(
        make_cause(
            Activity.NETWORK,
            Regime.FEW_WORKERS,
            1.0,
            "各ワーカーは一度に一つの応答を待っています" * 3,
            file="/データ/" + "画像の読み込み/" * 8 + "読む.py",
            line=7,
            function="画像を読む",
            transform="\x1b[31mred\x1b[0m\n",
        ),
        run=make_run(command=("python", "訓練.py", "--データ", "/データ/" + "集合/" * 20)),
        step_median_ns=900 * 1000,
        step_p90_ns=2 * S,
    )


SCREENS = {
    "python-loop": _python_loop,
    "slow-reads": _slow_reads,
    "neighbour": _neighbour,
    "healthy": _healthy,
    "outside-only": _outside_only,
    "no-workers": _no_workers,
    "many-ranks": _many_ranks,
    "wide-characters": _wide_characters,
}


@pytest.mark.parametrize("name", SCREENS)
def test_screen_is_as_a_person_has_read_it(
    name: str, golden: Callable[[str, str], None]
) -> None:
    """Each kind of verdict looks as it did when somebody last looked at it."""
    text = render_verdict(SCREENS[name](), color=False, folder=FOLDER)

    golden(f"{name}.txt", text)


@pytest.mark.parametrize("width", [60, 120])
def test_screen_of_other_widths_is_as_a_person_has_read_it(
    width: int, golden: Callable[[str, str], None]
) -> None:
    """Narrow and wide terminals have their own picture."""
    text = render_verdict(_python_loop(), width=width, color=False, folder=FOLDER)

    golden(f"python-loop-{width}.txt", text)


def test_ascii_screen_is_as_a_person_has_read_it(
    golden: Callable[[str, str], None],
) -> None:
    """Without block characters the same is said in ASCII."""
    text = render_verdict(_slow_reads(), color=False, blocks=False, folder=FOLDER)

    golden("slow-reads-ascii.txt", text)


def test_redacted_screen_is_as_a_person_has_read_it(
    golden: Callable[[str, str], None],
) -> None:
    """A screen for strangers has no folder in it."""
    text = render_verdict(_slow_reads(), color=False, redact=True, folder=FOLDER)

    golden("slow-reads-redacted.txt", text)


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120])
@pytest.mark.parametrize("name", SCREENS)
def test_no_line_is_wider_than_the_screen(name: str, width: int) -> None:
    """Long paths, wide characters and many numbers stay within the width."""
    text = render_verdict(SCREENS[name](), width=width, color=False, folder=FOLDER)

    assert max(map(cell_len, text.splitlines())) <= width


@pytest.mark.parametrize("name", SCREENS)
def test_screen_is_one_screen(name: str) -> None:
    """A verdict is seen at once in a terminal of ordinary height."""
    text = render_verdict(SCREENS[name](), color=False, folder=FOLDER)

    assert len(text.splitlines()) <= ONE_SCREEN


@pytest.mark.parametrize("name", SCREENS)
def test_colour_adds_nothing_but_colour(name: str) -> None:
    """Without its colour codes a coloured screen is the plain one: colour alone says nothing."""
    plain = render_verdict(SCREENS[name](), color=False, folder=FOLDER)
    colored = render_verdict(SCREENS[name](), color=True, folder=FOLDER)

    assert "\x1b[" in colored
    assert [
        line.rstrip() for line in ESCAPE.sub("", colored).splitlines()
    ] == plain.splitlines()


@pytest.mark.parametrize("name", SCREENS)
def test_ascii_screen_has_only_ascii(name: str) -> None:
    """A stream that cannot encode blocks gets what it can encode."""
    text = render_verdict(SCREENS[name](), color=False, blocks=False, folder=FOLDER)

    assert text.isascii()


def test_names_from_the_target_cannot_control_the_terminal() -> None:
    """Escape characters in a name are shown as question marks."""
    text = render_verdict(_wide_characters(), color=False)

    assert "\x1b" not in text
    assert "?[31mred?[0m?" in text


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (0, None),
        (3, "with exit status 3"),
        (255, "with exit status 255"),
        (143, "by SIGTERM (exit status 143)"),
        (None, "not seen: still running"),
    ],
)
def test_end_of_the_training_is_told_when_it_matters(
    status: int | None, said: str | None
) -> None:
    """A failed, killed or unseen end is told; an ordinary one is not worth a line."""
    verdict = make_verdict(make_cause(), run=make_run(exit_status=status))

    text = render_verdict(verdict, color=False)

    assert ("\nended " in text) is (said is not None)
    assert said is None or said in text


@pytest.mark.parametrize("causes", [(), (make_cause(share=1.0),)], ids=["none", "one"])
def test_parts_that_are_not_known_are_left_out(causes: tuple) -> None:
    """Without series, spread, warm-up or place nothing is made up."""
    verdict = make_verdict(
        *causes,
        run=make_run(warmup_steps=0, workers=None),
        step_p90_ns=None,
        idle_series=(),
        unexplained_ratio=0.0,
    )

    lines = render_verdict(verdict, color=False).splitlines()

    assert "idle      63 % of 16.0 s" in lines
    assert "step      78.9 ms median; 200 steps" in lines
    assert ("why " in "".join(lines)) is bool(causes)


def test_narrow_screen_has_bars_without_numbers() -> None:
    """Where the numbers do not fit the bars say it."""
    text = render_verdict(make_verdict(), width=50, color=False)

    assert "93 %" not in text
    assert max(map(cell_len, text.splitlines())) <= 50


def test_simulated_device_is_called_simulated() -> None:
    """Nobody takes a simulated accelerator for a real one."""
    assert "simulated, no real accelerator" in render_verdict(make_verdict(), color=False)


@pytest.mark.parametrize(("second", "stands_out"), [(0.39, True), (0.2, False)])
def test_second_cause_stands_out_when_it_is_close(second: float, stands_out: bool) -> None:
    """Mending only the first of two like causes would disappoint: the second is marked."""
    verdict = make_verdict(
        make_cause(share=0.5), make_cause(Activity.STORAGE, share=second)
    )

    assert ("close behind" in render_verdict(verdict, color=False)) is stands_out


def test_small_causes_and_the_unexplained_complete_the_shares() -> None:
    """What is not shown by name is shown by sum."""
    verdict = make_verdict(
        make_cause(share=0.9),
        make_cause(Activity.LOCK, share=0.02),
        make_cause(Activity.SLEEP, share=0.02),
    )

    text = render_verdict(verdict, color=False)

    assert re.search(r"4\.0 %\s+400 ms\s+2 more; 6\.0 % unexplained$", text, re.MULTILINE)


def test_causes_of_a_device_bound_run_come_without_advice() -> None:
    """Where the device is the limit nobody is sent to mend the loader."""
    assert "more workers" not in render_verdict(_healthy(), color=False)
    assert "All batches" not in render_verdict(_healthy(), color=False)
