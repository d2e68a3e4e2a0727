"""One pass a file, one function of the same name: (func, what it reads of the road) -> func.

pipeline.py has their order; folders are named for the level that their passes work towards."""
