import pytest
import torch

from mindgap import examine
from mindgap.core.recipe import Recipe
from mindgap.core.subject import Subject
from mindgap.data import digits
from mindgap.nets.mlp import MLP
from mindgap.training.fit import fit

NASTY = "a <b>bold</b> </script><script>alert(1)</script> & 'name'"


MEASURES = [
    "gap",
    "hardest-samples",
    "local-label-variance",
    "margin",
    "parameter-norm",
    "training-loss",
    "worst-class-error",
]


@pytest.fixture(scope="session")
def subject():
    """Three dozen epochs on a few digits: fitted well, with a real gap and all curves."""
    data = digits().subset(200)
    recipe = Recipe(
        model=lambda: MLP(widths=(64, 32, 10)),
        train=data.train,
        test=data.test,
        epochs=25,
        learning_rate=1e-2,
        classes=data.classes,
        name=NASTY,
    )
    return fit(recipe).subject()


@pytest.fixture(scope="session")
def report(subject):
    return examine(subject, measures=MEASURES, hardest=6)


@pytest.fixture(scope="session")
def regression():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, 20, generator=generator)
    targets = inputs[:, :1] + 0.1 * torch.randn(60, 1, generator=generator)
    model = torch.nn.Linear(20, 1)
    with torch.no_grad():
        model.weight.zero_()[0, 0] = 1.0
        model.bias.zero_()
    return Subject(
        model, "mse", (inputs[:40], targets[:40]), (inputs[40:], targets[40:]), name="line"
    )
