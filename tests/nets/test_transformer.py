import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.nets import Transformer


def small(**options):
    torch.manual_seed(0)
    return Transformer(
        **{"vocabulary": 11, "outputs": 3, "length": 6, "width": 8, "heads": 2, **options}
    )


def reference(model, causal):
    """torch's own pre-norm layers with the same weights."""
    layers = []
    for ours in model.layers:
        theirs = nn.TransformerEncoderLayer(8, 2, 32, 0.0, batch_first=True, norm_first=True)
        theirs.self_attn.in_proj_weight.data = ours.attention.query_key_value.weight.data
        theirs.self_attn.in_proj_bias.data = ours.attention.query_key_value.bias.data
        theirs.self_attn.out_proj.load_state_dict(ours.attention.out.state_dict())
        theirs.linear1.load_state_dict(ours.mlp[0].state_dict())
        theirs.linear2.load_state_dict(ours.mlp[2].state_dict())
        theirs.norm1.load_state_dict(ours.attention_norm.state_dict())
        theirs.norm2.load_state_dict(ours.mlp_norm.state_dict())
        layers.append(theirs)
    mask = nn.Transformer.generate_square_subsequent_mask(5) if causal else None

    def run(tokens):
        vectors = model.tokens(tokens) + model.positions.weight[:5]
        for layer in layers:
            vectors = layer(vectors, src_mask=mask)
        return model.head(model.norm(vectors))

    return run


@pytest.mark.parametrize("causal", [True, False])
def test_equals_torchs_layers(causal):
    model = small(causal=causal, readout="all")
    tokens = torch.randint(11, (4, 5))
    torch.testing.assert_close(model(tokens), reference(model, causal)(tokens))


@pytest.mark.parametrize(
    ("readout", "shape"), [("last", (4, 3)), ("mean", (4, 3)), ("all", (4, 6, 3))]
)
def test_readouts(readout, shape):
    assert small(readout=readout)(torch.randint(11, (4, 6))).shape == shape


def test_decoder_does_not_see_the_future():
    model = small(causal=True, readout="all")
    one, two = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[1, 2, 9, 9]])
    torch.testing.assert_close(model(one)[:, :2], model(two)[:, :2])
    assert not torch.allclose(model(one)[:, 2:], model(two)[:, 2:])
    encoder = small(causal=False, readout="all")
    assert not torch.allclose(encoder(one)[:, :2], encoder(two)[:, :2])


@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("causal", [True, False])
def test_padding_changes_nothing(readout, causal):
    model = small(readout=readout, causal=causal, padding=0)
    torch.testing.assert_close(
        model(torch.tensor([[4, 5, 6, 0, 0]])), model(torch.tensor([[4, 5, 6]]))
    )


def test_padding_only_is_finite():
    for readout in ("last", "mean", "all"):
        assert torch.isfinite(
            small(padding=0, readout=readout)(torch.zeros(2, 4, dtype=torch.int64))
        ).all()


def test_gradients_flow():
    model = small(dropout=0.1)
    model(torch.randint(11, (64, 6))).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_per_sample_gradients_and_second_derivatives_work():
    model = small(layers=1).double()
    tokens = torch.randint(11, (3, 4))
    weights = dict(model.named_parameters())
    single = vmap(grad(lambda w, one: functional_call(model, w, (one[None],)).sum()), (None, 0))(
        weights, tokens
    )
    model(tokens).sum().backward()
    torch.testing.assert_close(single["head.weight"].sum(dim=0), model.head.weight.grad)
    bias = {"head.bias": weights["head.bias"]}
    curved = jacrev(jacrev(lambda w: functional_call(model, w, (tokens,)).square().sum()))(bias)
    torch.testing.assert_close(
        curved["head.bias"]["head.bias"], 2 * len(tokens) * torch.eye(3, dtype=torch.float64)
    )
    loss = model(tokens).square().sum()
    first = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    second = torch.autograd.grad(
        sum(part.square().sum() for part in first), list(model.parameters())
    )
    assert all(torch.isfinite(part).all() for part in second)


def test_learns_a_small_addition_table():
    pairs = torch.cartesian_prod(torch.arange(5), torch.arange(5))
    tokens, answers = torch.cat([pairs, torch.full((25, 1), 5)], dim=1), pairs.sum(dim=1) % 5
    torch.manual_seed(0)
    model = Transformer(vocabulary=6, outputs=5, length=3, width=32, heads=4, layers=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens), answers).backward()
        optimizer.step()
    assert (model(tokens).argmax(dim=1) == answers).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"heads": 3}, "width must be divisible by heads, got 8 and 3. Change one of them."),
        ({"layers": 0}, "layers must be an integer of at least 1, got 0. Raise layers."),
        ({"padding": 11}, "padding must be an integer from 0 to 10, got 11. Lower padding."),
        (
            {"dropout": 2},
            "dropout must be a number from 0 to below 1, got 2. Use 0 to switch it off.",
        ),
    ],
)
def test_bad_arguments(options, text):
    with pytest.raises(InputError) as caught:
        small(**options)
    assert str(caught.value) == text


def test_too_long_sequences():
    with pytest.raises(InputError, match=r"at most 6 steps, got \(1, 7\)"):
        small()(torch.zeros(1, 7, dtype=torch.int64))


def test_misspelled_readout():
    with pytest.raises(UnknownNameError, match="Did you mean 'mean'"):
        small(readout="maen")
