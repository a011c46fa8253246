"""`python -m rhovec.cli`."""

from . import main

main()
