"""Writes one page per public object, and the index of all of them, before Sphinx reads its sources.

New names need no change here: they are found in ``__all__`` and grouped by their module.
"""

import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import shoal
from docutils import nodes
from sphinx import addnodes

#: Title, text and first letters of the modules of each group of the names in ``shoal``.
GROUPS = {
    "Estimators": (
        "scikit-learn estimators: `fit`, `predict`, `transform`, `score`, pipelines, `clone`.",
        (),
    ),
    "Data": (
        "Open rows, write them, and write labels beside them.",
        ("data", "writing", "predictions"),
    ),
    "Seeding": ("Initial centers, weighted and over any source.", ("seeding",)),
    "Coresets": ("Small sets of weighted rows that stand for all rows.", ("coreset",)),
    "Neighbors and graphs": ("Nearest centers and nearest rows.", ("neighbors", "kmodes_path")),
    "Choosing k and reports": (
        "Compare numbers of clusters, and describe a model.",
        ("select", "report", "choosing"),
    ),
    "Models, runs and settings": (
        "Load models, resume fits, set threads and memory.",
        ("io", "config", "versions", "_core"),
    ),
}
#: Modules with names of their own.
MODULES = (
    *("shoal.callbacks", "shoal.metrics", "shoal.convert", "shoal.curation", "shoal.distributed"),
    *("shoal.dask", "shoal.spark", "shoal.ray", "shoal.plot"),
)
#: Code of a guide that begins with a public name, perhaps with arguments.
MENTION = re.compile(r"([A-Za-z][\w.]*)(\(.*\))?$")
#: scikit-learn adds these methods to every estimator.
FOREIGN = re.compile(r"(set_\w+_request|set_output|get_metadata_routing|mro)$")


def group_of(value: Any) -> str:
    """Return the title of the group of an object in `shoal`."""
    home = value.__module__.removeprefix("shoal.").partition(".")[0]
    for title, (_, modules) in GROUPS.items():
        if home.startswith(modules):
            return title
    return "Estimators" if hasattr(value, "get_params") else list(GROUPS)[-1]


def summary(value: Any) -> str:
    """Return the first line of a docstring."""
    return inspect.getdoc(value).splitlines()[0]


def page(name: str, value: Any) -> str:
    """Return the page of an object."""
    title = name.removeprefix("shoal.")
    if not value.__module__.startswith("shoal"):
        signature = f".. py:function:: {name}{inspect.signature(value)}"
        home = f"{value.__module__.split('._')[0]}.{value.__name__}"
        return "\n".join(
            [
                title,
                "=" * len(title),
                "",
                signature,
                "",
                f"   {summary(value)}",
                "",
                f"   This is ``{home}``.",
                "",
            ]
        )
    kind = "autoclass" if inspect.isclass(value) else "autofunction"
    lines = [title, "=" * len(title), "", f".. {kind}:: {name}"]
    if kind == "autoclass":
        lines += ["   :members:", "   :inherited-members: object, tuple"]
    return "\n".join([*lines, ""])


def listing(title: str, text: str, names: list[str], values: dict[str, Any]) -> list[str]:
    """Return the section of a group."""
    lines = [title, "-" * len(title), "", text.replace("`", "``"), "", ".. rst-class:: api-list", ""]
    for name in names:
        role = "class" if inspect.isclass(values[name]) else "func"
        lines += [f":{role}:`~{name}`", f"   {summary(values[name])}"]
    lines += [
        "",
        ".. toctree::",
        "   :hidden:",
        f"   :caption: {title}",
        "",
        *(f"   {name}" for name in names),
        "",
    ]
    return lines


def public() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the text and the objects of every group."""
    found: dict[str, tuple[str, dict[str, Any]]] = {title: (text, {}) for title, (text, _) in GROUPS.items()}
    for name in shoal.__all__:
        value = getattr(shoal, name)
        if inspect.ismodule(value) or name.startswith("__"):
            continue
        found[group_of(value)][1][f"shoal.{name}"] = value
    for name in MODULES:
        if importlib.util.find_spec(name) is not None:
            module = importlib.import_module(name)
            found[name] = (summary(module), {f"{name}.{n}": getattr(module, n) for n in module.__all__})
    return {title: group for title, group in found.items() if group[1]}


def targets() -> dict[str, str]:
    """Return the public objects by the names that guides have for them: full names, and bare class names."""
    found: dict[str, str] = {}
    for _, values in public().values():
        for name, value in values.items():
            found.setdefault(name, name)
            # A bare name of a function could also be that of a command or a method.
            if inspect.isclass(value):
                found.setdefault(name.rpartition(".")[2], name)
    return found


def link_names(app: Any, tree: nodes.document) -> None:
    """Link the first mention of a public object in every section of a guide to its page."""
    if "/" in app.env.docname:
        return
    known = targets()
    linked: set[tuple[int, str]] = set()
    for code in list(tree.findall(nodes.literal)):
        mention = MENTION.fullmatch(code.astext())
        name = known.get(mention[1]) if mention else None
        if name is None or not isinstance(code.parent, (nodes.paragraph, nodes.strong, nodes.emphasis)):
            continue
        section = code
        while section.parent is not None and not isinstance(section, nodes.section):
            section = section.parent
        if (id(section), name) not in linked:
            linked.add((id(section), name))
            link = addnodes.pending_xref(
                "", code.deepcopy(), refdomain="py", reftype="obj", reftarget=name, refwarn=True
            )
            link["refdoc"] = app.env.docname
            code.replace_self(link)


def write_if_changed(path: Path, text: str) -> None:
    """Leave the time of an equal file, so that Sphinx does not read it again."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def write_pages(app: Any) -> None:
    """Write all pages to ``docs/api`` and remove those of names that are gone."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    index = ["API reference", "=============", "", summary(shoal), ""]
    written = {"index.rst"}
    for title, (text, values) in public().items():
        index += listing(title, text, list(values), values)
        for name, value in values.items():
            write_if_changed(folder / f"{name}.rst", page(name, value))
            written.add(f"{name}.rst")
    index += [
        "Rust",
        "----",
        "",
        "The crate is documented at https://docs.rs/shoal-cluster; ``cargo doc --open`` builds ",
    ]
    index[-1] += "the same pages. :doc:`/rust` is a short guide."
    write_if_changed(folder / "index.rst", "\n".join([*index, ""]))
    for path in folder.glob("*.rst"):
        if path.name not in written:
            path.unlink()


def skip(app: Any, what: str, name: str, value: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds."""
    return True if FOREIGN.match(name) else None


def escape(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Keep names with a trailing underscore in shapes, such as ``(n_iter_,)``, from becoming links."""
    lines[:] = [re.sub(r"(?<=shape \()(\w+)_(?=,)", r"\1\_", line) for line in lines]


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", escape, priority=100)
    app.connect("doctree-read", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
