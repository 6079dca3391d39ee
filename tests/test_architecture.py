"""The walls between the rooms, checked on the syntax tree of every source file."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent / "probml_jax"
FILES = sorted(ROOT.rglob("*.py"))
TREES = {path.relative_to(ROOT): ast.parse(path.read_text()) for path in FILES}
every_file = pytest.mark.parametrize("path", list(TREES), ids=str)

MODEL_ROOMS = ("mixtures", "factors", "classifiers", "sequences", "gaussian_processes", "graphs", "density")
LEAF_ROOMS = ("distributions", "conjugate")
ENGINES_OF_LEAVES = ("inference.root", "inference.blocks", "inference.whitening")
LEARNING = ("_fit", "_loop", "_implicit", "_host_loop", "_checkpoint", "_method", "_outcome")
LOOPS = ("scan", "while_loop", "fori_loop", "associative_scan")
MAY_LOOP = ("inference", "methods", "_loop.py", "_linalg.py")  # _linalg: the jitter that grows until a factor exists


def room(path: pathlib.Path) -> str:
    return path.parts[0]


def imports(path: pathlib.Path) -> set[str]:
    """Modules of the package that a file imports, as paths from its root: 'distributions.normal', '_fit'."""
    package = list(path.parts[:-1])
    found = set()
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            base = package[: len(package) - (node.level - 1)]
            stem = ".".join([*base, *([node.module] if node.module else [])])
            found |= {stem} if node.module else {".".join([*base, alias.name]) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("probml_jax"):
            found.add((node.module or "").removeprefix("probml_jax").lstrip("."))
    return found


def in_room(module: str, *rooms: str) -> bool:
    return module.split(".")[0] in rooms


@every_file
def test_imports_point_downward(path):
    used = imports(path)
    here = room(path)
    if here in LEAF_ROOMS:
        allowed = (*LEAF_ROOMS, "inference")
        bad = {m for m in used if not in_room(m, *allowed) and not m.startswith("_")}
        bad |= {m for m in used if in_room(m, "inference") and m not in ENGINES_OF_LEAVES}
        bad |= {m for m in used if m in (*LEARNING, "_estimate", "_stack", "_model")}
    elif here == "inference":
        bad = {m for m in used if in_room(m, *LEAF_ROOMS, *MODEL_ROOMS, *LEARNING, "methods", "_estimate", "_model")}
    elif here == "methods":
        bad = {m for m in used if in_room(m, *LEAF_ROOMS, *MODEL_ROOMS, "_estimate", "_stack", "_conjugate")}
        bad |= {m for m in used if in_room(m, "inference") and m != "inference.blocks"}
    elif here == "decision":  # arrays in, arrays out
        bad = {m for m in used if in_room(m, *LEAF_ROOMS, *MODEL_ROOMS, *LEARNING, "methods", "_model", "_estimate")}
    elif here in MODEL_ROOMS:
        bad = {m for m in used if in_room(m, "methods", "sharding", "_placed", "_batches", *LEARNING)}
    elif here.startswith("_") and here not in ("__init__.py", "__main__.py"):
        bad = {m for m in used if in_room(m, *LEAF_ROOMS, *MODEL_ROOMS, "inference")}
        bad |= {m for m in used if in_room(m, "methods") and here != "_fit.py"}  # fit's default method is EM()
    else:
        bad = set()
    if here not in ("plotting", "sklearn", "__init__.py"):  # optional rooms know all others, and none knows them
        bad |= {m for m in used if in_room(m, "plotting", "sklearn")}
    assert not bad, f"{path} may not import {sorted(bad)}"


@every_file
def test_loops_live_in_their_rooms(path):
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.Call)
    }
    assert room(path) in MAY_LOOP or not called & set(LOOPS), f"{path} loops: {called & set(LOOPS)}"


def classes():
    """Classes by name. Estimators bear the names of models by design, so theirs begin with the room's."""
    return {
        ("sklearn." if room(path) == "sklearn" and not node.name.startswith("Abstract") else "") + node.name: (
            path,
            node,
        )
        for path, tree in TREES.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _names(node):
    return [base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases]


def _is_abstract(function):
    return any("abstractmethod" in ast.unparse(d) for d in function.decorator_list)


@pytest.mark.parametrize("name", list(classes()))
def test_a_class_is_abstract_or_final_and_overrides_no_concrete_method(name):
    known = classes()
    path, node = known[name]
    parents = [base for base in _names(node) if base in known]
    for base in parents:
        assert base.startswith("Abstract"), f"{path}: {name} inherits from the concrete class {base}"
    own = {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
    seen = list(parents)
    while seen:
        _, parent = known[seen.pop()]
        concrete = {f.name for f in parent.body if isinstance(f, ast.FunctionDef) and not _is_abstract(f)}
        assert not own & concrete, f"{path}: {name} overrides {own & concrete}"
        seen += [base for base in _names(parent) if base in known]


@every_file
def test_house_rules(path):
    tree = TREES[path]
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert "super" not in calls
    assert "hasattr" not in calls or path.name == "_validate.py"
    assert path.name != "utils.py"
    assert len((ROOT / path).read_text().splitlines()) <= 400
    top_level = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Expr)]
    assert not any("jax.config" in line for line in top_level), "jax.config at import"


@every_file
def test_no_default_key_and_no_unfinished_part(path):
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.FunctionDef):
            positional = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            defaults = [*zip(positional, node.args.defaults, strict=True)]
            assert not any(arg.arg == "key" for arg, _ in defaults), f"{path}: {node.name} has a default key"
        if isinstance(node, ast.Name):
            assert node.id != "NotImplementedError"


def test_every_public_symbol_has_a_docstring():
    for name, (path, node) in classes().items():
        if not name.startswith("_"):
            assert ast.get_docstring(node), f"{path}: {name} has no docstring"
    for path, tree in TREES.items():
        for node in tree.body:
            public = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            if public and not any(part.startswith("_") for part in path.parts):
                assert ast.get_docstring(node), f"{path}: {node.name} has no docstring"
