"""What `rhovec demo` shows: the library of requirements through the shipped model, and four systems.

systems   four systems with textbook models, their requirements, and traces that keep or break them;
tour      the facts: who means the same as whom, neural beside exact, decoded, searched, checked;
drawings  the map, the matrix, neural against exact, and traces with their robustness, as SVG;
page      all of it as one HTML file.
"""
