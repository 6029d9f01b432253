"""explain: look up anything that has a name, and say what it is in words.

Measures, bounds, remedies and studies are found in the registry, data sets among the registered
loaders, and functions among those that ``@implements`` marked.
"""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from mindgap.core import (
    FAMILIES,
    Remedy,
    Spec,
    catalog,
    citation,
    functions,
    plain,
    reference,
    unknown_name,
    validated,
)
from mindgap.core.spec import Function, Words, allowed, words_of
from mindgap.data.catalog import loaders

KINDS = (*FAMILIES, "dataset", "function")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A field of a spec or a parameter of a function."""

    name: str
    default: Any = None
    required: bool = False
    help: str = ""
    allowed: str = ""

    def __str__(self) -> str:
        default = "''" if self.default == "" else self.default
        head = self.name if self.required else f"{self.name} = {default}"
        tail = "; ".join(part for part in (self.help, self.allowed) if part)
        return f"{head}: {tail}" if tail else head


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """What mindgap knows about one name; ``print(entry)`` shows it.

    Args:
        name: The name, as on the command line.
        family: Measure, bound, remedy, study, dataset or function.
        topic: The folder that holds it: the subject of a measure, the source of a study.
        methods: Ids in the list of methods.
        cites: Keys of references.bib.
        words: Summary, formula, reading and assumptions.
        treats: The symptoms that a remedy treats.
        settings: Fields or parameters.
        source: The dotted name of the class or function.
    """

    name: str
    family: str
    topic: str
    methods: tuple[str, ...]
    cites: tuple[str, ...]
    words: Words
    treats: tuple[str, ...] = ()
    settings: tuple[Setting, ...]
    source: str

    @property
    def citations(self) -> list[str]:
        """The papers by authors and year."""
        return [citation(key) for key in self.cites]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "name": self.name,
            "family": self.family,
            "topic": self.topic,
            "methods": list(self.methods),
            "cites": list(self.cites),
            **dataclasses.asdict(self.words),
            "treats": list(self.treats),
            "settings": [plain(dataclasses.asdict(setting)) for setting in self.settings],
            "citations": self.citations,
            "references": [reference(key) for key in self.cites],
            "source": self.source,
        }

    def __str__(self) -> str:
        title = f"{self.name}  ({', '.join([self.family, *self.citations])})"
        parts = [title, "─" * len(title), _wrapped(_unmarked(self.words.summary)), ""]
        shown = {
            "Formula": plain_math(self.words.formula),
            "Reading": self.words.reading,
            "Assumes": self.words.assumes,
            "Treats": ", ".join(self.treats),
        }
        for head, text in shown.items():
            if text:
                parts += [head, _wrapped(_unmarked(text), "  "), ""]
        lists = {
            "Settings": list(map(str, self.settings)),
            "References": [reference(key) for key in self.cites],
        }
        for head, lines in lists.items():
            if lines:
                parts += [head, *(_wrapped(_unmarked(line), "  ") for line in lines), ""]
        return "\n".join([*parts, f"Source  {self.source}"])


@validated
def explain(name: str) -> Entry:
    """Say what a measure, bound, remedy, study, data set or function is.

    Args:
        name: Its name, with hyphens or underscores.

    >>> explain("margin").family, explain("two-moons").family
    ('measure', 'dataset')
    >>> explain("gap").citations
    ['Kawaguchi et al. 2017']
    """
    hyphenated = name.replace("_", "-").lower()
    if hyphenated in catalog():
        return _of_spec(catalog()[hyphenated])
    known = {entry.name: entry for entry in entries()}
    if hyphenated not in known:
        raise unknown_name("name", name, known)
    return known[hyphenated]


def entries(family: str | None = None) -> list[Entry]:
    """List everything that has a name, by family, topic and name.

    Args:
        family: One of ``KINDS``; all of them if None. Only its own modules are imported.

    >>> [entry.name for entry in entries("measure") if entry.topic == "margins"]
    ['inverse-margin', 'margin', 'normalized-margin']
    """
    if family is not None and family not in KINDS:
        raise unknown_name("family", family, KINDS)
    makers: dict[str, Callable[[], Iterable[Entry]]] = {
        "dataset": lambda: (_of_loader(name, loader) for name, loader in loaders().items()),
        "function": lambda: map(_of_function, functions().values()),
    }
    found: list[Entry] = []
    for kind in [family] if family else KINDS:
        make = makers.get(kind, lambda kind=kind: map(_of_spec, catalog(kind).values()))
        found += sorted(make(), key=lambda entry: (entry.topic, entry.name))
    return found


def _of_spec(cls: type[Spec]) -> Entry:
    settings = tuple(
        Setting(
            name=field.name,
            default=None if field.default is dataclasses.MISSING else field.default,
            required=field.default is dataclasses.MISSING,
            help=field.metadata.get("help", ""),
            allowed=allowed(field.metadata) if _limited(field) else "",
        )
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]
    )
    return Entry(
        name=cls.name,
        family=cls.family,
        topic=_topic(cls),
        methods=cls.method,
        cites=cls.cites,
        words=cls.words(),
        treats=tuple(sorted(cls.treats)) if issubclass(cls, Remedy) else (),
        settings=settings,
        source=_source(cls),
    )


def _of_function(function: Function) -> Entry:
    return Entry(
        name=function.name,
        family="function",
        topic=_topic(function.call),
        methods=function.method,
        cites=function.cites,
        words=function.words(),
        settings=_parameters(function.call),
        source=_source(function.call),
    )


def _of_loader(name: str, loader: Callable[..., Any]) -> Entry:
    return Entry(
        name=name,
        family="dataset",
        topic=_topic(loader),
        methods=(),
        cites=(),
        words=words_of(loader),
        settings=_parameters(loader),
        source=_source(loader),
    )


def _limited(field: dataclasses.Field[Any]) -> bool:
    return bool(field.metadata.get("choices")) or any(
        field.metadata.get(key) is not None for key in ("low", "high", "above", "below")
    )


def _parameters(call: Any) -> tuple[Setting, ...]:
    helps = _documented(inspect.getdoc(call) or "")
    return tuple(
        Setting(
            name=name,
            default=_shown(parameter.default),
            required=parameter.default is parameter.empty,
            help=helps.get(name, ""),
        )
        for name, parameter in inspect.signature(call).parameters.items()
    )


def _shown(default: Any) -> Any:
    """A default as plain data: numbers and words as they are, all else as it is written."""
    if default is inspect.Parameter.empty or default is None:
        return None
    return default if isinstance(default, bool | int | float | str | tuple) else repr(default)


def _documented(text: str) -> dict[str, str]:
    """The ``Args:`` paragraph of a docstring, by parameter."""
    found = re.search(r"^Args:\n((?: +.*\n?)+)", text, re.M)
    lines = textwrap.dedent(found[1]) if found else ""
    pairs = re.findall(r"^\*{0,2}(\w+): (.*(?:\n +.*)*)", lines, re.M)
    return {name: " ".join(words.split()).rstrip(".") for name, words in pairs}


def _topic(thing: Any) -> str:
    """The folder below the family's own, or the package of a plug-in."""
    top, *folders = thing.__module__.split(".")
    if top != "mindgap":
        return str(top)
    below = folders[1:-1] if len(folders) > 2 or folders[0] in _FLAT else folders[:-1]
    return "/".join(below)


