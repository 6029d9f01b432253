"""A small transformer over tokens."""

import torch
from torch import Tensor, nn

from mindgap.core import InputError, choice, integer, rate, validated
from mindgap.nets.mlp import activation_layer

READOUTS = ("last", "mean", "all")


@validated
class Transformer(nn.Module):
    r"""Transformer of Vaswani et al. (2017) with pre-norm and learned positions.

    .. math:: x \leftarrow x + \mathrm{attention}(\mathrm{norm}\,x), \; x \leftarrow x + \mathrm{mlp}(\mathrm{norm}\,x)

    The attention is written out and not fused, so that per-sample gradients and second derivatives
    work. The default, a decoder of two layers, width 128 and four heads, is the network of Power et
    al. (2022) for modular arithmetic.

    Args:
        vocabulary: Number of tokens.
        outputs: Size of the output.
        length: The longest sequence.
        width: Size of a token's vector; must be divisible by ``heads``.
        heads: Attention heads per layer.
        layers: Number of layers.
        hidden: Size of the perceptrons' hidden layer, None for four times ``width``.
        dropout: Rate after attention and perceptron; 0 switches it off.
        activation: A name from ``mindgap.nets.ACTIVATIONS``.
        causal: Whether a token sees only itself and the tokens before it.
        readout: Read at the ``"last"`` token, at the ``"mean"`` over tokens, or at ``"all"``, one
            output per token.
        padding: Number of the token that fills up short sequences and is ignored, or None; it must
            come last.

    >>> Transformer(vocabulary=99, outputs=97, length=4)(torch.tensor([[3, 97, 5, 98]])).shape
    torch.Size([1, 97])
    """

    def __init__(
        self,
        vocabulary: int,
        outputs: int,
        length: int,
        width: int = 128,
        heads: int = 4,
        layers: int = 2,
        hidden: int | None = None,
        dropout: float = 0.0,
        activation: str = "relu",
        causal: bool = True,
        readout: str = "last",
        padding: int | None = None,
    ) -> None:
        super().__init__()
        self.length = integer("length", length)
        self.padding = (
            padding if padding is None else integer("padding", padding, 0, vocabulary - 1)
        )
        self.readout = choice("readout", readout, READOUTS)
        wide = 4 * integer("width", width) if hidden is None else integer("hidden", hidden)
        self.tokens = nn.Embedding(integer("vocabulary", vocabulary), width)
        self.positions = nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            _Layer(width, heads, wide, dropout, activation, causal)
            for _ in range(integer("layers", layers))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, integer("outputs", outputs))

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute outputs of shape (n, outputs), or (n, steps, outputs) with readout ``"all"``."""
        self._check_length(tokens)
        real = (
            torch.ones_like(tokens, dtype=torch.bool)
            if self.padding is None
            else tokens != self.padding
        )
        vectors = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            vectors = layer(vectors, real)
        outputs: Tensor = self.head(self._read(self.norm(vectors), real))
        return outputs

    def _read(self, vectors: Tensor, real: Tensor) -> Tensor:
        if self.readout == "all":
            return vectors
        counts = real.sum(dim=1, keepdim=True)
        weights = (
            real / counts.clamp(min=1)
            if self.readout == "mean"
            else real & (real.cumsum(dim=1) == counts)
        )
        return (vectors * weights.to(vectors.dtype).unsqueeze(-1)).sum(dim=1)

    def _check_length(self, tokens: Tensor) -> None:
        if tokens.ndim != 2 or tokens.shape[1] > self.length:
            raise InputError(
                f"tokens must have shape (n, steps) with at most {self.length} steps, got "
                f"{tuple(tokens.shape)}. Cut the sequences or raise length."
            )


class _Layer(nn.Module):
    """Attention and a perceptron, each added to its input."""

    def __init__(
        self, width: int, heads: int, hidden: int, dropout: float, activation: str, causal: bool
    ) -> None:
        super().__init__()
        rate("dropout", dropout)
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = _Attention(width, heads, causal)
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), activation_layer(activation), nn.Linear(hidden, width)
        )
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, vectors: Tensor, real: Tensor) -> Tensor:
        """Compute vectors of the same shape (n, steps, width); ``real`` is False at padding."""
        vectors = vectors + self.dropout(self.attention(self.attention_norm(vectors), real))
        after: Tensor = vectors + self.dropout(self.mlp(self.mlp_norm(vectors)))
        return after


class _Attention(nn.Module):
    r"""Multi-head attention :math:`\mathrm{softmax}(QK^\top/\sqrt{d})\,V`."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        if width % integer("heads", heads):
            raise InputError(
                f"width must be divisible by heads, got {width} and {heads}. Change one of them."
            )
        self.heads, self.causal = heads, causal
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, vectors: Tensor, real: Tensor) -> Tensor:
        """Compute vectors of the same shape (n, steps, width); tokens not ``real`` are ignored."""
        query, key, value = (
            self._split(part) for part in self.query_key_value(vectors).chunk(3, dim=-1)
        )
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        # The lowest finite number, not -inf: a row of padding only would otherwise become NaN.
        scores = scores.masked_fill(~self._visible(real), torch.finfo(scores.dtype).min)
        mixed = (scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(start_dim=2)
        attended: Tensor = self.out(mixed)
        return attended

    def _split(self, vectors: Tensor) -> Tensor:
        return vectors.reshape(*vectors.shape[:2], self.heads, -1).transpose(1, 2)

    def _visible(self, real: Tensor) -> Tensor:
        steps = real.shape[1]
        seen = torch.ones(steps, steps, dtype=torch.bool, device=real.device)
        return (seen.tril() if self.causal else seen) & real[:, None, None, :]
