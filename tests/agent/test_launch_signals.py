"""Signals reach the target as if the launcher were not there, and the launcher's death does not."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.launching import (
    launch,
    launched,
    launcher_command,
    launcher_environment,
    state_of,
    wait_for,
)
from whyidle.observe.canary import Canary
from whyidle_agent import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON = sys.executable

RECORDER = """
import os, signal, sys, time
def note(number, frame):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM: sys.exit(7)
for name in sys.argv[1:]: signal.signal(getattr(signal, name), note)
print(os.getpid(), flush=True)
end = time.monotonic() + 60
while time.monotonic() < end: time.sleep(0.05)
"""


def _masks(text: str) -> list[str]:
    return [line.split()[1] for line in text.splitlines()]


@pytest.mark.parametrize(
    "name", ["SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGALRM"]
)
def test_signal_for_the_launcher_reaches_the_target(tmp_path: Path, name: str) -> None:
    """What a process sends to the launcher arrives once at the target; then SIGTERM lets it end in its way."""
    with launched(tmp_path / "run", PYTHON, "-c", RECORDER, name, "SIGTERM") as launcher:
        launcher.stdout.readline()

        launcher.send_signal(getattr(signal, name))
        first = launcher.stdout.readline()
        launcher.send_signal(signal.SIGTERM)
        rest = launcher.stdout.read()

        assert (first, rest, launcher.wait()) == (f"{name}\n", "SIGTERM\n", 7)
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["ended_by"] == (
        "interrupt" if name == "SIGINT" else None
    )


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[None]:
    """Hold a process up, so that the other one is through with a signal before it: no two of them merge."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: state_of(pid) == "T")
    yield
    os.kill(pid, signal.SIGCONT)


def test_signal_for_the_group_reaches_the_target_once(tmp_path: Path) -> None:
    """Two at once to the whole group: each is there once, and what then is for the launcher alone is passed on."""
    code = RECORDER.replace("sys.exit(7)", "pass")
    names = ("SIGINT", "SIGTERM", "SIGPWR")
    with launched(tmp_path / "run", PYTHON, "-c", code, *names) as launcher:
        launcher.stdout.readline()

        for _ in range(20):
            with _stopped(launcher.pid):
                os.killpg(launcher.pid, signal.SIGINT)
                os.killpg(launcher.pid, signal.SIGTERM)
                came = sorted(launcher.stdout.readline() for _ in range(2))
                # The launcher takes lower numbers first: by this one everything else has come.
                launcher.send_signal(signal.SIGPWR)
            came.append(launcher.stdout.readline())
            assert came == ["SIGINT\n", "SIGTERM\n", "SIGPWR\n"]
        launcher.send_signal(signal.SIGINT)

        assert launcher.stdout.readline() == "SIGINT\n"


def test_signal_for_the_group_reaches_a_target_that_has_left_it(tmp_path: Path) -> None:
    """A target in a session of its own gets from the launcher what the launcher's group was sent."""
    code = "import os; os.setsid()" + RECORDER
    with launched(tmp_path / "run", PYTHON, "-c", code, "SIGINT", "SIGTERM") as launcher:
        launcher.stdout.readline()

        os.killpg(launcher.pid, signal.SIGINT)
        first = launcher.stdout.readline()
        os.killpg(launcher.pid, signal.SIGTERM)

        assert (first, launcher.stdout.read()) == ("SIGINT\n", "SIGTERM\n")
        assert launcher.wait() == 7


