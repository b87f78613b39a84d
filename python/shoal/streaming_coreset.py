"""`StreamingCoreset` under the name of a module that programs and pickles may hold."""

from __future__ import annotations

from .coreset import StreamingCoreset

__all__ = ["StreamingCoreset"]
