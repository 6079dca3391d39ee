"""Every public symbol has words, an example that runs and a place in the reference; pages run, and their links lead on."""

import ast
import doctest
import enum
import importlib
import inspect
import pathlib
import pkgutil
import re
import subprocess
import sys
import types

import pytest

import probml_jax as pml

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
ROOMS = (
    "distributions conjugate mixtures factors classifiers density sequences gaussian_processes graphs decision "
    "selection methods sklearn plotting"
).split()
INNER = ("gaussian_processes.kernels", "gaussian_processes.means")
ENGINES = [f"inference.{module.name}" for module in pkgutil.iter_modules(pml.inference.__path__)]
DOORS = [pml, *(importlib.import_module(f"probml_jax.{name}") for name in (*ROOMS, *INNER))]
MODULES = [*DOORS, *(importlib.import_module(f"probml_jax.{name}") for name in ENGINES)]


def public(module: types.ModuleType) -> dict[str, object]:
    """What a module defines, or hands on as `from .x import Y as Y`."""
    names = []
    for node in ast.parse(pathlib.Path(module.__file__).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom) and node.level:
            names += [alias.name for alias in node.names if alias.asname == alias.name]
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    found = {name: getattr(module, name) for name in names if not name.startswith("_")}
    return {name: thing for name, thing in found.items() if not inspect.ismodule(thing)}


def methods(cls: type) -> dict[str, object]:
    """Public methods and properties that the package wrote, inherited ones among them."""
    found = {}
    for name, thing in inspect.getmembers_static(cls):
        plain = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
        written = callable(plain) or isinstance(plain, property)
        owner = next((base for base in cls.__mro__ if name in vars(base)), object)
        named = getattr(plain, "__name__", "") != "<lambda>" and not inspect.isclass(plain)
        if not name.startswith("_") and written and named and owner.__module__.startswith("probml_jax"):
            found[name] = thing if isinstance(thing, property) else getattr(cls, name)
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_symbol_and_method_has_a_docstring(module):
    assert inspect.getdoc(module)
    silent = []
    for name, thing in public(module).items():
        if inspect.isclass(thing):
            silent += [name] * (not thing.__doc__)
            silent += [f"{name}.{method}" for method, code in methods(thing).items() if not inspect.getdoc(code)]
        elif inspect.isroutine(thing):
            silent += [name] * (not inspect.getdoc(thing))
    assert not silent, f"{module.__name__}: without a docstring: {silent}"


def blocks(page: pathlib.Path) -> list[str]:
    """The Python code of a page. A block that is only to be read is marked `py`, not `python`."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


def _names_in(code: str) -> set[str]:
    tree = ast.walk(ast.parse(code))
    return {node.attr if isinstance(node, ast.Attribute) else node.id for node in tree if _is_name(node)}


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


@pytest.fixture(scope="module")
def shown() -> set[str]:
    """Names used on the pages whose code the tests run."""
    return set().union(*(_names_in(code) for page in (ROOT / "README.md", DOCS / "index.md") for code in blocks(page)))


def _needs_example(thing: object) -> bool:
    """Functions do, and classes that are built by hand. Bases are not built; records and codes come out of functions."""
    if inspect.isclass(thing):
        record = issubclass(thing, tuple | enum.Enum)
        return not (thing.__name__.startswith("Abstract") or record)
    return inspect.isroutine(thing)


@pytest.mark.parametrize("module", DOORS, ids=lambda module: module.__name__)
def test_every_door_has_an_example_that_runs(module, shown):
    parser = doctest.DocTestParser()
    bare = [
        name
        for name, thing in public(module).items()
        if _needs_example(thing) and name not in shown and not parser.get_examples(inspect.getdoc(thing) or "")
    ]
    assert not bare, f"{module.__name__}: no example in the docstring, the README or the tour: {bare}"
