"""Make the example's modules importable, as they are when its scripts run."""

from __future__ import annotations

import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "polygon_segmentation"

sys.path.append(str(EXAMPLE))
