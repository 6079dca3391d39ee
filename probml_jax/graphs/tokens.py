"""Words of a text file with the lines they stand on, so that every complaint names its line."""

import gzip
import os
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf|nan", re.IGNORECASE)


class Token(NamedTuple):
    """A word or a sign, and its line, counted from 1."""

    text: str
    line: int


def read_text(path: str | os.PathLike) -> str:
    """A text file, unpacked if its name ends in `.gz`."""
    path = pathlib.Path(path)
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


class Reader:
    """A cursor over tokens."""

    def __init__(self, text: str, pattern: str, source: str):
        self.source = source
        self.tokens = list(self._tokens(text, re.compile(pattern)))
        self.place = 0
        self.last_line = text.count("\n") + 1

    @staticmethod
    def _tokens(text: str, pattern: re.Pattern) -> Iterator[Token]:
        for number, line in enumerate(text.split("\n"), start=1):
            for match in pattern.finditer(line):
                yield Token(match.group(), number)

    @property
    def done(self) -> bool:
        return self.place >= len(self.tokens)

    @property
    def line(self) -> int:
        """The line of the next token, or of the end."""
        return self.last_line if self.done else self.tokens[self.place].line

    def fail(self, message: str, line: int | None = None) -> NoReturn:
        raise ValueError(f"{self.source}, line {self.line if line is None else line}: {message}")

    def next(self, wanted: str) -> str:
        """The next token; `wanted` says what is missing if the file ends here."""
        if self.done:
            self.fail(f"the file ends where {wanted} is wanted.")
        self.place += 1
        return self.tokens[self.place - 1].text

    def peek(self) -> str | None:
        return None if self.done else self.tokens[self.place].text

    def expect(self, *texts: str) -> None:
        """The next tokens have to be these."""
        for text in texts:
            line = self.line
            found = self.next(repr(text))
            if found != text:
                self.fail(f"found {found!r} where {text!r} is wanted.", line)

    def number(self, what: str) -> float:
        line = self.line
        text = self.next(what)
        if not _NUMBER.fullmatch(text):
            self.fail(f"found {text!r} where {what} is wanted.", line)
        return float(text)

    def integer(self, what: str) -> int:
        line = self.line
        value = self.number(what)
        if value != int(value) or value < 0:
            self.fail(f"found {value:g} where {what} is wanted.", line)
        return int(value)
