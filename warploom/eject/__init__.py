"""Eject: an automatically specialized kernel as an explicit script that its user owns.

flow          which values are statements, expressions, one variable
rings, names  what variables and depths are called
expressions, statements   the spelling of each op kind
text          lines, with the user's own as comments
printer       the whole file
"""

from warploom.eject.printer import eject

__all__ = ["eject"]
