"""Formulas become MathML while the site is built, so that a page needs no script and no other host to be read."""

import html
import logging
import re

from latex2mathml.converter import convert

_log = logging.getLogger("mkdocs.hooks.math")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', flags=re.DOTALL)


def to_mathml(latex: str, block: bool = False) -> str:
    """One formula; `ValueError` if a command was not understood."""
    latex = latex.replace(r"\arg", r"\operatorname{arg}")  # unknown to the converter
    markup = convert(latex.strip(), display="block" if block else "inline")
    unknown = re.search(r"<m[io]>\\(\w+)</m[io]>", markup)
    if unknown:
        raise ValueError(f"no MathML for \\{unknown.group(1)} in ${latex}$")
    return markup


def on_page_content(content: str, page, **_) -> str:
    """Every formula of a page, those of docstrings among them. What cannot be converted is a warning: strict fails."""

    def replace(found: re.Match) -> str:
        _, opening, latex = found.groups()
        try:
            return to_mathml(html.unescape(latex), block=opening == "[")
        except Exception as problem:  # the converter has many kinds of errors, and each means the same to a reader
            _log.warning("%s: %s: %s", page.file.src_uri, latex, problem)
            return found.group(0)

    return _FORMULA.sub(replace, content)
