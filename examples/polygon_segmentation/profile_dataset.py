"""Show where the time of a sample goes, with cProfile: the check by hand of what the example is about.

python profile_dataset.py data --samples 300
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
from pathlib import Path

import torch
from dataset import STAGES, PolygonDataset


def profile_samples(data: PolygonDataset, samples: int) -> pstats.Stats:
    """Take samples in order under cProfile, after a few without it."""
    for index in range(min(samples, 10)):
        data[index]
    profile = cProfile.Profile()
    profile.enable()
    for index in range(samples):
        data[index % len(data)]
    profile.disable()
    return pstats.Stats(profile)


def read_shares(stats: pstats.Stats, data: PolygonDataset) -> dict[str, float]:
    """Give the part of the samples' time that each stage of the pipeline took, 0 to 1."""
    cumulative = {key: value[3] for key, value in stats.stats.items()}

    def seconds_in(function: object) -> float:
        code = function.__code__
        return cumulative[code.co_filename, code.co_firstlineno, code.co_name]

    total = seconds_in(PolygonDataset.__getitem__)
    parts = {
        "read, draw the mask": seconds_in(PolygonDataset.read),
        "augment": seconds_in(data.augment),
        "heat and offset maps": seconds_in(data.make_maps),
    }
    shares = {name: seconds / total for name, seconds in parts.items()}
    return shares | {"to tensors": 1.0 - sum(shares.values())}


def main() -> None:
    """Read the command line, profile, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--stage", choices=sorted(STAGES), default="baseline")
    parser.add_argument("--functions", type=int, default=12, help="how many to list")
    options = parser.parse_args()
    torch.manual_seed(0)
    data = PolygonDataset(options.folder, options.size, options.stage)
    stats = profile_samples(data, options.samples)
    stats.sort_stats("cumulative").print_stats(options.functions)
    print(
        f"{stats.total_tt / options.samples * 1e3:.1f} ms a sample under cProfile, of which"
    )
    for name, share in read_shares(stats, data).items():
        print(f"  {share:5.1%}  {name}")


if __name__ == "__main__":
    main()
