"""Run the code that a finding offers to paste."""

from __future__ import annotations

import types
from typing import Any

import torch

from mindgap.core import Finding


def pasted(finding: Finding, **variables: Any) -> dict[str, Any]:
    """Run the code of the first advice among a user's variables; the finding is not made twice."""
    found = types.SimpleNamespace(diagnose=lambda *_, **__: {finding.name: finding})
    scope = {"torch": torch, "mindgap": found, "subject": None, **variables}
    exec(finding.advice[0].code, scope)
    return scope
