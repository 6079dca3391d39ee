"""Every public symbol has words, an example that runs and a place in the reference; pages run, links resolve."""

import ast
import doctest
import enum
import importlib
import inspect
import os
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
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
RUN = (ROOT / "README.md", DOCS / "index.md", DOCS / "long_runs.md")
ROOMS = (
    "distributions conjugate mixtures factors classifiers density sequences gaussian_processes graphs decision "
    "selection methods sklearn plotting sharding"
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


def _attributes(code: str) -> set[str]:
    return {node.attr for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)}


@pytest.fixture(scope="module")
def shown() -> set[str]:
    """What is used, as `pml.room.name`, on the pages whose code the tests run."""
    return set().union(*(_attributes(code) for page in RUN for code in blocks(page)))


# classes that come out of a function, which is where their example is
MADE_BY = {
    "Approximation": "belief_propagation",
    "Assignment": "map_assignment",
    "Buckets": "bucket",
    "Conditional": "conditional",
    "Fit": "fit",
    "GibbsSamples": "gibbs",
    "LaplacePosterior": "laplace",
    "Marginals": "marginals",
    "Placed": "place",
    "Row": "compare",
    "SecondMoments": "summarize",
    "SoftmaxMargin": "softmax_margin",
    "Table": "compare",
    "TaggingReport": "tagging_report",
    "Kernel": "KERNELS",
}


def _vocabulary() -> set[str]:
    """Everything a user can name: symbols, methods, fields and parameters."""
    things = {name: thing for module in MODULES for name, thing in public(module).items()}
    names = {*things, *(module.__name__.split(".")[-1] for module in MODULES), "inference"}
    for thing in things.values():
        members = methods(thing) if inspect.isclass(thing) else {}
        names |= {*members, *getattr(thing, "__annotations__", {})}
        for code in (thing, *members.values()):
            names |= set(inspect.signature(code).parameters) if inspect.isroutine(code) else set()
    return names | set(pml.Status.__members__)


def test_makers_exist():
    assert set(MADE_BY.values()) | set(MADE_BY) <= _vocabulary()


def _needs_example(thing: object) -> bool:
    """Functions do, and classes that are built by hand: no bases, and no records that come out of functions."""
    if inspect.isclass(thing):
        made = thing.__name__ in MADE_BY or issubclass(thing, tuple | enum.Enum)
        return not (thing.__name__.startswith("Abstract") or made)
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


def _resolved(path: str) -> object:
    parts = path.split(".")
    for split in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for name in parts[split:]:
            thing = getattr(thing, name)
        return thing
    raise AssertionError(f"{path} leads nowhere")


def test_every_public_symbol_is_in_the_reference():
    pages = "\n".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    named = re.findall(r"^::: (\S+)$", pages, flags=re.MULTILINE)
    assert len(named) == len(set(named)), "a symbol stands twice"
    there = {id(_resolved(path)) for path in named} | {path.rsplit(".", 1)[1] for path in named}
    missing = [
        f"{module.__name__}.{name}"
        for module in MODULES
        for name, thing in public(module).items()
        if id(thing) not in there and not (not callable(thing) and name in there)
    ]
    assert not missing, f"not in docs/api/: {missing}"


# ------------------------------------------------------------------ pages


def _anchors(page: pathlib.Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name} links to {target}, which is not there"
        assert not anchor or anchor in _anchors(there), f"{page.name}: no heading for {target}"


@pytest.mark.parametrize("page", [pytest.param("index", marks=pytest.mark.thorough), "long_runs"])
def test_a_page_runs_as_its_reader_would_run_it(page, tmp_path):
    script = tmp_path / f"{page}.py"
    script.write_text("\n".join(blocks(DOCS / f"{page}.md")))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "converged" in done.stdout or page != "index"


def test_the_page_on_extending_runs_and_is_short():
    """A leaf, a model and a method: each a class of fewer than forty lines. The code has its own assertions."""
    codes = blocks(DOCS / "extending.md")
    classes = [node for code in codes for node in ast.parse(code).body if isinstance(node, ast.ClassDef)]
    assert [ast.unparse(node.bases[0]) for node in classes] == [
        "pml.AbstractFamily",
        "pml.AbstractLatentModel",
        "pml.AbstractMethod",
    ]
    assert all(code.count("\n") < 40 for code in codes)
    assert sum("assert" in code for code in codes) == 3
    exec("\n".join(codes), {"__name__": "extending"})


def test_what_the_page_on_choosing_recommends_exists():
    names = _vocabulary() | {"jax", "grad", "pml"}
    for span in re.findall(r"`([^`]+)`", (DOCS / "how-to-choose.md").read_text()):
        for name in re.match(r"[\w.]*", span).group().split("."):
            parameter = re.match(r"\w+=", span)
            prefix = name.endswith("_") and any(known.startswith(name) for known in names)
            assert not name or parameter or prefix or name in names, f"`{span}`: there is no {name}"


def test_every_erratum_has_its_test():
    rows = re.findall(r"^\| (\d+) \|.*`(test_\w+\.py)` \|$", (DOCS / "errata.md").read_text(), flags=re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 15))
    for number, file in rows:
        assert f"def test_erratum_{number}_" in (ROOT / "tests" / file).read_text(), f"no test of erratum {number}"


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    pages = [page.read_text() for page in (tmp_path / "site").rglob("*.html")]
    assert len(pages) > 20
    assert not any("arithmatex" in page for page in pages), "a formula was left as LaTeX"
    fetched = {host for page in pages for host in re.findall(r'(?:src="|<link[^>]*href=")https?://([^/"]+)', page)}
    assert not fetched, f"pages fetch from {fetched}"
