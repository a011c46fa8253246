"""What `rhovec demo` shows: the library of requirements through a model, or a space of your own traces.

systems: four systems with textbook models, their requirements, and traces that satisfy or violate them
tour: the facts: similar requirements, neural and exact similarity, decoding, search, robustness
drawings: the map, the matrix, neural against exact, and traces with their robustness, as SVG
page: all of it as one HTML file
own, own_page: facts and page of a space of your own traces
"""
