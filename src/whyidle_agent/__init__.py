"""The part of whyidle that runs in somebody else's process.

Standard library only, Python 3.8 and later. Nothing here raises into, prints in, blocks or changes
the target; importing this package does nothing at all (`boot.start` does).
"""
