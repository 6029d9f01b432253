"""The README's code and commands run as printed; the installation page names every extra."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
YOURS = """
from pathlib import Path

import numpy as np
import torch

import mindgap
from mindgap import data

torch.manual_seed(0)
digits = data.load("digits")
(x_train, y_train), (x_test, y_test) = digits.train, digits.test
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
np.savez("data.npz", x=x_train.flatten(1).numpy(), y=y_train.numpy())
Path("sim").write_text("#!/bin/sh\\necho $1\\n")
Path("sim").chmod(0o755)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with mindgap.Monitor(model, log="run.jsonl", every=1) as monitor:
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x_train), y_train)
        loss.backward()
        optimizer.step()
        monitor.step(loss)
torch.save(model.state_dict(), "model.pt")
"""
MODEL_FILE = """
import torch

import mindgap


def make_subject():
    digits = mindgap.data.load("digits").subset(300, seed=0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    model.load_state_dict(torch.load("model.pt"))
    return mindgap.Subject(model, "cross_entropy", train=digits.train, test=digits.test)
"""


@pytest.fixture(scope="module")
def snippets() -> ModuleType:
    path = ROOT / "docs" / "_ext" / "snippets.py"
    spec = importlib.util.spec_from_file_location("readme_snippets", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_readme_runs_as_printed(snippets: ModuleType) -> None:
    """What the README calls yours is made first; the study is run in its tiny form."""
    model_file = f"```{{code-block}} python\n:caption: my_model.py\n\n{MODEL_FILE}```\n"
    shown = re.sub(r"(mindgap run batch-size-gap)", r"\1 --tiny", README)
    printed = snippets.outputs(f"```python\n{YOURS}```\n{model_file}\n{shown}")
    assert len(printed) == 4
    report, commands = printed[2:]
    assert "The gap between test and training error" in report
    assert "binomial-tail" in commands
    assert "Batch size against generalization gap" in commands


def test_every_command_is_shown_with_what_it_does() -> None:
    (block,) = re.findall(r"^```bash\n(.*?)^```$", README, re.M | re.S)
    assert all(re.fullmatch(r"mindgap [a-z-]+ .*# \S.*", line) for line in block.splitlines())


def test_the_installation_page_names_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", page, re.M))))
    assert named == set(project["optional-dependencies"])
