"""Time-weighted stack samples of the threads that matter: the loop's and the workers' main threads.

One sampler thread a process, 10 times a second, 5 after 20 s. Each sample stands for the time
since the one before (counts of samples mislead: a thread that wants the interpreter lock is late
exactly when another holds it), and says whether the thread was on a CPU or blocked in which call.

NOTE [a moment nobody chose]
    A sampler gets the interpreter lock when somebody gives it up. In a target whose samples take a
    millisecond, that is always the same line: the one call into C that lets the lock go, not the loop
    that holds it (measured: 4 % of the samples in a loop with 80 % of the time). So each look has two
    waits. The first ends when the target gives the lock up, at most a switch interval late. Then the
    interval is made short, and the second wait ends at a moment fixed before the first: a little more
    than the usual interval after it was due, however late it came. There the lock is taken from whoever
    has it, at the next line of Python. The short interval lasts for about a twentieth of the time.

NOTE [no frame is held]
    A frame must not be held while its thread runs on: its variables would be destroyed in our thread,
    and CPython 3.11.7 was seen to hand out frames that were none, then to crash. Nothing guards a walk
    of several bytecodes, for the interpreter may be asked for between any two of them, and in a look
    it is asked for every 20 us. So the frames are found, read and let go by one call into C.
    Before 3.12 a collection may begin in there too, with each object that is made, and run code of the
    target that gives the interpreter away: the watched thread then pops the very frame that is being
    looked at (seen: crashes, and a look that never ended). So the same call switches collections off
    and on again; and it lets go all it made but one list before that, so that the next collection is
    not due because of us, in our thread. An audit hook in Python would run in there as well: with one
    there are no looks.

NOTE [running or blocked]
    The kernel says for each thread of our own process which call it is blocked in. But a thread that
    ran Python until the sampler took the interpreter lock now waits for that lock, and looks blocked
    in a futex. It gives itself away by the CPU time it used during the look.

NOTE [a thread of ours in the target]
    It is no `threading.Thread`, so the target does not see it among its own; all signals are blocked
    in it, so none goes astray; and it is gone before a fork (CPython warns of forks with threads) and
    comes back after it.
"""

from __future__ import annotations

import atexit
import gc
import os
import struct
import sys
import time
from _thread import allocate_lock, get_ident, get_native_id, start_new_thread
from collections import deque
from functools import partial
from itertools import accumulate, chain, compress, islice, repeat, takewhile
from operator import attrgetter, is_not, methodcaller

from whyidle_agent import boot, wire, writer

_MYPY = False
if _MYPY:
    from types import CodeType
    from typing import Any

PERIOD_NS = (88_000_000, 101_000_000)
"""Range of the wait between two looks: 10 a second, and no periodic target falls in step. A look costs a busy target
0.5 ms; 20 a second cost it 1.1 % (benchmarks/overhead.py)."""
FULL_RATE_LOOKS = 200
"""So many looks tell a share of one process' time to 3.5 points (the root of 0.4 * 0.6 / 200), of several workers' to
less: from then on half as many are enough, for looks are most of what watching costs."""
LOOK_MARGIN_NS = 500_000
"""How much longer than the usual switch interval a look lasts, and how long at least."""
LOOK_INTERVAL_SECONDS = 2e-5
"""Switch interval during a look. Of 1e-4, 2e-5 and 5e-6 the largest that puts two functions of 80 % and 20 % within
5 points at 0.8 ms a sample (with 1e-4: 25 off; without a look: 76 off)."""
RUNNING_RATIO = 0.5
"""Part of a look on a CPU from which a thread counts as running."""
MAX_FRAMES = 48
"""Deepest stack recorded, counted from the leaf."""
MAX_CACHED_FRAMES = 4096
"""Lines of code whose text ids are kept."""
MAX_PATHS = 256
"""Distinct paths recorded as such; further ones are recorded as their folder."""
WAIT_SECONDS = 0.5
"""Longest wait for the sampler to end, before a fork and at exit; it takes a fraction of a millisecond."""

