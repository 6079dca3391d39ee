"""Questions about one sequence: read on the host, answered by a compiled program."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax

from .data import Sequences, as_sequences, check_sequence

Method = TypeVar("Method", bound=Callable)
_NAMES = ("x", "datum")  # what methods call their sequence


def read(datum: Any) -> Sequences:
    """One sequence in any accepted form, as arrays, checked. A length is an array too: one program serves all."""
    one = as_sequences(datum, batched=False)
    check_sequence(one)
    return one


class Query:
    """A compiled method whose sequence is read on the host first."""

    def __init__(self, method: Callable):
        functools.update_wrapper(self, method)
        names = list(inspect.signature(method).parameters)
        self.place = next(i for i, name in enumerate(names) if name in _NAMES)
        self.name = names[self.place]
        self.compiled = eqx.filter_jit(method)

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        # not a method of Equinox, which takes as long to make as a small program to run
        return self if model is None else jax.tree_util.Partial(self, model)

    def __call__(self, *args, **kwargs):
        if len(args) > self.place:
            args = (*args[: self.place], read(args[self.place]), *args[self.place + 1 :])
        elif self.name in kwargs:
            kwargs[self.name] = read(kwargs[self.name])
        return self.compiled(*args, **kwargs)


def query(method: Method) -> Method:
    """A method that asks about one sequence (`x` or `datum`): read on the host, answered by a compiled program."""
    return Query(method)  # pyright: ignore[reportReturnType]
