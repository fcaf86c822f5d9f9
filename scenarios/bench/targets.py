"""What the bench is aimed at. Written before anything was measured; never moved to what was."""

from __future__ import annotations

FIRST = 0.95
"""First cause right in activity, regime and place."""
TOP = 0.99
"""The same, for one of the first three."""
PLACE = 0.95
FALSE_INPUT = 0.01
UNEXPLAINED_MEDIAN = 0.02
UNEXPLAINED_ALWAYS = 0.10
SHARE_ERROR = 0.07
LOADER_ERROR = (0.03, 0.08)
"""Median and 90th percentile, for arguments of the loader."""
CODE_ERROR = (0.05, 0.12)
"""The same, for a cause that is removed."""
COVERAGE = (0.85, 0.95)
REGRET = 0.02
OVERHEAD = (0.01, 0.02)
"""Median, and upper end of its 95 % interval."""
