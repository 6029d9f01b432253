"""Brute force: what the measures and bounds should give, written as slowly and plainly as possible, in NumPy."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import layer_matrices
import numpy as np
import torch
from scipy import optimize, special, stats
from torch import nn

from mindgap.core.subject import Subject


def outputs(subject: Subject, which: str) -> np.ndarray:
    """One sample at a time through the model."""
    split = subject.train if which == "train" else subject.test
    mode = subject.model.training
    subject.model.eval()
    rows = []
    with torch.no_grad():
        for place in range(len(split)):
            batch = split.take(torch.tensor([place]))
            given = batch.inputs
            output = subject.model(**given) if isinstance(given, dict) else subject.model(*given)
            rows.append(output[0].double().numpy())
    subject.model.train(mode)
    return np.array(rows)


def sample_losses(subject: Subject, which: str) -> np.ndarray:
    split = subject.train if which == "train" else subject.test
    targets = split.targets.numpy()
    losses = []
    for output, target in zip(outputs(subject, which), targets, strict=True):
        if subject.task == "classification":
            losses.append(
                math.log(sum(math.exp(z - output.max()) for z in output))
                + output.max()
                - output[target]
            )
        elif subject.task == "multilabel":
            losses.append(float(np.mean(np.logaddexp(0, output) - target * output)))
        elif "uber" in subject.loss.name:
            miss = np.abs(output - target)
            losses.append(float(np.mean(np.where(miss <= 1, 0.5 * miss**2, miss - 0.5))))
        else:
            losses.append(float(np.mean((output - target) ** 2)))
    return np.array(losses)


def sample_errors(subject: Subject, which: str) -> np.ndarray:
    if subject.task == "regression":
        return sample_losses(subject, which)
    targets = (subject.train if which == "train" else subject.test).targets.numpy()
    if subject.task == "classification":
        return (outputs(subject, which).argmax(1) != targets).astype(float)
    return ((outputs(subject, which) > 0) != targets.astype(bool)).mean(1)


def gap(subject: Subject) -> float:
    return float(sample_errors(subject, "test").mean() - sample_errors(subject, "train").mean())


def weights(subject: Subject) -> np.ndarray:
    return np.concatenate([p.detach().double().numpy().ravel() for p in subject.model.parameters()])


def initial_weights(subject: Subject) -> np.ndarray:
    names = [name for name, _ in subject.model.named_parameters()]
    return np.concatenate([subject.initial[name].double().numpy().ravel() for name in names])


def margin(subject: Subject) -> float:
    logits, targets = outputs(subject, "train"), subject.train.targets.numpy()
    margins = sorted(
        row[y] - max(np.delete(row, y)) for row, y in zip(logits, targets, strict=True)
    )
    return float(np.quantile(margins, 0.1, method="inverted_cdf"))


def output_entropy(subject: Subject) -> float:
    rows = [special.softmax(row) for row in outputs(subject, "train")]
    return float(np.mean([stats.entropy(row) for row in rows]))


def binomial_tail(subject: Subject) -> float:
    wrong = int(sample_errors(subject, "test").sum())
    return float(stats.beta.ppf(0.95, wrong + 1, len(subject.test) - wrong))


def kl_inverse(subject: Subject) -> float:
    rate, budget = float(sample_errors(subject, "test").mean()), math.log(20) / len(subject.test)
    excess = lambda p: stats.entropy([rate, 1 - rate], [p, 1 - p]) - budget  # noqa: E731
    return float(optimize.brentq(excess, rate + 1e-12, 1 - 1e-12, xtol=1e-14))


def statistical_error(subject: Subject) -> float:
    return float(sample_errors(subject, "test").mean()) + math.sqrt(
        2 * math.log(40) / len(subject.test)
    )


def validation_set_guarantee(subject: Subject) -> float:
    n, price = len(subject.test), math.log(20)
    return (
        float(sample_errors(subject, "test").mean())
        + 2 * price / (3 * n)
        + math.sqrt(2 * price / n)
    )


def slope_in_cells(subject: Subject) -> float:
    """Cell by cell; the model's slope by the derivative of each grid point on its own."""
    batch = subject.train.take(torch.arange(len(subject.train)))
    order = np.argsort(batch.inputs[0].numpy().ravel())
    x, y = batch.inputs[0].numpy().ravel()[order], batch.target.numpy().ravel()[order]
    steepest = 0.0
    for value in torch.linspace(float(x[0]), float(x[-1]), 2000, dtype=torch.float64):
        point = value.reshape(1, 1).requires_grad_()
        (slope,) = torch.autograd.grad(subject.model(point).sum(), point)
        steepest = max(steepest, abs(float(slope)))
    total, slopes = 0.0, np.abs(np.gradient(y, x))
    for place in range(len(x)):
        left = (x[place] - x[place - 1]) / 2 if place else 0.0
        right = (x[place + 1] - x[place]) / 2 if place + 1 < len(x) else 0.0
        total += (slopes[place] + steepest) ** 2 * (left**3 + right**3) / 3
    return total / (x[-1] - x[0])


