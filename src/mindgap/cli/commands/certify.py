"""Certify the error of a network on unseen data by PAC-Bayes.

  mindgap certify digits --report certificate.html
  mindgap certify mnist --net lenet5 --prior-epochs 10 --draws 300000 --json > certificate.json
  mindgap certify my_model.py:make_recipe --prior initial
  mindgap certify digits --mode held-out --tried 10

The target is the name of a data set, or a function of yours that returns a mindgap.Recipe, a
mindgap.Subject with its initial weights, or a pair (subject, held-out data) whose second part the
model has never seen. The certificate holds for the stochastic classifier that is trained, which
draws new weights for every prediction, or in the other modes for fixed models; --save writes them.
Every certificate says which mode suits the problem, and why. If you tried several architectures,
seeds or settings on these data before this one, say how many with --tried.
"""

import argparse
from pathlib import Path
from typing import Any

from mindgap.cli.commands.train import add_network
from mindgap.cli.options import refuse
from mindgap.cli.output import check_page, check_writable, note, save_weights, write, write_json

SETTINGS = (
    *(
        "mode",
        "blocks",
        "prior",
        "posterior",
        "prior_share",
        "delta",
        "monte_carlo_delta",
        "scale",
        "draws",
        "floor",
    ),
    *("most_draws", "tried", "objective", "epochs", "batch_size", "learning_rate", "seed"),
)


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "target", metavar="DATA|FILE.py:FUNCTION", help="name of a data set, or a function"
    )
    group = parser.add_argument_group("network, for a named data set")
    add_network(group)
    group.add_argument(
        "--prior-epochs", type=int, metavar="N", help="epochs of the learned prior (10)"
    )
    _add_kind(parser.add_argument_group("certificate"))
    _add_confidence(parser.add_argument_group("confidence"))
    _add_training(parser.add_argument_group("training of the posterior"))
    _add_output(parser.add_argument_group("output"))


def _add_kind(group: Any) -> None:
    """Declare what is certified."""
    group.add_argument(
        "--mode",
        default="pac-bayes",
        help="pac-bayes: a classifier with noise on its weights; held-out: one fixed network by the "
        "binomial tail; progressive: a model drawn from a stream (pac-bayes)",
    )
    group.add_argument(
        "--prior",
        help="learned on a share of the training data, or initial: the weights before training "
        "(learned)",
    )
    group.add_argument(
        "--posterior",
        default="gaussian",
        help="noise on the weights: gaussian or uniform (gaussian)",
    )
    group.add_argument(
        "--prior-share",
        type=float,
        metavar="X",
        help="share of the training data for the prior (0.7; 0.5 for the first model of a stream)",
    )
    group.add_argument(
        "--blocks",
        type=int,
        metavar="N",
        default=5,
        help="blocks of the progressive mode, each judged by a model of what came before (5)",
    )
    group.add_argument(
        "--scale",
        type=float,
        metavar="X",
        action="append",
        help="scale of the prior; may be repeated, and a union bound pays for the choice (chosen on "
        "the prior's own data, or learned around initial weights)",
    )


def _add_confidence(group: Any) -> None:
    """Declare what the promise costs, and how it is computed."""
    group.add_argument(
        "--delta",
        type=float,
        metavar="X",
        default=0.05,
        help="probability with which the certificate may fail (0.05)",
    )
    group.add_argument(
        "--monte-carlo-delta",
        type=float,
        metavar="X",
        default=0.01,
        help="the part of delta that is spent on the draws (0.01)",
    )
    group.add_argument(
        "--draws",
        type=int,
        metavar="N",
        help="independent draws of the weights that estimate the error (as many as keep their part "
        "below 5 %% of the bound)",
    )
    group.add_argument(
        "--most-draws",
        type=int,
        metavar="N",
        default=1_000_000,
        help="the most draws without --draws (1000000)",
    )
    group.add_argument(
        "--tried",
        type=int,
        metavar="N",
        default=1,
        help="priors that you tried on these bound data; pays ln N nats (1)",
    )
    group.add_argument(
        "--floor",
        type=float,
        metavar="X",
        default=1e-5,
        help="lowest probability in the bounded cross entropy (1e-5)",
    )


def _add_training(group: Any) -> None:
    """Declare how the posterior is trained."""
    group.add_argument(
        "--objective",
        help="bound to minimize: tangent, quadratic, kl or classic (tangent around initial weights, "
        "else quadratic)",
    )
    group.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help="passes over the training data (1, or 8,000 steps around initial weights)",
    )
    group.add_argument(
        "--batch-size",
        type=int,
        metavar="N",
        help="batch size (128, or 250 around initial weights)",
    )
    group.add_argument(
        "--learning-rate",
        type=float,
        metavar="X",
        help="learning rate, in units of the prior's scale if it is fixed (0.001, or 0.01 around "
        "initial weights)",
    )
    group.add_argument(
        "--seed", type=int, metavar="N", default=0, help="seed of splits, weights and draws (0)"
    )


def _add_output(group: Any) -> None:
    """Declare what is written."""
    group.add_argument(
        "--report", metavar="PATH.html", help="write a page that explains every number"
    )
    group.add_argument("--json", action="store_true", help="print the certificate as JSON")
    group.add_argument(
        "--save", metavar="PATH", help="write the state dict of the stochastic classifier here"
    )
    group.add_argument("--quiet", "-q", action="store_true", help="show no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Load, certify, show."""
    from mindgap.training.certify.job import certify

    check_writable(arguments.save)
    check_page(arguments.report)
    settings = {
        name: getattr(arguments, name) for name in SETTINGS if getattr(arguments, name) is not None
    }
    subject, held_out = _target(arguments)
    shown = not (arguments.quiet or arguments.json)
    certificate = certify(subject, held_out=held_out, progress=shown, **settings)
    if arguments.json:
        write_json(certificate.to_dict())
    else:
        write(str(certificate))
    if arguments.report:
        from mindgap.report.pages.certificate import certificate_page

        certificate_page(certificate, arguments.report)
        note(f"The page is at {Path(arguments.report).resolve()}")
    if arguments.save:
        save_weights(certificate.model, arguments.save, "The certified classifier is")
    return 0 if certificate.valid else 1


def _target(arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Find what to certify, and held-out data if the function gave any."""
    from mindgap.cli.recipe import default_recipe
    from mindgap.cli.target import load_target
    from mindgap.core import InputError, Recipe, Subject
    from mindgap.training.fitted import Fitted

    if ":" not in arguments.target:
        recipe = default_recipe(arguments.target, arguments.net, arguments.width)
        return recipe.replace(epochs=_epochs(arguments, 10)), None
    refuse(arguments, "a function", "net", "width")
    found = load_target(arguments.target, "make_recipe")
    subject, held_out = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if not isinstance(subject, Subject | Recipe | Fitted):
        raise InputError(
            f"{arguments.target} must return a mindgap.Recipe, a mindgap.Subject or a pair "
            "(subject, held-out data), "
            f"got {type(subject).__name__}. Return one of them."
        )
    if isinstance(subject, Recipe):
        return subject.replace(epochs=_epochs(arguments, subject.epochs)), held_out
    refuse(arguments, "a trained subject", "prior_epochs", "prior_share")
    return subject, held_out


def _epochs(arguments: argparse.Namespace, otherwise: int) -> int:
    return otherwise if arguments.prior_epochs is None else int(arguments.prior_epochs)
