"""What an import costs: nothing heavy, nothing optional, and stubs that are fresh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = {"torch", "plotly", "numpy", "tqdm", "jinja2", "latex2mathml"}
OPTIONAL = {
    "plotly", "latex2mathml", "starlette", "uvicorn", "optuna", "distributed", "ray", "lightning", "transformers",
    "skorch", "scipy", "sklearn", "PIL", "pandas",
}  # fmt: skip


def loaded(code: str) -> set[str]:
    text = f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_mindgap_loads_nothing_heavy() -> None:
    assert not loaded("import mindgap") & (HEAVY | OPTIONAL)


def test_help_loads_neither_torch_nor_plotly() -> None:
    code = "from mindgap.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    assert not loaded(code) & (HEAVY | OPTIONAL)


def test_every_public_name_loads_no_optional_package() -> None:
    assert (
        not loaded("import mindgap\nfor name in mindgap.__all__: getattr(mindgap, name)") & OPTIONAL
    )


def test_public_names_are_what_they_say() -> None:
    import mindgap
    import mindgap.jobs.examine

    assert callable(mindgap.examine)
    assert set(dir(mindgap)) == set(mindgap.__all__)
    assert mindgap.measures.Gap.__name__ == "Gap"
    with pytest.raises(AttributeError, match="nothing_like_it"):
        mindgap.nothing_like_it  # noqa: B018


def test_generated_files_are_fresh() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import generate
    finally:
        sys.path.pop(0)
    stale = [str(path) for path, text in generate.generated().items() if path.read_text() != text]
    assert not stale, "Run: make generate"
