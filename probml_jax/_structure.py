"""A tree of modules said in plain words (JSON), and made again from them. No code is ever stored: classes and functions
are named, and looked up again in packages that are trusted."""

import dataclasses
import enum
import functools
import importlib
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

# packages whose classes and functions a file may name without being asked for
TRUSTED = ("probml_jax", "equinox", "jax", "optax", "jaxtyping")
_PLAIN = (bool, int, float, str)


class Unsayable(TypeError):
    """Something in a tree has no name by which it could be found again."""


def describe(tree: Any, array: Callable[[Any], Any], *, strict: bool = True, where: str = "model") -> Any:
    """The words for a tree; `array(leaf)` gives the words for an array. Unless `strict`, what has no name is called by
    its type, which is enough to compare and not to make again."""
    again = lambda value, name: describe(value, array, strict=strict, where=f"{where}{name}")
    if tree is None or (isinstance(tree, _PLAIN) and not isinstance(tree, enum.Enum)):
        return {"value": tree}
    if isinstance(tree, (jax.Array, np.ndarray, np.generic)):
        return array(tree)
    if isinstance(tree, enum.Enum):
        return {"member": _name(type(tree)), "name": tree.name}
    if isinstance(tree, eqx.Module) or (dataclasses.is_dataclass(tree) and not isinstance(tree, type)):
        fields = {f.name: tree.__dict__[f.name] for f in dataclasses.fields(tree) if f.name in tree.__dict__}
        say = lambda k, v: _default_of(type(tree), v) or again(v, f".{k}")
        return {"module": _name(type(tree)), "fields": {k: say(k, v) for k, v in fields.items()}}
    if isinstance(tree, tuple) and type(tree) is not tuple:
        fields = {k: again(v, f".{k}") for k, v in zip(tree._fields, tree, strict=True)}
        return {"tuple": _name(type(tree)), "fields": fields}
    if isinstance(tree, (tuple, list)):
        return {type(tree).__name__: [again(v, f"[{i}]") for i, v in enumerate(tree)]}
    if isinstance(tree, (dict, frozenset)):
        pairs = tree.items() if isinstance(tree, dict) else ((v, None) for v in sorted(tree, key=repr))
        return {type(tree).__name__: [[again(k, "[key]"), again(v, f"[{k!r}]")] for k, v in pairs]}
    if isinstance(tree, functools.partial):
        parts = (tree.func, tree.args, tree.keywords)
        return {"partial": type(tree) is eqx.Partial, "parts": [again(p, ".partial") for p in parts]}
    if isinstance(tree, np.dtype):
        return {"dtype": tree.name}
    return _named(tree, strict, where)


def _named(value: Any, strict: bool, where: str) -> Any:
    try:
        return {"name": _name(value)}
    except Unsayable:
        if not strict:
            return {"unnamed": getattr(value, "__qualname__", type(value).__qualname__)}
        said = getattr(value, "__qualname__", type(value).__qualname__)
        raise Unsayable(
            f"{where} is {said}, which has no name in a module by which it could be found again; "
            "saved models hold arrays, plain values, modules, and functions defined at the top level of a module."
        ) from None


def _default_of(kind: type, value: Any) -> Any:
    """Words for a function without a name (a lambda) that is a default of its module's constructor."""
    if not isinstance(value, types.FunctionType) or "<" not in value.__qualname__:
        return None
    parameters = inspect.signature(kind.__init__).parameters
    found = next((name for name, p in parameters.items() if p.default is value), None)
    return None if found is None else {"default_of": _name(kind), "parameter": found}


def _name(value: Any) -> str:
    """`module:qualified.name` of a class or a function, if that leads back to it."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, np.ufunc) or module is None or name is None or "<" in name:
        raise Unsayable(repr(value))
    try:
        found = _lookup(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise Unsayable(repr(value)) from None
    if found is not value:
        raise Unsayable(repr(value))
    return f"{module}:{name}"


def _lookup(module: Any, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), module)


def rebuild(words: Any, array: Callable[[Any], Any], trust: Sequence[str] = ()) -> Any:
    """The tree that was described; raises `ValueError` for what cannot be found or is not trusted."""
    again = lambda w: rebuild(w, array, trust)
    match words:
        case {"array": _}:
            return array(words)
        case {"value": value}:
            return value
        case {"member": name, "name": member}:
            return _found(name, trust)[member]
        case {"module": name, "fields": fields}:
            return _module(_found(name, trust), {k: again(v) for k, v in fields.items()})
        case {"tuple": str(name), "fields": fields}:
            return _found(name, trust)(**{k: again(v) for k, v in fields.items()})
        case {"tuple": items}:
            return tuple(again(v) for v in items)
        case {"list": items}:
            return [again(v) for v in items]
        case {"dict": pairs}:
            return {again(k): again(v) for k, v in pairs}
        case {"frozenset": pairs}:
            return frozenset(again(k) for k, _ in pairs)
        case {"partial": of_arrays, "parts": parts}:
            function, args, keywords = map(again, parts)
            return (eqx.Partial if of_arrays else functools.partial)(function, *args, **keywords)
        case {"dtype": name}:
            return jnp.dtype(name)
        case {"default_of": name, "parameter": parameter}:
            return inspect.signature(_found(name, trust).__init__).parameters[parameter].default
        case {"name": name}:
            return _found(name, trust)
    raise ValueError(f"the file says {_short(words)}, which this version does not understand.")


def _found(name: str, trust: Sequence[str]) -> Any:
    module, _, path = name.partition(":")
    root = module.partition(".")[0]
    if root not in (*TRUSTED, *trust):
        raise ValueError(f"the file names {name}, of the package {root!r}; load(path, trust=[{root!r}]) allows it.")
    try:
        return _lookup(importlib.import_module(module), path)
    except (ImportError, AttributeError):
        raise ValueError(f"the file names {name}, which this installation does not have.") from None


def _module(kind: type, values: dict[str, Any]) -> Any:
    """An instance with these fields, made as pytrees are: without running `__init__` again."""
    known = {f.name: f for f in dataclasses.fields(kind)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(f"the file has {', '.join(unknown)} of {kind.__name__}, which has no such field here.")
    new = object.__new__(kind)
    for name, field in known.items():
        if name not in values:
            if field.default is dataclasses.MISSING:
                raise ValueError(f"the file lacks the field {name} of {kind.__name__}: another version wrote it.")
            values[name] = field.default
        object.__setattr__(new, name, values[name])
    return new


def difference(a: Any, b: Any, where: str = "") -> str | None:
    """The first place where two descriptions differ, with both sides; `None` if there is none."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        pairs = [(f"{where}.{k}" if k not in ("fields", "module", "tuple") else where, a[k], b[k]) for k in a]
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = [(f"{where}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        return None if a == b else f"{where or 'all'}: {_short(a)} in the file, {_short(b)} here"
    return next((found for name, x, y in pairs if (found := difference(x, y, name))), None)


def _short(words: Any) -> str:
    if isinstance(words, dict):
        words = words.get("module", words.get("name", words))
    text = str(words)
    return text if len(text) < 80 else text[:77] + "..."
