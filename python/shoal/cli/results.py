"""Printing of results as text or JSON."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any


def show(args: argparse.Namespace, result: dict[str, Any], text: str | None = None) -> None:
    """Print a result as one JSON object, or as `text` (default: one aligned line per value)."""
    if args.json:
        print(json.dumps(plain_values(result), indent=2, allow_nan=False))
        return
    if text is None:
        from shoal._rows.paths import join_names

        width = max(map(len, result))
        # Many files.
        result = {
            name: join_names(value) if isinstance(value, list) else value for name, value in result.items()
        }
        text = "\n".join(f"{name:<{width}}  {value}" for name, value in result.items() if value is not None)
    print(text)


def plain_values(value: Any) -> Any:
    """Convert a result for JSON: infinity and NaN become strings."""
    if isinstance(value, dict):
        return {name: plain_values(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def format_timings(timings: dict[str, float]) -> str:
    """Format the seconds per phase."""
    return ", ".join(f"{phase} {seconds:.3f}" for phase, seconds in timings.items())
