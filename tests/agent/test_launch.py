"""The launcher is not felt: status, streams, environment, descriptors and folder of the target are its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.launching import launch, launcher_command, launcher_environment
from whyidle.errors import LaunchError
from whyidle.observe import launch as module
from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = sys.executable


def _manifest(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "manifest.json").read_text())


def _slugs(run_dir: Path) -> list[str]:
    return [one["slug"] for one in _manifest(run_dir)["not_observed"]]


@pytest.mark.parametrize("status", [0, 1, 42, 255])
def test_exit_status_is_the_targets(tmp_path: Path, status: int) -> None:
    """The launcher exits with what the target exited with, and writes it down."""
    done = launch(tmp_path / "run", PYTHON, "-c", f"raise SystemExit({status})")

    manifest = _manifest(tmp_path / "run")
    assert (done.returncode, manifest["exit_status"], manifest["signal"]) == (
        status,
        status,
        None,
    )
    assert manifest["end_mono_ns"] > manifest["start_mono_ns"]


@pytest.mark.parametrize("number", [2, 9, 11, 15])
def test_death_by_signal_is_128_and_the_signal(tmp_path: Path, number: int) -> None:
    """A target that a signal ended is reported as a shell reports it."""
    code = f"import os, signal; signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), {number})"

    done = launch(tmp_path / "run", PYTHON, "-c", code)

    manifest = _manifest(tmp_path / "run")
    assert (done.returncode, manifest["signal"]) == (128 + number, number)
    assert manifest["ended_by"] == ("interrupt" if number == 2 else None)


def test_streams_pass_through_byte_for_byte(tmp_path: Path) -> None:
    """Input, output and error are the target's own; nothing of ours is in a pipe."""
    code = "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d); print('e', file=sys.stderr)"

    done = launch(tmp_path / "run", PYTHON, "-c", code, input="a\r\nb\x00c")

    assert (done.stdout, done.stderr) == ("a\nb\x00c", "e\n")


def test_closed_streams_stay_closed(tmp_path: Path) -> None:
    """A target whose stdin and stderr were closed by the person finds them closed, and is recorded."""
    code = (
        "import os\n"
        "def closed(n):\n"
        "    try: os.fstat(n)\n"
        "    except OSError: return True\n"
        "    return False\n"
        "print([n for n in range(3) if closed(n)])\n"
    )
    command = launcher_command(tmp_path / "run", PYTHON, "-c", code)

    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *command],
        env=launcher_environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert (done.stdout, done.returncode) == ("[0, 2]\n", 0)
    assert _manifest(tmp_path / "run")["exit_status"] == 0


