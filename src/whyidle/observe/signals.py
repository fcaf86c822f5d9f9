r"""Signals between a terminal, the launcher and the training, as if the launcher were not there.

NOTE [who gets a signal]
    The target stays in the launcher's process group, so what a terminal sends (Ctrl-C, Ctrl-\, Ctrl-Z, resize)
    reaches it without us and is not passed on; the kernel marks such signals SI_KERNEL. Nor is what a process sends
    to the whole group (`kill -INT -PGID`, supervisors), which a canary in the group tells from what is sent to the
    launcher alone (NOTE [how the canary tells]). That is passed on, and so is everything when the target is in a
    group of its own. Where no canary can be had, the target may get twice what its group was sent.

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

from whyidle.observe.canary import Canary

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_SI_KERNEL = 0x80
_KEYBOARD = frozenset((signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH))
_HARMLESS_TWICE = frozenset((signal.SIGWINCH, signal.SIGCONT))
"""Not worth a canary: a window that is being dragged sends dozens a second."""
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
        self._canary: Canary | None = None
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
        self._canary = Canary()

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
        self._drain_early(is_first=True)

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
            self._relay(info)

    def restore(self) -> None:
        """Put handlers and mask back, end the canary."""
        if self._canary is not None:
            self._canary.close()
            self._canary = None
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

    def _drain_early(self, *, is_first: bool = False) -> None:
        """Pass on what the handlers have noted, of which only the number is known."""
        # Equal ones merge, as pending ones do: the canary has heard them as one.
        numbers = dict.fromkeys(self._early)
        self._early.clear()
        for number in numbers:
            if number == signal.SIGCHLD:
                continue
            has_it = self._take_from_canary(number)
            if number in _KEYBOARD:
                # Where nobody was asked, it is more likely a person at the terminal.
                has_it = has_it is not False
            elif is_first:
                # It may have come before the target was there: better twice than never.
                has_it = False
            self._pass_on(number, has_it=has_it is True)

    def _relay(self, info: signal.struct_siginfo) -> None:
        number = info.si_signo
        # Asked in any case: what the canary has heard must not be taken for the next one.
        is_for_group = self._take_from_canary(number)
        self._pass_on(
            number,
            has_it=is_for_group is True
            or (info.si_code == _SI_KERNEL and number in _KEYBOARD)
            # The target signals its group.
            or info.si_pid == self._pid,
        )

    def _pass_on(self, number: int, *, has_it: bool) -> None:
        self.interrupted |= number == signal.SIGINT
        if self._pid is None or has_it:
            return
        if number == signal.SIGCONT:
            continue_if_stopped(self._pid)
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._pid, number)

    def _take_from_canary(self, number: int) -> bool | None:
        """Whether the target got the signal with our group; None when nobody was asked.

        More of the same that come meanwhile merge with it, as pending ones do.
        """
        if self._canary is None or number in _HARMLESS_TWICE:
            return None
        if not self._canary.hears(number):
            return False
        while self._canary.has_heard(number):
            self._canary.forget(number)
            while signal.sigtimedwait({number}, 0) is not None:
                pass
        return self._pid is not None and _is_in_our_group(self._pid)


def _is_in_our_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == os.getpgrp()
    except ProcessLookupError:
        return False


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
