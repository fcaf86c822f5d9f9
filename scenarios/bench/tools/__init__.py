"""Other tools, run on the same scenarios: each used as its own documentation asks, its best answer counted."""

from __future__ import annotations

from scenarios.bench.tools.base import Tool
from scenarios.bench.tools.gpuprof import Gpuprof
from scenarios.bench.tools.local import FolkRule, RateBound, TorchProfiler
from scenarios.bench.tools.pyspy import PySpy
from scenarios.bench.tools.traceml import TraceML
from scenarios.bench.tools.train_doctor import TrainDoctor

_ALL: tuple[Tool, ...] = (
    FolkRule(),
    PySpy(),
    TorchProfiler(),
    TraceML(),
    TrainDoctor(),
    Gpuprof(),
    RateBound(),
)
TOOLS: dict[str, Tool] = {tool.name: tool for tool in _ALL}