def noisy_train_error(subject: Subject) -> float:
    """A copy of the model for each of the 200 draws; the mean, and what 200 draws leave open at 0.005."""
    source, rates = torch.Generator().manual_seed(0), []
    batch = subject.train.take(torch.arange(len(subject.train)))
    given, truth = batch.inputs, batch.target.numpy()
    for _ in range(200):
        model = copy.deepcopy(subject.model).eval()
        noise = 0.05 * torch.randn(len(weights(subject)), generator=source, dtype=torch.float64)
        with torch.no_grad():
            nn.utils.vector_to_parameters(
                nn.utils.parameters_to_vector(model.parameters()) + noise, model.parameters()
            )
            answer = (model(**given) if isinstance(given, dict) else model(*given)).numpy()
        wrong = (
            answer.argmax(1) != truth
            if subject.task == "classification"
            else (answer > 0) != truth.astype(bool)
        )
        rates.append(wrong.mean())
    return kl_upper(float(np.mean(rates)), math.log(1 / 0.005) / 200)


def kl_upper(rate: float, budget: float) -> float:
    """The upper end of the kl ball, solved for x = -ln(1 - p), which keeps its digits near p = 1."""
    own = special.xlogy(rate, rate) + special.xlogy(1 - rate, 1 - rate)
    excess = lambda x: own - special.xlogy(rate, -np.expm1(-x)) + (1 - rate) * x - budget  # noqa: E731
    return float(
        -np.expm1(-optimize.brentq(excess, -math.log1p(-rate) + 1e-15, 1e7, xtol=1e-15, rtol=1e-14))
    )


def pac_bayes(right_side: Callable[[float, float, int], float]) -> Callable[[Subject], float]:
    """A PAC-Bayes bound from its right side for delta = 0.045: training error, divergence, samples."""

    def value(subject: Subject) -> float:
        kl = float(((weights(subject) - initial_weights(subject)) ** 2).sum() / (2 * 0.05**2))
        return right_side(noisy_train_error(subject), kl, len(subject.train))

    return value


def largest_moment(n: int) -> float:
    """Maurer's ξ(n), the mean of exp(n kl) at its worst, summed over the binomial distributions."""
    k = np.arange(n + 1)
    return float(stats.binom.pmf(k, n, k / n).sum())


def pac_bayes_kl(rate: float, kl: float, n: int) -> float:
    return kl_upper(rate, (kl + math.log(largest_moment(n) / 0.045)) / n)