def test_descriptors_of_the_shell_reach_the_target(tmp_path: Path) -> None:
    """A descriptor beyond 2 that the person opened is the target's, and ours are not."""
    code = "import os; print(os.read(7, 9).decode(), sorted(os.listdir('/proc/self/fd')))"
    bare = [PYTHON, "-c", code]

    outputs = [
        subprocess.run(
            ["bash", "-c", 'exec "$@" 7< <(printf hello)', "bash", *command],
            env=launcher_environment(),
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        for command in (bare, launcher_command(tmp_path / "run", *bare))
    ]

    assert outputs[0].startswith("hello ")
    assert outputs[1] == outputs[0]


def test_folder_and_environment_are_the_persons(tmp_path: Path) -> None:
    """The target starts where the person stood; its environment has only our additions."""
    code = "import json, os; print(json.dumps([os.getcwd(), dict(os.environ)]))"
    environment = launcher_environment(MARK="x y")

    done = launch(tmp_path / "run", PYTHON, "-c", code, env=environment, cwd=tmp_path)

    folder, seen = json.loads(done.stdout)
    shadowed = environment["PYTHONPATH"]
    assert folder == str(tmp_path)
    assert seen.pop("PYTHONPATH").endswith(f"/whyidle_agent/inject:{shadowed}")
    assert seen.pop(wire.ENV_SHADOWED_PATH) == shadowed
    assert seen.pop(wire.ENV_RUN_DIR) == str(tmp_path / "run")
    assert {name: value for name, value in seen.items() if name != "LC_CTYPE"} == {
        name: value
        for name, value in environment.items()
        if name not in ("PYTHONPATH", "LC_CTYPE")
    }


def test_environment_without_pythonpath(tmp_path: Path) -> None:
    """An unset PYTHONPATH holds our folder alone; marks of another run are taken away."""
    before = {"HOME": "/h", wire.ENV_STEPS: "9", wire.ENV_SHADOWED_PATH: "/old"}

    changed = module.child_environment(before, tmp_path, tmp_path / "inject", None)

    assert changed == {
        "HOME": "/h",
        "PYTHONPATH": str(tmp_path / "inject"),
        wire.ENV_RUN_DIR: str(tmp_path),
    }


def test_steps_bound_reaches_the_agent(tmp_path: Path) -> None:
    """A bound in steps is named in the environment and in the manifest."""
    code = f"import os; print(os.environ['{wire.ENV_STEPS}'])"

    done = launch(tmp_path / "run", PYTHON, "-c", code, options='{"steps": 12}')

    manifest = _manifest(tmp_path / "run")
    assert (done.stdout, manifest["steps_bound"], manifest["ended_by"]) == (
        "12\n",
        12,
        None,
    )


@pytest.mark.parametrize(
    ("content", "mode", "status"), [(None, 0, 127), ("#!/bin/sh\n", 0o644, 126)]
)
def test_command_that_cannot_start(
    tmp_path: Path, content: str | None, mode: int, status: int
) -> None:
    """A missing command is 127, one that may not be executed 126, as in a shell."""
    program = tmp_path / "program"
    if content is not None:
        program.write_text(content)
        program.chmod(mode)

    with pytest.raises(LaunchError) as caught:
        module.run_observed([str(program)], tmp_path / "run")

    assert caught.value.exit_status == status
    assert str(program) in caught.value.message
    assert _manifest(tmp_path / "run")["exit_status"] == status


def test_command_is_found_on_the_path(tmp_path: Path) -> None:
    """A bare name is looked up as a shell does."""
    assert launch(tmp_path / "run", "true").returncode == 0


def test_run_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """The command still runs, unobserved; one line says why."""
    (tmp_path / "file").touch()
    code = f"import os; print(os.environ.get('{wire.ENV_RUN_DIR}'))"

    done = launch(tmp_path / "file" / "run", PYTHON, "-c", code)

    assert (done.returncode, done.stdout) == (0, "None\n")
    assert done.stderr.count("\n") == 1
    assert "runs unobserved" in done.stderr


def test_isolated_interpreter_is_reported(tmp_path: Path) -> None:
    """Python with -I never loads the agent: the run says so."""
    launch(tmp_path / "isolated", PYTHON, "-I", "-c", "pass")
    launch(tmp_path / "open", PYTHON, "-c", "pass")

    assert "agent-not-loaded" in _slugs(tmp_path / "isolated")
    assert "agent-not-loaded" not in _slugs(tmp_path / "open")


def test_seconds_bound_ends_a_command_without_a_loop(tmp_path: Path) -> None:
    """Where no agent could hear a request, an interrupt ends the command, and the run says so."""
    code = (
        "import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: raise SystemExit(5)\n"
    )

    done = launch(tmp_path / "run", PYTHON, "-I", "-c", code, options='{"seconds": 0.5}')

    assert (done.returncode, _manifest(tmp_path / "run")["ended_by"]) == (5, "seconds")
    assert "orderly-stop-failed" in _slugs(tmp_path / "run")
    assert done.stderr.count("\n") == 1


def test_descendants_that_outlive_the_command(tmp_path: Path) -> None:
    """The launcher returns with the command, like a shell, whatever it left in the background."""
    done = launch(
        tmp_path / "run", "sh", "-c", "sleep 30 >/dev/null 2>&1 & echo $!", stderr=subprocess.DEVNULL,
        capture_output=False, stdout=subprocess.PIPE,
    )  # fmt: skip

    os.kill(int(done.stdout), 9)
    assert done.returncode == 0


def test_target_is_started_without_heavy_imports() -> None:
    """Starting a target needs neither polars nor numpy, whose imports would delay it."""
    code = (
        "import sys, whyidle.observe.launch; print({'polars', 'numpy'} & set(sys.modules))"
    )

    done = subprocess.run(
        [PYTHON, "-c", code],
        env=launcher_environment(),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "set()\n"
