"""Optimizers with non-diagonal preconditioners: Shampoo and K-FAC, in their plainest form."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mindgap.core import InputError, implements, integer, number, rate, validated


@implements("E4", cites=("gupta2018shampoo",))
@validated
class Shampoo(torch.optim.Optimizer):
    r"""Shampoo: a preconditioner for every dimension of every tensor.

    Formula: $W \leftarrow W - \eta L^{-1/4} G R^{-1/4}, \quad L = \epsilon I + \sum_t G_t
    G_t^\top, \quad R = \epsilon I + \sum_t G_t^\top G_t$

    Reading: AdaGrad with full matrices would need a matrix as large as the square of the number of
    weights. Shampoo replaces it by a Kronecker product of small ones. A tensor of order k takes k
    matrices to the power -1/(2k).

    Assumes: Dimensions above ``largest`` are left alone, as an embedding's words, and do not count
    in k.

    Args:
        params: The parameters, as for any torch optimizer.
        lr: The learning rate η.
        momentum: Share of the last step that is taken again.
        epsilon: Start ε of every matrix.
        refresh: Steps after which the roots are computed again.
        largest: The largest dimension that gets a matrix.

    >>> weight = nn.Parameter(torch.ones(2, 3))
    >>> optimizer = Shampoo([weight], lr=1.0, epsilon=1e-8)
    >>> weight.grad = torch.tensor([[2.0, 0, 0], [0, 0, 0]])
    >>> optimizer.step()
    >>> weight[0].round(decimals=4).tolist()  # AdaGrad's first step: one learning rate
    [0.0, 1.0, 1.0]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.1,
        momentum: float = 0.9,
        epsilon: float = 1e-4,
        refresh: int = 10,
        largest: int = 512,
    ) -> None:
        number("lr", lr, 0)
        rate("momentum", momentum)
        number("epsilon", epsilon, 0)
        integer("refresh", refresh)
        integer("largest", largest)
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "epsilon": epsilon,
                "refresh": refresh,
                "largest": largest,
            },
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step with the gradients that ``backward`` left."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, group)
        return loss

    def _step(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        wanted = [axis for axis, size in enumerate(gradient.shape) if 1 < size <= group["largest"]]
        if not state:
            state["step"] = 0
            state["sums"] = {
                axis: _scaled_identity(gradient, axis, group["epsilon"]) for axis in wanted
            }
        for axis in wanted:
            rows = gradient.movedim(axis, 0).reshape(gradient.shape[axis], -1)
            state["sums"][axis] += rows @ rows.T
        if state["step"] % group["refresh"] == 0:
            power = -1 / (2 * max(len(wanted), 1))
            state["roots"] = {axis: symmetric_power(state["sums"][axis], power) for axis in wanted}
        state["step"] += 1
        direction = gradient
        for axis in wanted:
            direction = torch.tensordot(
                direction, state["roots"][axis], dims=([axis], [0])
            ).movedim(-1, axis)
        _move(parameter, direction, state, group)


def _scaled_identity(like: Tensor, axis: int, scale: float) -> Tensor:
    return scale * torch.eye(like.shape[axis], dtype=like.dtype, device=like.device)


def _move(
    parameter: Tensor, direction: Tensor, state: dict[str, Any], group: dict[str, Any]
) -> None:
    if group["momentum"]:
        direction = state.get("velocity", 0) * group["momentum"] + direction
        state["velocity"] = direction
    parameter.sub_(direction, alpha=group["lr"])


def symmetric_power(matrix: Tensor, power: float) -> Tensor:
    """Raise a symmetric positive definite matrix to a power, in double precision.

    Args:
        matrix: The matrix; eigenvalues below the rounding errors of the largest count as such.
        power: The exponent.

    >>> symmetric_power(torch.tensor([[4.0, 0.0], [0.0, 16.0]]), -0.5).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    values, vectors = torch.linalg.eigh(matrix.double())
    floor = values[-1] * len(values) * torch.finfo(matrix.dtype).eps
    found: Tensor = (vectors * values.clamp(min=float(floor)) ** power) @ vectors.T
    return found.to(matrix.dtype)


@implements("E4", cites=("martens2015optimizing", "grosse2016kronecker"))
@validated
class KFAC(torch.optim.Optimizer):
    r"""K-FAC: natural-gradient steps with a Kronecker-factored Fisher matrix by layer.

    Formula: $\Delta W = -\eta (G + \sqrt{\lambda} / \pi\, I)^{-1} \nabla_W L (A + \pi
    \sqrt{\lambda}\, I)^{-1}, \quad A = \mathbb{E}\, a a^\top, \; G = \mathbb{E}\, g g^\top$

    Reading: a is the input of a layer with a one for the bias; g is the derivative of the loss at its output, for
    labels drawn from the model's own prediction, so that this is the Fisher matrix and not its
    empirical surrogate. Positions of a convolution and tokens of a sequence count as samples of g
    and are summed in A. π balances the damping by the traces of A and G.

    Assumes: Linear and ``Conv2d`` layers without groups; other parameters take a step of the same
    length along their gradient. The outputs are logits of classes. Call :meth:`observe` with them before ``backward``.

    Args:
        model: The model.
        lr: The learning rate η.
        momentum: Share of the last step that is taken again.
        damping: The damping λ.
        decay: Share of A and G that stays at an update.
        refresh: Steps after which A, G and their inverses are computed again.
        seed: Seed of the drawn labels.

    >>> model = nn.Linear(2, 3)
    >>> optimizer = KFAC(model, lr=0.1)
    >>> logits = model(torch.eye(2))
    >>> optimizer.observe(logits)
    >>> nn.functional.cross_entropy(logits, torch.tensor([0, 1])).backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float = 0.03,
        momentum: float = 0.9,
        damping: float = 0.03,
        decay: float = 0.95,
        refresh: int = 10,
        seed: int = 0,
    ) -> None:
        number("lr", lr, 0)
        rate("momentum", momentum)
        number("damping", damping, 0)
        rate("decay", decay)
        integer("refresh", refresh)
        layers = [one for one in model.modules() if isinstance(one, nn.Linear | nn.Conv2d)]
        if any(isinstance(one, nn.Conv2d) and one.groups > 1 for one in layers):
            raise InputError(
                "K-FAC must have convolutions without groups, got one with groups. Use Shampoo."
            )
        super().__init__(
            model.parameters(),
            {
                "lr": lr,
                "momentum": momentum,
                "damping": damping,
                "decay": decay,
                "refresh": refresh,
            },
        )
        self._layers, self._steps = layers, 0
        self._draw = torch.Generator().manual_seed(integer("seed", seed, 0))
        self._seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self._factors: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self._inverses: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self._hooks: list[RemovableHandle] = [
            one.register_forward_hook(self._keep) for one in layers
        ]

    def _keep(self, layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        if output.requires_grad and self._steps % self.defaults["refresh"] == 0:
            self._seen[layer] = (given[0].detach(), output)

    def close(self) -> None:
        """Take the hooks off the model."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def observe(self, logits: Tensor) -> None:
        """Update A and G with labels drawn from the model, where this step refreshes them.

        Args:
            logits: The outputs of the forward pass whose loss is minimized, one row per sample.
        """
        if self._steps % self.defaults["refresh"]:
            return
        drawn = torch.multinomial(logits.detach().softmax(-1), 1, generator=self._draw)[:, 0]
        loss = nn.functional.cross_entropy(logits, drawn, reduction="sum")
        layers = list(self._seen)
        slopes = torch.autograd.grad(
            loss, [self._seen[one][1] for one in layers], retain_graph=True
        )
        for layer, slope in zip(layers, slopes, strict=True):
            self._update(layer, *kronecker_factors(layer, self._seen[layer][0], slope))
        self._seen.clear()

    def _update(self, layer: nn.Module, inputs: Tensor, slopes: Tensor) -> None:
        decay = self.defaults["decay"]
        if layer in self._factors:
            before = self._factors[layer]
            inputs, slopes = (
                decay * old + (1 - decay) * new
                for old, new in zip(before, (inputs, slopes), strict=True)
            )
        self._factors[layer] = (inputs, slopes)
        self._inverses[layer] = damped_inverses(inputs, slopes, self.defaults["damping"])

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step with the gradients that ``backward`` left."""
        if closure is not None or not self._inverses:
            raise InputError(
                "K-FAC must observe the outputs before a step, got none. Call observe(logits)."
            )
        group = self.param_groups[0]
        own: set[nn.Parameter] = set()
        for layer, (inputs, slopes) in self._inverses.items():
            weight, bias = layer.weight, layer.bias
            assert isinstance(weight, nn.Parameter)
            if weight.grad is None:
                continue
            columns = [weight.grad.flatten(1)] + ([] if bias is None else [bias.grad[:, None]])  # type: ignore[index]
            found = slopes @ torch.cat(columns, 1) @ inputs
            width = weight.grad.flatten(1).shape[1]
            _move(weight, found[:, :width].view_as(weight), self.state[weight], group)
            own.add(weight)
            if isinstance(bias, nn.Parameter):
                _move(bias, found[:, width], self.state[bias], group)
                own.add(bias)
        for parameter in group["params"]:
            if parameter not in own and parameter.grad is not None:
                _move(parameter, parameter.grad, self.state[parameter], group)
        self._steps += 1


def kronecker_factors(layer: nn.Module, inputs: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Return A and G of a layer: means over samples; positions are summed in A and averaged in G.

    Args:
        layer: A linear layer or a convolution.
        inputs: Its inputs, one sample per row.
        slopes: Derivatives of the summed losses at its outputs.

    >>> a, g = kronecker_factors(nn.Linear(1, 1), torch.tensor([[2.0], [4.0]]), torch.ones(2, 1))
    >>> a.tolist(), g.tolist()
    ([[10.0, 3.0], [3.0, 1.0]], [[1.0]])
    """
    samples = len(inputs)
    if isinstance(layer, nn.Conv2d):
        inputs = _patches(layer, inputs)
        slopes = slopes.flatten(2).mT
    rows, derivatives = inputs.flatten(0, -2), slopes.flatten(0, -2)
    if layer.bias is not None:
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
    return rows.T @ rows / samples, derivatives.T @ derivatives / len(derivatives)


def _patches(layer: nn.Conv2d, images: Tensor) -> Tensor:
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise InputError(
            f"K-FAC must have convolutions padded by a number of zeros, got {layer.padding!r} "
            f"({layer.padding_mode}). Use Shampoo."
        )
    columns = nn.functional.unfold(
        images,
        layer.kernel_size,
        layer.dilation,
        layer.padding,
        layer.stride,
    )
    return columns.mT


def damped_inverses(inputs: Tensor, slopes: Tensor, damping: float) -> tuple[Tensor, Tensor]:
    """Invert A and G with their shares of the damping.

    Args:
        inputs: The factor A.
        slopes: The factor G.
        damping: λ, divided between both by the square root of the ratio of their mean eigenvalues.
    """
    means = [float(one.diagonal().mean()) for one in (inputs, slopes)]
    balance = math.sqrt(means[0] / means[1]) if min(means) > 0 else 1.0
    root = math.sqrt(damping)
    shares = (balance * root, root / balance)
    first, second = (
        torch.linalg.inv(one.double() + share * torch.eye(len(one), dtype=torch.float64)).to(
            one.dtype
        )
        for one, share in zip((inputs, slopes), shares, strict=True)
    )
    return first, second