def pac_bayes_mixture(rate: float, kl: float, n: int) -> float:
    tilts = [0.05 * 1.5**step for step in range(9)]

    def excess(p: float) -> float:
        members = [n * (-tilt * rate - math.log(1 - p + p * math.exp(-tilt))) for tilt in tilts]
        members.append(
            n * stats.entropy([rate, 1 - rate], [p, 1 - p]) - math.log(largest_moment(n))
        )
        return float(special.logsumexp(members)) - math.log(10 / 0.045) - kl

    if excess(1 - 1e-12) < 0:  # a divergence so large that no risk is excluded
        return 1.0
    return float(optimize.brentq(excess, rate + 1e-15, 1 - 1e-12, xtol=1e-15, rtol=1e-14))


def pac_bayes_quadratic(rate: float, kl: float, n: int) -> float:
    half = (kl + math.log(largest_moment(n) / 0.045)) / (2 * n)
    return float(
        max(np.roots([1, -2 * math.sqrt(half), -rate])) ** 2
    )  # p = rate + 2 sqrt(half p), in sqrt(p)


def pac_bayes_hoeffding(rate: float, kl: float, n: int) -> float:
    price = np.log(2.0 ** np.arange(1, 31) / 0.045)
    eta = np.exp(np.arange(30)) * np.sqrt(2 * n * price)
    return float((rate + (kl + price) / eta + eta / (2 * n)).min())


def pac_bayes_catoni(rate: float, kl: float, n: int) -> float:
    count = 1 + math.ceil(math.log2(4 * math.sqrt(n)))
    c = 4.0 / 2 ** np.arange(count)
    return float(
        ((1 - np.exp(-c * rate - (kl + math.log(count / 0.045)) / n)) / (1 - np.exp(-c))).min()
    )


def sample_slopes(subject: Subject, place: np.ndarray) -> np.ndarray:
    """The gradient of every sample's loss on a copy of the model that stands at ``place``, one sample at a time."""
    model = copy.deepcopy(subject.model).eval()
    nn.utils.vector_to_parameters(torch.as_tensor(place), model.parameters())
    rows = []
    for number in range(len(subject.train)):
        batch = subject.train.take(torch.tensor([number]))
        given = batch.inputs
        output = model(**given) if isinstance(given, dict) else model(*given)
        slopes = torch.autograd.grad(
            subject.loss(output, batch.target).sum(), list(model.parameters())
        )
        rows.append(np.concatenate([slope.numpy().ravel() for slope in slopes]))
    return np.array(rows)


def mean_batch_square(subject: Subject, place: np.ndarray) -> np.ndarray:
    """The expected square of the gradient of 128 samples drawn with replacement."""
    slopes = sample_slopes(subject, place)
    return slopes.mean(0) ** 2 + slopes.var(0) / 128


def pacgen(subject: Subject, epsilon: float = 0.1) -> float:
    w, values = weights(subject), []
    here, radius = mean_batch_square(subject, w), 0.1 * np.abs(w) + epsilon
    for seed in range(1, 5):
        random = torch.rand(
            len(w), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        ).numpy()
        step = np.where(random < 0.5, -radius, radius)
        rho = max(np.abs(mean_batch_square(subject, w + step) - here) / np.abs(step))
        total = 0.0
        for size, bend, reach in zip(np.abs(w), here, radius, strict=True):
            total += math.log(
                (size + reach) * max(math.sqrt(bend + rho * math.sqrt(len(w)) * reach), 1 / reach)
            )
        values.append(total)
    return float(np.mean(values))


def pacgen_null(subject: Subject) -> float:
    return sum(
        math.log((abs(w) + 0.1 * abs(w) + 0.1) / (0.1 * abs(w) + 0.1)) for w in weights(subject)
    )


def hessian(subject: Subject) -> np.ndarray:
    """The whole Hessian of the mean loss: the gradient of each entry of the gradient."""
    model = copy.deepcopy(subject.model).eval()
    batch = subject.train.take(torch.arange(len(subject.train)))
    given, weights = batch.inputs, list(model.parameters())
    output = model(**given) if isinstance(given, dict) else model(*given)
    loss = subject.loss(output, batch.target).mean()
    slope = torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights, create_graph=True)])
    rows = []
    for entry in slope:
        row = torch.autograd.grad(entry, weights, retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([piece.flatten() for piece in row]).numpy())
    return np.array(rows)


