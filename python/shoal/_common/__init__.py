"""Parameter checks, files, warnings and text tables, used everywhere in the package."""
