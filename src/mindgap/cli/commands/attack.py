"""Attack a model of your own: how many predictions hold when inputs move a little.

  mindgap attack my_model.py:make_subject --report attack.html
  mindgap attack my_model.py:make_subject --norm l2 --epsilon 0.5 --epsilon 1 --samples-csv s.csv
  mindgap attack my_model.py:make_subject --mask sticker.npy --epsilon 1 --goal cat --smallest

Radii are shares of the range of the training inputs. Random noise and attacks on a surrogate are
controls, and signs of a hidden gradient are named.
"""

import argparse
from typing import Any

from mindgap.cli.commands.examine import EXAMPLE
from mindgap.cli.output import answer, answer_options, check_page, check_writable


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("target", metavar="FILE.py:FUNCTION", help=EXAMPLE)
    parser.add_argument(
        "--norm", choices=("linf", "l2", "l1"), default="linf", help="norm of the changes (linf)"
    )
    parser.add_argument(
        "--epsilon",
        action="append",
        type=float,
        metavar="X",
        help="radius to attack at; may be repeated (0.5/255 to 32/255 of the range)",
    )
    parser.add_argument(
        "--samples", type=int, metavar="N", default=500, help="samples to attack at most (500)"
    )
    parser.add_argument("--steps", type=int, metavar="N", default=20, help="steps of PGD (20)")
    parser.add_argument("--restarts", type=int, metavar="N", default=1, help="starts of PGD (1)")
    parser.add_argument(
        "--momentum",
        type=float,
        metavar="X",
        default=0.0,
        help="how much of the earlier directions a step of PGD keeps (0)",
    )
    parser.add_argument(
        "--mask",
        metavar="PATH.npy",
        help="array in the shape of one sample: inputs change only where it is not zero",
    )
    parser.add_argument(
        "--goal",
        metavar="CLASS",
        help="class that predictions are driven to as well: name, number, or least-likely",
    )
    parser.add_argument(
        "--smallest",
        action="store_true",
        help="search the smallest change that breaks each prediction",
    )
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="seed of all draws (0)")
    parser.add_argument(
        "--no-black-box", action="store_true", help="train no surrogate, which saves some seconds"
    )
    answer_options(parser, samples=True)
    parser.add_argument(
        "--samples-csv", metavar="PATH.csv", help="write one line per sample here, as CSV"
    )


def run(arguments: argparse.Namespace) -> int:
    """Load, attack, show."""
    import warnings

    from mindgap.cli.target import load_subject
    from mindgap.jobs.attack.job import attack
    from mindgap.ops.attacks.masking import MaskingNotice

    check_page(arguments.report, (".html", ".htm", ".json", ".csv"))
    check_page(arguments.samples_csv, (".csv",))
    check_writable(arguments.samples_csv)
    mask = _mask(arguments.mask)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MaskingNotice)  # the text says it
        found = attack(
            load_subject(arguments.target),
            norm=arguments.norm,
            epsilons=arguments.epsilon,
            mask=mask,
            goal=arguments.goal,
            smallest=arguments.smallest,
            samples=arguments.samples,
            steps=arguments.steps,
            restarts=arguments.restarts,
            momentum=arguments.momentum,
            black_box=not arguments.no_black_box,
            seed=arguments.seed,
            progress=not (arguments.quiet or arguments.json),
        )
    answer(found, arguments, arguments.samples_csv)
    return 0


def _mask(path: str | None) -> Any:
    """Read the mask before the work begins."""
    if path is None:
        return None
    import numpy as np
    import torch

    from mindgap.core import InputError
    from mindgap.core.files import expanded

    try:
        array = np.load(expanded(path), allow_pickle=False)
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(
            f"The mask must be an existing .npy file, got {path!r}. Check the path."
        ) from None
    except Exception:  # names may be too long, and headers of arrays can lie in many ways
        array = None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise InputError(
            f"The mask must be an array of numbers, got {path[:200]!r}. Write it with numpy.save."
        )
    return torch.from_numpy(array.astype(np.float64))
