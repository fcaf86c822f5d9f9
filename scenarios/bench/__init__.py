"""The truth bench: scenario × setting × arm, run interleaved, graded, and written down in docs/truth.md."""
