"""How docstrings become pages: examples are fenced, and a method without words of its own shows those of its base."""

import re

import griffe


def fenced(text: str) -> str:
    """The same Markdown with every doctest in a code block."""
    lines, inside = [], False
    for line in text.splitlines():
        begins = line.startswith(">>>")
        if begins and not inside:
            lines += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


def inherited(method: griffe.Function | griffe.Attribute, cls: griffe.Class) -> griffe.Docstring | None:
    """The docstring of the nearest base that has one."""
    for base in cls.mro():
        member = base.members.get(method.name)
        if member is not None and member.docstring:
            return griffe.Docstring(member.docstring.value, parent=method)
    return None


class Docstrings(griffe.Extension):
    """Applied once to the whole package."""

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        found = list(_objects(pkg))
        for thing in found:
            if thing.docstring:
                thing.docstring.value = fenced(re.sub(r"\$\$(.+?)\$\$", r"$\1$", thing.docstring.value))
        for thing in found:
            if isinstance(thing, griffe.Class):
                for member in thing.members.values():
                    if not member.is_alias and (member.is_function or member.is_attribute) and not member.docstring:
                        member.docstring = inherited(member, thing)


def _objects(parent: griffe.Object):
    yield parent
    for member in parent.members.values():
        if not member.is_alias:
            yield from _objects(member)
