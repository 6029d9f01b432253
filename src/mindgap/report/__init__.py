"""Report: results plus the words that their specs carry, as a page, a table or plain data."""

from mindgap.report.build import Report, build
from mindgap.report.study import study_page

__all__ = ["Report", "build", "study_page"]
