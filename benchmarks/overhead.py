"""What watching costs the training: paired, interleaved runs with and without whyidle.

    python benchmarks/overhead.py                 # samples of 3 ms and of 0.2 ms, 15 pairs each
    python benchmarks/overhead.py --pairs 40 --sample-ms 0.2

Each pair runs the same training twice in random order, once plain and once under `whyidle run`. Compared is the CPU
time of the whole training a step (robust on a shared machine) and the steps a second of its own loop. Reported are
the median ratio and a 95 % bootstrap interval of the median.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TRAINING = """
import argparse, json, os, resource, time
import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--sample-ms", type=float)
parser.add_argument("--steps", type=int)
parser.add_argument("--workers", type=int)
parser.add_argument("--out")
args = parser.parse_args()

class Samples(Dataset):
    def __len__(self):
        return 10**9
    def __getitem__(self, index):
        end = time.thread_time() + args.sample_ms / 1e3
        x = 0
        while time.thread_time() < end:
            for k in range(50):
                x = (x * 31 + k) & 0xFFFF
        return torch.full((3, 32, 32), float(x))

if __name__ == "__main__":
    torch.set_num_threads(1)
    loader = DataLoader(Samples(), batch_size=16, num_workers=args.workers)
    weights = torch.zeros(3, 32, 32, requires_grad=True)
    begin = None
    for step, batch in enumerate(loader):
        loss = (batch * weights).sum()
        loss.backward()
        if step == 20:
            begin = time.perf_counter()
        if step == 20 + args.steps:
            break
    wall = time.perf_counter() - begin
    del loader, batch
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    open(args.out, "w").write(json.dumps({"steps_per_s": args.steps / wall, "cpu_s": cpu}))
"""


def run_once(
    script: Path, folder: Path, options: list[str], *, watched: bool
) -> dict[str, float]:
    """Run the training once; its own measurements."""
    out = folder / "out.json"
    command = [sys.executable, str(script), *options, "--out", str(out)]
    if watched:
        command = [
            sys.executable,
            "-m",
            "whyidle",
            "run",
            "--out",
            str(folder / "runs"),
            "--",
            *command,
        ]
    subprocess.run(command, check=True, capture_output=True)
    measured: dict[str, float] = json.loads(out.read_text())
    return measured


def bootstrap_median(values: list[float], rng: random.Random) -> tuple[float, float]:
    """95 % interval of the median."""
    medians = sorted(
        statistics.median(rng.choices(values, k=len(values))) for _ in range(2000)
    )
    return medians[50], medians[1949]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument(
        "--steps", type=int, default=None, help="steps measured in each run"
    )
    parser.add_argument("--sample-ms", type=float, nargs="*", default=[3.0, 0.2])
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    rng = random.Random(0)
    for sample_ms in args.sample_ms:
        steps = args.steps or int(4000 / (sample_ms * 16 / args.workers) / 1.2)
        options = [
            "--sample-ms",
            str(sample_ms),
            "--steps",
            str(steps),
            "--workers",
            str(args.workers),
        ]
        ratios: dict[str, list[float]] = {"time a step": [], "CPU time": []}
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            script = folder / "training.py"
            script.write_text(TRAINING)
            for pair in range(args.pairs):
                order = rng.sample((False, True), 2)
                measured = {
                    watched: run_once(script, folder, options, watched=watched)
                    for watched in order
                }
                ratios["time a step"].append(
                    measured[False]["steps_per_s"] / measured[True]["steps_per_s"]
                )
                ratios["CPU time"].append(
                    measured[True]["cpu_s"] / measured[False]["cpu_s"]
                )
                print(
                    f"\r{sample_ms} ms a sample: pair {pair + 1} of {args.pairs}",
                    end="",
                    file=sys.stderr,
                )
        print(file=sys.stderr)
        for name, values in ratios.items():
            low, high = bootstrap_median(values, rng)
            print(
                f"{sample_ms:4} ms a sample, {steps} steps, {args.workers} workers: {name} "
                f"{(statistics.median(values) - 1) * 100:+.2f} % [{(low - 1) * 100:+.2f}, {(high - 1) * 100:+.2f}], "
                f"{len(values)} pairs"
            )


if __name__ == "__main__":
    main()
