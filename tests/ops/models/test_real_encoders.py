"""Heads of Hugging Face's own classes."""

import pytest
import torch

from mindgap import Subject
from mindgap.jobs.head.choose import retrain_head
from mindgap.ops.models.head import find_head, head_features

transformers = pytest.importorskip("transformers", reason="the extra mindgap[hf] is not installed")
SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
ENCODERS = {
    "Bert": ("classifier", SMALL),
    "Roberta": ("classifier.out_proj", SMALL),
    "DistilBert": ("classifier", {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32}),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_head_is_found_and_trained_again(name: str) -> None:
    expected, sizes = ENCODERS[name]
    config = getattr(transformers, f"{name}Config")(vocab_size=50, num_labels=3, **sizes)
    make = getattr(transformers, f"{name}ForSequenceClassification")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make(config).eval()
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(5, 50, (40, 8), generator=random)
    data = {
        "input_ids": tokens,
        "attention_mask": torch.ones_like(tokens),
        "labels": torch.arange(40) % 3,
    }
    subject = Subject(model, "cross_entropy", data)
    assert find_head(subject, "") == expected
    features = head_features(subject, "train", expected)
    layer = model.get_submodule(expected)
    torch.testing.assert_close(layer(features), subject.outputs("train"), rtol=1e-4, atol=1e-5)
    found = retrain_head(subject, k=5, max_weight=10, l2=1e-2)
    assert found.converged
    fresh = make(config)
    fresh.load_state_dict(found.model.state_dict())
    changed = [
        key
        for key, value in model.state_dict().items()
        if not torch.equal(value, fresh.state_dict()[key])
    ]
    assert changed == [f"{expected}.weight", f"{expected}.bias"]
