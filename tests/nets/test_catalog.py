import subprocess
import sys

import pytest
import torch

from mindgap import nets
from mindgap.core.errors import InputError, UnknownNameError

CASES = {
    "mlp": ({"widths": (6, 4, 2)}, torch.rand(3, 6)),
    "lenet5": ({"classes": 2}, torch.rand(3, 1, 28, 28)),
    "resnet": ({"depth": 8, "classes": 2}, torch.rand(3, 3, 8, 8)),
    "resnet20": ({"classes": 2, "width": 4}, torch.rand(3, 3, 8, 8)),
    "wide-resnet": ({"depth": 10, "factor": 1, "classes": 2}, torch.rand(3, 3, 8, 8)),
    "elman": ({"features": 4, "hidden": 3, "outputs": 2}, torch.rand(3, 5, 4)),
    "gated": ({"features": 4, "hidden": 3, "outputs": 2}, torch.rand(3, 5, 4)),
    "transformer": (
        {"vocabulary": 7, "outputs": 2, "length": 5, "width": 8},
        torch.randint(7, (3, 5)),
    ),
    "tri": ({"depth": 2}, torch.rand(3, 1).double()),
    "rect": ({"heights": (0.4, 1.3)}, torch.rand(3, 1).double()),
}


def test_every_network_has_a_case():
    assert set(CASES) == set(nets.available())


@pytest.mark.parametrize("name", sorted(CASES))
def test_builds_and_runs(name):
    options, inputs = CASES[name]
    outputs = 1 if name in ("tri", "rect") else 2
    assert nets.build(name, **options).eval()(inputs).shape == (3, outputs)


def test_names_and_options_are_checked():
    with pytest.raises(
        UnknownNameError,
        match=r"network must be one of the known names, got 'lenet'. Did you mean 'lenet5'",
    ):
        nets.build("lenet")
    with pytest.raises(UnknownNameError, match=r"option of lenet5 .* Did you mean 'classes'"):
        nets.build("lenet5", clases=3)
    with pytest.raises(InputError, match=r"must be given widths, got no option. Pass widths="):
        nets.build("mlp")


def test_import_loads_no_optional_package():
    code = "import sys, mindgap.nets, mindgap.data; print(sorted({'scipy','sklearn','plotly'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