context: dict[int, int] = {}
"""Native thread id to STACK_IN_* flags: set by those who know what the thread is in."""

_CALL = methodcaller("__call__")
_NOTHING: deque[Any] = deque(maxlen=0)
_EXHAUST = _NOTHING.extend
_IS_FRAME = partial(is_not, None)
_FRAME_FIELDS = attrgetter("f_code", "f_lineno", "f_lasti")
_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_CPU_CLOCK_OF_THREAD = 6
"""With a thread's id it makes the id of its CPU clock, as in the kernel's posix-timers.h. To ask it does not give up
the interpreter lock, as reading a file of /proc does, and for a thread that is gone it is an error."""
_POLLFD = struct.Struct("<ihh")

# System calls, by machine: those whose first argument is a descriptor, those whose first argument
# points to a pollfd, and futex.
_FD_CALLS = {
    "x86_64": "0 1 5 8 16 17 18 19 20 40 42 43 44 45 46 47 73 74 75 77 78 217 232 257 262 275 281 288"
    " 295 296 299 307 326 327 328 332",
    "aarch64": "22 25 29 32 44 46 47 48 56 61 62 63 64 65 66 67 68 69 70 71 76 77 79 80 82 83 202 203"
    " 206 207 211 212 242 243 269 285 286 287 291",
}
_POLL_CALLS = {"x86_64": frozenset((7, 271)), "aarch64": frozenset((73,))}
_FUTEX_CALLS = {"x86_64": 202, "aarch64": 98}
_MACHINE = os.uname().machine if hasattr(os, "uname") else ""
_FD_OF_CALL = frozenset(map(int, _FD_CALLS.get(_MACHINE, "").split()))
_POLLFD_OF_CALL = _POLL_CALLS.get(_MACHINE, frozenset())
_FUTEX = _FUTEX_CALLS.get(_MACHINE, -100)

UNKNOWN_CALL, NO_CALL = -2, -1
"""STACK.c: running or not known; blocked outside any call."""


class _ProcFile:
    """A file of /proc that is kept open: one call, thus one handover of the interpreter lock, a read.

    A target that closes all descriptors may get our number for a file of its own. Reading at an
    offset does not disturb that file, and closing looks first.
    """

    __slots__ = ("file", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = -1

    def read(self) -> bytes:
        """The text now.

        Raises:
            OSError: there is no such file (any more).
        """
        if self.file >= 0:
            try:
                return os.pread(self.file, 256, 0)
            except OSError:
                self.close()
        self.file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self.file, 256, 0)

    def close(self) -> None:
        """Close the descriptor if it is still ours."""
        file, self.file = self.file, -1
        try:
            if file >= 0 and os.readlink(f"/proc/self/fd/{file}").startswith("/proc/"):
                os.close(file)
        except OSError:
            return


class _Watched:
    """One thread that is sampled."""

    __slots__ = ("call", "clock", "cpu_ns", "ident", "last_ns", "native_id", "role")

    def __init__(self, role: int, ident: int, native_id: int, now_ns: int) -> None:
        self.role = role
        self.ident = ident
        self.native_id = native_id
        self.last_ns = now_ns
        self.clock = ~native_id << 3 | _CPU_CLOCK_OF_THREAD
        self.cpu_ns = 0
        self.call = _ProcFile(f"/proc/self/task/{native_id}/syscall")


class _Sampler:
    """The sampler thread's own state; one for each time it is started."""

    __slots__ = ("done", "native_id", "stop")

    def __init__(self) -> None:
        self.stop = allocate_lock()
        self.stop.acquire()
        self.done = allocate_lock()
        self.done.acquire()
        self.native_id = 0


_lock = allocate_lock()
_watched: dict[int, _Watched] = {}
_sampler: _Sampler | None = None
_ended = False
_locked_for_fork = False
_frames: dict[tuple[str, str, int], str] = {}
_paths: set[str] = set()
_tick_count = 0
_random_state = 1


