"""What the parts of a simulated loader share: CPUs, and things that serve few at a time.

NOTE [processor sharing in virtual time]
    Ready tasks share the CPUs evenly: each runs at rate min(1, cpus / ready). Instead of touching all of them
    whenever one comes or goes, a clock runs at the common rate, and a task ends when that clock reaches its own
    work plus the reading at its start: one heap operation a change.

All times are ns, floats.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whyidle.analysis.work import Host


class Slots:
    """Something that serves few at a time, first come, first served."""

    def __init__(self, count: int | None) -> None:
        self.free = inf if count is None else count
        self.queue: deque[tuple[int, float, float]] = deque()
        self.wait_ns = 0.0

    def take(self, who: int, amount: float, now: float) -> bool:
        """Take a slot; False: queue for one."""
        if self.free > 0:
            self.free -= 1
            return True
        self.queue.append((who, amount, now))
        return False

    def give_back(self, now: float) -> tuple[int, float] | None:
        """Give a slot to whoever has waited longest: (who, amount); None when nobody has."""
        if not self.queue:
            self.free += 1
            return None
        who, amount, since = self.queue.popleft()
        self.wait_ns += now - since
        return who, amount


class Cpus:
    """See NOTE [processor sharing in virtual time]; it also keeps the clock and the quota."""

    def __init__(self, host: Host) -> None:
        self.count, self.rivals = host.cpus, host.rivals
        self.quota_ns = (
            None if host.quota_cpus is None else host.quota_cpus * host.period_ns
        )
        self.period_ns = host.period_ns
        self.budget = inf if self.quota_ns is None else self.quota_ns
        self.period_end = inf if self.quota_ns is None else host.period_ns
        self.now = self.virtual = 0.0
        self.load = 0.0
        self.reserved = 0
        self.rate = 1.0
        self.heap: list[tuple[float, int, int, float, float]] = []
        self.queue_ns: dict[int, float] = {}
        self.serial = 0
        self.used_ns = self.rival_ns = self.full_ns = 0.0
        self.awake_ns = 0.0
        self.is_loop_awake = False
        self.full = 0.0
        self._set_rate()

    def add(self, who: int, amount: float, width: float) -> None:
        """Make a task ready."""
        self.serial += 1
        heappush(
            self.heap, (self.virtual + amount, self.serial, who, width, self.now + amount)
        )
        self.load += width
        self._set_rate()

    def reserve(self, count: int) -> None:
        """Take CPUs away from those who share them, or give them back."""
        self.reserved += count
        self._set_rate()

    def advance(self, until: float) -> int | None:
        """Go on to a moment, or to the first task that ends before it: who that was, or None."""
        if not self.heap:
            self._pass_time(until)
            return None
        rate = self.rate if self.budget > 0 else 0.0
        ends = self.now + (self.heap[0][0] - self.virtual) / rate if rate else inf
        if self.quota_ns is not None:
            dry = self.now + self.budget / (self.load * rate) if rate else inf
            until = min(until, self.period_end, dry)
        if ends <= until:
            self._pass_time(ends)
            _, _, who, width, alone = heappop(self.heap)
            self.queue_ns[who] = self.queue_ns.get(who, 0.0) + ends - alone
            self.load = self.load - width if self.heap else 0.0
            self._set_rate()
            return who
        self._pass_time(until)
        return None

    def _set_rate(self) -> None:
        ready = self.load + self.rivals
        count = max(0.0, self.count - self.reserved)
        self.rate = 1.0 if ready <= count else count / ready
        self.full = min(1.0, max(0.0, ready + 1.0 - self.count))

    def _pass_time(self, to: float) -> None:
        elapsed = to - self.now
        self.now = to
        if self.is_loop_awake:
            self.awake_ns += elapsed
            self.full_ns += elapsed * self.full
        if self.quota_ns is not None and self.budget <= 0:
            ours = 0.0
            alone = min(1.0, self.count / self.rivals) if self.rivals else 0.0
            self.rival_ns += elapsed * self.rivals * alone
        else:
            ours = elapsed * self.rate
            self.rival_ns += ours * self.rivals
        self.virtual += ours
        self.used_ns += ours * self.load + elapsed * self.reserved
        if self.quota_ns is not None:
            self.budget = max(0.0, self.budget - ours * self.load)
            if self.budget < 1.0:
                self.budget = 0.0
            while to >= self.period_end:
                self.period_end += self.period_ns
                self.budget = self.quota_ns
