"""What other tools say is read as they mean it; excerpts have the form of real outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.bench.answers import Answer
from scenarios.bench.tools import TOOLS
from scenarios.bench.tools.base import before_script
from scenarios.bench.tools.gpuprof import gpuprof_answer
from scenarios.bench.tools.local import folk_answer, profiler_answer
from scenarios.bench.tools.pyspy import innermost
from scenarios.bench.tools.train_doctor import doctor_answer


def in_short(answer: Answer) -> tuple[str | None, str | None]:
    """Give limit and first activity."""
    return answer.limit, answer.candidates[0].activity if answer.candidates else None


@pytest.mark.parametrize(
    ("idle_ratio", "seen", "expected"),
    [
        (0.05, {"waiting": 0.9}, ("device", None)),
        (0.60, {"waiting": 0.3, "worker_cpu": 0.9}, ("input", "storage")),
        (0.60, {"worker_cpu": 0.9, "main_cpu": 0.9}, ("input", "compute")),
        (0.60, {"main_cpu": 0.9}, ("host", "python")),
        (0.60, {"worker_cpu": 0.4}, ("input", None)),
    ],
)
def test_folk_rule(
    idle_ratio: float, seen: dict[str, float], expected: tuple[str, str | None]
) -> None:
    """A busy device first, then state D, then full cores."""
    quiet = {"waiting": 0.0, "worker_cpu": 0.0, "main_cpu": 0.0}

    assert in_short(folk_answer(idle_ratio, quiet | seen)) == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("enumerate(DataLoader)#_X.__next__", 70), ("aten::add", 5)], ("input", None)),
        ([("ProfilerStep*", 80), ("enumerate(DataLoader)#_X", 15)], ("input", None)),
        ([("ProfilerStep*", 95), ("aten::add", 1)], ("device", None)),
        ([("aten::sort", 60), ("enumerate(DataLoader)#_X", 15)], ("host", "python")),
        ([], ("device", None)),
    ],
)
def test_torch_profiler(
    rows: list[tuple[str, int]], expected: tuple[str, str | None]
) -> None:
    """Its own bracket around a step is no operation."""
    table = {"total_us": 100, "rows": [{"name": it, "self_us": us} for it, us in rows]}

    assert in_short(profiler_answer(table)) == expected


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        (["cpu_bound_preprocessing", "no_torch_compile"], ("input", "compute")),
        (["no_torch_compile"], ("device", None)),
        (["host_sync_in_loop", "dataloader_bound"], ("host", "sync")),
        ([], ("device", None)),
    ],
)
def test_train_doctor(findings: list[str], expected: tuple[str, str | None]) -> None:
    """Its first finding that is not about the device's own work."""
    assert in_short(doctor_answer(findings)) == expected


@pytest.mark.parametrize(
    ("insights", "expected"),
    [
        (["216% of step time waiting on the loader (inter-step gap)"], ("input", None)),
        (
            [
                "216% of step time waiting on the loader (inter-step gap)",
                "Dataloader stall + CPU pegged (90% avg across 2 cores) — workers are CPU-bound",
            ],
            ("input", "compute"),
        ),
        (["MFU 12.4% of 989 TFLOPs bf16 peak"], ("device", None)),
    ],
)
def test_gpuprof(insights: list[str], expected: tuple[str, str | None]) -> None:
    """The more telling of two insights about the same counts."""
    assert in_short(gpuprof_answer(insights)) == expected


def test_py_spy_counts_the_innermost_frame_of_the_script() -> None:
    """Frames of libraries above it belong to it; stacks without the script are left out."""
    counts = innermost(
        'process 1:"python";main (/x/train.py:9);draw (/x/train.py:4);exp (/lib/m.py:7) 30\n'
        'process 1:"python";main (/x/train.py:9);read (/x/train.py:5) 12\n'
        "process 2;run (/lib/threading.py:3) 99\n"
    )

    assert counts.most_common() == [
        (("draw", "/x/train.py"), 30),
        (("read", "/x/train.py"), 12),
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("INPUT_BOUND", ("input", None)),
        ("RESIDUAL_HEAVY", ("host", "python")),
        ("NO_CLEAR_PERFORMANCE_BOTTLENECK", ("device", None)),
        ("INSUFFICIENT_STEP_TIME_DATA", (None, None)),
    ],
)
def test_traceml(tmp_path: Path, kind: str, expected: tuple[Any, Any]) -> None:
    """Its primary diagnosis; too few steps is no answer."""
    (tmp_path / "traceml").mkdir()
    diagnosis = {"kind": kind, "status": kind, "summary": "…"}
    text = json.dumps({"primary_diagnosis": diagnosis})
    (tmp_path / "traceml/final_summary.json").write_text(text)

    answer, _ = TOOLS["TraceML"].read(tmp_path, "")

    assert in_short(answer) == expected


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_that_wrote_nothing_has_given_no_answer(tmp_path: Path, name: str) -> None:
    """A crash of a tool does not end the bench, and is not taken for an answer."""
    answer, reason = TOOLS[name].read(tmp_path, "Traceback …")

    assert answer.is_empty
    assert reason


def test_programs_go_between_launcher_and_script() -> None:
    """Each rank runs under the program."""
    script = ["-m", "torch.distributed.run", "/x/train.py", "--workers=2"]

    assert before_script(script, ["slowed.py", "--by=1"]) == [
        *script[:2],
        "slowed.py",
        "--by=1",
        *script[2:],
    ]
