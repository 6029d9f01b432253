"""mindgap: will your PyTorch network generalize, why not, and what helps?

The names below are all that most users need; everything else lies in the rooms (``mindgap.measures``,
``mindgap.bounds``, ``mindgap.remedies``, ``mindgap.studies``, ``mindgap.data``, ``mindgap.nets`` …). Names are loaded
when they are first used, so that ``import mindgap`` costs nothing.
"""

from __future__ import annotations

import importlib

from mindgap._version import __version__

TYPE_CHECKING = False  # type checkers know this name; importing it would cost the command line a tenth of its start

if TYPE_CHECKING:
    from typing import Any

    from mindgap.core.certificate import Certificate as Certificate
    from mindgap.core.errors import MindgapError as MindgapError
    from mindgap.core.recipe import Recipe as Recipe
    from mindgap.core.registry import catalogue as catalogue
    from mindgap.core.registry import find as find
    from mindgap.core.result import Result as Result
    from mindgap.core.subject import Subject as Subject
    from mindgap.jobs.examine import examine as examine
    from mindgap.jobs.retrain_head import retrain_head as retrain_head
    from mindgap.ops.variance_weights import VarianceWeights as VarianceWeights
    from mindgap.report import Report as Report
    from mindgap.runs import sweep as sweep
    from mindgap.training.certify import certify as certify
    from mindgap.training.ensemble import ensemble as ensemble
    from mindgap.training.fit import fit as fit
    from mindgap.training.perturbed_optimizer import PerturbedOptimizer as PerturbedOptimizer
    from mindgap.training.probe import Probe as Probe

_HOMES = {
    "Certificate": "mindgap.core.certificate",
    "MindgapError": "mindgap.core.errors",
    "PerturbedOptimizer": "mindgap.training.perturbed_optimizer",
    "Probe": "mindgap.training.probe",
    "Recipe": "mindgap.core.recipe",
    "Report": "mindgap.report",
    "Result": "mindgap.core.result",
    "Subject": "mindgap.core.subject",
    "VarianceWeights": "mindgap.ops.variance_weights",
    "catalogue": "mindgap.core.registry",
    "certify": "mindgap.training.certify",
    "ensemble": "mindgap.training.ensemble",
    "examine": "mindgap.jobs.examine",
    "find": "mindgap.core.registry",
    "fit": "mindgap.training.fit",
    "retrain_head": "mindgap.jobs.retrain_head",
    "sweep": "mindgap.runs",
}
_ROOMS = ("bounds", "data", "measures", "nets", "remedies", "studies")

__all__ = ["__version__", *_HOMES, *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"mindgap.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'mindgap' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