def test_interrupt_of_the_group_leaves_exit_handlers_alone(tmp_path: Path) -> None:
    """The target gets one KeyboardInterrupt: a handler that takes a while at its exit is not interrupted."""
    code = (
        "import atexit, time\n"
        "def save(): print('saving', flush=True); time.sleep(0.3); print('saved', flush=True)\n"
        "atexit.register(save)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    with launched(tmp_path / "run", PYTHON, "-c", code, stderr=subprocess.PIPE) as launcher:
        launcher.stdout.readline()

        with _stopped(launcher.pid):
            os.killpg(launcher.pid, signal.SIGINT)
            launcher.stdout.readline()
        output, errors = launcher.communicate()

    assert output == "saved\n"
    assert errors.count("KeyboardInterrupt") == 1


def _canary_of(launcher: int, target: int) -> int:
    """The launcher's other child."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    (canary,) = {int(child) for child in children} - {target}
    return canary


def test_canary_holds_nothing_of_the_persons(tmp_path: Path) -> None:
    """It has its pipe and no other file, folder or variable, so that readers of the target see its end."""
    reading, writing = os.pipe()
    with launched(
        tmp_path / "run", PYTHON, "-c", RECORDER, "SIGTERM", pass_fds=[writing]
    ) as launcher:
        target = int(launcher.stdout.readline())

        canary = Path(f"/proc/{_canary_of(launcher.pid, target)}")
        files = {file.name: os.readlink(file) for file in (canary / "fd").iterdir()}

        assert files.pop("0").startswith("pipe:")
        assert files == {"1": os.devnull, "2": os.devnull}
        assert (os.readlink(canary / "cwd"), (canary / "environ").read_bytes()) == (
            "/",
            b"",
        )
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_canary_ends_with_the_launcher(tmp_path: Path, how: str) -> None:
    """None is left, neither the first nor one that took its place, also when the launcher is killed."""
    with launched(
        tmp_path / "run", PYTHON, "-c", RECORDER, "SIGUSR1", "SIGTERM"
    ) as launcher:
        target = int(launcher.stdout.readline())
        canary = _canary_of(launcher.pid, target)
        os.killpg(launcher.pid, signal.SIGUSR1)
        wait_for(lambda: state_of(canary) == "")
        canary = _canary_of(launcher.pid, target)

        launcher.send_signal(getattr(signal, how))
        launcher.wait()

        # Nobody but init can reap the child of a killed one.
        gone = ("",) if how == "SIGTERM" else ("", "Z")
        assert wait_for(lambda: state_of(canary) in gone)


def test_canary_hears_nothing_where_none_can_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without `cat` every signal counts as one for the launcher alone, as it would without a canary."""
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)

    canary = Canary()

    assert not canary.hears(signal.SIGINT)
    canary.forget(signal.SIGINT)
    canary.close()


def test_sigterm_ends_a_target_without_a_handler(tmp_path: Path) -> None:
    """The launcher survives to report 143 and to write the end of the run."""
    with launched(tmp_path / "run", PYTHON, "-c", RECORDER) as launcher:
        launcher.stdout.readline()

        launcher.send_signal(signal.SIGTERM)

        assert launcher.wait() == 143
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["signal"] == 15


