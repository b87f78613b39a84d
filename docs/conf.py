"""Sphinx configuration of the documentation site; ``make docs`` builds it."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [
    str(HERE / "_extensions"),
    str(HERE.parent / "python"),
    str(HERE.parent / "benches" / "python"),
]

import shoal  # noqa: E402 - from the folder above, whatever is installed

project = "shoal"
author = "The shoal developers"
project_copyright = f"2026, {author}"
version = release = shoal.__version__

#: Sections of the gallery, in their order: folders of `examples/gallery`.
QUESTIONS = ("methods", "numbers", "large", "streams", "embeddings")

extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    # In `_extensions`:
    "api",
    "benchmarks",
    "repository",
]
exclude_patterns = ["_build"]

# Names of parameters stand in single backticks.
default_role = "literal"

# Pages are Markdown that also reads well in a repository browser.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
# Signatures name types that only type checkers import; the docstrings describe them.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
autodoc_mock_imports = ["dask", "distributed", "pyspark", "ray"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "subsection_order": [f"../examples/gallery/{name}" for name in QUESTIONS],
    "within_subsection_order": "FileNameSortKey",
    "filename_pattern": "/plot_",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "write_computation_times": False,
    "reset_modules": ("matplotlib", "quiet.reset"),
    "image_srcset": ["2x"],
    "min_reported_time": 1e9,
}

html_theme = "pydata_sphinx_theme"
html_title = "shoal"
html_static_path = ["_static"]
html_css_files = ["shoal.css"]
html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": [], "inside/changelog": [], "inside/benchmarks": []}
html_theme_options = {
    "logo": {
        "text": "shoal",
        "alt_text": "Home page of shoal",
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
    },
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": ["copyright"],
    "footer_center": [],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
