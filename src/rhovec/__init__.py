from .formula import Formula, parse
