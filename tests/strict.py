"""The run-time type checker of the tests: beartype, minus `Self`, which it only knows on whole classes."""

from typing import Any, Self, get_args

from beartype import beartype


def _mentions_self(hint: Any) -> bool:
    return hint is Self or any(_mentions_self(part) for part in get_args(hint))


def typecheck(function: Any) -> Any:
    hints = getattr(function, "__annotations__", None)
    if hints:
        function.__annotations__ = {name: Any if _mentions_self(hint) else hint for name, hint in hints.items()}
    return beartype(function)
