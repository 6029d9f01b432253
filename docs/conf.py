"""Settings of the documentation. Nothing here or in the built pages needs the internet."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from mindgap import __version__

project = "mindgap"
author = "The mindgap authors"
copyright = "The mindgap authors, Apache-2.0"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "api",
    "catalog",
    "figures",
    "snippets",
]
exclude_patterns = ["_build", "results", "catalog/parts"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_update_mathjax = False
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_title = f"mindgap {release}"
html_static_path = ["_static"]
html_css_files = ["mindgap.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c8f", "color-brand-content": "#0b5c8f"},
    "dark_css_variables": {"color-brand-primary": "#56b4e9", "color-brand-content": "#7cc4ee"},
}
