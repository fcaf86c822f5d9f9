"""Planted causes with known truth, and the harness that holds whyidle against them: `python -m scenarios`."""
