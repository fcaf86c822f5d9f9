"""Tell a signal for the whole process group from one for the launcher alone.

NOTE [how the canary tells]
    The kernel marks both SI_USER. So a process that does nothing sits in the launcher's group with every signal
    blocked: what was sent to the group stays pending there, and /proc shows it. The kernel serves a group in one
    call, newest member first, so the mark is there before the launcher has the signal, and nobody has to be
    scheduled for it. The mark cannot be taken away from outside: a fresh canary takes the place of one that heard.

    It is `cat` on a pipe that only the launcher can write: it ends when the launcher does, with -9 too. It has no
    descriptor, folder or variable of the person's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time

from whyidle.units import NS_PER_S

_PATIENCE_NS = NS_PER_S // 20
"""How much later than the launcher the canary may get a signal: supervisors that go through a list of processes
send one at a time. What is for the launcher alone is passed on so much later."""
_LOOK_S = 0.002


class Canary:
    """A process in the launcher's group that shows which signals the group got. Ended by `close`.

    Where there is none (no `cat`, no room for a process, no /proc) it hears nothing.
    """

    def __init__(self) -> None:
        """Put one into this process's group."""
        self._process = _start()
        self._carried: set[int] = set()
        """Heard by canaries that were replaced on account of another signal."""

    def hears(self, number: int) -> bool:
        """Whether the group got a signal that the launcher has just got; `forget` it then."""
        end_ns = time.monotonic_ns() + _PATIENCE_NS
        while not self.has_heard(number):
            if self._process is None or time.monotonic_ns() >= end_ns:
                return False
            time.sleep(_LOOK_S)
        return True

    def has_heard(self, number: int) -> bool:
        """Whether the group has got a signal since it was last forgotten."""
        return number in self._carried or number in _pending_of(self._process)

    def forget(self, number: int) -> None:
        """Be ready to hear this signal anew; others stay heard."""
        if number in _pending_of(self._process):
            former, self._process = self._process, _start()
            # Looked at only now: what comes between the two is heard by one of them at least.
            self._carried |= _pending_of(former)
            _end(former)
        self._carried.discard(number)

    def close(self) -> None:
        """End it and wait for its end."""
        _end(self._process)
        self._process = None
        self._carried.clear()


def _start() -> subprocess.Popen[bytes] | None:
    program = shutil.which("cat", path=os.defpath) or shutil.which("cat")
    if program is None:
        return None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        return subprocess.Popen(
            [program],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
        )
    except OSError:
        return None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    if process.stdin is not None:
        process.stdin.close()
    # The end of its input would do, but not while it is stopped.
    process.kill()
    process.wait()


def _pending_of(process: subprocess.Popen[bytes] | None) -> frozenset[int]:
    """Signals that a process was sent as a whole and has not taken; none when that cannot be read."""
    if process is None:
        return frozenset()
    with contextlib.suppress(OSError, ValueError):
        with open(f"/proc/{process.pid}/status", "rb") as file:
            lines = dict(line.split(b":", 1) for line in file if b":" in line)
        bits = int(lines.get(b"ShdPnd", b"0"), 16)
        return frozenset(n for n in range(1, bits.bit_length() + 1) if bits >> (n - 1) & 1)
    return frozenset()
