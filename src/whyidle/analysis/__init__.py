"""Pure functions from recorded tables to a verdict. No input, no output, no clock.

align → Timeline → idle → path → blame (with places, contention) → regimes → verdict
"""
