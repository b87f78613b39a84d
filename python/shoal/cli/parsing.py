"""The argument parser, whose errors are one line and suggest the nearest name."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from shoal._checks.words import suggest

#: Values that a type function of argparse accepts, in words.
KINDS = {
    "int": "an integer",
    "float": "a number",
    "parse_shape": "N,D, two numbers of at least 1",
    "parse_image": "HxW or HxWx3",
}
NUMBER = re.compile(r"-\d|-\.\d")


class Parser(argparse.ArgumentParser):
    """An argument parser that prints ``shoal: error: ...`` in one line, and exits with status 2."""

    def error(self, message: str) -> NoReturn:
        """Print one line and exit."""
        line = " ".join(reword(message, self.prog).split())
        self.exit(2, f"shoal: error: {line}\n")

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - of overloads
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """Check the names of options and commands, then parse."""
        if args is not None:
            self._check_names(list(args))
        return super().parse_known_args(args, namespace)

    def _check_names(self, args: Sequence[str]) -> None:
        """Exit for an unknown option or command, before anything that is missing is reported."""
        verbs = self._verbs()
        for arg in args:
            if arg == "--":
                return
            if not arg.startswith("-") or arg == "-" or NUMBER.match(arg):
                if verbs is None:
                    continue
                if arg not in verbs:
                    self.error(f"COMMAND must be one of {', '.join(verbs)}, got {arg!r}{suggest(arg, verbs)}")
                return
            self._check_option(arg.partition("=")[0])

    def _check_option(self, name: str) -> None:
        known = list(self._option_string_actions)
        if name in known or (name.startswith("--") and any(other.startswith(name) for other in known)):
            return
        if not name.startswith("--") and name[:2] in known:
            # A short option with its value, as in -k5.
            return
        self.error(
            f"{self.prog} has no option {name}{suggest(name, [o for o in known if o.startswith('--')])}"
        )

    def _verbs(self) -> list[str] | None:
        """Return the names of the commands, or None for the parser of a command."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return list(action.choices)
        return None


def reword(message: str, prog: str) -> str:
    """Reword a message of argparse."""
    found = re.fullmatch(r"argument ([^:]+): (.*)", message, re.DOTALL)
    if found:
        option, problem = found[1].split("/")[0], found[2]
        if problem == "expected one argument":
            return f"{option} needs a value. See {prog} --help"
        other = re.fullmatch(r"not allowed with argument (.*)", problem)
        if other:
            return f"{option} and {other[1].split('/')[0]} cannot be combined"
        invalid = re.fullmatch(r"invalid (\w+) value: (.*)", problem, re.DOTALL)
        if invalid:
            return f"{option} must be {KINDS.get(invalid[1], 'a valid value')}, got {invalid[2]}"
        choice = re.fullmatch(r"invalid choice: (.*) \(choose from (.*)\)", problem, re.DOTALL)
        if choice:
            known = [name.strip("'") for name in choice[2].split(", ")]
            meant = suggest(choice[1].strip("'"), known)
            return f"{option} must be one of {', '.join(known)}, got {choice[1]}{meant}"
        return f"{option} {problem}" if problem.startswith(("must ", "is ")) else f"{option}: {problem}"
    missing = re.fullmatch(r"the following arguments are required: (.*)", message)
    if missing:
        names = [name.split("/")[0] for name in missing[1].split(", ")]
        return f"{prog} needs {' and '.join(names)}. See {prog} --help"
    extra = re.fullmatch(r"unrecognized arguments: (.*)", message)
    if extra:
        return f"unexpected argument {extra[1]}"
    ambiguous = re.fullmatch(r"ambiguous option: (\S+) could match (.*)", message)
    if ambiguous:
        return f"option {ambiguous[1].partition('=')[0]} is ambiguous: {ambiguous[2]}"
    return message
