"""The modules of the package import each other without a cycle, and lower parts never import higher ones."""

import ast
import graphlib
from pathlib import Path

import pytest
import shoal

ROOT = Path(shoal.__file__).parent
#: Every module by its dotted name; the compiled one by its stub.
FILES = {
    ".".join(("shoal", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in (*ROOT.rglob("*.py"), ROOT / "_core.pyi")
}


def targets(node, module):
    """The modules of shoal that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name in FILES]
    base = node.module or ""
    if node.level:
        package = module.split(".") if FILES[module].name == "__init__.py" else module.split(".")[:-1]
        package = package[: len(package) - node.level + 1]
        base = ".".join([*package, *base.split(".")]).rstrip(".")
    if base not in FILES:
        return []
    # `from .package import module` imports the module; any other name comes out of the package itself.
    return [f"{base}.{alias.name}" if f"{base}.{alias.name}" in FILES else base for alias in node.names]


def is_for_types(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(module):
    """What a module imports, at any depth: when it runs, and for type checkers alone."""
    running, typing = set(), set()

    def visit(node, found):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                found.update(targets(child, module))
            visit(child, typing if is_for_types(child) else found)

    visit(ast.parse(FILES[module].read_text()), running)
    if module == "shoal":
        # Its `__getattr__` imports at run time what its stub imports.
        visit(ast.parse((ROOT / "__init__.pyi").read_text()), running)
    return running - {module}, typing - {module}


GRAPH = {module: imports(module) for module in FILES}


def cycle(graph):
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return " > ".join(error.args[1])
    return None


def test_the_graph_is_found():
    assert "shoal._fit.centers" in GRAPH["shoal.kmeans"][0] | GRAPH["shoal._fit.clusterer"][0]
    assert "shoal._core" in GRAPH["shoal.kmeans"][0]
    assert "shoal.kmeans" in GRAPH["shoal"][0]
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) is not None


def test_the_stub_lists_the_public_names():
    stub = ast.parse((ROOT / "__init__.pyi").read_text())
    names = [alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    names += [node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)]
    assert sorted(names) == sorted([*shoal.__all__, "__all__"])
    assert all(hasattr(shoal, name) for name in names)


def test_no_module_imports_itself_by_way_of_others():
    assert cycle({module: running for module, (running, _) in GRAPH.items()}) is None


def test_nor_with_the_imports_of_type_checkers():
    assert cycle({module: running | typing for module, (running, typing) in GRAPH.items()}) is None


FILES_AND_FORMATS = ("shoal._checks", "shoal._core", "shoal._files", "shoal.formats")
ROWS = (*FILES_AND_FORMATS, "shoal._rows", "shoal.typing", "shoal.writing")
LOWER = {
    "shoal._checks": ("shoal._checks", "shoal._core"),
    "shoal._terminal": ("shoal._core", "shoal._terminal"),
    "shoal._files": FILES_AND_FORMATS,
    "shoal.formats": FILES_AND_FORMATS,
    "shoal._rows": ROWS,
    "shoal._fit": (*ROWS, "shoal._fit", "shoal._terminal", "shoal.callbacks", "shoal._docs"),
}


@pytest.mark.parametrize("package", LOWER)
def test_a_lower_part_imports_no_higher_one(package):
    allowed = LOWER[package]
    for module in FILES:
        if module == package or module.startswith(package + "."):
            for target in GRAPH[module][0] | GRAPH[module][1]:
                fits = any(target == name or target.startswith(name + ".") for name in allowed)
                assert fits, f"{module} imports {target}"