def watch(role: int) -> None:
    """Sample the calling thread from now on, as STACK_ROLE_* `role`. Calling it again is cheap."""
    try:
        ident = get_ident()
        if ident in _watched and _sampler is not None:
            return
        if role == wire.STACK_ROLE_WORKER:
            boot.tell_worker()
        if _ended or not writer.enabled():
            return
        if boot.has_audit_hook():
            writer.note("no-stacks", "an audit hook is installed")
            return
        known = _Watched(role, ident, get_native_id(), writer.now())
        with _lock:
            _watched[ident] = known
            _start()
    except Exception as error:
        writer.note("stacks-failed", repr(error))


def _start() -> None:
    """Start the sampler thread, with all signals blocked in it. The caller holds the lock."""
    global _sampler
    if _sampler is not None:
        return
    import signal

    sampler = _Sampler()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        start_new_thread(_run, (sampler,))
        _sampler = sampler
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(wait_seconds: float) -> None:
    """End the sampler thread and wait until the kernel has forgotten it too."""
    global _sampler
    sampler, _sampler = _sampler, None
    if sampler is None:
        return
    sampler.stop.release()
    if not sampler.done.acquire(timeout=wait_seconds):
        return
    task = f"/proc/self/task/{sampler.native_id}"
    for _ in range(50):
        if not os.path.exists(task):
            return
        time.sleep(0.0001)


def _run(sampler: _Sampler) -> None:
    """Body of the sampler thread: sample, wait, until told to stop or nobody is watched."""
    try:
        sampler.native_id = get_native_id()
        _sample_until_stopped(sampler)
    except Exception as error:
        writer.note("stacks-failed", repr(error))
    finally:
        for watched in list(_watched.values()):
            watched.call.close()
        sampler.done.release()


def _sample_until_stopped(sampler: _Sampler) -> None:
    while True:
        wait_ns = _random_ns(*PERIOD_NS) << (_tick_count > FULL_RATE_LOOKS)
        due_ns = writer.now() + wait_ns
        if sampler.stop.acquire(timeout=wait_ns / 1e9):
            return
        look = _look(sampler, due_ns)
        if look is None or not _tick(look, sampler):
            return


class _Look:
    """What one look saw: the frames, and what the threads were in (STACK_IN_*)."""

    __slots__ = ("begin_ns", "late_ns", "now_ns", "seen")

    def __init__(self, begin_ns: int, wait_ns: int) -> None:
        self.seen = [
            (watched, _frames_of(watched.ident), context.get(watched.native_id, 0))
            for watched in list(_watched.values())
        ]
        self.now_ns = writer.now()
        self.begin_ns = begin_ns
        self.late_ns = max(self.now_ns - begin_ns - wait_ns, 0)


