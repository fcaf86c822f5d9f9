"""`whyidle demo`: a starved training and its verdict, from nothing, in about a minute.

NOTE [the example is copied]
    The training of the demo is examples/polygon_segmentation; a wheel carries it within the package. It is copied into
    the demo's folder before it runs: a person may edit it there, and its lines are told from those of installed
    packages, which a verdict does not send anybody to.
"""

from __future__ import annotations

import contextlib
import importlib.util
import linecache
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.commands.parsing import positive_seconds, whole_number
from whyidle.commands.report import load_verdict
from whyidle.errors import LaunchError, UsageError
from whyidle.store import rundir
from whyidle.units import format_ratio
from whyidle.views.streams import read_traits, write_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from whyidle.model.findings import Verdict

FOLDER = "whyidle-demo"
"""Where --keep puts everything, in the current folder."""
EXAMPLE = "polygon_segmentation"
NEEDED_MODULES = {"torch": "torch", "PIL": "pillow"}
"""What the training imports, and the package that has it."""
IMAGE_COUNT = 1500
"""Enough for epochs of some seconds, so that their starts do not count; made in 5 s on two CPUs."""
CUDA_DEVICE = Path("/dev/nvidiactl")
"""There when a driver is; asking torch takes seconds otherwise."""
DEVICE_WORDS = {
    "cuda": "The CUDA device does the work.",
    "simulated": "No CUDA device here: a simulated one, busy for 1.5 ms an image, stands in.",
}
"""What is said of the device that works."""
MAX_PLACES = 2
"""Places to look at: the pipeline has two that matter."""


class DemoCommand:
    """Watch a starved training get its verdict, in about a minute.

    Makes images with polygon annotations, trains a segmentation network on them as
    `whyidle run` would, shows the verdict and says what to look at. Where there is no
    CUDA device a simulated one stands in for it. Needs torch and pillow.
    """

    usage = "[--seconds S] [--workers N] [--keep]"
    examples = ("whyidle demo", "whyidle demo --keep")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare length, workers and whether to keep the files."""
        parser.add_argument(
            "--seconds",
            type=positive_seconds,
            default=30.0,
            metavar="S",
            help="length of the training (default: 30)",
        )
        parser.add_argument(
            "--workers",
            type=whole_number,
            default=2,
            metavar="N",
            help="loader workers of the training (default: 2)",
        )
        parser.add_argument(
            "--keep",
            action="store_true",
            help=f"leave the files in ./{FOLDER}, and use those of an earlier demo",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Tell the story.

        Raises:
            WhyidleError: it cannot be told here.
        """
        check_packages()
        example = find_example()
        with _open_folder(keep=arguments.keep) as folder:
            demo = Demo(
                folder=folder,
                seconds=arguments.seconds,
                workers=arguments.workers,
                device=choose_device(),
                is_kept=arguments.keep,
            )
            demo.prepare(example)
            return demo.tell()


