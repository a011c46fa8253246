import os

from hypothesis import settings

# Compilation and loaded machines make single examples slow; that is no failure. CI repeats the same
# examples, so that a red run can be repeated.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