def _look(sampler: _Sampler, due_ns: int) -> _Look | None:
    """Look at a moment fixed beforehand; None when the thread has to end.

    See NOTE [a moment nobody chose]. What was seen is worked up afterwards: with the short interval the
    target would ask for the interpreter, and get it, in the midst of that.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(LOOK_INTERVAL_SECONDS)
    try:
        for watched in list(_watched.values()):
            watched.cpu_ns = _cpu_ns(watched.clock)
        begin_ns, look_ns = writer.now(), int(usual * 1e9) + LOOK_MARGIN_NS
        wait_ns = due_ns + look_ns - begin_ns
        if wait_ns < LOOK_MARGIN_NS:
            # Later than the target alone can make us: the CPUs are busy. Any moment will do.
            wait_ns = _random_ns(LOOK_MARGIN_NS, 2 * look_ns)
        if sampler.stop.acquire(timeout=wait_ns / 1e9):
            return None
        return _Look(begin_ns, wait_ns)
    finally:
        # Unless the target has set one of its own meanwhile.
        if sys.getswitchinterval() < LOOK_INTERVAL_SECONDS * 1.5:
            # CPython keeps whole microseconds and cuts off the rest: 0.007 s would come back as 6999.
            sys.setswitchinterval(usual + 5e-7)


def _tick(look: _Look, sampler: _Sampler) -> bool:
    """Sample every watched thread; False when none is left and the thread has to end."""
    global _tick_count, _sampler
    _tick_count += 1
    taken = _tick_count % writer.stack_stride() == 0
    for watched, frames, flags in look.seen:
        if frames is None:
            _watched.pop(watched.ident, None)
            context.pop(watched.native_id, None)
            watched.call.close()
        elif taken:
            _sample(watched, frames, flags, look)
    if _watched and writer.enabled() and not boot.has_audit_hook():
        return True
    # Not waiting for the lock: a fork holds it while it waits for this thread to end.
    if not _lock.acquire(False):
        return True
    try:
        if _watched and writer.enabled() and not boot.has_audit_hook():
            return True
        if _sampler is sampler:
            _sampler = None
    finally:
        _lock.release()
    return False


def _frames_of(ident: int) -> list[Any] | None:
    """Code, line, instruction, code, line, ... of a thread's frames, leaf first; None when the thread is gone.

    See NOTE [no frame is held]: the one call of `_EXHAUST` does everything.
    """
    found: list[Any] = []
    was_on: list[bool] = []
    leaf = islice(map(methodcaller("get", ident), iter(sys._current_frames, None)), 1)
    steps = accumulate(chain(leaf, repeat("f_back", MAX_FRAMES - 1)), getattr)
    fields = chain.from_iterable(map(_FRAME_FIELDS, takewhile(_IS_FRAME, steps)))
    ask = partial(was_on.extend, map(_CALL, (gc.isenabled,)))
    calls = (ask, gc.disable, partial(found.extend, fields))
    # `compress` looks at the answer of `ask` when it is there, after the walk.
    _EXHAUST(map(_CALL, chain(calls, compress((gc.enable,), was_on))))
    return found or None


def _sample(
    watched: _Watched,
    frames: list[Any],
    flags: int,
    look: _Look,
) -> None:
    # Before anything else: this read is what gives the interpreter back to the target.
    call, target = _blocked_in(watched.call)
    held = call == _FUTEX and _has_run(watched, look.begin_ns)
    if call is None:
        call = UNKNOWN_CALL
    elif held or call == UNKNOWN_CALL:
        call, flags = UNKNOWN_CALL, flags | wire.STACK_ON_CPU
    else:
        flags |= wire.STACK_BLOCKED
    stack = _stack_text(frames)
    if stack is None:
        return
    t0, t1, watched.last_ns = watched.last_ns, look.now_ns, look.now_ns
    stack_and_target, number = stack | target << 32, watched.native_id
    writer.emit(
        wire.STACK,
        flags,
        watched.role,
        t0,
        t1,
        stack_and_target,
        number,
        call,
        look.late_ns,
    )


def _has_run(watched: _Watched, begin_ns: int) -> bool:
    """Whether a thread was on a CPU for most of the look: then the lock it waits for is the interpreter's."""
    used_ns = _cpu_ns(watched.clock) - watched.cpu_ns
    return used_ns > RUNNING_RATIO * (writer.now() - begin_ns)


def _blocked_in(file: _ProcFile) -> tuple[int | None, int]:
    """The system call a thread is blocked in (None: cannot be seen) and the text id of its target."""
    try:
        line = file.read()
    except OSError:
        return None, 0
    if line.startswith(b"running"):
        return UNKNOWN_CALL, 0
    words = line.split()
    call = int(words[0])
    if call in _FD_OF_CALL:
        return call, _target_of(int(words[1], 16))
    if call in _POLLFD_OF_CALL:
        return call, _target_of(_polled(int(words[1], 16)))
    return call, 0


