"""Report: results plus the words that their specs carry, as a page, a table or plain data."""

from mindgap._lazy import lazy

lazy(__name__, {"pages.study": "study_page", "report": "Report build"})
