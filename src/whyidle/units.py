"""Numbers with units, to text and back. No other module divides by 1e9 for display.

Inside, time is int nanoseconds, size is int bytes and a share is 0 to 1.
"""

from __future__ import annotations

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def format_ns(value_ns: int | float) -> str:
    """Write a length of time with three significant digits, `48.9 ms`.

    >>> format_ns(48_900_000), format_ns(0), format_ns(61_000_000_000)
    ('48.9 ms', '0 s', '61.0 s')
    """
    size_ns = abs(value_ns)
    if size_ns == 0:
        return "0 s"
    for unit_ns, name in ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "µs")):
        if size_ns >= unit_ns:
            return f"{_three_digits(value_ns / unit_ns)} {name}"
    return f"{value_ns:.0f} ns"


def format_ratio(ratio: float) -> str:
    """Write a share as a percentage, `63 %`; shares under 10 % keep one digit.

    >>> format_ratio(0.631), format_ratio(0.042), format_ratio(0.0)
    ('63 %', '4.2 %', '0 %')
    """
    percent = ratio * 100
    if percent == 0 or abs(percent) >= 9.95:
        return f"{percent:.0f} %"
    return f"{percent:.1f} %"


def format_bytes(value_bytes: int | float) -> str:
    """Write a size in powers of 1000, `3.84 MB`.

    >>> format_bytes(3_840_000), format_bytes(12)
    ('3.84 MB', '12 B')
    """
    size = float(value_bytes)
    for name in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 1000 or name == "TB":
            return f"{size:.0f} B" if name == "B" else f"{_three_digits(size)} {name}"
        size /= 1000
    raise AssertionError("unreachable: the last unit returns")


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    digits = 2 if magnitude < 9.995 else 1 if magnitude < 99.95 else 0
    return f"{value:.{digits}f}"
