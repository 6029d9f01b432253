"""Explain one measure, bound, remedy or study: formula, reading, assumptions, settings and reference.

Formulas for a terminal: LaTeX turned into one line of Unicode that a person can read.
"""

import argparse
import dataclasses
import re
import textwrap
from typing import Any

from mindgap.cli.output import write, write_json

_SYMBOLS = {
    "le": "≤", "ge": "≥", "neq": "≠", "sum": "Σ", "prod": "Π", "lVert": "‖", "rVert": "‖", "Vert": "‖", "infty": "∞",
    "leftarrow": "←", "cdot": "·", "odot": "⊙", "sim": "~", "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ",
    "epsilon": "ε", "eta": "η", "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "phi": "φ", "psi": "ψ", "Psi": "Ψ", "partial": "∂", "nabla": "∇", "int": "∫", "times": "×", "in": "∈",
    "ell": "ℓ", "qquad": "   ", "quad": "  ", "max": "max", "min": "min", "ln": "ln", "log": "log", "arg": "arg ",
    "dim": "dim", "exp": "exp", "left": "", "right": "", ",": " ", ";": " ", "{": "{", "}": "}", "|": "‖",
}  # fmt: skip
_GROUP = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"  # braces, two deep inside


def plain_math(latex: str) -> str:
    r"""One line of Unicode.

    >>> plain_math(r"R(f) \le \hat R_n(f) + \sqrt{\frac{2 \ln(2/\delta)}{n}}")
    'R(f) ≤ R̂_n(f) + √((2 ln(2/δ))/n)'
    """
    text = latex.replace(r"\{", "⦃").replace(r"\}", "⦄")
    for _ in range(6):  # innermost fractions and roots come first
        text = re.sub(
            r"\\frac" + _GROUP + _GROUP, lambda m: f"{_bracketed(m[1])}/{_bracketed(m[2])}", text
        )
        text = re.sub(r"\\sqrt" + _GROUP, r"√(\1)", text)
        text = re.sub(r"\\binom" + _GROUP + _GROUP, r"C(\1, \2)", text)
    text = re.sub(r"\\hat\s*\{?(\w)\}?", "\\1\u0302", text)
    text = re.sub(r"\\(?:mathrm|mathbb|mathcal|text|operatorname)" + _GROUP, r"\1", text)
    text = re.sub(r"\\([a-zA-Z]+|.)", lambda m: _SYMBOLS.get(m[1], m[1]), text)
    text = re.sub(r"([_^])\{(\w+)\}", r"\1\2", text)
    text = re.sub(r"([_^])\{([^{}]*)\}", r"\1(\2)", text)
    text = re.sub(r"(?<=[\w'])(?=[ΣΠ∫])", " ", text)
    return re.sub(r"(?<=\S) {2}(?=\S)", " ", text).replace("⦃", "{").replace("⦄", "}").strip()


def _bracketed(text: str) -> str:
    return text if re.fullmatch(r"\\?\w+'?", text) else f"({text})"


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("name", help="a name that `mindgap list` shows")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print what the spec says of itself."""
    facts = describe(arguments.name)
    if arguments.json:
        write_json(facts)
    else:
        write(_text(facts))
    return 0


def describe(name: str) -> dict[str, Any]:
    """All words of a spec as plain data."""
    from mindgap.core import find, reference
    from mindgap.core.spec import allowed

    cls = find(name)
    settings = [
        {"name": field.name, "default": field.default, "help": field.metadata.get("help", "")}
        | ({"allowed": allowed(field.metadata)} if _limited(field) else {})
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]
    ]
    return {
        "name": cls.name,
        "family": cls.family,
        "methods": list(cls.method),
        **dataclasses.asdict(cls.words()),
        "settings": settings,
        "references": [reference(key) for key in cls.cites],
        "source": f"{cls.__module__}.{cls.__qualname__}",
    }


def _limited(field: dataclasses.Field[Any]) -> bool:
    return bool(field.metadata.get("choices")) or any(
        field.metadata.get(key) is not None for key in ("low", "high", "above", "below")
    )


def _text(facts: dict[str, Any]) -> str:
    title = f"{facts['name']}  ({facts['family']}, {', '.join(facts['methods'])})"
    parts = [title, "─" * len(title), _wrapped(facts["summary"]), ""]
    shown = {
        "Formula": plain_math(facts["formula"]),
        "Reading": facts["reading"],
        "Assumes": facts["assumes"],
    }
    for head, text in shown.items():
        parts += [head, _wrapped(text.replace("``", ""), "  "), ""]
    if facts["settings"]:
        parts.append("Settings")
        parts += [_setting(setting) for setting in facts["settings"]] + [""]
    parts.append("References")
    parts += [_wrapped(text, "  ") for text in facts["references"]]
    return "\n".join([*parts, "", f"Source  {facts['source']}"])


def _setting(setting: dict[str, Any]) -> str:
    limits = f"; {setting['allowed']}" if "allowed" in setting else ""
    return _wrapped(f"{setting['name']} = {setting['default']}: {setting['help']}{limits}", "  ")


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        96,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
