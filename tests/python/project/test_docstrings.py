"""Docstrings are complete: shared text is filled in, and every parameter is described."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
import shoal
from shoal._docs import TEXTS


def documented_objects():
    """The public classes, functions and methods of shoal by their path."""
    found = {}
    names = [info.name for info in pkgutil.iter_modules(shoal.__path__) if not info.name.startswith("_")]
    for module in ("shoal", *(f"shoal.{name}" for name in names)):
        home = importlib.import_module(module)
        for name in getattr(home, "__all__", ()):
            thing = getattr(home, name)
            if (getattr(thing, "__module__", None) or "").startswith("shoal.") and callable(thing):
                found[f"{thing.__module__}.{name}"] = thing
    for path, thing in list(found.items()):
        if inspect.isclass(thing):
            for name, method in inspect.getmembers(thing, inspect.isfunction):
                if not name.startswith("_") and method.__module__.startswith("shoal."):
                    found[f"{path}.{name}"] = method
    return found


OBJECTS = documented_objects()


def described(text):
    """The names in the section of parameters."""
    section = re.search(r"^Parameters\n-+\n(.*?)(\n\n\w[\w ]*\n---|\Z)", text, re.MULTILINE | re.DOTALL)
    entries = re.findall(r"^[\w*].*$", section[1], re.MULTILINE) if section else []
    return {name.lstrip("\\*") for entry in entries for name in entry.partition(" : ")[0].split(", ")}


@pytest.mark.parametrize("path", OBJECTS)
def test_a_docstring_describes_the_parameters(path):
    text = inspect.getdoc(OBJECTS[path])
    assert not re.search(r"^ *\{\w+\}", text, re.MULTILINE)
    if names := described(text):
        assert names - {"Expert parameters"} == set(inspect.signature(OBJECTS[path]).parameters) - {"self"}


def test_all_shared_text_is_used():
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(shoal.__file__).parent.rglob("*.py"))
    assert [name for name in TEXTS if f"{{{name}}}" not in sources] == []