@pytest.mark.parametrize("ignored", ["", "HUP", "INT", "HUP INT QUIT USR1 TERM"])
def test_dispositions_and_mask_are_inherited(tmp_path: Path, ignored: str) -> None:
    """The target finds the signals ignored, blocked and handled that it would find without us."""
    trap = f"trap '' {ignored}; " if ignored else ""
    shell = f'{trap}exec "$@"'
    target = ["sh", "-c", "grep -E 'Sig(Ign|Blk|Cgt)' /proc/self/status"]

    bare, observed = (
        subprocess.run(
            ["sh", "-c", shell, "sh", *command],
            env=launcher_environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        for command in (target, launcher_command(tmp_path / "run", *target))
    )

    assert _masks(observed.stdout) == _masks(bare.stdout)


def test_nohup_survives_a_hangup(tmp_path: Path) -> None:
    """Under nohup a hangup of the whole session ends neither the launcher nor the target."""
    code = "import time; print('up', flush=True); time.sleep(0.5); print('end', flush=True)"
    command = ["nohup", *launcher_command(tmp_path / "run", PYTHON, "-c", code)]
    process = subprocess.Popen(
        command,
        env=launcher_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )

    process.stdout.readline()
    os.killpg(process.pid, signal.SIGHUP)
    output, _ = process.communicate()

    assert (output, process.returncode) == ("end\n", 0)


def test_stop_and_continue(tmp_path: Path) -> None:
    """SIGTSTP stops target and launcher, SIGCONT to the launcher alone wakes both."""
    with launched(tmp_path / "run", PYTHON, "-c", RECORDER, "SIGTERM") as launcher:
        target = int(launcher.stdout.readline())

        launcher.send_signal(signal.SIGTSTP)
        wait_for(lambda: state_of(target) == "T" and state_of(launcher.pid) == "T")
        launcher.send_signal(signal.SIGCONT)
        wait_for(lambda: state_of(target) == "S" and state_of(launcher.pid) != "T")
        launcher.send_signal(signal.SIGTERM)

        assert launcher.wait() == 7


def test_killed_launcher_leaves_the_target_running(tmp_path: Path) -> None:
    """After kill -9 of the launcher the target goes on to its own end; the folder opens without an end."""
    code = (
        "import os, sys, time\n"
        "print(os.getpid(), flush=True)\n"
        "sys.stdin.readline()\n"
        "open(sys.argv[1], 'w').write('done')\n"
    )
    reading, writing = os.pipe()
    with launched(
        tmp_path / "run", PYTHON, "-c", code, str(tmp_path / "proof"), stdin=reading
    ) as launcher:
        target = int(launcher.stdout.readline())
        journals = tmp_path / "run" / "journals"
        wait_for(lambda: any(journals.glob("observer-*")))

        launcher.kill()
        launcher.wait()
        alive = state_of(target)
        os.write(writing, b"go on\n")
        wait_for((tmp_path / "proof").exists)
        wait_for(lambda: state_of(target) in ("", "Z"))
    os.close(reading)
    os.close(writing)

    assert alive in ("R", "S", "D")
    (journal,) = journals.glob("observer-*")
    assert (journal.stat().st_size - wire.HEADER_BYTES) % wire.RECORD_BYTES == 0


def _on_a_terminal(command: list[str], typed: bytes, prompt: bytes) -> tuple[int, bytes]:
    """Run on a terminal of its own, type something when a prompt has come, and return status and screen."""
    pid, master = pty.fork()
    if pid == 0:
        os.execve(command[0], command, launcher_environment())
    screen = b""
    has_typed = False
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:
            break
        if not part:
            break
        screen += part
        if not has_typed and prompt in screen:
            os.write(master, typed)
            has_typed = True
    _, status = os.waitpid(pid, 0)
    os.close(master)
    return os.waitstatus_to_exitcode(status), screen


def test_ctrl_c_on_a_terminal_arrives_once(tmp_path: Path) -> None:
    """The terminal interrupts the target itself: it gets one KeyboardInterrupt, and its status counts."""
    code = (
        "import signal, sys, time\n"
        "count = []\n"
        "signal.signal(signal.SIGINT, lambda *_: count.append(1))\n"
        "print('ready', flush=True)\n"
        "end = time.monotonic() + 60\n"
        "while not count and time.monotonic() < end: time.sleep(0.01)\n"
        "time.sleep(0.4)\n"
        "sys.exit(20 + len(count))\n"
    )

    status, _ = _on_a_terminal(
        launcher_command(tmp_path / "run", PYTHON, "-c", code), b"\x03", b"ready"
    )

    assert status == 21
    assert (
        json.loads((tmp_path / "run" / "manifest.json").read_text())["ended_by"]
        == "interrupt"
    )


def test_input_is_read_from_the_terminal(tmp_path: Path) -> None:
    """The target owns the terminal: it is one for it, and what is typed reaches it."""
    code = "import sys; print(sys.stdin.isatty(), sys.stdout.isatty()); print('got', input('? '))"

    status, screen = _on_a_terminal(
        launcher_command(tmp_path / "run", PYTHON, "-c", code), b"hello\n", b"? "
    )

    assert status == 0
    assert b"True True" in screen
    assert b"got hello" in screen


def test_status_line_on_a_terminal_only(tmp_path: Path) -> None:
    """A terminal sees one line that is drawn over and taken away; a pipe sees nothing."""
    code = "import time; print('ready', flush=True); time.sleep(1.6)"

    _, screen = _on_a_terminal(
        launcher_command(tmp_path / "a", PYTHON, "-c", code), b"", b"ready"
    )
    piped = launch(tmp_path / "b", PYTHON, "-c", code)

    assert b"whyidle: no step yet" in screen
    assert screen.endswith(b"\r\x1b[K")
    assert piped.stderr == ""


def test_terminal_settings_are_left_alone(tmp_path: Path) -> None:
    """The launcher does not change the terminal's modes."""
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)

    launch(
        tmp_path / "run",
        "true",
        capture_output=False,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )

    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


def test_masks_in_the_middle_of_a_run_do_not_leak(tmp_path: Path) -> None:
    """After a run in this process handlers and mask are what they were."""
    from whyidle.observe.launch import run_observed

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGTERM)

    run_observed(["true"], tmp_path / "run")

    assert (
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        signal.getsignal(signal.SIGTERM),
    ) == before
    assert Path(tmp_path / "run" / "manifest.json").exists()
