"""Mutants of WARP and PLACED functions: the test of the checker.

change.py makes those that always differ from their original, guards.py those that differ under a condition
(conditions.py), judge.py says what harm each does without the checker, programs.py has the library's
programs, page.py writes docs/mutants.md.

    python -m tests.mutants [--only NAME …] [--all] [--jobs N] [--seconds S] [--out LOG] [--page FILE]
"""
