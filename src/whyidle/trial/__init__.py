"""Paired, interleaved runs of a training with a change and without."""
