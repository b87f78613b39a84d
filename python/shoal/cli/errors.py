"""Errors that end the program, and their messages on one line."""

from __future__ import annotations


class FailedError(Exception):
    """A failure with a message for the user; the exit status is 1."""


class UsageError(Exception):
    """A wrong argument; the exit status is 2."""


class LeftError(KeyboardInterrupt):
    """An interrupt, with a note about the checkpoint."""


def note_of(interrupt: KeyboardInterrupt) -> str:
    """Return the note of an interrupt, as the rest of a line."""
    return f"; {interrupt}" if isinstance(interrupt, LeftError) else ""


def line_of(error: BaseException) -> str:
    """Format the message of an error on one line."""
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    elif isinstance(error, MemoryError):
        text = str(error) or "not enough memory"
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())


def was_interrupted(error: BaseException | None) -> bool:
    """Whether an error was caused by Ctrl-C; Python wraps an interrupt that comes during an import."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None