_FLAT = {folder.partition(".")[2] for folder in FAMILIES.values()} | {"data"}


def _source(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


_SYMBOLS = {
    "le": "≤", "ge": "≥", "neq": "≠", "sum": "Σ", "prod": "Π", "lVert": "‖", "rVert": "‖",
    "Vert": "‖", "infty": "∞", "leftarrow": "←", "cdot": "·", "odot": "⊙", "sim": "~",
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eta": "η",
    "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "rho": "ρ", "sigma": "σ", "tau": "τ",
    "phi": "φ", "psi": "ψ", "Psi": "Ψ", "partial": "∂", "nabla": "∇", "int": "∫", "times": "×",
    "ne": "≠", "varepsilon": "ε", "pi": "π", "xi": "ξ", "Phi": "Φ", "Delta": "Δ", "Sigma": "Σ",
    "Lambda": "Λ", "nu": "ν", "exists": "∃ ", "forall": "∀ ", "notin": "∉", "propto": "∝",
    "lvert": "|", "rvert": "|", "setminus": "∖", "Rightarrow": "⇒", "langle": "⟨", "rangle": "⟩",
    "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "circ": "∘", "cup": "∪",
    "subseteq": "⊆", "equiv": "≡", "oslash": "⊘", "lesssim": "≲", "ni": "∋",
    "in": "∈", "to": "→", "top": "ᵀ", "pm": "±", "approx": "≈", "ll": "≪", "dots": "…",
    "ldots": "…", "mid": "|", "ell": "ℓ", "qquad": "   ", "quad": "  ", "max": "max", "min": "min", "ln": "ln",
    "log": "log", "arg": "arg ", "dim": "dim", "exp": "exp", "left": "", "right": "", ",": " ",
    ";": " ", "{": "{", "}": "}", "|": "‖",
}  # fmt: skip
_ACCENTS = {"hat": "\u0302", "tilde": "\u0303", "bar": "\u0304", "overline": "\u0304"}
_GROUP = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"  # braces, two deep inside


def plain_math(latex: str) -> str:
    r"""Turn LaTeX into one line of Unicode for a terminal.

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
    text = re.sub(r"\\(?:mathrm|mathbb|mathcal|mathfrak|text|operatorname)" + _GROUP, r"\1", text)
    for accent, mark in _ACCENTS.items():
        text = re.sub(rf"\\{accent}\s*(?:\{{(\\?\w+)\}}|(\\[a-zA-Z]+|\w))", rf"\1\2{mark}", text)
    text = re.sub(r"\\([a-zA-Z]+|.)", lambda m: _SYMBOLS.get(m[1], m[1]), text)
    text = re.sub(r"([_^])\{(\w+)\}", r"\1\2", text)
    text = re.sub(r"([_^])\{([^{}]*)\}", r"\1(\2)", text)
    text = re.sub(r"(?<=[\w'])(?=[ΣΠ∫])", " ", text)
    return (
        re.sub(r"(?<=\S) {2}(?=\S)", " ", text)
        .replace("⦃", "{")
        .replace("⦄", "}")
        .replace("^ᵀ", "ᵀ")
        .strip()
    )


def _bracketed(text: str) -> str:
    return text if re.fullmatch(r"\\?\w+'?", text) else f"({text})"


def _unmarked(text: str) -> str:
    """Remove the markup of the documentation: ``code`` and :role:`name`."""
    return re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        96,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
