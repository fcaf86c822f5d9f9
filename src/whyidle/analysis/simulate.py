"""Event simulation of PyTorch's DataLoader, its CPUs, its storage, its locks and the loop's device.

NOTE [semantics]
    What the loader does, as torch's own code has it: indices of `prefetch * workers` batches are sent at the start of
    a pass, and of one more for each batch handed to the loop, not for each one finished. In order, batch after batch
    goes to the workers in turn, whatever their load; out of order, only to one with fewer than `prefetch` tasks. All
    workers put into one result queue, which the loop empties itself inside next(), batches that it does not want yet
    included, or which a pin thread empties. Queues of results are not bounded. A worker of an iterable data set that
    has no more data says so, and is given no further tasks.

All times are ns, floats. Nothing here is random: equal input gives equal output.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.resources import Cpus, Slots
from whyidle.analysis.work import Host, Kind, Outcome, Phase, Settings, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]


WARM_NS, COLD_NS = 1_000_000.0, 5_000_000.0
"""A loop that waited for up to 1 ms (receiving is part of it) goes on as before; one that waited for 5 ms and more
took 15 to 30 % longer for its next step in a training on the CPU."""


def coldness(wait_ns: float) -> float:
    """How far a wait has cooled the loop down, 0 to 1.

    >>> coldness(500_000.0), coldness(3_000_000.0), coldness(20_000_000.0)
    (0.0, 0.5, 1.0)
    """
    return min(1.0, max(0.0, (wait_ns - WARM_NS) / (COLD_NS - WARM_NS)))


def simulate(work: Work, settings: Settings, host: Host) -> Outcome:
    """Run a loader.

    Args:
        work: What is to be done, at least one batch.
        settings: The loader's arguments; `workers=0` makes batches inside next().
        host: The machine.

    Returns:
        An Outcome.
    """
    return _Run(work, settings, host).run()


class _LoopState(IntEnum):
    """What the loop is at."""

    WANTS = 0
    """Inside next(), nothing to take."""
    RECEIVES = 1
    """Takes a result off the queue."""
    MAKES = 2
    """Makes a batch itself."""
    DELIVERS = 3
    """Hands a batch over."""
    STEPS = 4
    """Runs its own code."""
    BEGINS = 5
    """Begins a pass."""
    ENDED = 6


_NOTHING = ((Kind.WAIT, 0.0),)
_NO_DATA = -1
"""Content of a task whose worker has no more data."""


class _Run:
    """One simulation. Whoever waits is a number: workers from 0, the loop, the pin thread, then tasks under way."""

    def __init__(self, work: Work, settings: Settings, host: Host) -> None:
        self.work, self.settings, self.host = work, settings, host
        self.count = len(work.phases)
        self.stop = self.count if work.stop is None else work.stop
        workers = settings.workers
        self.loop, self.pin, self.flight = workers, workers + 1, workers + 2
        self.cpus = Cpus(host)
        self.timers: list[tuple[float, int, int]] = []
        self.serial = 0
        self.program: list[Sequence[Phase]] = [()] * (workers + 2)
        self.position = [0] * (workers + 2)
        self.width = [1.0] * (workers + 2)
        self.lock, self.storage = Slots(1), Slots(host.storage_slots)
        self._begin_loader(workers)
        self.state = _LoopState.WANTS
        self.ask_ns: list[float] = []
        self.got_ns: list[float] = []
        self.free_at_got_ns: list[float] = []
        self.device_free = self.device_busy = 0.0

    def _begin_loader(self, workers: int) -> None:
        self.task = [-1] * workers
        self.queues: list[deque[int]] = [deque() for _ in range(workers)]
        self.outstanding = [0] * workers
        self.feeder_free = [0.0] * workers
        self.held = self.held_by = -1
        self.held_count = 0
        self.content: list[int] = []
        self.owner: list[int] = []
        self.turn = self.wanted = self.delivered = self.next_content = 0
        self.results: deque[int] = deque()
        self.to_pin: deque[int] = deque()
        self.pinning = self.receiving = -1
        self.ready: set[int] = set()
        self._open_pass(0)

    def run(self) -> Outcome:
        """Run to the end of the last step."""
        self._prime(self.work.first_ready_ns)
        self._ask()
        while self.state is not _LoopState.ENDED:
            self._advance()
        return Outcome(
            ask_ns=np.array(self.ask_ns),
            got_ns=np.array(self.got_ns),
            device_free_ns=np.array(self.free_at_got_ns),
            end_ns=max(self.cpus.now, self.device_free),
            device_busy_ns=self.device_busy,
            cpu_ns=self.cpus.used_ns,
            rival_cpu_ns=self.cpus.rival_ns,
            worker_queue_ns=sum(
                self.cpus.queue_ns.get(who, 0.0) for who in range(self.loop)
            ),
            loop_queue_ns=self.cpus.queue_ns.get(self.loop, 0.0),
            full_ratio=self.cpus.full_ns / max(1.0, self.cpus.awake_ns),
            lock_wait_ns=self.lock.wait_ns,
            storage_wait_ns=self.storage.wait_ns,
        )

    # --- time -------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Go to the next event and let whoever waited for it go on."""
        timer = self.timers[0][0] if self.timers else inf
        who = self.cpus.advance(timer)
        if who is None and self.timers and self.timers[0][0] <= self.cpus.now:
            who = heappop(self.timers)[2]
        if who is None:
            return
        if who < 0:
            self._end_held(-who)
        elif who >= self.flight:
            self._arrive(who - self.flight)
        else:
            self._end_phase(who)

    def _wake(self, when: float, who: int) -> None:
        self.serial += 1
        heappush(self.timers, (when, self.serial, who))

    # --- programs: what a worker, the loop or the pin thread does, phase by phase --------------------

    def _start(self, who: int, program: Sequence[Phase], width: float = 1.0) -> None:
        self.program[who], self.position[who], self.width[who] = program, 0, width
        if who == self.loop:
            self.cpus.is_loop_awake = True
        self._go_on(who)

    def _go_on(self, who: int) -> None:
        """Begin phases until one takes time, or the program is over."""
        program = self.program[who]
        while self.position[who] < len(program):
            kind, amount = program[self.position[who]]
            if self._begin_phase(who, kind, amount):
                return
            self.position[who] += 1
        self._end_program(who)

    def _begin_phase(self, who: int, kind: Kind, amount: float) -> bool:
        """Begin a phase; False when it takes no time."""
        now = self.cpus.now
        if kind is Kind.CPU:
            self.cpus.add(who, amount, self.width[who])
        elif kind is Kind.WAIT:
            self._wake(now + amount, who)
        elif kind is Kind.HELD:
            self.held = who
            self.held_count += 1
            self._wake(now + amount, -self.held_count)
        elif kind is Kind.BUSY:
            self.cpus.reserve(1)
            self._wake(now + amount, who)
        elif kind is Kind.STORAGE:
            if self.storage.take(who, amount, now):
                self._wake(now + amount, who)
        elif kind in (Kind.LOCKED_CPU, Kind.LOCKED_WAIT):
            if self.lock.take(who, amount, now):
                self._hold(who, kind, amount)
        elif kind is Kind.SYNC and self.device_free > now:
            self.cpus.is_loop_awake = False
            self._wake(self.device_free, who)
        else:
            if kind is Kind.LAUNCH:
                self.device_free = max(self.device_free, now) + amount
                self.device_busy += amount
            return False
        return True

    def _hold(self, who: int, kind: Kind, amount: float) -> None:
        if kind is Kind.LOCKED_CPU:
            self.cpus.add(who, amount, self.width[who])
        else:
            self._wake(self.cpus.now + amount, who)

    def _end_phase(self, who: int) -> None:
        kind = self.program[who][self.position[who]][0]
        now = self.cpus.now
        if kind is Kind.BUSY:
            self.cpus.reserve(-1)
        elif kind is Kind.SYNC:
            self.cpus.is_loop_awake = True
        elif kind is Kind.STORAGE and (waiter := self.storage.give_back(now)):
            self._wake(now + waiter[1], waiter[0])
        elif kind in (Kind.LOCKED_CPU, Kind.LOCKED_WAIT) and (
            waiter := self.lock.give_back(now)
        ):
            self._hold(
                waiter[0], self.program[waiter[0]][self.position[waiter[0]]][0], waiter[1]
            )
        self.position[who] += 1
        self._go_on(who)

    def _end_program(self, who: int) -> None:
        if who == self.loop:
            self._end_loop_program()
        elif who == self.pin:
            self._end_pin()
        else:
            self._end_fetch(who)

    # --- workers ------------------------------------------------------------------------------------

    def _prime(self, ready_ns: float) -> None:
        """Send the first indices of a pass to workers that take them up `ready_ns` later."""
        workers = self.settings.workers
        for worker in range(workers):
            self.task[worker] = -1
            if ready_ns > 0:
                self.task[worker] = -2
                self._start(worker, ((Kind.WAIT, ready_ns),))
        for _ in range(workers * self.settings.prefetch):
            self._send()

    def _send(self) -> None:
        """Send the indices of one batch, if there is one and a worker to take it (`_try_put_index`)."""
        workers, prefetch = self.settings.workers, self.settings.prefetch
        if self.next_content >= self.pass_end:
            return
        for _ in range(workers):
            worker = self.turn
            self.turn = (worker + 1) % workers
            if self.alive[worker] and (
                self.settings.in_order or self.outstanding[worker] < prefetch
            ):
                break
        else:
            return
        task = len(self.content)
        self.content.append(self._draw(worker))
        self.owner.append(worker)
        self.outstanding[worker] += 1
        self.queues[worker].append(task)
        if self.task[worker] == -1:
            self._take_up(worker)

    def _draw(self, worker: int) -> int:
        """Next batch of a map-style data set, or of a worker's own stream."""
        if self.work.shares is not None:
            if self.left[worker] <= 0:
                return _NO_DATA
            self.left[worker] -= 1
        self.next_content += 1
        return self.next_content - 1

    def _take_up(self, worker: int) -> None:
        self.task[worker] = -1
        if self.queues[worker]:
            task = self.queues[worker].popleft()
            content = self.content[task]
            self.task[worker] = task
            if content == _NO_DATA:
                self._start(worker, ())
            else:
                self._start(worker, self.work.phases[content], self.work.width[content])

    def _end_fetch(self, worker: int) -> None:
        task = self.task[worker]
        if task >= 0:
            content = self.content[task]
            handoff = 0.0
            if content >= 0:
                handoff = self.work.handoff_ns[content]
                if self.queues[worker] and self.content[self.queues[worker][0]] >= 0:
                    handoff += self.work.handoff_held_ns[content]
            sent = max(self.cpus.now, self.feeder_free[worker]) + handoff
            self.feeder_free[worker] = sent
            self._wake(sent, self.flight + task)
        self._take_up(worker)
        if worker == self.held_by:
            self._end_held(self.held_count)

    def _end_held(self, number: int) -> None:
        """Let go on who waited for a sender, if that is still the wait of this number."""
        if self.held >= 0 and number == self.held_count:
            who, self.held = self.held, -1
            self._end_phase(who)

    def _arrive(self, task: int) -> None:
        """A result lies in the queue of the workers."""
        if self.settings.pinned:
            self.to_pin.append(task)
            self._pin_next()
        else:
            self._offer(task)

    def _pin_next(self) -> None:
        if self.pinning < 0 and self.to_pin:
            self.pinning = self.to_pin.popleft()
            content = self.content[self.pinning]
            program: tuple[Phase, ...] = ()
            if content >= 0:
                receipt = self._receipt(self.pinning, is_fresh=False)
                program = (*receipt, (Kind.CPU, self.work.pin_ns[content]))
            self._start(self.pin, program)

    def _end_pin(self) -> None:
        task, self.pinning = self.pinning, -1
        self._offer(task)
        self._pin_next()

    def _offer(self, task: int) -> None:
        self.results.append(task)
        if self.state is _LoopState.WANTS:
            self._look(is_fresh=True)

    # --- the loop -----------------------------------------------------------------------------------

    def _ask(self) -> None:
        self.ask_ns.append(self.cpus.now)
        if self.settings.workers:
            self._look()
            return
        content = self.next_content
        self.next_content += 1
        self.state = _LoopState.MAKES
        program = (*self.work.deliver[content], *self.work.phases[content])
        self._start(self.loop, program, self.work.width[content])

    def _look(self, *, is_fresh: bool = False) -> None:
        """Inside next(): take what is there, or wait."""
        self.state = _LoopState.WANTS
        self.cpus.is_loop_awake = False
        self._skip_ended()
        if self.settings.in_order and self.wanted in self.ready:
            self.ready.discard(self.wanted)
            self._deliver(self.wanted)
        elif self.results:
            self.receiving = self.results.popleft()
            self.state = _LoopState.RECEIVES
            content = self.content[self.receiving]
            is_here = content >= 0 and not self.settings.pinned
            self._start(
                self.loop,
                self._receipt(self.receiving, is_fresh=is_fresh) if is_here else (),
            )

    def _receipt(self, task: int, *, is_fresh: bool) -> Sequence[Phase]:
        content, owner = self.content[task], self.owner[task]
        receive = (self.work.receive_fresh if is_fresh else self.work.receive)[content]
        held_ns = self.work.receive_held_ns[content]
        if held_ns > 0 and self.task[owner] >= 0:
            self.held_by = owner
            return (*receive, (Kind.HELD, held_ns))
        return receive

    def _skip_ended(self) -> None:
        """Tasks of a worker that has ended never get a result."""
        while (
            self.wanted < len(self.content)
            and not self.alive[self.owner[self.wanted]]
            and self.content[self.wanted] == _NO_DATA
        ):
            self.wanted += 1

    def _end_receive(self) -> None:
        task = self.receiving
        if self.content[task] == _NO_DATA:
            self._lose_worker(self.owner[task])
        elif self.settings.in_order and task != self.wanted:
            self.ready.add(task)
        else:
            self._deliver(task)
            return
        self._look()

    def _lose_worker(self, worker: int) -> None:
        if self.alive[worker]:
            self.alive[worker] = False
            self._send()

    def _deliver(self, task: int) -> None:
        self.state = _LoopState.DELIVERS
        self.wanted = task + 1 if self.settings.in_order else self.wanted
        self.outstanding[self.owner[task]] -= 1
        self.delivering = self.content[task]
        self._start(self.loop, self.work.deliver[self.delivering])

    def _end_loop_program(self) -> None:
        state = self.state
        if state is _LoopState.RECEIVES:
            self._end_receive()
        elif state is _LoopState.MAKES:
            self._hand_over(self.next_content - 1)
        elif state is _LoopState.DELIVERS:
            self._send()
            self._hand_over(self.delivering)
        elif state is _LoopState.STEPS:
            self._end_step()
        elif state is _LoopState.BEGINS:
            self._begin_pass()

    def _hand_over(self, content: int) -> None:
        self.got_ns.append(self.cpus.now)
        self.free_at_got_ns.append(self.device_free)
        self.delivered += 1
        self.state = _LoopState.STEPS
        # Even an empty step goes through the clock: a full queue behind it would be one call inside the other.
        program = self.work.step[content] or _NOTHING
        if self.work.cold_ns > 0.0 and self.settings.workers:
            cold = coldness(self.got_ns[-1] - self.ask_ns[-1])
            program = ((Kind.WAIT, self.work.cold_ns * cold), *program)
        self._start(self.loop, program)

    def _end_step(self) -> None:
        if self.delivered >= self.stop:
            self.state = _LoopState.ENDED
        elif self.delivered >= self.pass_end:
            self.state = _LoopState.BEGINS
            self._start(self.loop, ((Kind.WAIT, self.work.starts[self.delivered].gap_ns),))
        else:
            self._ask()

    def _begin_pass(self) -> None:
        start = self.work.starts[self.delivered]
        self._open_pass(self.delivered)
        self._prime(start.ready_ns)
        self._ask()

    def _open_pass(self, first: int) -> None:
        self.pass_end = min(
            (at for at in self.work.starts if at > first), default=self.count
        )
        self.alive = [True] * self.settings.workers
        self.left = list(self.work.shares or ())
        self.outstanding = [0] * self.settings.workers
        self.turn = 0
        self.wanted = len(self.content)
