"""Trial id: equal if and only if the same code would do the same work."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from mindgap.core.errors import InputError
from mindgap.core.study import Study, Trial
from mindgap.runs.code import bytecode, code_version, reachable
from mindgap.runs.plain import canonical

_LARGEST_SEED = 2**63 - 1


def trial_id(study: Study, trial: Trial) -> str:
    """Hash of the study's family, name and fields, the trial's parameters and seed, and the version of the code."""
    return trial_ids(study, [trial])[0]


def trial_ids(study: Study, trials: list[Trial]) -> list[str]:
    """The ids of many trials; the code is read once."""
    head = [study.family, study.name, fields_of(study), version_of(study)]
    return [_digest([*head, parameters_of(trial), seed_of(trial)]) for trial in trials]


def version_of(study: Study) -> str:
    """The version of the code that a study runs."""
    module = type(study).__module__
    return code_version(module) if reachable(module) else code_version(module) + bytecode(type(study))


def fields_of(study: Study) -> str:
    """The study's fields as canonical JSON."""
    return canonical(study.parameters, f"field of {study.name}")


def parameters_of(trial: Trial) -> str:
    """The trial's parameters as canonical JSON."""
    if not isinstance(trial.parameters, Mapping):
        raise InputError(
            f"The parameters of a trial must be a mapping from names to plain data, got "
            f"{type(trial.parameters).__name__}. Pass Trial(parameters={{'name': value}})."
        )
    return canonical(trial.parameters, "trial parameter")


def seed_of(trial: Trial) -> int:
    """The seed as a plain integer of 64 bits."""
    seed: Any = trial.seed
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or not 0 <= int(seed) <= _LARGEST_SEED:
        raise InputError(f"The seed of a trial must be an integer from 0 to 2**63 - 1, got {seed!r}. Pass such a one.")
    return int(seed)


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:32]
