"""Batch normalization folded: the same function, on any module, or refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from mindgap.core import InputError
from mindgap.nets import ResNet20
from mindgap.ops.norms.folding import folded


def stirred(model: nn.Module) -> nn.Module:
    """The model with statistics and affine weights that are not the initial ones."""
    torch.manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.normal_()
            module.running_var.uniform_(0.2, 3)
            if module.weight is not None:
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias)
    return model.eval()


class Branch(nn.Module):
    """The output of a layer goes into its normalization and around it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        return self.norm(x) + x


CASES = {
    "convolution without bias": (
        nn.Sequential(nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU()),
        (2, 6, 6),
        {"1": "0"},
    ),
    "dense": (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()), (3,), {"1": "0"}),
    "not affine": (
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False)),
        (3,),
        {"1": "0"},
    ),
    "behind a ReLU": (
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4)),
        (3,),
        {"2": "2"},
    ),
    "first": (nn.Sequential(nn.BatchNorm2d(2), nn.Conv2d(2, 3, 3)), (2, 6, 6), {"0": "0"}),
    "transposed": (
        nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)),
        (4, 3, 3),
        {"1": "0"},
    ),
    "sequence": (
        nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.BatchNorm1d(3)),
        (2, 6),
        {"1": "0", "2": "2"},
    ),
    "branch": (Branch(), (3,), {"norm": "norm"}),
    "weight normalization": (
        nn.Sequential(weight_norm(nn.Linear(3, 4)), nn.BatchNorm1d(4)),
        (3,),
        {"1": "0"},
    ),
    "spectral normalization, alone": (spectral_norm(nn.Conv2d(2, 3, 2)), (2, 4, 4), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_function_stays_the_same(name: str) -> None:
    model, shape, into = CASES[name]
    model = stirred(model)
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(2))
    found = folded(model, x)
    assert found.into == into
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in found.model.modules())
    other = torch.randn(7, *shape, generator=torch.Generator().manual_seed(3)).double()
    assert torch.allclose(found.model(other), model.double()(other), rtol=1e-9, atol=1e-9)


def test_a_residual_network_keeps_its_outputs() -> None:
    model = stirred(ResNet20(shortcut="B"))
    x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    found = folded(model, x)
    assert len(found.into) == 21
    assert all(norm != layer for norm, layer in found.into.items())
    assert torch.allclose(found.model(x.double()).float(), model(x), rtol=1e-3, atol=1e-3)


def test_the_model_is_not_changed() -> None:
    model = stirred(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    folded(model, torch.randn(2, 3))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert isinstance(model[1], nn.BatchNorm1d)


def test_no_statistics_are_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False))
    with pytest.raises(InputError, match="running statistics"):
        folded(model, torch.randn(2, 3))


def test_a_bare_normalization_is_refused() -> None:
    with pytest.raises(InputError, match="Wrap it in"):
        folded(nn.BatchNorm1d(3), torch.randn(2, 3))


def test_what_changes_the_function_is_refused() -> None:
    class Peeks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            extra = 0.0 if isinstance(self.norm, nn.BatchNorm1d) else 1.0
            return self.norm(x) + extra

    with pytest.raises(InputError, match="outputs then change"):
        folded(stirred(Peeks()), torch.randn(2, 3))
