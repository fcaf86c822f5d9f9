"""`whyidle demo`: what it needs, what it leaves alone, what it tells."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from whyidle.commands import demo
from whyidle.errors import LaunchError, UsageError
from whyidle.model.findings import (
    Activity,
    Cause,
    Limit,
    Place,
    Regime,
    RunSummary,
    Verdict,
)

CAUSE = Cause(
    activity=Activity.COMPUTE,
    regime=Regime.THROUGHPUT,
    share=0.41,
    idle_ns=10,
    where=Place(),
    evidence=(),
)


def verdict_with(*causes):
    """A verdict of nothing but causes."""
    summary = RunSummary(
        command=(),
        steps=0,
        warmup_steps=0,
        ranks=1,
        duration_ns=0,
        python=None,
        torch=None,
        device_kind="simulated",
        device_name=None,
        exit_status=0,
    )
    return Verdict(
        run=summary,
        limit=Limit.INPUT,
        sentence="",
        step_median_ns=None,
        step_p90_ns=None,
        idle_ratio=None,
        unexplained_ratio=0.0,
        causes=causes,
        prescriptions=(),
        not_observed=(),
    )


def make_demo(folder, **changes):
    """A demo that keeps its files."""
    values = {"seconds": 9.0, "workers": 2, "device": "simulated", "is_kept": True}
    return demo.Demo(folder=folder, **values | changes)


@pytest.fixture
def example(tmp_path):
    """A stand-in for the training: its generator writes two annotations, or fails when asked for nothing."""
    folder = tmp_path / "example"
    folder.mkdir()
    (folder / "train.py").write_text("raise SystemExit(5)\n")
    (folder / "make_data.py").write_text(
        "import pathlib, sys\n"
        "folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[3])\n"
        "folder.mkdir()\n"
        "for number in range(count): (folder / f'{number}.json').touch()\n"
        "sys.exit(count == 0)\n"
    )
    return folder


def test_example_is_found_in_the_source_tree():
    """Without a copy in the package, the demo runs the repository's own example."""
    assert demo.find_example() == REPOSITORY / "examples" / "polygon_segmentation"


def test_missing_packages_are_named(monkeypatch):
    """A person learns which packages to install, before anything was made."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(UsageError, match="torch and pillow") as caught:
        demo.check_packages()

    assert caught.value.slug == "demo-needs-packages"
    assert caught.value.hint.endswith("pip install torch pillow")


def test_device_is_simulated_without_a_driver(monkeypatch, tmp_path):
    """No driver, no need to ask torch."""
    monkeypatch.setattr(demo, "CUDA_DEVICE", tmp_path / "gone")

    assert demo.choose_device() == "simulated"


def test_prepare_makes_data_once(monkeypatch, tmp_path, example, capsys):
    """A second demo in the same folder uses the data of the first, and leaves edited scripts alone."""
    monkeypatch.setattr(demo, "IMAGE_COUNT", 2)
    story = make_demo(tmp_path)
    story.prepare(example)
    script = tmp_path / "polygon_segmentation" / "train.py"
    script.write_text("# cured\n")
    (tmp_path / "data" / "0.json").write_text("mine")

    story.prepare(example)

    assert script.read_text() == "# cured\n"
    assert (tmp_path / "data" / "0.json").read_text() == "mine"
    first, second = capsys.readouterr().out.split("1. ")[1:]
    assert first.startswith("Make 2 images")
    assert second.startswith("Use the 2 images")


def test_prepare_says_when_data_cannot_be_made(monkeypatch, tmp_path, example):
    """A generator that fails ends the demo with its status in words."""
    monkeypatch.setattr(demo, "IMAGE_COUNT", 0)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "left.json").touch()

    with pytest.raises(LaunchError, match="status 1") as caught:
        make_demo(tmp_path).prepare(example)

    assert caught.value.slug == "demo-data-failed"


def test_command_is_shown_as_typed_in_the_folder():
    """Neither the interpreter's path nor the folder's is shown."""
    command = [
        sys.executable,
        "/tmp/demo/a/train.py",
        "/tmp/demo/my data",
        "--workers",
        "2",
    ]

    text = demo.show_command(command, Path("/tmp/demo"))

    assert text == "python a/train.py 'my data' --workers 2"


def test_places_are_shown_with_their_source(tmp_path):
    """The first two causes with a line are shown with it; causes without one are passed over."""
    file = tmp_path / "targets.py"
    file.write_text("first\n    second  \nthird\n")
    causes = [
        replace(CAUSE, where=Place(file=str(file), line=line, function=f"f{line}"))
        for line in (2, 3, 1)
    ]

    text = demo.describe_places(verdict_with(CAUSE, *causes))

    assert text == (
        "   41 % of the idle time is f2, targets.py line 2:\n     second\n\n"
        "   41 % of the idle time is f3, targets.py line 3:\n     third\n\n"
    )


@pytest.mark.slow
@pytest.mark.torch
def test_demo_tells_the_whole_story(tmp_path):
    """From nothing to a verdict, and no file of it is left behind."""
    program = (
        "import sys; from whyidle.commands import demo, main; demo.IMAGE_COUNT = 64\n"
        "sys.exit(main(['demo', '--seconds', '15', '--workers', '1']))"
    )

    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    headings = ("1. Make 64 images", "2. Train", "3. The verdict.", "4. What to look at.")
    positions = [result.stdout.index(heading) for heading in headings]
    assert positions == sorted(positions)
    assert "limit" in result.stdout[positions[2] :]
    # Persistent workers that are left in the middle of an epoch may leave a pymp-* folder of their own.
    assert [path for path in tmp_path.iterdir() if "whyidle" in path.name] == []
