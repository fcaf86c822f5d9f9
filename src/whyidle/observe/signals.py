r"""Signals between a terminal, the launcher and the training, as if the launcher were not there.

NOTE [who gets a signal]
    The target stays in the launcher's process group, so what a terminal sends (Ctrl-C, Ctrl-\, Ctrl-Z, resize)
    reaches it without us and is not passed on; the kernel marks such signals SI_KERNEL. What a process sends to the
    launcher alone is passed on. A sender that signals the whole group with `kill` cannot be told from that, so the
    target may see such a signal twice; container inits have the same property.

    Dispositions and the mask that the target inherits are those the launcher was started with: ignored signals
    stay ignored (nohup, background jobs), the others have handlers here, which exec resets. The mask is changed
    only after the target has started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_SI_KERNEL = 0x80
_KEYBOARD = frozenset((signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH))
_NAMED = """
    SIGHUP SIGINT SIGQUIT SIGTERM SIGUSR1 SIGUSR2 SIGWINCH SIGTSTP SIGCONT SIGALRM SIGABRT SIGXCPU SIGPWR SIGURG SIGIO
""".split()
JOB_CONTROL_STOPS = frozenset((signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU))


def relayed_signals() -> frozenset[int]:
    """Signals that are passed on: those that people, schedulers and supervisors send."""
    named = {int(getattr(signal, name)) for name in _NAMED if hasattr(signal, name)}
    return frozenset(named | set(range(signal.SIGRTMIN, signal.SIGRTMAX + 1)))


class SignalRelay:
    """Passes signals on to one process. Use: `install`, start the process, `attach`, `wait` in a loop, `restore`.

    Outside the main thread, where Python cannot handle signals, it only waits.
    """

    def __init__(self) -> None:
        """Change nothing yet."""
        self._is_main = threading.current_thread() is threading.main_thread()
        self._signals = relayed_signals()
        self._handlers: dict[
            int, Callable[[int, FrameType | None], object] | int | None
        ] = {}
        self._mask: set[int | signal.Signals] | None = None
        self._early: list[int] = []
        self._pid: int | None = None
        self.interrupted = False
        """Whether a SIGINT came, from the keyboard or from a process."""

    def install(self) -> None:
        """Handle what would end the launcher; ignored signals stay ignored."""
        if not self._is_main:
            return
        for number in self._signals | {signal.SIGCHLD}:
            before = signal.getsignal(number)
            if before is signal.SIG_IGN:
                continue
            # None: a handler that was not set by Python and could not be put back.
            if before is not None:
                self._handlers[number] = before
                signal.signal(number, self._note)

    def attach(self, pid: int) -> None:
        """Begin to pass signals on to this process, those that came meanwhile included."""
        self._pid = pid
        if not self._is_main:
            return
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            # With it ignored the kernel would throw the exit status away.
            self._handlers[signal.SIGCHLD] = signal.SIG_IGN
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._mask = signal.pthread_sigmask(
            signal.SIG_BLOCK, self._signals | {int(signal.SIGCHLD)}
        )
        self._drain_early()

    def wait(self, timeout_ns: int) -> None:
        """Sleep until a signal comes, a child changes state, or the time is over; pass on what came."""
        seconds = max(timeout_ns, 0) / 1e9
        if self._mask is None:
            time.sleep(min(seconds, 0.02))
            return
        info = signal.sigtimedwait(self._signals | {int(signal.SIGCHLD)}, seconds)
        # Threads begun by others do not block signals: their signals arrive at the handler.
        self._drain_early()
        if info is not None and info.si_signo != signal.SIGCHLD:
            self._relay(info.si_signo, info.si_code == _SI_KERNEL, info.si_pid)

    def restore(self) -> None:
        """Put handlers and mask back."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()
        if self._mask is not None:
            # A signal that nobody waits for any more, say a second Ctrl-C, must not end us now.
            while signal.sigtimedwait(self._signals | {int(signal.SIGCHLD)}, 0) is not None:
                pass
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            self._mask = None

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._early.append(number)

    def _drain_early(self) -> None:
        while self._early:
            number = self._early.pop(0)
            if number != signal.SIGCHLD:
                self._relay(number, number in _KEYBOARD, 0)

    def _relay(self, number: int, from_terminal: bool, sender: int) -> None:
        self.interrupted |= number == signal.SIGINT
        if self._pid is None or (from_terminal and number in _KEYBOARD):
            return
        if sender == self._pid:
            # The target signals its group: it has it already.
            return
        if number == signal.SIGCONT:
            continue_if_stopped(self._pid)
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._pid, number)


def continue_if_stopped(pid: int) -> None:
    """Send SIGCONT unless the process already runs."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
        if state == b"T":
            os.kill(pid, signal.SIGCONT)


def stop_like(pid: int) -> None:
    """Stop this process as its target has stopped, so that the shell sees it; go on together."""
    os.kill(os.getpid(), signal.SIGSTOP)
    continue_if_stopped(pid)
