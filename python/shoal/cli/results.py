"""How results are printed."""

from __future__ import annotations

import argparse
import json
from typing import Any


def show(args: argparse.Namespace, result: dict[str, Any], text: str | None = None) -> None:
    """Print a result: one JSON object, or lines."""
    if args.json:
        print(json.dumps(result, indent=2))
        return
    if text is None:
        width = max(map(len, result))
        text = "\n".join(f"{name:<{width}}  {value}" for name, value in result.items() if value is not None)
    print(text)


def spent(timings: dict[str, float]) -> str:
    """Seconds by phase, as text."""
    return ", ".join(f"{phase} {seconds:.3f}" for phase, seconds in timings.items())