def fisher_rao_norm(subject: Subject) -> float:
    w = weights(subject)
    return math.sqrt(np.mean((sample_slopes(subject, w) @ w) ** 2))


def gradient_noise(subject: Subject) -> float:
    slopes = sample_slopes(subject, weights(subject))
    return float(np.mean([np.sum((row - slopes.mean(0)) ** 2) for row in slopes]))


def worst_class_error(subject: Subject) -> float:
    wrong = sample_errors(subject, "test")
    targets = subject.test.targets.numpy()
    return max(float(wrong[targets == c].mean()) for c in set(targets.tolist()))


def train_test_overlap(subject: Subject) -> float:
    """Every test sample against every training sample, number by number."""

    def told(split: object, place: int) -> list[list[float]]:
        batch = split.take(torch.tensor([place]))
        given = list(batch.inputs.values() if isinstance(batch.inputs, dict) else batch.inputs)
        return [part.double().flatten().tolist() for part in (*given, batch.target)]

    known = [told(subject.train, place) for place in range(len(subject.train))]
    asked = [told(subject.test, place) for place in range(len(subject.test))]
    return sum(sample in known for sample in asked) / len(asked)


def local_label_variance(subject: Subject) -> float:
    """Every pair of samples, in what enters the last linear layer."""
    seen: list[np.ndarray] = []
    last = [module for module in subject.model.modules() if isinstance(module, nn.Linear)][-1]
    hook = last.register_forward_pre_hook(
        lambda _, entered: seen.append(entered[0].detach().double().numpy()[0])
    )
    outputs(subject, "train")
    hook.remove()
    features = np.array(seen)
    targets = subject.train.targets.numpy()
    if subject.task == "classification":
        targets = np.eye(targets.max() + 1)[targets]
    targets = targets.reshape(len(targets), -1)
    k, total = min(20, len(targets) // 4), 0.0
    for place in range(len(targets)):
        near = np.argsort(((features - features[place]) ** 2).sum(1))[:k]
        total += targets[near].var(0, ddof=1).sum()
    return total / len(targets)


def judged(subject: Subject) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and targets of the test data, one row per sample."""
    found = outputs(subject, "test")
    return found, subject.test.targets.numpy().reshape(len(found), -1)


def balanced_error(subject: Subject) -> float:
    logits, targets = judged(subject)
    rates = []
    for c in sorted({int(y) for y in targets[:, 0]}):
        own = [row for row, y in zip(logits, targets[:, 0], strict=True) if y == c]
        rates.append(sum(row.argmax() != c for row in own) / len(own))
    return float(np.mean(rates))


def worst_label_error(subject: Subject) -> float:
    logits, targets = judged(subject)
    return max(
        float(np.mean([(z > 0) != (y > 0.5) for z, y in zip(*columns, strict=True)]))
        for columns in zip(logits.T, targets.T, strict=True)
    )


def area_under_roc(subject: Subject) -> float:
    """Every positive sample against every negative one."""
    areas = []
    for scores, labels in zip(*(part.T for part in judged(subject)), strict=True):
        wins = [
            1.0 if plus > minus else 0.5 * (plus == minus)
            for plus in scores[labels > 0.5]
            for minus in scores[labels <= 0.5]
        ]
        areas.append(np.mean(wins))
    return float(np.mean(areas))


def r_squared(subject: Subject) -> float:
    found = [
        1 - sum((f - y) ** 2) / sum((y - y.mean()) ** 2)
        for f, y in zip(*(part.T for part in judged(subject)), strict=True)
    ]
    return float(np.mean(found))


def root_mean_squared_error(subject: Subject) -> float:
    predicted, targets = judged(subject)
    return math.sqrt(np.mean((predicted - targets) ** 2))


def vc_as_published(subject: Subject) -> float:
    count, n = len(weights(subject)), len(subject.train)
    rest = math.sqrt(count * math.log(count) / n) + math.sqrt(math.log(20) / (2 * n))
    return float(sample_errors(subject, "train").mean()) + rest


def rademacher_complexity(subject: Subject) -> float:
    layer = [module for module in subject.model.modules() if isinstance(module, nn.Linear)][-1]
    longest = max(math.sqrt(sum(row**2)) for row in layer.weight.detach().numpy())
    return longest * math.sqrt((last_features(subject) ** 2).sum()) / len(subject.train)


def last_features(subject: Subject) -> np.ndarray:
    """What enters the last linear layer, one sample at a time."""
    seen: list[np.ndarray] = []
    last = [module for module in subject.model.modules() if isinstance(module, nn.Linear)][-1]
    hook = last.register_forward_pre_hook(
        lambda _, entered: seen.append(entered[0].detach().double().numpy()[0])
    )
    outputs(subject, "train")
    hook.remove()
    return np.array(seen)


def davies_bouldin(subject: Subject) -> float:
    features, targets = last_features(subject), subject.train.targets.numpy()
    classes = sorted(set(targets.tolist()))
    means = {c: features[targets == c].mean(0) for c in classes}
    spread = {
        c: np.mean([np.linalg.norm(row - means[c]) for row in features[targets == c]])
        for c in classes
    }
    worst = [
        max(
            (spread[a] + spread[b]) / np.linalg.norm(means[a] - means[b]) for b in classes if b != a
        )
        for a in classes
    ]
    return float(np.mean(worst))


def neural_collapse(subject: Subject) -> float:
    """NC1 with dense covariances and a pseudo-inverse of the whole matrix."""
    features, targets = last_features(subject), subject.train.targets.numpy()
    classes = sorted(set(targets.tolist()))
    means = np.array([features[targets == c].mean(0) for c in classes])
    away = np.array(
        [row - means[classes.index(y)] for row, y in zip(features, targets, strict=True)]
    )
    within = sum(np.outer(row, row) for row in away) / len(away)
    centered = means - means.mean(0)
    between = sum(np.outer(row, row) for row in centered) / len(classes)
    return float(np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / len(classes))


def answers(subject: Subject, rows: list[torch.Tensor]) -> list[int]:
    with torch.no_grad():
        return [int(copy.deepcopy(subject.model).eval()(row[None]).argmax()) for row in rows]


def train_inputs(subject: Subject) -> torch.Tensor:
    return subject.train.take(torch.arange(len(subject.train))).inputs[0]


def mixup_consistency(subject: Subject) -> float:
    x, y = train_inputs(subject), subject.train.targets.tolist()
    pairs = [(i, j) for j in range(len(y)) for i in range(j) if y[i] == y[j]]
    found = answers(subject, [0.5 * x[i] + 0.5 * x[j] for i, j in pairs])
    return float(np.mean([own == y[i] for own, (i, _) in zip(found, pairs, strict=True)]))


def augmentation_consistency(subject: Subject) -> float:
    """Pixel by pixel; a pixel from outside is the nearest one inside."""
    images, same = train_inputs(subject), []
    high, wide = images.shape[2:]
    before = answers(subject, list(images))
    for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        moved = torch.empty_like(images)
        for row in range(high):
            for column in range(wide):
                source = min(max(row - down, 0), high - 1), min(max(column - right, 0), wide - 1)
                moved[:, :, row, column] = images[:, :, source[0], source[1]]
        after = answers(subject, list(moved))
        same += [one == other for one, other in zip(before, after, strict=True)]
    return float(np.mean(same))


def prediction_depth(subject: Subject) -> float:
    """Sample by sample: the vote of the nearest 12 of 48, in what enters each layer."""
    kinds = (nn.Linear, nn.Conv2d)
    layers = [module for module in subject.model.modules() if isinstance(module, kinds)]
    seen: dict[int, list[np.ndarray]] = {place: [] for place in range(len(layers))}
    hooks = [
        layer.register_forward_pre_hook(
            lambda _, entered, place=place: seen[place].append(entered[0].double().numpy().ravel())
        )
        for place, layer in enumerate(layers)
    ]
    last = outputs(subject, "train")
    for hook in hooks:
        hook.remove()
    spaces = [np.array(seen[place]) for place in range(len(layers))] + [last]
    targets, k, depths = subject.train.targets.numpy(), len(last) // 4, []
    for place in range(len(last)):
        depth = len(spaces)
        for number in reversed(range(len(spaces))):
            away = np.linalg.norm(spaces[number] - spaces[number][place], axis=1)
            away[place] = np.inf
            votes = np.bincount(targets[np.argsort(away)[:k]])
            if votes.argmax() != last[place].argmax():
                break
            depth = number
        depths.append(depth)
    return float(np.mean(depths))


def power_law_exponent(subject: Subject) -> float:
    """Every tail on its own, its distance by SciPy."""
    exponents = []
    for weight in subject.model.parameters():
        if weight.ndim < 2 or min(weight.flatten(1).shape) < 4:
            continue
        values = np.linalg.svd(weight.detach().numpy().reshape(len(weight), -1), compute_uv=False)
        best = (np.inf, 0.0)
        for size in range(max(3, len(values) // 10), len(values) + 1):
            tail = np.sort(values**2)[::-1][:size]
            alpha = 1 + size / np.log(tail / tail[-1]).sum()
            law = stats.pareto(alpha - 1, scale=tail[-1])
            best = min(best, (float(stats.kstest(tail, law.cdf).statistic), alpha))
        exponents.append(best[1])
    return float(np.mean(exponents))


def compression(subject: Subject) -> float:
    """Cushions sample by sample, with Jacobians by automatic differentiation."""
    if hasattr(subject.model, "body"):
        return _compression_of_convolution(subject)
    layers = [module for module in subject.model.modules() if isinstance(module, nn.Linear)]
    between = lambda i, j: lambda x: _through(layers[i + 1 : j + 1], x)  # noqa: E731
    mu, minimal, contraction = [], [], 1.0
    rows = [[row.flatten() for row in _passed(layers, x.flatten())] for x in train_inputs(subject)]
    for i, layer in enumerate(layers):
        own, later = [], [len(layer.weight) ** -0.5]
        for x, row in zip(train_inputs(subject), rows, strict=True):
            given = x.flatten() if i == 0 else row[i - 1].relu()
            own.append(float(row[i].norm() / (layer.weight.detach().norm() * given.norm())))
            for j in range(i + 1, len(layers)):
                slope = torch.autograd.functional.jacobian(between(i, j), row[i])
                later.append(float(row[j].norm() / (slope.norm() * row[i].norm())))
            if i + 1 < len(layers):
                contraction = max(contraction, float(row[i].norm() / row[i].relu().norm()))
        mu.append(min(own))
        minimal.append(min(later))
    total = sum(1 / (one * two) ** 2 for one, two in zip(mu, minimal, strict=True))
    return (contraction * len(layers)) ** 2 * total


def _compression_of_convolution(subject: Subject) -> float:
    """Both layers of the case with a convolution as explicit matrices, pooling in between."""
    model = copy.deepcopy(subject.model).eval().requires_grad_(requires_grad=False)
    first, behind = model.body[:2], nn.Sequential(model.body[2:], model.head[:2])
    slope = lambda function, x: torch.autograd.functional.jacobian(  # noqa: E731
        lambda x: function(x[None])[0], x
    )
    mu, minimal, contraction = [[], []], [[], [3**-0.5]], 1.0
    for x in train_inputs(subject):
        one = first(x[None])[0]
        given = behind(one[None])[0]
        two = model.head[2](given)
        mu[0].append(float(one.norm() / (slope(first, x).norm() * x.norm())))
        mu[1].append(float(two.norm() / (model.head[2].weight.norm() * given.norm())))
        through = slope(nn.Sequential(behind, model.head[2]), one)
        minimal[0] += [one.numel() ** -0.5, float(two.norm() / (through.norm() * one.norm()))]
        contraction = max(contraction, float(one.norm() / given.norm()))
    return (2 * contraction) ** 2 * sum(
        1 / (min(m) * min(n)) ** 2 for m, n in zip(mu, minimal, strict=True)
    )


def _passed(layers: list[nn.Linear], x: torch.Tensor) -> list[torch.Tensor]:
    found = [layers[0](x).detach()]
    for layer in layers[1:]:
        found.append(layer(found[-1].relu()).detach())
    return found


def _through(layers: list[nn.Linear], x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = layer(x.relu())
    return x


REFERENCES: dict[str, Callable[[Subject], float]] = {
    "gap": gap,
    "training-loss": lambda subject: float(sample_losses(subject, "train").mean()),
    "parameter-count": lambda subject: float(len(weights(subject))),
    "parameter-norm": lambda subject: float(np.linalg.norm(weights(subject))),
    "distance-from-initialization": lambda s: float(
        np.linalg.norm(weights(s) - initial_weights(s))
    ),
    "margin": margin,
    "inverse-margin": lambda subject: margin(subject) ** -2,
    "normalized-margin": lambda s: layer_matrices.normalized_margin(s, margin(s)),
    "output-entropy": output_entropy,
    "product-of-spectral-norms": lambda s: layer_matrices.product(s, layer_matrices.spectral),
    "product-of-frobenius-norms": lambda s: layer_matrices.product(s, layer_matrices.frobenius),
    "sum-of-spectral-norms": lambda s: layer_matrices.balanced_sum(s, layer_matrices.spectral),
    "sum-of-frobenius-norms": lambda s: layer_matrices.balanced_sum(s, layer_matrices.frobenius),
    "frobenius-over-spectral": layer_matrices.stable_ranks,
    "spectral-distance": layer_matrices.spectral_distance,
    "spectral-complexity": layer_matrices.spectral_complexity,
    "path-norm": layer_matrices.path_norm,
    "davies-bouldin": davies_bouldin,
    "neural-collapse": neural_collapse,
    "mixup-consistency": mixup_consistency,
    "augmentation-consistency": augmentation_consistency,
    "prediction-depth": prediction_depth,
    "power-law-exponent": power_law_exponent,
    "compression": compression,
    "hardest-samples": lambda subject: float(sample_losses(subject, "test").max()),
    "local-label-variance": local_label_variance,
    "train-test-overlap": train_test_overlap,
    "worst-class-error": worst_class_error,
    "worst-label-error": worst_label_error,
    "balanced-error": balanced_error,
    "area-under-roc": area_under_roc,
    "r-squared": r_squared,
    "root-mean-squared-error": root_mean_squared_error,
    "pacgen": pacgen,
    "pacgen-null": pacgen_null,
    "hessian-trace": lambda subject: float(np.trace(hessian(subject))),
    "largest-hessian-eigenvalue": lambda subject: float(np.linalg.eigvalsh(hessian(subject))[-1]),
    "fisher-rao-norm": fisher_rao_norm,
    "gradient-noise": gradient_noise,
    "slope-in-cells": slope_in_cells,
    "binomial-tail": binomial_tail,
    "kl-inverse": kl_inverse,
    "statistical-error": statistical_error,
    "validation-set-guarantee": validation_set_guarantee,
    "vc-as-published": vc_as_published,
    "rademacher-complexity": rademacher_complexity,
    "pac-bayes-kl": pac_bayes(pac_bayes_kl),
    "pac-bayes-mixture": pac_bayes(pac_bayes_mixture),
    "pac-bayes-quadratic": pac_bayes(pac_bayes_quadratic),
    "pac-bayes-hoeffding": pac_bayes(pac_bayes_hoeffding),
    "pac-bayes-catoni": pac_bayes(pac_bayes_catoni),
}
