"""Formulas for a terminal: LaTeX turned into one line of Unicode that a person can read."""

from __future__ import annotations

import re

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
        text = re.sub(r"\\frac" + _GROUP + _GROUP, lambda m: f"{_wrapped(m[1])}/{_wrapped(m[2])}", text)
        text = re.sub(r"\\sqrt" + _GROUP, r"√(\1)", text)
        text = re.sub(r"\\binom" + _GROUP + _GROUP, r"C(\1, \2)", text)
    text = re.sub(r"\\hat\s*\{?(\w)\}?", "\\1\u0302", text)
    text = re.sub(r"\\(?:mathrm|mathbb|mathcal|text|operatorname)" + _GROUP, r"\1", text)
    text = re.sub(r"\\([a-zA-Z]+|.)", lambda m: _SYMBOLS.get(m[1], m[1]), text)
    text = re.sub(r"([_^])\{(\w+)\}", r"\1\2", text)
    text = re.sub(r"([_^])\{([^{}]*)\}", r"\1(\2)", text)
    text = re.sub(r"(?<=[\w'])(?=[ΣΠ∫])", " ", text)
    return re.sub(r"(?<=\S) {2}(?=\S)", " ", text).replace("⦃", "{").replace("⦄", "}").strip()


def _wrapped(text: str) -> str:
    return text if re.fullmatch(r"\\?\w+'?", text) else f"({text})"