def _polled(address: int) -> int:
    """The first descriptor of an array of pollfd in our own memory; -1 when it cannot be read."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # A bad address is an error of pread here, never a fault.
            return int(_POLLFD.unpack(os.pread(memory, _POLLFD.size, address))[0])
        finally:
            os.close(memory)
    except (OSError, struct.error, OverflowError):
        return -1


def _target_of(descriptor: int) -> int:
    """Text id of what a descriptor leads to: a path, or "socket:", "pipe:", "anon_inode:"."""
    if not 0 <= descriptor < 1 << 31:
        return 0
    try:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return 0
    if not path.startswith("/"):
        return writer.text(path.partition(":")[0] + ":")
    if path not in _paths:
        if len(_paths) >= MAX_PATHS:
            path = os.path.dirname(path)
        else:
            _paths.add(path)
    return writer.text(path)


def _cpu_ns(clock: int) -> int:
    """Time that one of our threads was on a CPU, ns; 0 where it cannot be known."""
    try:
        return time.clock_gettime_ns(clock)
    except (OSError, OverflowError, AttributeError):
        return 0


def _stack_text(frames: list[Any]) -> int | None:
    """Text id of a stack: text ids of its frames, leaf first; None where all frames are ours."""
    numbers: list[str] = []
    for code, line, instruction in zip(frames[::3], frames[1::3], frames[2::3]):
        # Not the code object: its hash is that of all its constants.
        key = (code.co_filename, code.co_name, line or _line_of(code, instruction))
        number = _frames.get(key)
        if number is None:
            number = _frame_text(key)
        if number:
            numbers.append(number)
    # With the table of texts full, the leaf alone is worth more than nothing.
    return writer.text(",".join(numbers)) or writer.text(numbers[0]) if numbers else None


def _line_of(code: CodeType, instruction: int) -> int:
    """Line of an instruction that has none: that of the one before it that has.

    From CPython 3.10 on the jump back at the end of a loop may belong to no line, and it is where a
    thread is most often asked to let the interpreter go: most samples of a tight loop are there.
    """
    line = code.co_firstlineno
    for start, _, line_there in code.co_lines():
        if start > instruction:
            break
        line = line_there or line
    return line


def _frame_text(key: tuple[str, str, int]) -> str:
    file, name, line = key
    number = ""
    if not file.startswith(_FOLDER):
        # Not co_qualname: interpreters before 3.11 have none, and a name must mean the same everywhere.
        number = str(writer.text(f"{file}\0{name}\0{line}") or "")
    if len(_frames) < MAX_CACHED_FRAMES:
        _frames[key] = number
    return number


def _random_ns(low_ns: int, high_ns: int) -> int:
    """A length in a range; by our own numbers, for the target's random state is not to be touched."""
    global _random_state
    _random_state = (_random_state * 1103515245 + 12345) & 0x7FFFFFFF
    return low_ns + (high_ns - low_ns) * (_random_state >> 8) // (0x7FFFFFFF >> 8)


def _at_exit() -> None:
    global _ended
    _ended = True
    _stop(WAIT_SECONDS)


def _before_fork() -> None:
    global _locked_for_fork
    try:
        # With a limit: a signal handler may fork in the middle of `watch`, in the same thread.
        _locked_for_fork = _lock.acquire(timeout=WAIT_SECONDS)
        _stop(WAIT_SECONDS)
    except Exception:
        return


def _after_fork_in_parent() -> None:
    global _locked_for_fork
    try:
        if _watched and not _ended:
            _start()
    except Exception as error:
        writer.note("stacks-failed", repr(error))
    finally:
        if _locked_for_fork:
            _locked_for_fork = False
            _lock.release()


def _after_fork_in_child() -> None:
    global _lock, _sampler, _ended, _locked_for_fork
    _lock, _locked_for_fork = allocate_lock(), False
    _sampler = None
    _ended = False
    _watched.clear()
    context.clear()
    _frames.clear()
    _paths.clear()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
