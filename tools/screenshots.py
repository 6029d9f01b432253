"""Make a page of every kind from small real inputs, and take a picture of its first screen.

``make screenshots`` writes docs/images/KIND.png with headless Chromium. With a folder as argument
the pages are kept there; further arguments are the kinds to make.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import mindgap
from mindgap import Recipe
from mindgap.core import parsed, unworded
from mindgap.data import digits, with_label_noise
from mindgap.nets import MLP
from mindgap.report import study_page
from mindgap.report.improved import Improved
from mindgap.report.pages.certificate import certificate_page
from mindgap.runs.results import checked_results
from mindgap.sampling import Box
from mindgap.training.fitted import Fitted

ROOT = Path(__file__).resolve().parent.parent
RESULTS, IMAGES = ROOT / "docs" / "results", ROOT / "docs" / "images"
WIDTH, HEIGHT = 1200, 1200
OFF = ("gpu", "quic", "background-networking", "component-update", "sync", "extensions")


def perceptron(width: int = 64) -> nn.Module:
    """Two layers for the digits."""
    return MLP((64, width, 10))


def ring(points: Tensor) -> Tensor:
    """Flat but for a steep ring: where to evaluate next is plain to see."""
    return torch.tanh(12 * (points.square().sum(1) - 0.5))


class Pages:
    """Every kind of page, made from real inputs.

    Args:
        folder: Where inputs that must be files are kept.
        small: Whether to take so little that a test can afford it.
    """

    def __init__(self, folder: Path, small: bool = False) -> None:
        self.folder, self.small = folder, small

    def recipe(self, width: int = 64, epochs: int = 40) -> Recipe:
        """A network on digits of which a tenth carries a wrong label."""
        whole = digits().subset(200) if self.small else digits()
        data, _ = with_label_noise(whole, 0.1, seed=0)
        return Recipe(
            model=functools.partial(perceptron, width),
            train=data.train,
            test=data.test,
            epochs=3 if self.small else epochs,
            learning_rate=3e-3,
            classes=data.classes,
            name=f"{width} hidden units on digits",
        )

    @functools.cached_property
    def fitted(self) -> Fitted:
        """The network of most pages."""
        return mindgap.fit(self.recipe())

    @functools.cached_property
    def narrow(self) -> Fitted:
        """Another one, to compare it with."""
        return mindgap.fit(self.recipe(width=8))

    @property
    def measures(self) -> Mapping[str, Any]:
        """What a test can afford of measures and diagnoses."""
        few = ["gap", "hardest-samples", "margin", "parameter-norm", "worst-class-error"]
        return {"measures": few, "diagnoses": ["wrong-labels"], "hardest": 4} if self.small else {}

    def examine(self, path: Path) -> None:
        """A verdict on one network."""
        mindgap.examine(self.fitted, **self.measures).save(path)

    def compare(self, path: Path) -> None:
        """Two networks side by side."""
        settings = {name: value for name, value in self.measures.items() if name != "hardest"}
        mindgap.compare([self.fitted, self.narrow], **settings).save(path)

    def improve(self, path: Path) -> None:
        """A race of remedies."""
        few = {"remedies": ["weight-decay", "label-smoothing"]} if self.small else {}
        recipe = self.recipe(epochs=12)
        store = self.folder / "runs.sqlite"
        found: Improved = mindgap.improve(recipe, trainings=40, workers=1, store=store, **few)
        found.save(path)

    def certify(self, path: Path) -> None:
        """A certificate with a learned prior."""
        few = {"draws": 500} if self.small else {}
        found = mindgap.certify(self.recipe(epochs=10), **few)
        certificate_page(found, path)

    def weigh(self, path: Path) -> None:
        """Weights by the variance of labels."""
        data = self.recipe().train
        images = data[0].reshape(-1, 1, 8, 8).numpy()
        np.savez(self.folder / "digits.npz", x=images, y=data[1].numpy())
        mindgap.weigh(self.folder / "digits.npz", k=10).save(path)

    def sample(self, path: Path) -> None:
        """Points where a function changes, compared with uniform ones."""
        count = 12 if self.small else 64
        found = mindgap.sample(
            ring,
            Box([-1.0, -1.0], [1.0, 1.0]),
            initial=count,
            new=count,
            rounds=4,
            compare=count + count // 4,
            differentiable=True,
        )
        found.save(path, source="a steep ring")

    def attack(self, path: Path) -> None:
        """Predictions under attack."""
        few = {"samples": 20, "steps": 2, "black_box": False} if self.small else {"samples": 300}
        mindgap.attack(self.fitted, **few).save(path)

    def lipschitz(self, path: Path) -> None:
        """Both bounds and certified radii."""
        few = {"samples": 20, "steps": 2, "ascent": 3} if self.small else {"local": 20}
        mindgap.lipschitz(self.fitted, **few).save(path)

    def initialize(self, path: Path) -> None:
        """Signals that vanish in weights three times too small, and schemes that keep them."""
        model = MLP((64, *[64] * (4 if self.small else 15), 10), bias=False)
        for weight in model.parameters():
            torch.nn.init.kaiming_normal_(weight, generator=torch.Generator().manual_seed(0))
            weight.data /= 3
        data, name = self.recipe().train, "16 layers, weights three times too small"
        start = mindgap.Subject(model, "cross_entropy", data, initial=model.state_dict(), name=name)
        mindgap.initialize(start).save(path)

    def landscape(self, path: Path) -> None:
        """The loss around the weights."""
        few = {"points": 5, "samples": 50} if self.small else {"points": 25, "samples": 500}
        mindgap.landscape(self.fitted, **few).save(path)

    def monitor(self, path: Path) -> None:
        """A training whose gradient vanishes."""
        data = digits()
        inputs, targets = data.train[0].flatten(1), data.train[1]
        torch.manual_seed(0)
        layers = [nn.Linear(64, 32), nn.Sigmoid()]
        layers += [layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.Sigmoid())]
        model = nn.Sequential(*layers, nn.Linear(32, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with mindgap.Monitor(model, every=10) as watching:
            for step in range(30 if self.small else 200):
                rows = slice(64 * (step % 20), 64 * (step % 20) + 64)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
                loss.backward()
                optimizer.step()
                watching.step(loss)
        mindgap.monitor(watching).save(path)

    def decompose(self, path: Path) -> None:
        """Where the risk comes from."""
        names = ("draws", "restarts", "references", "large", "pool", "steps", "polish")
        numbers = (3, 1, 2, 200, 200, 20, 2) if self.small else (4, 2, 2, 1000, 1000, 400, 10)
        points = torch.zeros(20, 1)
        regression = Recipe(
            model=functools.partial(MLP, (1, 8, 1), "tanh"),
            train=(points, points),
            loss="mse",
            epochs=10,
            learning_rate=0.02,
            name="a curve with noise",
        )
        few = dict(zip(names, numbers, strict=True))
        mindgap.decompose(regression, "heteroscedastic", sizes=[10, 40], **few).save(path)

    def head(self, path: Path) -> None:
        """A last layer retrained with weights."""
        grid = {"max_weights": (2, 8), "ks": (5,)} if self.small else {}
        mindgap.choose_head(self.fitted, **grid).save(path)

    def study(self, path: Path) -> None:
        """A study of a published table."""
        kept(RESULTS / "vbsw-table-1.json", path)

    def surface(self, path: Path) -> None:
        """A study with a surface."""
        kept(RESULTS / "two-parameter-surface.json", path)

    def reproduce(self, path: Path) -> None:
        """What is reproduced."""
        mindgap.reproduce(results=os.path.relpath(RESULTS), run=False).save(path)


PICTURED = (
    *("examine", "compare", "improve", "certify", "weigh", "sample", "attack", "lipschitz"),
    *("initialize", "landscape", "monitor", "study", "reproduce"),
)
FURTHER = ("decompose", "head", "surface")  # pages without a picture in the documentation


def kept(results: Path, path: Path) -> None:
    """Draw kept results of a study."""
    study_page(checked_results(unworded(parsed(results.read_text(encoding="utf-8")))), path)


def shoot(page: Path, image: Path, browser: str) -> None:
    """Take a picture of the top of a page, in light colors."""
    with tempfile.TemporaryDirectory() as profile:
        words = ["--headless", "--no-sandbox", "--no-first-run", "--hide-scrollbars"]
        words += [*(f"--disable-{name}" for name in OFF), f"--user-data-dir={profile}"]
        words += ["--virtual-time-budget=8000", f"--window-size={WIDTH},{HEIGHT}"]
        command = [browser, *words, f"--screenshot={image}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603  (our own page)
    with Image.open(image) as picture:  # 256 colors are enough, and take half of the bytes
        picture.convert("RGB").quantize(256).save(image, optimize=True)


def main() -> None:
    """Make and picture the pages that are named, or all that the documentation shows."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if browser is None:
        raise SystemExit("Pictures need Chromium, and there is none on the PATH. Install it.")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        pages = Pages(Path(scratch))
        for kind in sys.argv[2:] or PICTURED:
            page = folder / f"{kind}.html"
            getattr(pages, kind)(page)
            if kind in PICTURED:
                shoot(page, IMAGES / f"{kind}.png", browser)
            print(kind)


if __name__ == "__main__":
    main()
