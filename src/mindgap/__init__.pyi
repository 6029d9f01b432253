# Written by `make generate`; do not edit.
from mindgap import bounds as bounds
from mindgap import data as data
from mindgap import diagnoses as diagnoses
from mindgap import integrations as integrations
from mindgap import measures as measures
from mindgap import nets as nets
from mindgap import remedies as remedies
from mindgap import runs as runs
from mindgap import sampling as sampling
from mindgap import studies as studies
from mindgap._version import __version__ as __version__
from mindgap.core.certificate import Certificate as Certificate
from mindgap.core.diagnosis import Finding as Finding
from mindgap.core.errors import MindgapError as MindgapError
from mindgap.core.recipe import Recipe as Recipe
from mindgap.core.registry import catalog as catalog
from mindgap.core.registry import find as find
from mindgap.core.result import Result as Result
from mindgap.core.subject import Subject as Subject
from mindgap.diagnoses.diagnose import diagnose as diagnose
from mindgap.jobs.examine import examine as examine
from mindgap.jobs.explain import explain as explain
from mindgap.jobs.head.choose import choose_head as choose_head
from mindgap.jobs.head.choose import retrain_head as retrain_head
from mindgap.jobs.improve.job import improve as improve
from mindgap.jobs.sample.job import sample as sample
from mindgap.jobs.weigh.job import weigh as weigh
from mindgap.ops.variance.estimator import VarianceWeights as VarianceWeights
from mindgap.report.report import Report as Report
from mindgap.runs.sweep import sweep as sweep
from mindgap.training.certify.job import certify as certify
from mindgap.training.ensemble import ensemble as ensemble
from mindgap.training.fit import fit as fit
from mindgap.training.perturbed_optimizer import PerturbedOptimizer as PerturbedOptimizer
from mindgap.training.probe import Probe as Probe

__all__: list[str]
