# Written by `make generate`; do not edit.
from mindgap.report.pages.study import study_page as study_page
from mindgap.report.report import Report as Report
from mindgap.report.report import build as build

__all__: list[str]
