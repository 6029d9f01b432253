"""Chart: a figure in its frame, with caption and the words for those who cannot see it."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from markupsafe import Markup

from mindgap.report.style import Figure


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure in its frame."""

    key: str
    title: str
    caption: str
    alt: str
    figure: Figure
    wide: bool = False
    still: Markup | None = None  # a picture for pages without scripts or WebGL

    @property
    def height(self) -> int:
        """Pixels to keep free, so that the page does not jump when the figure is drawn."""
        return int(self.figure["layout"]["height"])

    @property
    def data(self) -> Markup:
        """The figure as JSON that cannot end the script element it stands in."""
        text = json.dumps(_finite(self.figure), allow_nan=False, separators=(",", ":"))
        return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
