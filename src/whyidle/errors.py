"""What can go wrong in a way that a person can mend.

WhyidleError
├── UsageError      the command line asks for something that cannot be done     exit status 2
├── RunFolderError  a run folder is missing, foreign, too new or empty          exit status 3
└── LaunchError     the training command could not be started                   exit status 126, 127

Each carries a slug; `docs/messages.md` has an entry for every slug. Something that is only unavailable
(no NVML, no permission) is not an error: it is a `NotObserved` in the verdict.
"""

from __future__ import annotations


class WhyidleError(Exception):
    """Root of the errors shown to a person: what failed, the value, what was expected, what to do."""

    exit_status = 1

    def __init__(self, message: str, *, slug: str, hint: str) -> None:
        """Keep the parts.

        Args:
            message: What failed, with which value, and what was expected.
            slug: Name of the entry in `docs/messages.md`.
            hint: What to do now.
        """
        super().__init__(message)
        self.message = message
        self.slug = slug
        self.hint = hint


class UsageError(WhyidleError):
    """The command line asks for something that cannot be done."""

    exit_status = 2


class RunFolderError(WhyidleError):
    """A run folder is missing, foreign, too new or holds no records."""

    exit_status = 3


class LaunchError(WhyidleError):
    """The training command could not be started."""

    def __init__(self, message: str, *, slug: str, hint: str, exit_status: int) -> None:
        """Keep the parts; `exit_status` is what a shell would report (126 or 127)."""
        super().__init__(message, slug=slug, hint=hint)
        self.exit_status = exit_status