def check_packages() -> None:
    """Make sure that the training can be imported.

    Raises:
        UsageError: `demo-needs-packages`.
    """
    missing = [
        package
        for module, package in NEEDED_MODULES.items()
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise UsageError(
            f"the demo's training needs {' and '.join(missing)}, expected to be importable by {sys.executable!r}",
            slug="demo-needs-packages",
            hint=f"Install with: python -m pip install {' '.join(missing)}",
        )


def find_example() -> Path:
    """Give the example's folder: in the installed package, else in the source tree around it.

    Raises:
        UsageError: `demo-example-missing`.
    """
    package = Path(__file__).resolve().parents[1]
    candidates = [root / "examples" / EXAMPLE for root in (package, package.parents[1])]
    for folder in candidates:
        if (folder / "train.py").is_file():
            return folder
    raise UsageError(
        f"the demo's training is not in {str(candidates[0])!r}, expected train.py there",
        slug="demo-example-missing",
        hint="Install whyidle again: the installation is incomplete",
    )


def choose_device() -> str:
    """Give `cuda` if torch can use it, else `simulated`. A process of its own asks: torch is not ours to import."""
    if not CUDA_DEVICE.exists():
        return "simulated"
    question = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    answer = subprocess.run(
        [sys.executable, "-c", question], check=False, capture_output=True
    )
    return "simulated" if answer.returncode else "cuda"


@contextlib.contextmanager
def _open_folder(*, keep: bool) -> Iterator[Path]:
    if keep:
        folder = Path(FOLDER).resolve()
        folder.mkdir(exist_ok=True)
        yield folder
    else:
        with tempfile.TemporaryDirectory(
            prefix=f"{FOLDER}-", ignore_cleanup_errors=True
        ) as name:
            yield Path(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """One telling of the story."""

    folder: Path
    """Holds all its files."""
    seconds: float
    """Length of the training, its start included."""
    workers: int
    """Loader workers of the training."""
    device: str
    """`cuda` or `simulated`."""
    is_kept: bool
    """Whether the folder stays."""

    def prepare(self, example: Path) -> None:
        """Copy the training and make its data, unless an earlier demo has left them.

        Raises:
            LaunchError: `demo-data-failed`.
        """
        place = f"./{FOLDER}" if self.is_kept else f"{self.folder}, until the end"
        _say(f"All files of this demo are in {place}.\n\n")
        if not self._scripts.exists():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(example, self._scripts, ignore=ignored)
        if len(list(self._data.glob("*.json"))) == IMAGE_COUNT:
            _say(f"1. Use the {IMAGE_COUNT} images of the last demo.\n\n")
        else:
            self._make_data()

    def tell(self) -> int:
        """Train under observation, show the verdict and where to look; give the exit status."""
        from whyidle.observe.launch import run_observed

        _say(self._introduction())
        run_dir = rundir.create_run_dir(self.folder / "runs")
        result = run_observed(self._training, run_dir, seconds=self.seconds)
        if result.exit_status and result.ended_by is None:
            _say(f"\nThe training failed with status {result.exit_status}: no verdict.\n")
            return result.exit_status
        verdict = load_verdict(run_dir)
        _say("\n3. The verdict.\n\n")
        self._show(verdict, run_dir)
        _say(f"\n4. What to look at.\n\n{describe_places(verdict)}{self._ending()}")
        return 0

    @property
    def _scripts(self) -> Path:
        return self.folder / EXAMPLE

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _training(self) -> list[str]:
        options = {"--device": self.device, "--workers": self.workers, "--epochs": 1000}
        words = [str(word) for pair in options.items() for word in pair]
        return [sys.executable, str(self._scripts / "train.py"), str(self._data), *words]

    def _make_data(self) -> None:
        script, count = str(self._scripts / "make_data.py"), str(IMAGE_COUNT)
        command = [sys.executable, script, str(self._data), "--count", count]
        _say(
            f"1. Make {IMAGE_COUNT} images with polygon annotations, as labelme writes them:\n"
            f"   {show_command(command, self.folder)}\n\n"
        )
        finished = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        if finished.returncode:
            raise LaunchError(
                f"the demo's data could not be made: make_data.py ended with status "
                f"{finished.returncode}, expected 0",
                slug="demo-data-failed",
                hint=f"Its own message is above. It writes 40 MB into {str(self._data)!r}.",
                exit_status=1,
            )

    def _introduction(self) -> str:
        device = DEVICE_WORDS[self.device]
        command = show_command(self._training, self.folder)
        return (
            f"2. Train on them for {self.seconds:g} s: plain PyTorch that knows nothing of whyidle.\n"
            f"   {device}\n"
            f"   whyidle run --seconds {self.seconds:g} -- {command}\n\n"
        )

    def _show(self, verdict: Verdict, run_dir: Path) -> None:
        from whyidle.views.terminal import render_verdict

        traits = read_traits(sys.stdout, os.environ)
        text = render_verdict(
            verdict,
            width=traits.width,
            color=traits.color,
            blocks=traits.blocks,
            folder=Path(os.path.relpath(run_dir)) if self.is_kept else None,
        )
        _say(text)

    def _ending(self) -> str:
        profile = f"python {EXAMPLE}/profile_dataset.py data"
        where = (
            f"in ./{FOLDER}"
            if self.is_kept
            else f"in ./{FOLDER} after `whyidle demo --keep`"
        )
        return (
            "   Ask cProfile, which sees one process and no waiting, how work is shared out:\n"
            f"     {profile}    ({where})\n\n"
            "   Then your own training:\n"
            "     whyidle run --steps 200 -- python train.py\n\n"
            "   Make a change that would help, record again, and see what became of it:\n"
            "     whyidle compare BEFORE AFTER\n"
        )


def describe_places(verdict: Verdict) -> str:
    """Show the source lines of the first causes that have one."""
    text = ""
    for cause in [one for one in verdict.causes if one.where.file][:MAX_PLACES]:
        file, line = cause.where.file or "", cause.where.line or 0
        text += (
            f"   {format_ratio(cause.share)} of the idle time is {cause.where.function}, "
            f"{Path(file).name} line {line}:\n"
            f"     {linecache.getline(file, line).strip()}\n\n"
        )
    return text


def show_command(command: list[str], folder: Path) -> str:
    """Write a command as a person would type it in a folder."""
    words = ["python" if word == sys.executable else word for word in command]
    return shlex.join(word.removeprefix(f"{folder}{os.sep}") for word in words)


def _say(text: str) -> None:
    write_text(sys.stdout, text)
