"""What an import costs: nothing heavy, nothing optional, and stubs that are fresh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = {"torch", "plotly", "numpy", "tqdm", "jinja2", "latex2mathml"}
OPTIONAL = {
    "plotly", "latex2mathml", "optuna", "distributed", "ray", "lightning", "transformers",
    "skorch", "scipy", "sklearn", "PIL", "pandas",
}  # fmt: skip


def loaded(code: str) -> set[str]:
    text = f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules if sys.modules[name]}})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_mindgap_loads_nothing_heavy() -> None:
    assert not loaded("import mindgap") & (HEAVY | OPTIONAL)


def test_help_loads_neither_torch_nor_plotly() -> None:
    code = "from mindgap.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    assert not loaded(code) & (HEAVY | OPTIONAL)


def test_every_public_name_loads_no_optional_package() -> None:
    """Also the integrations, whose packages are made to look as if they were not installed."""
    code = (
        "sys.modules.update(dict.fromkeys(['lightning', 'transformers', 'skorch']))\n"
        "import mindgap\n"
        "for name in mindgap.__all__: getattr(mindgap, name)\n"
        "import mindgap.integrations.hugging_face, mindgap.integrations.lightning\n"
        "import mindgap.integrations.skorch"
    )
    assert not loaded(code) & OPTIONAL


FAMILY_BY_FAMILY = """
import sys
from mindgap.core import FAMILIES, catalog

def others(known):
    homes = tuple(home for family, home in FAMILIES.items() if family not in known)
    return [name for name in sys.modules if name.startswith(homes)]

for known in (["measure"], ["measure", "remedy"], ["measure", "remedy", "bound"]):
    assert catalog(known[-1])
    assert not others(known), others(known)
"""


def test_a_family_is_loaded_alone() -> None:
    """Listing measures imports no remedy, bound or study; listing remedies no bound or study."""
    loaded(FAMILY_BY_FAMILY)


def test_drivers_and_workers_of_light_trials_start_quickly() -> None:
    names = "from mindgap.core import Study, Table, Trial"
    assert not loaded(f"{names}\nfrom mindgap.runs import sweep") & (HEAVY | OPTIONAL)
    assert not loaded(f"{names}\nimport mindgap.runs.worker") & (HEAVY | OPTIONAL)


VERBS = (
    "attack", "catalog", "certify", "choose_head", "decompose", "ensemble", "examine", "explain", "find", "fit",
    "initialize", "lipschitz", "monitor", "retrain_head", "sample", "sweep", "weigh",
)  # fmt: skip
PACKAGES = (
    "bounds", "data", "integrations", "measures", "nets", "remedies", "runs", "sampling", "studies",
)  # fmt: skip


def test_public_names_are_what_they_say() -> None:
    import mindgap
    import mindgap.jobs.examine

    assert set(dir(mindgap)) == set(mindgap.__all__) >= {*VERBS, *PACKAGES}
    assert all(callable(getattr(mindgap, name)) for name in VERBS)
    assert all(getattr(mindgap, name).__name__ == f"mindgap.{name}" for name in PACKAGES)
    assert mindgap.measures.Gap.__name__ == "Gap"
    with pytest.raises(AttributeError, match="nothing_like_it"):
        mindgap.nothing_like_it  # noqa: B018


def test_every_command_has_its_verb() -> None:
    """What the command line does, Python does in one call: of the same name but for a few."""
    import mindgap
    from mindgap.cli.parser import COMMANDS

    other = {"bound": "find", "list": "catalog", "report": "Report", "run": "sweep", "train": "fit"}
    for command in set(COMMANDS) - {"doctor"}:
        assert other.get(command, command.replace("-", "_")) in mindgap.__all__


def test_generated_files_are_fresh() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import generate
    finally:
        sys.path.pop(0)
    stale = [str(path) for path, text in generate.generated().items() if path.read_text() != text]
    assert not stale, "Run: make generate"
