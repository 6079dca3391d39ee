"""Questions about one sequence: read on the host, answered by a compiled program."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx

from .data import Sequences, as_sequences, check_sequence

Method = TypeVar("Method", bound=Callable)
_NAMES = ("x", "datum")  # what methods call their sequence


def read(datum: Any) -> Sequences:
    """One sequence in any accepted form, as arrays, checked. A length is an array too: one program serves all."""
    one = as_sequences(datum, batched=False)
    check_sequence(one)
    return one


def query(method: Method) -> Method:
    """A compiled method whose sequence (`x` or `datum`) is read on the host first."""
    compiled = eqx.filter_jit(method)
    names = list(inspect.signature(method).parameters)
    place = next(i for i, name in enumerate(names) if name in _NAMES)

    @functools.wraps(method)
    def ask(*args, **kwargs):
        if len(args) > place:
            args = (*args[:place], read(args[place]), *args[place + 1 :])
        elif names[place] in kwargs:
            kwargs[names[place]] = read(kwargs[names[place]])
        return compiled(*args, **kwargs)

    return ask  # pyright: ignore[reportReturnType]
