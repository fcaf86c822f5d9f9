"""Why is the accelerator idle during training? The cause, its seconds and its line, for an unmodified script."""

__version__ = "0.1.0"

__all__ = ["__version__"]
